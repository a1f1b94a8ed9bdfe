import json
import re
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from cli.commands import run
from small_models import assert_one_sentence, make_sequences, regressor
from theory.families import draw_sequences

from cvxsnn import LIFLayer, WitnessSet
from cvxsnn.convex import Certificate
from cvxsnn.core.errors import CvxsnnError, DataFileError, InvalidInputError
from cvxsnn.neurons import Taps
from cvxsnn.theory import LIFFamily, prove_complete, proving, solve_complete
from cvxsnn.theory import check_certificate as checker
from cvxsnn.theory.box_search import BoxSearch
from cvxsnn.theory.certificate_file import _table
from cvxsnn.theory.proving import prove_proof
from cvxsnn.theory.resumed_proof import _bound_near, resume_proof
from cvxsnn.theory.spike_trees import SpikeTrees
from cvxsnn.witnesses import Provenance

FAMILY = LIFFamily(0.5, bias=True)


def listed_of(proof, **changes):
    """The searches of a proof, as they are read from a file; the last one may be changed."""
    listed = json.loads(json.dumps(_table(proof)))
    listed[-1] |= changes
    return tuple(checker.read_search(number, one, 4) for number, one in enumerate(listed))


def draw_trees(shape=(25, 1, 2), seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.integers(-9, 10, shape).astype(float)
    weights = np.zeros((*shape[:2], 1), dtype=np.int64)
    weights[:, -1, 0] = rng.integers(-1000, 1001, shape[0])
    return SpikeTrees.of(FAMILY.on(inputs), weights)


@pytest.mark.parametrize("shape", [(25, 1, 2), (8, 2, 1)])
def test_a_search_that_is_stopped_again_and_again_ends_like_one_that_is_not(shape):
    trees = draw_trees(shape)
    enough = BoxSearch().run(trees).value
    whole = BoxSearch(enough, keeps_proof=True).run(trees)
    found, n_sessions = BoxSearch(enough, keeps_proof=True, max_boxes=5).run(trees), 1
    assert not found.is_finished
    bounds = [found.bound]
    while not found.is_finished:
        resumed = resume_proof(trees, listed_of(found.proof), enough)
        found, n_sessions = BoxSearch(enough, keeps_proof=True, max_boxes=40).run(trees, resumed), n_sessions + 1
        bounds.append(found.bound)
        assert n_sessions < 300
    assert n_sessions > 2
    assert found.bound == whole.bound == enough
    assert np.all(np.diff(bounds) <= 0)


def test_boxes_with_linear_bounds_keep_them_if_a_search_stops_at_once():
    trees = draw_trees((60, 1, 2))
    enough = 1.05 * BoxSearch().run(trees).value
    listed = listed_of(BoxSearch(enough, keeps_proof=True).run(trees).proof)
    assert "," in listed[-1].code
    less = 0.9 * enough
    found = BoxSearch(less, keeps_proof=True, max_boxes=0).run(trees, resume_proof(trees, listed, less))
    assert not found.is_finished
    code = found.proof.walk()[0]
    assert len(code) == len(listed[-1].code)
    assert all(now == "," for now, before in zip(code, listed[-1].code, strict=True) if before == ",")


def test_a_search_that_is_stopped_states_bounds_that_each_box_has_by_itself():
    trees = draw_trees((60, 1, 3))
    enough = 1.02 * BoxSearch().run(trees).value
    for max_boxes in (10, 30, 100):
        found = BoxSearch(enough, keeps_proof=True, max_boxes=max_boxes).run(trees)
        assert not found.is_finished
        assert found.bound >= resume_proof(trees, listed_of(found.proof), enough).left.bounds.max()


def test_what_a_file_says_about_bounds_is_not_believed():
    trees = draw_trees()
    # One box per face of the cube, as if that were enough.
    listed = listed_of(BoxSearch(keeps_proof=True).run(trees).proof, code="." * 5, closer=[])
    resumed = resume_proof(trees, listed, 0.0)
    assert resumed.left.n_boxes > 0
    assert BoxSearch(keeps_proof=True).run(trees, resumed).bound == BoxSearch().run(trees).bound


def test_what_is_open_near_a_point_is_bounded_by_its_own_proof_only():
    trees = draw_trees()
    found = BoxSearch(keeps_proof=True).run(trees)
    listed = listed_of(found.proof)
    always = float(abs(trees.value_at(np.zeros(trees.normals.shape[1], dtype=object))[0]))
    assert always < found.bound
    assert len(listed) == 1
    assert _bound_near(trees, listed, found.bound, 0)[0] == found.bound
    assert _bound_near(trees, listed, found.bound, -1) == (inf, None)  # a file without a proof of it
    assert _bound_near(trees, listed, 0.5 * found.bound, 0) == (inf, None)  # one that is not enough
    nothing = replace(trees, normals=0 * trees.normals)
    assert _bound_near(nothing, [], 0.0, -1) == (always, None)


@pytest.mark.parametrize("letter", ["d", "{", "Z", "\u00e9"])
def test_letters_of_no_axis_are_refused_in_one_sentence(letter):
    trees = draw_trees()
    proof = BoxSearch(keeps_proof=True).run(trees).proof
    listed = listed_of(proof, code=letter + proof.walk()[0][1:])
    assert len(listed[-1].columns) == 3
    with pytest.raises(InvalidInputError, match="expected boxes that are halved") as caught:
        resume_proof(trees, listed, 0.0)
    assert_one_sentence(caught.value)


def test_boxes_that_are_too_small_or_of_other_parameters_are_refused_in_one_sentence():
    trees = draw_trees()
    proof = BoxSearch(keeps_proof=True).run(trees).proof
    for change, complaint in (
        ({"code": 22 * "b"}, "expected boxes that are halved"),
        ({"columns": [0, 1], "basis": [[1, 0], [0, 1]]}, "the same search"),
        ({"levels": 19}, "the same search"),
    ):
        with pytest.raises(InvalidInputError, match=complaint) as caught:
            resume_proof(trees, listed_of(proof, **{"closer": []} | change), 0.0)
        assert_one_sentence(caught.value)


def draw_problem(seed=3):
    rng = np.random.default_rng(seed)
    return draw_sequences(rng, 14, 1, 2), np.sign(rng.normal(size=14))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_proof_in_a_file_is_that_of_column_generation_and_passes_the_checker(tmp_path, loss, intercept):
    inputs, targets = draw_problem()
    path, told = tmp_path / "proof.json", []
    found = prove_complete(path, inputs, targets, FAMILY, loss, 0.03, intercept=intercept, callback=told.append)
    best = solve_complete(inputs, targets, FAMILY, loss, 0.03, intercept=intercept, tol=1e-5).certificate
    assert found.certificate.relative_gap <= 1e-3
    assert found.certificate.scope == found.solution.certificate.scope == "complete"
    assert found.certificate.dual <= best.primal
    assert found.certificate.primal >= best.dual
    assert told
    primal, bound, _ = checker.check(json.loads(path.read_text()))
    assert float(primal) == pytest.approx(found.certificate.primal, rel=1e-9)
    assert float(bound) == pytest.approx(found.certificate.dual, rel=1e-9)


def test_a_proof_that_is_stopped_at_any_time_is_valid_and_goes_on(tmp_path):
    inputs, targets = draw_problem()
    path, bounds = tmp_path / "proof.json", []
    best = solve_complete(inputs, targets, FAMILY, "squared", 0.01, tol=1e-5).certificate
    for session in range(60):
        calls = []

        def pulse(n_boxes, n_open, limit=3 + session, calls=calls):
            calls.append(n_boxes)
            return len(calls) > limit

        found = prove_complete(path, inputs, targets, FAMILY, "squared", 0.01, pulse=pulse, seed=1)
        file = json.loads(path.read_text())
        _, bound, _ = checker.check(file)
        assert found.certificate.dual <= best.primal
        assert float(bound) == pytest.approx(found.certificate.dual, rel=1e-9)
        bounds.append(found.certificate.relative_gap)
        if bounds[-1] <= 1e-3:
            break
    assert bounds[0] > 1e-3 >= bounds[-1]
    assert len(bounds) > 1
    assert np.all(np.diff(bounds) <= 1e-12)
    again = prove_complete(path, inputs, targets, FAMILY, "squared", 0.01)  # nothing is left to do
    assert again.certificate.dual == found.certificate.dual


def test_a_file_about_something_else_is_refused_in_one_sentence(tmp_path):
    inputs, targets = draw_problem()
    path = tmp_path / "proof.json"
    prove_complete(path, inputs, targets, FAMILY, "squared", 0.1)
    written = path.read_bytes()
    for change in (
        {"l1_strength": 0.2},
        {"inputs": inputs + 1},
        {"targets": -targets},
        {"family": LIFFamily(0.25, True)},
    ):
        own = {"inputs": inputs, "targets": targets, "family": FAMILY, "l1_strength": 0.1} | change
        with pytest.raises(InvalidInputError, match="about the same data and objective") as caught:
            prove_complete(path, **own, loss="squared")
        assert_one_sentence(caught.value)
    assert path.read_bytes() == written
    file = json.loads(written)  # an unfinished search of other data
    path.write_text(json.dumps(file | {"pending": file | {"inputs": file["inputs"][1:]}}))
    with pytest.raises(InvalidInputError, match=r"about the same data and .* with another inputs") as caught:
        prove_complete(path, inputs, targets, FAMILY, "squared", 0.1)
    assert_one_sentence(caught.value)
    path.write_text("{}")
    with pytest.raises(DataFileError, match="expected a certificate over all neurons") as caught:
        prove_complete(path, inputs, targets, FAMILY, "squared", 0.1)
    assert_one_sentence(caught.value)


def test_a_proof_without_time_ends_soon_and_is_valid(tmp_path):
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(-99, 100, (60, 1, 3)).astype(float), np.sign(rng.normal(size=60))
    path = tmp_path / "proof.json"
    for _ in range(2):  # the second one goes on with the file
        found = prove_complete(path, inputs, targets, FAMILY, "squared", 0.003, max_seconds=0.0)
        assert found.certificate.relative_gap > 1e-3
    assert not json.loads(path.read_text())["is_finished"]


def hex_times(value, factor):
    return (float.fromhex(value) * factor).hex()


def times(rows, factor):
    return [[factor * x for x in row] for row in rows]


EDITS = {
    "lower bound": lambda file: file | {"lower_bound": hex_times(file["primal"], 1 - 1e-6)},
    "objective": lambda file: file | {"primal": hex_times(file["lower_bound"], 1 + 1e-6)},
    "network": lambda file: file | {"neurons": file["neurons"][:1], "coef": file["coef"][:1], "primal": (9.0).hex()},
    "weights": lambda file: file | {"coef": [[(0.0).hex() for _ in row] for row in file["coef"]]},
    "bound on prices": lambda file: file | {"price_bound": 1},
    "nothing but the network": lambda file: file | {"proofs": [], "dual": times(file["dual"], 0), "violators": []},
    "other dual point": lambda file: file | {"dual": [[x // 2 for x in row] for row in file["dual"]]},
    "dual point that proves less than zero": lambda file: file | {"dual": times(file["dual"], -1)},
    "output that proves less than zero": lambda file: file | {"dual": [[-x, *rest] for x, *rest in file["dual"]]},
    "no network": lambda file: file | {"neurons": [], "coef": [], "generated": []},
    "one box per face": lambda file: file | {"proofs": [file["proofs"][-1] | {"code": "." * 7, "closer": []}]},
}


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_a_file_that_is_resumed_is_computed_again(tmp_path, name, is_finished):
    inputs, targets = draw_problem()
    path = tmp_path / "proof.json"
    honest = prove_complete(path, inputs, targets, FAMILY, "squared", 0.01).certificate
    file = json.loads(path.read_text())
    path.write_text(json.dumps(EDITS[name](file) | {"is_finished": is_finished}))
    found = prove_complete(path, inputs, targets, FAMILY, "squared", 0.01).certificate
    assert found.relative_gap <= 1e-3
    assert found.dual <= honest.primal
    assert honest.dual <= found.primal
    again = json.loads(path.read_text())
    primal, bound, _ = checker.check(again)
    assert float(primal) == pytest.approx(found.primal, rel=1e-9)
    assert float(bound) == pytest.approx(found.dual, rel=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("name", EDITS)
def test_a_file_that_is_resumed_without_time_is_valid(tmp_path, name, n_outputs):
    inputs, targets = draw_problem()
    targets = np.stack((targets, -targets[::-1]), axis=1)[:, :n_outputs].squeeze()
    path = tmp_path / "proof.json"
    prove_complete(path, inputs, targets, FAMILY, "squared", 0.1)
    file = json.loads(path.read_text())
    path.write_text(json.dumps(EDITS[name](file)))
    found = prove_complete(path, inputs, targets, FAMILY, "squared", 0.1, max_seconds=1e-9).certificate
    primal, bound, _ = checker.check(json.loads(path.read_text()))
    assert 0 <= found.dual <= bound
    assert primal <= found.primal


def test_bounds_of_a_file_are_not_believed_even_without_time(tmp_path):
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(-99, 100, (60, 1, 3)).astype(float), np.sign(rng.normal(size=60))
    path = tmp_path / "proof.json"
    found = prove_complete(path, inputs, targets, FAMILY, "squared", 0.003, max_seconds=0.0).certificate
    file = json.loads(path.read_text())
    path.write_text(json.dumps(file | {"lower_bound": file["primal"], "price_bound": 0, "is_finished": True}))
    again = prove_complete(path, inputs, targets, FAMILY, "squared", 0.003, max_seconds=0.0).certificate
    assert found.dual <= again.dual < 0.5 * again.primal  # boxes that were listed have bounds now


WRONG = (None, True, -1, 10**400, 1.5, "x", [], [[1]], [None], {"a": 1})


@pytest.mark.parametrize("place", ["file", "search", "pending"])
def test_a_damaged_file_is_refused_in_one_sentence_or_computed_again(tmp_path, place):
    inputs, targets = draw_problem()
    inputs, targets = inputs[:6], targets[:6]
    path = tmp_path / "proof.json"
    honest = prove_complete(path, inputs, targets, FAMILY, "logistic", 0.05, intercept=True).certificate
    text = path.read_text()
    names = json.loads(text) if place == "file" else json.loads(text)["proofs"][-1]
    for name in [*names, "is new"]:
        for value in WRONG:
            file = json.loads(text)
            file["pending"] = {own: file[own] for own in ("dual", "dual_exponent", "proofs", "violators")}
            changed = {"file": file, "search": file["proofs"][-1], "pending": file["pending"]}[place]
            changed[name] = value
            path.write_text(json.dumps(file))
            try:
                found = prove_complete(path, inputs, targets, FAMILY, "logistic", 0.05, intercept=True).certificate
            except CvxsnnError as error:
                assert_one_sentence(error)
                assert json.loads(path.read_text()) == file  # the file is as it was
            else:
                assert found.dual <= honest.primal
                assert honest.dual <= found.primal


def test_an_optimum_without_neurons_is_proven(tmp_path):
    inputs, targets = draw_problem()
    found = prove_complete(tmp_path / "proof.json", inputs, targets, FAMILY, "squared", 10.0)
    assert json.loads((tmp_path / "proof.json").read_text())["neurons"] == []
    assert found.certificate.primal == pytest.approx(0.5)
    assert found.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize(
    ("penalty", "n_outputs", "is_accepted"), [("l1", 1, True), ("l1", 2, True), ("group", 1, True), ("group", 2, False)]
)
def test_models_with_the_l1_penalty_are_proven_in_files(tmp_path, penalty, n_outputs, is_accepted):
    inputs = np.rint(4 * make_sequences(8, 3, 1)) / 4
    targets = np.random.default_rng(0).normal(size=(8, n_outputs)).squeeze()
    layer = LIFLayer(torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0)), decay=0.5, threshold=1.0)
    # The last tap reads nothing of three steps.
    witnesses = WitnessSet((Taps([0, 0, 0], [0, 2, 3], 1).attach(layer),), Provenance("pretrained"))
    model = regressor(witnesses=witnesses, hidden=None, l1_strength=0.1, penalty=penalty).fit(inputs, targets)
    proof, data = model.proof_, model.training_set(inputs, targets)
    if is_accepted:
        found = prove_proof(tmp_path / "proof.json", proof, data)
        assert found.certificate.relative_gap <= 1e-3
        assert found.family.taps == Taps([0, 0], [0, 2], 1)
        return
    with pytest.raises(InvalidInputError, match="a model of one head with the L1 penalty") as caught:
        prove_proof(tmp_path / "proof.json", proof, data)
    assert_one_sentence(caught.value)


def test_the_commands_prove_check_and_improve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.rint(4 * make_sequences(24, 1, 2)) / 4
    labels = (inputs[:, 0].sum(1) ** 2 > 1).astype(int)
    np.savez("data.npz", X=inputs, y=labels)
    options = ["--hidden", 5, "--strength", 0.05, "--decay", 0.5, "--loss", "logistic"]
    assert run("fit", "data.npz", "-o", "model", *options).exit_code == 0
    command = ["certify", "model", "data.npz", "--certificate", "proof.json"]
    outcome = run(*command, "--improved", "better")
    assert outcome.exit_code == 0, outcome.output
    text = outcome.stdout
    this = float(re.search(r"this model: objective (\S+),", text)[1])
    better = float(re.search(r"the best network found, .*: objective (\S+),", text)[1])
    assert better < this
    assert re.search(r"gap \S+ % \(goal 0.1 %\)", text)
    assert "however many, has an objective below" in text
    assert "not finished" not in text
    outcome = run("check", "proof.json")
    assert outcome.exit_code == 0, outcome.output
    assert "boxes cover all neurons of the family" in outcome.stdout
    outcome = run("certify", "better", "data.npz")
    assert outcome.exit_code == 0, outcome.output
    assert f"objective {better:.9g}" in outcome.stdout
    assert "as saved:" in outcome.stdout
    # The file of a model says nothing about other neurons that would be believed: the proof file does.
    assert "of the optimum over these witnesses" in outcome.stdout
    assert "going on with proof.json" in run(*command).stdout
    file = json.loads((tmp_path / "proof.json").read_text())
    file["price_bound"] //= 2
    (tmp_path / "proof.json").write_text(json.dumps(file))
    outcome = run("check", "proof.json")
    assert outcome.exit_code == 1
    assert "NOT PROVEN" in outcome.stdout


def test_a_model_below_the_proven_bound_is_an_error_and_not_the_best_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.rint(4 * make_sequences(16, 1, 2)) / 4
    np.savez("data.npz", X=inputs, y=(inputs[:, 0].sum(1) ** 2 > 1).astype(int))
    options = ["--hidden", 60, "--strength", 0.01, "--decay", 0.5, "--loss", "logistic"]
    assert run("fit", "data.npz", "-o", "model", *options).exit_code == 0
    command = ["certify", "model", "data.npz", "--certificate", "proof.json"]
    this = float(re.search(r"this model: objective (\S+),", run(*command).stdout)[1])
    prove, bound = proving.prove_proof, 1.01 * this  # a bound above the objective of the model cannot be true

    def prove_too_much(*arguments, **options):
        return replace(prove(*arguments, **options), certificate=Certificate(bound, bound, "complete"))

    monkeypatch.setattr(proving, "prove_proof", prove_too_much)
    outcome = run(*command, "--improved", "better")
    assert outcome.exit_code == 1
    assert re.search(r"dual value \S+ above primal value \S+", outcome.stderr)
    assert "Traceback" not in outcome.output
    assert "this model" not in outcome.stdout
    assert "proven: no read-out of any" not in outcome.stdout
    assert not (tmp_path / "better").exists()


def test_the_commands_refuse_what_they_cannot_do_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = make_sequences(12, 1, 2)
    np.savez("data.npz", X=inputs, y=(inputs.sum((1, 2)) > 0).astype(int))
    assert run("fit", "data.npz", "-o", "model", "--hidden", 5, "--strength", 0.05, "--loss", "hinge").exit_code == 0
    for arguments, complaint in (
        (["check", "nothing.json"], "expected a certificate file, got no file"),
        (["certify", "model", "data.npz", "--improved", "better"], "expected --certificate"),
        (["certify", "model", "data.npz", "--certificate", "no/proof.json"], "expected a file in an existing folder"),
    ):
        outcome = run(*arguments)
        assert outcome.exit_code == 1
        assert complaint in outcome.stderr
