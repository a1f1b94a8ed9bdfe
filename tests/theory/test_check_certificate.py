"""The checker by itself: nothing here runs the library, so that every change of the checker can be tried in seconds."""

import copy
import itertools
import json
import random
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from math import ceil, inf, nextafter
from pathlib import Path

import pytest

from cvxsnn.theory import check_certificate as CHECKER  # noqa: N812
from fuzz import forgeries
from fuzz.proofs import consistent, nearest

HONEST = json.loads(Path(__file__).with_name("honest_proofs.json").read_text())
"""Small proofs of many kinds, as the library wrote them."""

OVERFLOW = "0x1.0000000000000p+1024"


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
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(n_bytes=path.stat().st_size - 1))
    assert CHECKER.judge(str(path), 10**9) == (
        2,
        f"NOT CHECKED: the file has more than {path.stat().st_size - 1:,} bytes",
    )
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(n_bytes=path.stat().st_size))
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


def complaint(file):
    """Return why a file is refused."""
    with pytest.raises(CHECKER.WrongError) as caught:
        CHECKER.check(CHECKER.parse(file if isinstance(file, str) else json.dumps(file)))
    (sentence,) = caught.value.args
    assert isinstance(sentence, str)
    return sentence


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_size_or_range_is_refused(name):
    for value in VALUES:
        if type(value) is type(SAMPLE[name]) and value == SAMPLE[name]:
            continue
        if name == "dual_exponent" and type(value) is int and abs(value) <= CHECKER.LIMITS.exponent:
            continue  # a larger unit is shrunk to the same dual point
        complaint(SAMPLE | {name: value})
    assert complaint(SAMPLE | {name: None}).startswith(f"{name} is not ")
    for spoilt in spoilt_leaves(SAMPLE[name]):
        assert complaint(SAMPLE | {name: spoilt}).startswith((f"{name} is not ", "a search has other fields"))
    if name != "resets":
        file = {own: SAMPLE[own] for own in SAMPLE if own != name}
        assert complaint(file) == "names are missing or unknown"


def spoilt_leaves(value):
    """Yield copies of nested lists with another first or last entry at each depth, or one entry more or less."""
    if isinstance(value, list) and value:
        for wrong in (None, 1.0, True):
            yield [wrong, *value[1:]]
            yield [*value[:-1], wrong]
        for first in spoilt_leaves(value[0]):
            yield [first, *value[1:]]
        for last in spoilt_leaves(value[-1]):
            yield [*value[:-1], last]
    if isinstance(value, list) and len(value) > 1 and isinstance(value[0], list):
        yield [value[0][:-1], *value[1:]]
        yield [*value[:-1], [*value[-1], value[-1][-1]]]


@pytest.mark.parametrize("name", CHECKER.Search._fields)
def test_a_field_of_a_search_of_another_type_size_or_range_is_refused(name):
    search = SAMPLE["proofs"][-1]

    def changed(value):
        return SAMPLE | {"proofs": [*SAMPLE["proofs"][:-1], search | {name: value}]}

    for value in VALUES:
        if value != search[name]:
            complaint(changed(value))
    assert complaint(changed(None)).startswith(f"{name} is not ")
    for spoilt in spoilt_leaves(search[name]):
        assert complaint(changed(spoilt)).startswith(f"{name} is not ")
    less = {own: search[own] for own in search if own != name}
    assert complaint(SAMPLE | {"proofs": [*SAMPLE["proofs"][:-1], less]}) == "a search has other fields"
    assert complaint(SAMPLE | {"proofs": [*SAMPLE["proofs"][:-1], search | {"x": 1}]}) == "a search has other fields"


