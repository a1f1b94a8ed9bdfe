import copy
import json
import subprocess
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from math import ceil, inf, nextafter
from pathlib import Path

import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.app import check_certificate as CHECKER  # noqa: N812
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons import Taps
from cvxsnn.theory import LIFFamily, solve_complete, write_certificate
from fuzz.proofs import consistent, nearest

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
    assert CHECKER.judge(str(tmp_path / "proof.json"), CHECKER.MAX_OPERATIONS)[0] == 0
    assert float(primal) == pytest.approx(certificate.primal, rel=1e-9)
    assert float(bound) == pytest.approx(certificate.dual, rel=1e-9)
    assert n_boxes > 1
    assert "cvxsnn" not in {
        line.split()[1].split(".")[0] for line in TOOL.read_text().splitlines() if "import " in line
    }


HONEST = json.loads(Path(__file__).with_name("honest_proofs.json").read_text())
"""Small proofs of many kinds, as the library wrote them."""

OVERFLOW = "0x1.0000000000000p+1024"


def run(path, *options):
    alone = [sys.executable, "-I", "-S", str(TOOL), str(path), *options]  # without any package
    return subprocess.run(alone, capture_output=True, text=True, check=False)


def test_the_checker_runs_by_itself_and_tells_what_it_refuses(tmp_path):
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(HONEST[0]))
    done = run(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "boxes cover all neurons of the family" in done.stdout
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


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Check a proof over all neurons"),
        (["proof.json", "--limit"], 2, "Check a proof over all neurons"),
        (["proof.json", "--limit", "-1"], 2, "Check a proof over all neurons"),
        (["proof.json", "--other", "1"], 2, "Check a proof over all neurons"),
        (["proof.json", "--limit", "3"], 2, "NOT CHECKED: checking takes more operations than the limit"),
        (["nothing.json"], 2, "NOT CHECKED: [Errno 2]"),
        (["text.json"], 1, "NOT PROVEN: the file is not JSON"),
        (["bytes.json"], 1, "NOT PROVEN: the file is not UTF-8"),
        (["deep.json"], 1, "NOT PROVEN: the file is not JSON"),
        (["long.json"], 1, "NOT PROVEN: the file is not JSON"),
        (["twice.json"], 1, "NOT PROVEN: a name is given twice"),
        (["proof.json"], 0, "neurons: decay"),
        (["proof.json", "--limit", "1000000"], 0, "neurons: decay"),
    ],
)
def test_every_call_ends_with_a_status_and_a_sentence(tmp_path, monkeypatch, capsys, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(HONEST[0])
    Path("proof.json").write_text(text)
    Path("text.json").write_text("{")
    Path("bytes.json").write_bytes(b"\xff")
    Path("deep.json").write_text("[" * 100_000)
    Path("long.json").write_text("9" * 5_000)
    Path("twice.json").write_text('{"proofs": [], ' + text[1:])
    assert CHECKER.main(arguments) == status
    assert capsys.readouterr().out.startswith(said)


def test_a_file_that_is_too_large_is_neither_accepted_nor_called_wrong(tmp_path, monkeypatch):
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(HONEST[0]))
    monkeypatch.setattr(CHECKER, "MAX_BYTES", path.stat().st_size - 1)
    assert CHECKER.judge(str(path), 10**9) == (
        2,
        f"NOT CHECKED: the file has more than {path.stat().st_size - 1:,} bytes",
    )
    monkeypatch.setattr(CHECKER, "MAX_BYTES", path.stat().st_size)
    assert CHECKER.judge(str(path), 10**9)[0] == 0
    for error, status in ((MemoryError, 2), (RecursionError, 2), (KeyboardInterrupt, 130)):
        monkeypatch.setattr(CHECKER, "check_certificate", raising(error))
        assert CHECKER.judge(str(path), 10**9)[0] == status


def raising(error):
    def function(*_):
        raise error

    return function


@pytest.mark.parametrize("number", range(len(HONEST)))
def test_honest_proofs_are_accepted_and_nothing_better_than_the_truth(number):
    file = copy.deepcopy(HONEST[number])
    found = CHECKER.check(file)
    assert found.bound <= found.primal
    assert float(found.primal) == pytest.approx(float.fromhex(file["primal"]), rel=1e-6)
    assert float(found.bound) == pytest.approx(float.fromhex(file["lower_bound"]), rel=1e-6, abs=1e-9)
    read = CHECKER.read_certificate(file)
    sums = [CHECKER.leaky_sums(own, read.decay, read.bias) for own in read.inputs]
    largest = max(price for neuron in file["generated"] for price in prices(read, sums, neuron))
    assert largest <= read.price_bound
    file["price_bound"] = ceil(largest) - 1
    if largest:
        with pytest.raises(CHECKER.WrongError):
            CHECKER.check(consistent(file))
    for name, error in (("primal", -inf), ("lower_bound", inf)):
        file = copy.deepcopy(HONEST[number])
        exact = found.primal if name == "primal" else found.bound
        near = nearest(exact, -error)
        CHECKER.check(file | {name: near.hex()})
        beyond = nextafter(near, error)
        with pytest.raises(CHECKER.WrongError, match="than stated"):
            CHECKER.check(file | {name: beyond.hex()})


def prices(read, sums, neuron):
    """Return the sizes of the sums of the dual point over the spikes of a neuron."""
    column = [
        x for own in sums for x in CHECKER.column(CHECKER.spikes(own, read.decay, read.resets, neuron), read.readout)
    ]
    return [abs(sum(x * row[k] for x, row in zip(column, read.dual, strict=True))) for k in range(len(read.dual[0]))]


