"""The checker run by itself, and on proofs that the library has just made."""

import ast
import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import assert_one_sentence
from theory.test_check_certificate import HONEST

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons import Taps
from cvxsnn.theory import LIFFamily, solve_complete, write_certificate
from cvxsnn.theory import check_certificate as CHECKER  # noqa: N812

TOOL = Path(CHECKER.__file__)
CASES = {
    "one step": {"family": LIFFamily(0.5, bias=True), "shape": (15, 1, 2)},
    "two steps": {"family": LIFFamily(0.5, bias=True), "shape": (8, 2, 1), "readout": "mean"},
    "all steps, no bias": {"family": LIFFamily(1.0, negative_threshold=True), "shape": (5, 3, 1), "readout": "all"},
    "logistic, intercept": {
        "family": LIFFamily(0.0, bias=True), "shape": (12, 1, 2), "loss": "logistic", "intercept": True,
    },
    "threshold neurons": {
        "family": LIFFamily(0.0, bias=True, resets=False), "shape": (7, 3, 1), "readout": "mean",
    },
    "delays": {"family": LIFFamily(0.5, taps=Taps([0, 0], [0, 1], 1)), "shape": (7, 3, 1)},
    "equal steps": {"family": LIFFamily(0.5, bias=True), "shape": (8, 3, 1), "repeated": True},
    "two outputs": {"family": LIFFamily(0.5, bias=True), "shape": (9, 1, 2), "n_outputs": 2},
}  # fmt: skip


def make(tmp_path, family, shape, n_outputs=1, repeated=False, **options):
    rng = np.random.default_rng(0)
    inputs = rng.integers(-5, 6, shape).astype(float)
    inputs = np.repeat(inputs[:, :1], shape[1], axis=1) if repeated else inputs
    n_rows = shape[0] * (shape[1] if options.get("readout") == "all" else 1)
    targets = np.sign(rng.normal(size=(n_rows, n_outputs))).squeeze()
    if options.get("readout") == "all":
        targets = targets.reshape(shape[:2])
    result = solve_complete(inputs, targets, family, l1_strength=0.05, tol=1e-4, n_start=8, **options)
    certificate = write_certificate(tmp_path / "proof.json", result, inputs)
    assert certificate.relative_gap <= 1e-3
    assert certificate.scope == "complete"
    return json.loads((tmp_path / "proof.json").read_text()), certificate


@pytest.mark.parametrize("name", CASES)
def test_a_certificate_is_checked_without_the_library(tmp_path, name):
    file, certificate = make(tmp_path, **CASES[name])
    primal, bound, n_boxes = CHECKER.check(file)
    assert CHECKER.judge(str(tmp_path / "proof.json"), CHECKER.LIMITS.operations)[0] == 0
    assert float(primal) == pytest.approx(certificate.primal, rel=1e-9)
    assert float(bound) == pytest.approx(certificate.dual, rel=1e-9)
    assert n_boxes > 1
    assert "cvxsnn" not in {
        line.split()[1].split(".")[0] for line in TOOL.read_text().splitlines() if "import " in line
    }


def run(path, *options):
    alone = [sys.executable, "-I", "-S", str(TOOL), str(path), *options]  # without any package
    return subprocess.run(alone, capture_output=True, text=True, check=False)