def test_numbers_may_be_at_the_ends_of_their_ranges():
    assert CHECKER.read_integer("x", 2**2048 - 1) == 2**2048 - 1
    for value in (2**2048, -(2**2048)):
        with pytest.raises(CHECKER.WrongError, match="x is not an integer of at most 2048 bits"):
            CHECKER.read_integer("x", value)
    assert [CHECKER.read_integer("x", value, 1, 3) for value in (1, 3)] == [1, 3]
    for value in (0, 4):
        with pytest.raises(CHECKER.WrongError, match="x is out of range"):
            CHECKER.read_integer("x", value, 1, 3)
    search = SAMPLE["proofs"][-1]
    width = len(SAMPLE["neurons"][0])
    for levels in (1, 64):
        assert CHECKER.read_search(len(SAMPLE["proofs"]) - 1, search | {"levels": levels}, width).levels == levels
    for levels in (0, 65):
        with pytest.raises(CHECKER.WrongError, match="levels is out of range"):
            CHECKER.read_search(len(SAMPLE["proofs"]) - 1, search | {"levels": levels}, width)
    for exponent in (-2000, 2000):
        assert CHECKER.read_certificate(SAMPLE | {"dual_exponent": exponent}).dual_exponent == exponent
    for exponent in (-2001, 2001):
        assert complaint(SAMPLE | {"dual_exponent": exponent}) == "dual_exponent is out of range"
    assert complaint(SAMPLE | {"decay": [1, 0]}) == "the decay is not between 0 and 1"
    assert complaint(SAMPLE | {"decay": [0, 0]}) == "the decay is not between 0 and 1"
    assert complaint(SAMPLE | {"decay": [2, 1]}) == "the decay is not between 0 and 1"
    assert complaint(SAMPLE | {"strength": (0.0).hex()}) == "the strength is not positive"


def test_the_statement_is_told_in_words():
    file = CHECKER.read_certificate(SAMPLE)
    changed = file._replace(decay=(1, 2), bias=True, readout="mean", loss="logistic", strength=Fraction(1, 4))
    sizes = zip((*file.shape, len(file.targets[0])), ("sequence", "step", "feature", "output"), strict=True)
    data = f"data: {', '.join(f'{size} {noun}' + 's' * (size != 1) for size, noun in sizes)}"
    assert str(changed._replace(has_intercept=True)) == (
        "neurons: decay 1/2, with bias, reset by thresholds of at least zero, read out as 'mean'\n"
        f"objective: logistic loss, L1 penalty of strength 0.25, with intercept\n{data}"
    )
    changed = changed._replace(negative_threshold=True, bias=False, has_intercept=False)
    assert str(changed).startswith("neurons: decay 1/2, without bias, reset by thresholds of either sign, read")
    assert "0.25, without intercept" in str(changed)
    assert str(changed._replace(resets=False)).startswith("neurons: decay 1/2, without bias, not reset, read out")


def test_a_search_has_columns_within_the_parameters_and_looks_at_searches_before_it():
    search = {"columns": [0, 2], "basis": [[1, 0], [0, 1]], "levels": 2, "code": "..", "closer": [[1, 1], [9, -1]]}
    assert CHECKER.read_search(2, search, 3) == ((0, 2), ((1, 0), (0, 1)), 2, "..", ((1, 1), (9, -1)))
    for columns, sentence in (
        ([-1, 2], "columns is out of range"),
        ([0, 3], "columns is out of range"),
        ([2, 2], "columns are not increasing"),
        ([2, 0], "columns are not increasing"),
    ):
        with pytest.raises(CHECKER.WrongError, match=sentence):
            CHECKER.read_search(2, search | {"columns": columns}, 3)
    for closer in ([0, 1], [-7, 1], [1, 2], [1, -2]):
        with pytest.raises(CHECKER.WrongError, match="closer is out of range"):
            CHECKER.read_search(2, search | {"closer": [closer]}, 3)


def test_what_is_read_is_what_the_file_says():
    for file in HONEST:
        read = CHECKER.read_certificate(file)
        assert read.has_intercept == file["has_intercept"]
        assert read.price_bound == file["price_bound"]
        assert CHECKER.read_certificate(file | {"price_bound": 0}).price_bound == 0
        assert complaint(file | {"price_bound": -1}) == "price_bound is out of range"
        least = {name: file[name] for name in CHECKER.NAMES}
        assert CHECKER.read_certificate(least) == CHECKER.read_certificate(least | {"resets": True})
        assert CHECKER.read_certificate(file | dict.fromkeys(CHECKER.HINTS)) == read