SAMPLE = next(
    file
    for file in HONEST
    if file["resets"]
    and not file["negative_threshold"]
    and len(file["proofs"]) > 1
    and len(file["proofs"][-1]["code"]) > 40
)
"""A file with a threshold among the parameters that matter, and a closer look."""

FIELDS = sorted({*CHECKER.NAMES, "resets"})
VALUES = (
    None,
    True,
    0,
    -1,
    2,
    2**2048,
    1.0,
    1.5,
    "",
    "x",
    "0x1.8p+0",
    "nan",
    "inf",
    OVERFLOW,
    [],
    [[]],
    [None],
    [[1]],
    {},
)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_size_or_range_is_refused(name):
    for value in VALUES:
        file = copy.deepcopy(SAMPLE)
        if type(value) is type(file[name]) and value == file[name]:
            continue
        if name == "dual_exponent" and type(value) is int and abs(value) <= CHECKER.MAX_EXPONENT:
            continue  # a larger unit is shrunk to the same dual point
        file[name] = value
        with pytest.raises(CHECKER.WrongError):
            CHECKER.check(file)
    file = copy.deepcopy(SAMPLE)
    del file[name]
    if name != "resets":
        with pytest.raises(CHECKER.WrongError, match="names are missing or unknown"):
            CHECKER.check(file)


@pytest.mark.parametrize("name", CHECKER.Search._fields)
def test_a_field_of_a_search_of_another_type_size_or_range_is_refused(name):
    for value in VALUES:
        file = copy.deepcopy(SAMPLE)
        file["proofs"][-1][name] = value
        if value == SAMPLE["proofs"][-1][name]:
            continue
        with pytest.raises(CHECKER.WrongError):
            CHECKER.check(file)
    file = copy.deepcopy(SAMPLE)
    del file["proofs"][-1][name]
    with pytest.raises(CHECKER.WrongError, match="a search has other fields"):
        CHECKER.check(file)


def test_hints_are_ignored_and_unknown_names_refused():
    for name in sorted(CHECKER.HINTS):
        CHECKER.check(HONEST[0] | {name: object()})
    with pytest.raises(CHECKER.WrongError, match="names are missing or unknown"):
        CHECKER.check(HONEST[0] | {"sample_weight": [1]})
    with pytest.raises(CHECKER.WrongError, match="not one JSON object"):
        CHECKER.check([HONEST[0]])


def test_files_of_neurons_with_resets_need_not_say_so():
    file = next(copy.deepcopy(own) for own in HONEST if own["resets"])
    del file["resets"]
    CHECKER.check(file)


@pytest.mark.parametrize("value", [Fraction(1, 10**40), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(10**30)])
def test_logarithms_are_rounded_up_by_little(value):
    with localcontext() as context:
        context.prec = 90
        exact = (Decimal(value.numerator) / Decimal(value.denominator)).ln()
        assert 0 <= CHECKER.log_above(value) - Fraction(exact) <= abs(Fraction(exact)) / 10**57
    if value < 200:
        with localcontext() as context:
            context.prec = 90
            exact = (-Decimal(value.numerator) / Decimal(value.denominator)).exp()
            assert 0 < CHECKER.exp_above(-value) - Fraction(exact) <= Fraction(exact) / 10**57


@pytest.mark.parametrize("margin", [-(10**300), -500, -3, Fraction(-1, 7), 0, Fraction(1, 7), 3, 199, 500, 10**300])
def test_the_logistic_loss_is_rounded_up_by_little(margin):
    with localcontext() as context:
        context.prec = 400
        value = Decimal(Fraction(margin).numerator) / Decimal(Fraction(margin).denominator)
        exact = Fraction((1 + (-abs(value)).exp()).ln() + max(Decimal(0), -value))
    assert 0 <= CHECKER.logistic(Fraction(margin)) - exact <= (1 + abs(exact)) / 10**58


def test_the_entropy_is_rounded_up_by_little_and_zero_at_both_ends():
    assert CHECKER.entropy(Fraction(0)) == CHECKER.entropy(Fraction(1)) == 0
    for share in (Fraction(1, 2), Fraction(1, 10**70), 1 - Fraction(1, 10**70), Fraction(2, 7)):
        with localcontext() as context:
            context.prec = 200
            parts = [Decimal(p.numerator) / Decimal(p.denominator) for p in (share, 1 - share)]
            exact = Fraction(sum(p * p.ln() for p in parts))
        assert 0 <= CHECKER.entropy(share) - exact <= Fraction(1, 10**58)


def test_printed_numbers_are_rounded_away_from_each_other():
    assert CHECKER.shown(Fraction(1, 3), ROUND_FLOOR) == "0.333333333333"
    assert CHECKER.shown(Fraction(1, 3), ROUND_CEILING) == "0.333333333334"
    assert CHECKER.shown(Fraction(-1, 3), ROUND_FLOOR) == "-0.333333333334"


def test_progress_is_shown_with_an_estimate(monkeypatch, capsys):
    now = iter([0.0, 0.5, 2.0, 2.5, 4.0])
    monkeypatch.setattr(CHECKER.time, "monotonic", lambda: next(now))
    report = CHECKER.progress()
    for share in (0.1, 0.2, 0.3, 0.5):
        report(share)
    said = capsys.readouterr().err.split("\r")[1:]
    assert said == ["20 % of the boxes, about 8 s left ", "50 % of the boxes, about 4 s left "]


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