def test_the_checker_runs_by_itself_and_tells_what_it_refuses(tmp_path):
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(HONEST[0]))
    done = run(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all neurons of the family" in done.stdout
    path.write_text(json.dumps(HONEST[0] | {"lower_bound": HONEST[0]["primal"]}))
    done = run(path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "NOT PROVEN: the lower bound is smaller than stated\n"


def test_a_reader_that_leaves_does_not_change_the_status(tmp_path):
    path = tmp_path / "proof.json"
    for bound, status in ((HONEST[0]["lower_bound"], 0), (HONEST[0]["primal"], 1)):
        path.write_text(json.dumps(HONEST[0] | {"lower_bound": bound}))
        assert_status_without_reader([sys.executable, str(TOOL), str(path)], status)


def assert_status_without_reader(command, status):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == status


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    file, _ = make(tmp_path_factory.mktemp("proof"), **CASES["one step"])
    CHECKER.check(file)
    return file


def drop_last_region(file):
    file["proofs"][-1]["code"] = file["proofs"][-1]["code"][:-1]


def add_region(file):
    file["proofs"][-1]["code"] += "."


def merge_regions(file):
    code = file["proofs"][-1]["code"]
    place = next(i for i in range(len(code)) if code[i].isalpha() and code[i + 1 : i + 3] == "..")
    file["proofs"][-1]["code"] = code[:place] + code[place + 2 :]


def claim_one_box_per_face(file):
    file["proofs"][-1]["code"] = "." * (2 * len(file["proofs"][-1]["columns"]))


def claim_a_linear_bound_per_face(file):
    file["proofs"][-1]["code"] = "," * (2 * len(file["proofs"][-1]["columns"]))


def constant_instead_of_linear_bounds(file):
    assert "," in file["proofs"][-1]["code"]
    file["proofs"][-1]["code"] = file["proofs"][-1]["code"].replace(",", ".")


def wrong_axis(file):
    code = file["proofs"][-1]["code"]
    file["proofs"][-1]["code"] = chr(ord("a") + len(file["proofs"][-1]["columns"])) + code[1:]


def fewer_parameters(file):
    proof = file["proofs"][-1]
    proof["columns"] = proof["columns"][:-1]
    proof["basis"] = [row[:-1] for row in proof["basis"][:-1]]


def flat_coordinates(file):
    basis = file["proofs"][-1]["basis"]
    basis[0] = list(basis[1])


def smaller_limit(file):
    file["price_bound"] = file["price_bound"] * 9 // 10


def larger_dual(file):
    file["dual"] = [[2 * x for x in row] for row in file["dual"]]


def wrong_sign(file):
    row = max(file["dual"], key=lambda own: abs(own[0]))
    row[0] = -row[0]


def better_bound(file):
    file["lower_bound"] = (float.fromhex(file["lower_bound"]) * 1.01).hex()


def better_objective(file):
    file["primal"] = (float.fromhex(file["primal"]) * 0.99).hex()


def other_weight(file):
    file["coef"][0][0] = (float.fromhex(file["coef"][0][0]) * 2).hex()


def other_target(file):
    file["targets"][0][0] = (-float.fromhex(file["targets"][0][0])).hex()


def other_input(file):
    file["inputs"][0][0][0] += 1000


def not_whole(file):
    file["inputs"][0][0][0] += 0.5


def decay_of_nothing(file):
    file["decay"] = [0, 0]


def negative_threshold(file):
    file["neurons"][0][-1] = -1


def intercept_not_asked_for(file):
    file["intercept"] = [(0.1).hex()]


@pytest.mark.parametrize("name", ["threshold neurons", "two outputs", "all steps, no bias"])
def test_proofs_of_other_families_are_refused_if_anything_is_changed(tmp_path, name):
    file, _ = make(tmp_path, **CASES[name])
    for tamper in (
        drop_last_region,
        smaller_limit,
        larger_dual,
        wrong_sign,
        better_bound,
        better_objective,
        other_weight,
    ):
        changed = copy.deepcopy(file)
        tamper(changed)
        with pytest.raises(CHECKER.WrongError):
            CHECKER.check(changed)


def test_a_proof_about_threshold_neurons_is_none_about_neurons_with_resets(tmp_path):
    file, _ = make(tmp_path, **CASES["threshold neurons"])
    file["resets"] = True
    with pytest.raises(CHECKER.WrongError):
        CHECKER.check(file)


@pytest.mark.parametrize(
    "tamper",
    [
        drop_last_region, add_region, merge_regions, claim_one_box_per_face, wrong_axis, fewer_parameters,
        claim_a_linear_bound_per_face, constant_instead_of_linear_bounds,
        flat_coordinates, smaller_limit, larger_dual, wrong_sign, better_bound, better_objective, other_weight,
        other_target, other_input, not_whole, decay_of_nothing, negative_threshold, intercept_not_asked_for,
    ],
)  # fmt: skip
def test_a_changed_certificate_is_refused(checked, tamper):
    file = copy.deepcopy(checked)
    tamper(file)
    with pytest.raises(CHECKER.WrongError):
        CHECKER.check(file)


def test_what_cannot_be_written_is_refused_in_one_sentence(tmp_path):
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(-5, 6, (6, 1, 1)).astype(float), np.sign(rng.normal(size=6))
    result = solve_complete(inputs, targets, LIFFamily(0.5, bias=True), "hinge", 0.05, n_start=4)
    with pytest.raises(InvalidInputError, match="the squared or the logistic loss") as caught:
        write_certificate(tmp_path / "proof.json", result, inputs)
    assert_one_sentence(caught.value)


def test_the_library_shares_with_the_checker_what_the_page_says():
    taken = {
        name.name
        for path in TOOL.parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("check_certificate")
        for name in node.names
    }
    reader = {"parse", "read_certificate", "read_integer", "read_matrix", "FORMAT", "ProofFile", "Search", "WrongError"}
    assert taken == reader | {"dual_value"}