def test_work_ends_at_its_limit():
    work = CHECKER.Work(5)
    assert work.n_boxes == 0
    work.spend(2)
    work.spend(3)
    with pytest.raises(CHECKER.LimitError):
        work.spend(1)


def test_a_word_has_64_bits():
    assert [CHECKER.words(0), CHECKER.words(1, -(2**63)), CHECKER.words(2**64 - 1, 0), CHECKER.words(5, 2**127)] == [
        1,
        2,
        2,
        3,
    ]


def test_vectors_of_unequal_lengths_are_never_combined():
    for combine in (CHECKER.dot, CHECKER.add):
        combine((1, 2), (3, 4))
        for a, b in (((1,), (1, 2)), ((1, 2), (1,))):
            with pytest.raises((AssertionError, ValueError)):
                combine(a, b)


def test_hints_are_ignored_and_unknown_names_refused():
    for name in sorted(CHECKER.HINTS):
        CHECKER.check(HONEST[0] | {name: object()})
    with pytest.raises(CHECKER.WrongError, match="names are missing or unknown"):
        CHECKER.check(HONEST[0] | {"sample_weight": [1]})
    with pytest.raises(CHECKER.WrongError, match="not one JSON object"):
        CHECKER.check([HONEST[0]])


def test_files_of_neurons_with_resets_need_not_say_so():
    file = next(copy.deepcopy(own) for own in HONEST if own["resets"])
    found = CHECKER.check(file)
    del file["resets"]
    assert CHECKER.check(file) == found


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


def test_a_proven_file_is_told_with_its_numbers_and_gap(tmp_path):
    path = tmp_path / "proof.json"
    for file in HONEST[:5]:
        path.write_text(json.dumps(file))
        found = CHECKER.check(file)
        status, text = CHECKER.judge(str(path), 10**9)
        assert status == 0
        gap = (found.primal - found.bound) / found.primal
        boxes = "1 box covers" if found.n_boxes == 1 else f"{found.n_boxes} boxes cover"
        assert text.splitlines()[-4:] == [
            f"checked: {boxes} all neurons of the family",
            f"objective of the network:  {CHECKER.shown(found.primal, ROUND_CEILING)}",
            f"no network is below:       {CHECKER.shown(found.bound, ROUND_FLOOR)}",
            f"relative gap:              {CHECKER.shown(gap, ROUND_CEILING, 3)}",
        ]


@pytest.mark.parametrize(
    ("primal", "bound", "said"),
    [
        ("1", "0.9998743", "0.000126"),  # to nearest, 0.000126 as well
        ("1", "0.9998747", "0.000126"),  # to nearest, 0.000125
        ("3", "3", "0"),
        ("0", "0", "0"),
        ("0", "-0.5", "none, since the objective is zero and the bound is not"),
        ("1e-30", "-1", "1.01e+30"),
    ],
)
def test_the_printed_gap_is_never_smaller_than_the_gap(primal, bound, said):
    assert CHECKER.relative_gap(CHECKER.Checked(Fraction(primal), Fraction(bound), 1)) == said


def test_a_bound_below_an_objective_of_zero_has_no_relative_gap(tmp_path):
    file = copy.deepcopy(next(one for one in HONEST if one["loss"] == "squared" and not one["has_intercept"]))
    file["targets"] = [[(0.0).hex() for _ in row] for row in file["targets"]]
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(consistent(file | {"neurons": [], "coef": []})))
    status, text = CHECKER.judge(str(path), 10**9)
    assert status == 0
    assert "objective of the network:  0\nno network is below:       -" in text
    assert text.endswith("relative gap:              none, since the objective is zero and the bound is not")


def test_progress_is_shown_with_an_estimate(monkeypatch, capsys):
    now = iter([0.0, 0.5, 2.0, 2.5, 4.0])
    monkeypatch.setattr(CHECKER.time, "monotonic", lambda: next(now))
    report = CHECKER.progress()
    for share in (0.1, 0.2, 0.3, 0.5):
        report(share)
    said = capsys.readouterr().err.split("\r")[1:]
    assert said == ["20 % of the boxes, about 8 s left ", "50 % of the boxes, about 4 s left "]


IDEAS = {name: getattr(forgeries, name) for name in sorted(dir(forgeries)) if name.startswith("forge_")}


@pytest.mark.parametrize("name", IDEAS)
def test_a_forged_proof_is_refused(name):
    forged = [own for own in (IDEAS[name](copy.deepcopy(file)) for file in [SAMPLE, *HONEST]) if own is not None]
    assert forged
    for own in forged[:4]:
        complaint(own)


def test_an_event_is_decided_by_a_parallel_one():
    assert CHECKER.common_multiple((2, 4), (3, 6)) == (3, 2)
    for other in ((-3, -6), (3, 5), (0, 0), (0, 6)):
        assert CHECKER.common_multiple((2, 4), other) is None
    assert CHECKER.common_multiple((0, 4), (3, 6)) is None
    assert CHECKER.common_multiple((0, 4), (0, 1)) == (1, 4)
    assert CHECKER.common_multiple((1,), (2**2000,)) == (2**2000, 1)
    for fired in (0, 1):
        assert CHECKER.is_decided((2, -1), (2, -1), fired, False)
        assert not CHECKER.is_decided((2, -1), (2, -2), fired, False)
        assert not CHECKER.is_decided((2, -1), (-2, 1), fired, True)
        assert CHECKER.is_decided((2, -1), (2, -2), fired, True) == bool(fired)  # a smaller reset: a spike stays one
        assert CHECKER.is_decided((2, -3), (2, -2), fired, True) == (not fired)


def value(tree, neuron):
    """Return the sum that a tree adds for a neuron."""
    total = None
    while tree is not None:
        fired = int(CHECKER.dot(tree.normal, neuron) >= 0)
        total = tree.adds[fired] if total is None else CHECKER.add(total, tree.adds[fired])
        tree = tree.then[fired]
    return total


@pytest.mark.parametrize("has_wall", [True, False])
def test_simplified_trees_add_the_same_for_every_neuron(has_wall):
    rng, other = random.Random(0), random.Random(1)
    n_left_out = 0
    for _ in range(150):
        n_steps, decay = rng.choice([2, 3, 4]), rng.choice([(0, 1), (1, 2), (1, 1)])
        steps = [(rng.randint(-2, 2), rng.randint(-1, 1)) for _ in range(2)]
        sums = CHECKER.leaky_sums(tuple(rng.choice(steps) for _ in range(n_steps)), decay, False)
        weights = (*((rng.randint(-3, 3), rng.randint(0, 1)) for _ in range(n_steps - 1)), (1, 2))
        tree = CHECKER.grow(sums, weights, decay)
        added, left = CHECKER.simplify(tree, (), (0, 0), has_wall, CHECKER.Work(10**9))
        n_left_out += len(list(CHECKER.all_events([tree]))) - len(list(CHECKER.all_events([left])))
        if not CHECKER.has_parallel_steps(sums):
            assert (added, left) == ((0, 0), tree)
        for _ in range(60):
            neuron = (other.randint(-4, 4), other.randint(-4, 4), other.randint(0 if has_wall else -4, 4))
            assert CHECKER.add(added, value(left, neuron) or (0, 0)) == value(tree, neuron)
    assert n_left_out == (LEFT_OUT_WITH_WALL if has_wall else LEFT_OUT)


LEFT_OUT_WITH_WALL, LEFT_OUT = 426, 391
"""Events that simplifying leaves out of the trees above: with fewer, proofs would be longer."""


def test_checking_takes_as_many_operations_as_are_counted():
    """A limit is met by one operation more than it allows: whatever is done is counted, once."""
    for number, n_operations in OPERATIONS.items():
        CHECKER.check(HONEST[number], n_operations)
        with pytest.raises(CHECKER.LimitError, match="checking takes more operations than the limit"):
            CHECKER.check(HONEST[number], n_operations - 1)


OPERATIONS = {10: 53236, 14: 36573, 39: 40235}
"""Operations that some files take: another number is another way of counting, or other work."""


def test_beyond_the_limits_nothing_is_begun(monkeypatch):
    def limit(file):
        with pytest.raises(CHECKER.LimitError) as caught:
            CHECKER.check(file)
        return str(caught.value)

    bits = SAMPLE["decay"][1].bit_length() * len(SAMPLE["inputs"][0])
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(scale_bits=bits - 1))
    assert limit(SAMPLE) == "the decay has too many bits for so many steps"
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(scale_bits=bits))
    CHECKER.check(SAMPLE)
    file = CHECKER.read_certificate(SAMPLE)
    n_samples, n_steps, n_features = file.shape
    size = n_samples * n_steps * (n_features + 1)
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(words=size - 1))
    assert limit(SAMPLE) == "the inputs have too many bits"
    monkeypatch.undo()
    sums = [CHECKER.leaky_sums(own, file.decay, file.bias) for own in file.inputs]
    _, trees = CHECKER.trees_of(file, sums, CHECKER.Work(10**9))
    assert not any(map(CHECKER.has_parallel_steps, sums))
    n_events = len(list(CHECKER.all_events(trees)))
    n_words = n_events * (len(sums[0][0]) + len(file.targets[0]))
    for name, most in (("events", n_events), ("words", n_words)):
        monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(**{name: most}))
        CHECKER.trees_of(file, sums, CHECKER.Work(10**9))
        monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(**{name: most - 1}))
        with pytest.raises(CHECKER.LimitError, match="the sequences have too many events"):
            CHECKER.trees_of(file, sums, CHECKER.Work(10**9))
        monkeypatch.undo()
    long = file._replace(inputs=tuple(tuple(tuple(2**100 * x for x in s) for s in own) for own in file.inputs))
    sums = [CHECKER.leaky_sums(own, long.decay, long.bias) for own in long.inputs]
    monkeypatch.setattr(CHECKER, "LIMITS", CHECKER.Limits(words=n_words))
    with pytest.raises(CHECKER.LimitError, match="the sequences have too many events"):
        CHECKER.trees_of(long, sums, CHECKER.Work(10**9))  # two words for each number


def test_a_family_has_a_lift_if_one_direction_raises_every_event():
    def has_lift(*steps, bias=False):
        return CHECKER.has_lift([(step,) for step in steps], bias)

    assert has_lift((-1, -1), bias=True)
    assert has_lift((2, -1), (-1, 2))  # the sum of both
    assert has_lift((1, -5), (1, 5))  # the first
    assert has_lift((-5, 1), (5, 1))  # the second
    assert not has_lift((1, -1), (-1, 2))
    assert not has_lift((2, -1), (0, 0))
    assert not has_lift((1, -5), (0, 5))
    assert not CHECKER.has_lift([((1, 0), (2, 0)), ((1, 0), (-1, 0))], False)  # not at the last step


def test_faces_cover_the_surface_of_a_cube():
    assert list(CHECKER.faces(2, 1, False)) == [
        ((2, 0), (0, 2)), ((-2, 0), (0, 2)), ((0, 2), (2, 0)), ((0, -2), (2, 0)),
    ]  # fmt: skip
    assert list(CHECKER.faces(2, 2, True)) == [((4, 2), (0, 2)), ((-4, 2), (0, 2)), ((0, 4), (4, 0))]


def test_a_box_is_halved_into_two_that_cover_it():
    box = CHECKER.Box((4, 2), (0, 2))
    assert box.halves(1) == (((4, 1), (0, 1)), ((4, 3), (0, 1)))
    assert box.enlarged(3) == box
    assert CHECKER.Box((4, 1), (0, 1)).enlarged(3) == ((4, 1), (0, 3))
    for axis in (-1, 2):
        with pytest.raises(CHECKER.WrongError, match="along no axis of it"):
            box.halves(axis)
    for half in (0, 1, 3):
        with pytest.raises(CHECKER.WrongError, match="cannot be halved"):
            CHECKER.Box((4, 2), (0, half)).halves(1)


def test_pivots_are_columns_that_do_not_depend_on_those_before():
    def pivots(*rows):
        return CHECKER.pivots(rows, CHECKER.Work(10**6))

    assert pivots((0, 0)) == set()
    assert pivots((0, 2, 4), (0, 1, 2)) == {1}
    assert pivots((1, 2, 3), (2, 4, 7)) == {0, 2}
    assert pivots((0, 1, 1), (1, 1, 0), (1, 0, -1)) == {0, 1}
    assert pivots((0, 0, 3), (0, 5, 1), (7, 1, 1), (1, 1, 1)) == {0, 1, 2}


def test_the_wall_of_a_family_leaves_out_events():
    file = CHECKER.read_certificate(SAMPLE)._replace(
        inputs=(((1,), (1,), (1,)),), targets=((Fraction(1),),), dual=((1,),), readout="last", bias=False, decay=(1, 2)
    )
    sums = [CHECKER.leaky_sums(own, file.decay, file.bias) for own in file.inputs]

    def count(negative_threshold):
        changed = file._replace(negative_threshold=negative_threshold)
        _, trees = CHECKER.trees_of(changed, sums, CHECKER.Work(10**6))
        return len(list(CHECKER.all_events(trees)))

    assert (count(False), count(True)) == (3, 4)


def test_coordinates_reach_all_neurons_and_keep_the_threshold_apart():
    normals = {(1, 0, 0), (0, 1, 0), (0, 0, -1)}

    def coordinates(basis, columns=(0, 1, 2), normals=normals, has_wall=True):
        search = CHECKER.Search(columns, basis, 2, "", ())
        return CHECKER.coordinates(search, normals, has_wall, CHECKER.Work(10**6))

    assert coordinates(((1, 2, 0), (0, 1, 0), (0, 0, 1)))
    assert not coordinates(((1, 2, 3), (0, 1, 0), (1, 1, -1)), has_wall=False)
    assert not coordinates(((1, 2), (0, -1)), (0, 1), {(1, 0, 0), (0, 1, 0)})
    for basis, sentence in (
        (((1, 2, 0), (2, 4, 0), (0, 0, 1)), "do not reach all neurons"),
        (((1, 0, 0), (0, 1, 0), (0, 0, -1)), "no positive coordinate"),
        (((1, 0, 0), (0, 1, 0), (1, 0, 1)), "changes other parameters"),
        (((1, 0, 0), (0, 1, 0), (0, 1, 1)), "changes other parameters"),
        (((1, 0, 1), (0, 1, 0), (0, 0, 1)), "no coordinate of its own"),
        (((1, 0, 0), (0, 1, 1), (0, 0, 1)), "no coordinate of its own"),
    ):
        with pytest.raises(CHECKER.WrongError, match=sentence):
            coordinates(basis)
    with pytest.raises(CHECKER.WrongError, match="are not all that matter"):
        coordinates(((1, 0), (0, 1)), (0, 1))


def test_eliminations_are_counted_in_words():
    rows = ((2**70, 1), (1, 2**70))
    CHECKER.pivots(rows, CHECKER.Work(18))  # two numbers of up to 140 bits, which are three words
    with pytest.raises(CHECKER.LimitError):
        CHECKER.pivots(rows, CHECKER.Work(17))


def test_an_event_that_touches_a_box_from_below_is_silent_for_generic_neurons_only():
    event = CHECKER.Event((1,), ((0,), (1,)), (None, None), (1,), (1,))

    def side(centre, half, is_generic):
        prices = CHECKER.Prices((), 0, False, is_generic, CHECKER.Work(10))
        return prices.side(event, CHECKER.Box((centre,), (half,)))

    for is_generic in (False, True):
        assert side(3, 2, is_generic) == side(2, 2, is_generic) == side(0, 0, is_generic) == 1
        assert side(1, 2, is_generic) is side(-1, 2, is_generic) is None
        assert side(-3, 2, is_generic) == 0
    assert side(-2, 2, True) == 0
    assert side(-2, 2, False) is None


def draw_tree(rng, depth=2):
    slopes = (rng.randint(-3, 3), rng.randint(-3, 3))
    adds = tuple((rng.randint(-4, 4), rng.randint(-2, 2)) for _ in range(2))
    then = tuple(draw_tree(rng, depth - 1) if depth > 1 and rng.random() < 0.6 else None for _ in range(2))
    return CHECKER.Event(slopes, adds, then, slopes, tuple(map(abs, slopes)))


def mirrored(tree):
    slopes = (tree.slopes[0], -tree.slopes[1])
    return tree._replace(normal=slopes, slopes=slopes)


@pytest.mark.parametrize(("name", "largest"), [("fits", 2725), ("fits_tilted", 2648)])
def test_bounds_of_boxes_hold_for_all_points_and_are_as_sharp_as_they_were(name, largest):
    rng = random.Random(2)
    n_limits = 0
    for _ in range(200):
        trees = [draw_tree(rng, rng.choice([1, 1, 2])) for _ in range(rng.randint(1, 4))]
        trees += [mirrored(tree) for tree in trees]  # such spikes exclude each other: linear bounds are sharper
        total = (rng.randint(-3, 3), rng.randint(-3, 3))
        box = CHECKER.Box((rng.randint(1, 4), rng.randint(-1, 1)), (rng.randint(0, 1), rng.randint(2, 9)))

        def is_enough(limit, trees=trees, total=total, box=box):
            prices = CHECKER.Prices((), limit, False, False, CHECKER.Work(10**6))
            return getattr(prices, name)(*prices.narrow(total, trees, box), box)

        limit = next(limit for limit in range(100) if is_enough(limit))
        assert is_enough(limit + 1)
        n_limits += limit
        for a, b in itertools.product(range(-4, 5), repeat=2):
            point = tuple(Fraction(x * h, 4) + m for x, h, m in zip((a, b), box.half, box.centre, strict=True))
            sums = [value(tree, point) for tree in trees]
            assert all(abs(x) <= limit for x in map(sum, zip(total, *sums, strict=True)))
    assert n_limits == largest


def test_progress_is_reported_for_the_outermost_search():
    shares = []
    CHECKER.check_certificate(CHECKER.read_certificate(SAMPLE), 10**9, shares.append)
    n_boxes = len(SAMPLE["proofs"][-1]["code"])
    assert shares == [place / n_boxes for place in range(1, n_boxes + 1)]


def test_every_box_is_counted_once():
    for file in HONEST:
        if len(file["proofs"]) == 1:
            assert CHECKER.check(file).n_boxes == len(file["proofs"][0]["code"])
    assert {number: CHECKER.check(HONEST[number]).n_boxes for number in OPERATIONS} == {10: 329, 14: 538, 39: 507}


def test_a_closer_look_must_have_fewer_parameters():
    file = copy.deepcopy(SAMPLE)
    outer = file["proofs"][-1]
    file["proofs"] = [outer | {"closer": [], "code": "." * 9}, *file["proofs"]]
    outer["closer"] = [[factor, 0] for factor, _ in outer["closer"]]
    file["proofs"][1:-1] = [one | {"closer": []} for one in file["proofs"][1:-1]]
    assert complaint(file) == "a closer look has no fewer parameters"


def test_a_dual_point_without_prices_is_not_shrunk():
    file = CHECKER.read_certificate(next(own for own in HONEST if own["loss"] == "squared"))
    n_rows, y = len(file.targets), file.targets
    file = file._replace(price_bound=0, dual=tuple((1,) * len(row) for row in y), dual_exponent=-3)
    u = Fraction(-n_rows, 8)
    assert CHECKER.dual_value(file) == -sum(u * u / 2 + u * own for row in y for own in row) / n_rows
    nothing = CHECKER.read_certificate(next(own for own in HONEST if own["loss"] == "logistic"))
    nothing = nothing._replace(dual=tuple((0,) * len(row) for row in nothing.targets))
    assert CHECKER.dual_value(nothing) == 0
