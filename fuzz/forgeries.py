"""Forged proof files: each function takes the content of an honest file and returns a false or unproven one.

A function returns the forged content, or a text where the trick is in the text, or None where the idea does not apply.
Three kinds of statements are forged. An honest one with a number that is slightly better than the truth; the claim that
a constant network is optimal (`constant`), which is false for every file whose neurons are of any use; and a small
problem of two sequences (`small`), in which all neurons with a price are where a careless checker does not look.
"""

import json
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from math import inf, nextafter

DIGITS = Context(80)
ZERO, ONE = (0.0).hex(), (1.0).hex()


# ---- tools -----------------------------------------------------------------------------------------------------------


def number(text: str) -> Fraction:
    """Return a hexadecimal float as a fraction."""
    return Fraction(float.fromhex(text))


def below(value: Fraction) -> str:
    """Return the largest float that is not above a fraction."""
    near = float(value)
    return (nextafter(near, -inf) if Fraction(near) > value else near).hex()


def above(value: Fraction) -> str:
    """Return the smallest float that is not below a fraction."""
    near = float(value)
    return (nextafter(near, inf) if Fraction(near) < value else near).hex()


def decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal."""
    return DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def logistic(margin: Fraction) -> Fraction:
    """Return log(1 + exp(-margin))."""
    power = DIGITS.exp(decimal(-abs(margin)))
    return max(Fraction(0), -margin) + Fraction(DIGITS.ln(DIGITS.add(Decimal(1), power)))


def entropy(share: Fraction) -> Fraction:
    """Return p log p + (1 - p) log(1 - p)."""
    return sum((p * Fraction(DIGITS.ln(decimal(p))) for p in (share, 1 - share) if 0 < p < 1), Fraction(0))


def rollout(file: dict, neuron: list[int], tie: bool = True) -> list[Fraction]:
    """Return the column of a neuron; ties fire, or not."""
    decay, column = Fraction(*file["decay"]), []
    for sequence in file["inputs"]:
        membrane, fired = Fraction(0), []
        for x in sequence:
            drive = sum(a * b for a, b in zip([*x, 1], neuron[:-1], strict=False))
            membrane = decay * membrane + drive - neuron[-1] * (file.get("resets", True) and sum(fired[-1:]))
            fired.append(int(membrane > 0 or (tie and membrane == 0)))
        if file["readout"] == "all":
            column += map(Fraction, fired)
        else:
            column.append(Fraction(sum(fired), len(fired)) if file["readout"] == "mean" else Fraction(fired[-1]))
    return column


def scores(file: dict, tie: bool = True) -> list[list[Fraction]]:
    """Return the outputs of the network in a file."""
    columns = [rollout(file, neuron, tie) for neuron in file["neurons"]]
    coef = [[number(w) for w in row] for row in file["coef"]]
    constants = [number(c) for c in file["intercept"]]
    return [
        [c + sum(own[i] * row[k] for own, row in zip(columns, coef, strict=True)) for k, c in enumerate(constants)]
        for i in range(len(file["targets"]))
    ]


def loss(file: dict, tie: bool = True) -> Fraction:
    """Return the mean loss of the network in a file."""
    total = Fraction(0)
    for row, target in zip(scores(file, tie), file["targets"], strict=True):
        for f, y in zip(row, map(number, target), strict=True):
            total += (f - y) ** 2 / 2 if file["loss"] == "squared" else logistic(f * y)
    return total / len(file["targets"])


def penalty(file: dict) -> Fraction:
    """Return the penalty of the network in a file."""
    return number(file["strength"]) * sum(abs(number(w)) for row in file["coef"] for w in row)


def bound(file: dict, shrink: Fraction | None = None) -> Fraction:
    """Return the value of the dual point of a file, shrunk as it must be or by a given factor."""
    unit, n = Fraction(2) ** file["dual_exponent"], len(file["targets"])
    largest = file["price_bound"] * unit
    if shrink is None:
        shrink = min(Fraction(1), number(file["strength"]) / largest) if largest else Fraction(1)
    total = Fraction(0)
    for row, target in zip(file["dual"], file["targets"], strict=True):
        for d, y in zip(row, map(number, target), strict=True):
            u = -n * shrink * unit * d
            total -= u * u / 2 + u * y if file["loss"] == "squared" else entropy(-u * y)
    return total / n


def restate(file: dict, shrink: Fraction | None = None) -> dict:
    """State what the network and the dual point of a file would prove; a logistic bound with some room for rounding."""
    room = 0 if file["loss"] == "squared" else Fraction(1, 10**30)
    file["primal"] = above(loss(file) + penalty(file) + room)
    file["lower_bound"] = below(bound(file, shrink) - room)
    return file


def constant(file: dict) -> dict | None:
    """State that the best constant network is optimal; all fields agree, but for the proof of the prices."""
    n, unit = len(file["targets"]), 1 << 60
    targets = [[number(y) for y in column] for column in zip(*file["targets"], strict=True)]
    means = [sum(column) / n for column in targets]
    strength = number(file["strength"])
    limit = int(strength * unit)
    file |= {"neurons": [], "coef": [], "intercept": [ZERO] * len(means), "dual_exponent": -60, "price_bound": limit}
    if file["loss"] == "logistic":
        if not file["has_intercept"] or len(means) > 1:
            return None
        plus = sum(y > 0 for y in targets[0])
        step = unit // n**2
        odds = DIGITS.ln(decimal(Fraction(plus, n - plus)))
        file["intercept"] = [float(odds).hex()]
        file["dual"] = [[step * (n - plus) if y > 0 else -step * plus] for y in targets[0]]
        return restate(file)
    if file["has_intercept"]:
        return None
    levels = [max(abs(mean) - strength, Fraction(0)) * (1 if mean > 0 else -1) for mean in means]
    levels = [Fraction(float(c)) for c in levels]
    file["neurons"], file["coef"] = [[0] * width(file)], [[float(c).hex() for c in levels]]
    columns = [[int((y - c) / n * unit) for y in ys] for ys, c in zip(targets, levels, strict=True)]
    file["dual"] = [list(row) for row in zip(*columns, strict=True)]
    file["price_bound"] = max(limit, *(abs(sum(column)) for column in columns))
    return restate(file)


def width(file: dict) -> int:
    """Return the number of parameters of a neuron."""
    return len(file["inputs"][0][0]) + file["bias"] + 1


def n_faces(file: dict, n_axes: int) -> int:
    """Return how many faces a search has that uses the threshold as its last coordinate."""
    return 2 * n_axes - (not file["negative_threshold"])


def search(columns: list, basis: list, levels: int, code: str, closer: list | None = None) -> dict:
    """Return a search."""
    return {"columns": columns, "basis": basis, "levels": levels, "code": code, "closer": closer or []}


def unit_basis(size: int) -> list[list[int]]:
    """Return the unit vectors."""
    return [[int(i == j) for j in range(size)] for i in range(size)]


def small(file: dict, proof: dict | list[dict], second: tuple[int, int] = (1, 0)) -> dict:
    """State that no neuron tells two sequences apart, so that the empty network is optimal, with a given proof.

    With w > 0, the last steps spike if θ ≤ 2w and if θ ≤ w: neurons with w < θ ≤ 2w do tell the sequences apart.
    """
    file |= {
        "decay": [1, 1], "bias": False, "negative_threshold": False, "resets": True, "readout": "last",
        "loss": "squared", "strength": (0.0625).hex(), "has_intercept": False,
        "inputs": [[[1], [1]], [[x] for x in second]], "targets": [[ONE], [(-1.0).hex()]],
        "neurons": [], "coef": [], "intercept": [ZERO], "dual": [[1], [-1]], "dual_exponent": -1, "price_bound": 0,
        "proofs": proof if isinstance(proof, list) else [proof],
    }  # fmt: skip
    return restate(file)


def walls_only(file: dict) -> bool:
    """Return whether a file is about resets with a wall and more than one step."""
    return file.get("resets", True) and not file["negative_threshold"] and len(file["inputs"][0]) > 1


def text_of(file: dict) -> str:
    """Return a file as text."""
    return json.dumps(file)


# ---- stated numbers --------------------------------------------------------------------------------------------------


def forge_primal_below_objective(file: dict) -> dict:
    """The stated objective is one float below the true one: comparing floats, or with a tolerance, accepts it."""
    file["primal"] = nextafter(float.fromhex(below(loss(file) + penalty(file))), -inf).hex()
    return file


def forge_bound_above_dual_value(file: dict) -> dict:
    """The stated bound is one float above what the dual point proves: comparing with a tolerance accepts it."""
    file["lower_bound"] = nextafter(float.fromhex(above(bound(file))), inf).hex()
    return file


def forge_bound_equal_to_primal(file: dict) -> dict:
    """The gap is stated to be zero: a checker that only compares bound and objective accepts it."""
    file["lower_bound"] = file["primal"]
    return file


def forge_primal_without_penalty(file: dict) -> dict | None:
    """The penalty is missing from the stated objective: a checker that only computes the loss accepts it."""
    file["primal"] = above(loss(file) * (1 + Fraction(1, 2**50)))
    return file if penalty(file) else None


def forge_primal_with_signed_penalty(file: dict) -> dict | None:
    """Negative weights reduce the penalty: a checker that sums weights instead of sizes accepts it."""
    signed = number(file["strength"]) * sum(number(w) for row in file["coef"] for w in row)
    file["primal"] = above(loss(file) + signed + Fraction(1, 10**12))
    return file if signed < penalty(file) - Fraction(1, 10**6) else None


def forge_primal_with_silent_ties(file: dict) -> dict | None:
    """A neuron at a tie is said to be silent: a checker that fires above zero only accepts it."""
    file["neurons"].append([0] * width(file))
    file["coef"].append([ONE] * len(file["targets"][0]))
    silent = loss(file, tie=False) + penalty(file)
    file["primal"] = above(silent + Fraction(1, 10**12))
    return file if silent < loss(file) + penalty(file) - Fraction(1, 10**6) else None


def forge_primal_without_resets(file: dict) -> dict | None:
    """The objective is stated for neurons that are not reset: a rollout that forgets resets accepts it."""
    if not file.get("resets", True):
        return None
    for neuron in file.get("generated", []):
        file |= {"neurons": [neuron], "coef": [[(-0.5).hex()] * len(file["targets"][0])]}
        other = loss({**file, "resets": False})
        if other < loss(file):
            return file | {"primal": above(other + penalty(file))}
    return None


def forge_infinite_primal(file: dict) -> dict:
    """An objective of at most infinity is no statement: comparing floats accepts it."""
    file["primal"] = "inf"
    return file


def forge_bound_not_a_number(file: dict) -> dict:
    """No comparison with a bound that is not a number fails: a checker that looks for failures accepts it."""
    file["lower_bound"] = "nan"
    return file


def forge_primal_not_a_number(file: dict) -> dict:
    """No comparison with an objective that is not a number fails: a checker that looks for failures accepts it."""
    file["primal"] = "nan"
    return file


def forge_primal_list(file: dict) -> dict:
    """The objective is a list of one number: a checker that converts arrays accepts it."""
    file["primal"] = [below(loss(file))]
    return file


# ---- strength and dual point -----------------------------------------------------------------------------------------


def forge_negative_strength(file: dict) -> dict | None:
    """With a negative strength, weights earn, and the dual point is shrunk by a negative factor."""
    file["strength"] = (-float.fromhex(file["strength"])).hex()
    return restate(file) if file["loss"] == "squared" else None


def forge_zero_strength(file: dict) -> dict | None:
    """Nothing is left of the dual point at strength zero, but its full value is stated."""
    file["strength"] = ZERO
    file["primal"] = above(loss(file))
    return file


def forge_subnormal_strength(file: dict) -> dict | None:
    """The strength is the smallest float; the value of the dual point before it is shrunk is stated."""
    file["strength"] = (5e-324).hex()
    return restate(file, Fraction(1)) if file["loss"] == "squared" else None


def forge_half_strength(file: dict) -> dict | None:
    """The strength is halved, the dual point not: a checker that trusts it to be feasible accepts it."""
    file["strength"] = (float.fromhex(file["strength"]) / 2).hex()
    return restate(file, Fraction(1)) if file["loss"] == "squared" else None


def forge_unshrunk_dual(file: dict) -> dict | None:
    """Prices are twice the strength, as the file admits, but the bound is the one of the point before shrinking."""
    if constant(file) is None:
        return None
    file["price_bound"] = 64 * max(sum(map(abs, column)) for column in zip(*file["dual"], strict=True))
    file["proofs"] = file["proofs"][-1:]
    columns = file["proofs"][0]["columns"]
    steps = n_faces(file, len(columns)) if columns[-1] == width(file) - 1 else 2 * len(columns)
    file["proofs"][0] |= {"code": "." * steps, "closer": []}
    return restate(file, Fraction(1))


def forge_price_that_vanishes(file: dict) -> dict | None:
    """As above, with an exponent that makes all prices zero as floats: such prices need no shrinking."""
    forged = forge_unshrunk_dual(file)
    if forged is None:
        return None
    forged["dual"] = [[d << 1500 for d in row] for row in forged["dual"]]
    return forged | {"price_bound": forged["price_bound"] << 1500, "dual_exponent": forged["dual_exponent"] - 1500}


def forge_zero_price_bound(file: dict) -> dict | None:
    """A price bound of zero means no shrinking: a checker that skips the search in this case accepts it."""
    return restate(file | {"price_bound": 0}) if constant(file) else None


def forge_negative_price_bound(file: dict) -> dict | None:
    """A negative price bound turns the dual point around: a checker without this range shrinks by a negative factor."""
    if file["loss"] != "squared":
        return None
    file["dual"] = [[-d for d in row] for row in file["dual"]]
    return restate(file | {"price_bound": -file["price_bound"]})


def forge_true_price_bound(file: dict) -> dict:
    """The price bound is `true`, which counts as one in Python, and the limit is said to hold."""
    return file | {"price_bound": True}


def forge_fractional_price_bound(file: dict) -> dict:
    """The price bound is a float slightly below the proven one: comparing with rounded sums accepts it."""
    return file | {"price_bound": file["price_bound"] * 0.999999999}


def forge_fractional_dual(file: dict) -> dict:
    """The dual point consists of floats: sums of rounded numbers are within a bound that exact ones are not."""
    file["dual"] = [[d * 1.0000001 for d in row] for row in file["dual"]]
    return file


def forge_stretched_dual(file: dict) -> dict | None:
    """All prices are larger by a billionth, the bound on them is not: box sums with a tolerance accept it."""
    if file["loss"] != "squared":
        return None
    file["dual"] = [[d + d // 10**9 for d in row] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_smaller_price_bound(file: dict) -> dict | None:
    """The bound on prices is smaller by a sixteenth and the dual point larger: the proof is for the former bound."""
    if file["loss"] != "squared":
        return None
    file["dual"] = [[17 * d for d in row] for row in file["dual"]]
    file |= {"neurons": [], "coef": [], "price_bound": 16 * file["price_bound"]}
    return restate(file)


def forge_price_bound_off_by_one(file: dict) -> dict | None:
    """The bound on prices is one too small where a neuron attains it: comparing with < instead of <= accepts it."""
    if len(file["inputs"]) < 2:
        return None
    file = small(file, search([0, 1], [[1, 0], [0, 1]], 1, "a" * 3))
    file["proofs"] = [search([0, 1], [[1, 0], [0, 1]], 1, "...")]
    return file


def forge_lower_sums(file: dict) -> dict | None:
    """Negative entries of the dual point are doubled: a checker that bounds sums from above only accepts it."""
    if file["loss"] != "squared" or all(d >= 0 for row in file["dual"] for d in row):
        return None
    file["dual"] = [[min(2 * d, d) for d in row] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_upper_sums(file: dict) -> dict | None:
    """Positive entries of the dual point are doubled: a checker that bounds sums from below only accepts it."""
    if file["loss"] != "squared" or all(d <= 0 for row in file["dual"] for d in row):
        return None
    file["dual"] = [[max(2 * d, d) for d in row] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_second_output(file: dict) -> dict | None:
    """Only the prices of the last output are too large: a checker that bounds the first one only accepts it."""
    if len(file["targets"][0]) < 2 or file["loss"] != "squared":
        return None
    file["dual"] = [[*row[:-1], 2 * row[-1]] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_first_output(file: dict) -> dict | None:
    """Only the prices of the first output are too large: a checker that bounds the last one only accepts it."""
    if len(file["targets"][0]) < 2 or file["loss"] != "squared":
        return None
    file["dual"] = [[2 * row[0], *row[1:]] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_mean_as_sum(file: dict) -> dict | None:
    """For the mean of T steps, prices are T times too large: multiplying the limit by T twice accepts it."""
    n_steps = len(file["inputs"][0])
    if file["readout"] != "mean" or n_steps < 2 or file["loss"] != "squared":
        return None
    file["dual"] = [[n_steps * d for d in row] for row in file["dual"]]
    file |= {"neurons": [], "coef": []}
    return restate(file)


def forge_unbalanced_dual(file: dict) -> dict | None:
    """With an intercept, the dual point must be balanced; one entry is changed, at hardly any price."""
    if not file["has_intercept"]:
        return None
    file["dual"][0][0] += 1 if file["dual"][0][0] > 0 else -1
    return file


def forge_balance_over_outputs(file: dict) -> dict | None:
    """The dual point sums to zero over all outputs, but not for each one."""
    if len(file["targets"][0]) < 2 or not sum(row[0] for row in file["dual"]):
        return None
    for row in file["dual"]:
        row[1] = -row[0]
    return restate(file | {"has_intercept": True})


def forge_intercept_for_free(file: dict) -> dict | None:
    """The statement is about networks with an intercept, the dual point was found without: it is not balanced."""
    return None if file["has_intercept"] else file | {"has_intercept": True}


def forge_hidden_intercept(file: dict) -> dict | None:
    """The network has an intercept, the statement says none: its objective is too good for the family."""
    if file["has_intercept"] or file["loss"] != "squared":
        return None
    means = [sum(map(number, column)) / len(file["targets"]) for column in zip(*file["targets"], strict=True)]
    file |= {"neurons": [], "coef": [], "intercept": [float(mean).hex() for mean in means]}
    return restate(file)


def outside_domain(file: dict, share: Fraction) -> dict | None:
    """Return a logistic file with a given share in its first row."""
    if file["loss"] != "logistic" or len(file["targets"][0]) > 1:
        return None
    n = len(file["targets"])
    unit = 1 << 400
    rows = [[0] for _ in range(n)]
    rows[0][0] = int(share * unit / n) * int(number(file["targets"][0][0]))
    other = next(i for i in range(n) if file["targets"][i] != file["targets"][0])
    rows[other][0] = -rows[0][0]
    file |= {"dual": rows, "dual_exponent": -400, "price_bound": 0}
    return restate(file)


def forge_share_above_one(file: dict) -> dict | None:
    """A share exceeds one by far less than a float can tell: checking the domain with floats accepts it."""
    return outside_domain(file, 1 + Fraction(1, 10**70))


def forge_share_below_zero(file: dict) -> dict | None:
    """A share is negative by far less than a float can tell: checking the domain with a tolerance accepts it."""
    return outside_domain(file, -Fraction(1, 10**70))


def forge_share_far_outside(file: dict) -> dict | None:
    """A share of three, the entropy of which is taken to be zero: a checker without the domain accepts it."""
    return outside_domain(file, Fraction(3))


def forge_labels_of_two(file: dict) -> dict | None:
    """Labels of ±2 make margins twice as large: the bound of the logistic loss holds for ±1 only."""
    if file["loss"] != "logistic" or len(file["targets"][0]) > 1:
        return None
    file["targets"] = [[(2 * float.fromhex(y)).hex() for y in row] for row in file["targets"]]
    file["dual"] = [[d // 4 for d in row] for row in file["dual"]]
    file["dual"][0][0] -= sum(d for [d] in file["dual"])
    return file


def forge_zero_label(file: dict) -> dict | None:
    """A label of zero has no loss to speak of: the domain is not checked where the label is zero."""
    if file["loss"] != "logistic":
        return None
    file["targets"][0] = [ZERO]
    return file


def forge_huge_target(file: dict) -> dict | None:
    """A target of 1e300 overflows where squares are floats: infinity is above every bound."""
    if file["loss"] != "squared":
        return None
    file["targets"][0][0] = (1e300).hex()
    file["lower_bound"] = (1.7e308).hex()
    file["primal"] = (1.75e308).hex()
    return file


def forge_large_exponent(file: dict) -> dict:
    """An exponent of the dual point beyond the range: powers of two take all memory."""
    return file | {"dual_exponent": 10**12}


def forge_small_exponent(file: dict) -> dict:
    """An exponent of the dual point below the range: as a float, every price is zero."""
    return file | {"dual_exponent": -(10**12), "price_bound": 0}


def forge_fractional_exponent(file: dict) -> dict:
    """The exponent is a float: the dual point is no longer exact."""
    return file | {"dual_exponent": file["dual_exponent"] + 0.5}


# ---- the family ------------------------------------------------------------------------------------------------------


def forge_resets_of_two(file: dict) -> dict | None:
    """Spikes are counted twice if `resets` is 2: the network is rolled out with twice its thresholds."""
    if not file.get("resets", True) or len(file["inputs"][0]) == 1:
        return None
    return file | {"resets": 2}


def forge_resets_of_one(file: dict) -> dict:
    """`resets` is the number 1, not `true`."""
    return file | {"resets": 1}


def forge_resets_as_text(file: dict) -> dict:
    r"""`resets` is the text \"false\", which is true in Python."""
    return file | {"resets": "false"}


def forge_no_resets(file: dict) -> dict | None:
    """The proof is for neurons with resets, the statement for neurons without."""
    if not file.get("resets", True) or len(file["inputs"][0]) == 1 or constant(file) is None:
        return None
    return restate(file | {"resets": False})


def forge_resets_by_default(file: dict) -> dict | None:
    """Left out, `resets` is true; the proof is for neurons without resets, and too short for those with."""
    if file.pop("resets", True):
        return None
    return restate(file)


def forge_negative_thresholds(file: dict) -> dict | None:
    """The statement is about all thresholds, the proof about θ ≥ 0 only: a checker that keeps the wall accepts it."""
    return restate(file | {"negative_threshold": True}) if walls_only(file) else None


def forge_negative_thresholds_one_side(file: dict) -> dict:
    """Only neurons with θ < 0 tell the sequences apart, and these are in the face that the proof leaves out."""
    forged = small(file, search([0, 1], [[1, 0], [0, 1]], 1, "..a.."), second=(1, -2))
    forged |= {"inputs": [[[1], [-3]], [[1], [-2]]], "negative_threshold": True}
    return restate(forged)


def forge_numbers_as_booleans(file: dict) -> dict:
    """`bias` and the others are 0 and 1: a statement that readers and programs may understand differently."""
    return file | {name: int(file[name]) for name in ("bias", "negative_threshold", "has_intercept")}


def forge_no_bias(file: dict) -> dict | None:
    """The family has no bias, the rows of the network and of the search still do."""
    return file | {"bias": False} if file["bias"] else None


def forge_extra_bias(file: dict) -> dict | None:
    """The family has a bias, the proof was found without one."""
    if file["bias"]:
        return None
    file["neurons"] = [[*row[:-1], 0, row[-1]] for row in file["neurons"]]
    return file | {"bias": True}


def forge_other_readout(file: dict) -> dict | None:
    """The proof is about the last step, the statement about the mean over steps, which has other prices."""
    if file["readout"] != "last" or len(file["inputs"][0]) == 1 or constant(file) is None:
        return None
    return restate(file | {"readout": "mean"})


def forge_unknown_readout(file: dict) -> dict:
    """A read-out that is not known is taken for the last one of the cases."""
    return file | {"readout": "Last"}


def forge_unknown_loss(file: dict) -> dict:
    """A loss that is not known is taken for the last one of the cases."""
    return file | {"loss": "hinge"}


def forge_other_penalty(file: dict) -> dict:
    """The bound holds for the L1 penalty only."""
    return file | {"penalty": "l2"}


def forge_other_format(file: dict) -> dict:
    """A version of the format for which other rules may hold."""
    return file | {"format": file["format"][:-1] + "2"}


def forge_decay_above_one(file: dict) -> dict:
    """A decay of more than one, out of range."""
    return file | {"decay": [3, 2]}


def forge_negative_decay(file: dict) -> dict:
    """With a negative decay, the sums of ones may be negative, and a bias is no lift."""
    return file | {"decay": [-1, 2]}


def forge_negative_denominator(file: dict) -> dict:
    """p/q with both negative is a decay between 0 and 1, but scaling by q turns inequalities around."""
    p, q = file["decay"]
    return file | {"decay": [-p, -q]}


def forge_zero_denominator(file: dict) -> dict:
    """With q = 0, every step after the first is scaled to nothing, so that all its events are ties."""
    return file | {"decay": [0, 0]}


def forge_decay_of_three(file: dict) -> dict:
    """A third entry of the decay is ignored by a checker that indexes."""
    return file | {"decay": [*file["decay"], 1]}


def forge_fractional_decay(file: dict) -> dict:
    """A decay of floats makes sums inexact."""
    return file | {"decay": [file["decay"][0] / file["decay"][1], 1]}


# ---- sizes -----------------------------------------------------------------------------------------------------------


def forge_missing_dual_row(file: dict) -> dict:
    """The last row has no dual entries: a loop over pairs leaves it out of the bound and of the prices."""
    file["dual"].pop()
    return file


def forge_extra_target_row(file: dict) -> dict:
    """There is a row of targets without a sequence, which makes the means smaller."""
    file["targets"].append(file["targets"][-1])
    return file


def forge_missing_sequence(file: dict) -> dict | None:
    """There are fewer sequences than targets: a loop over pairs leaves out their prices."""
    if len(file["inputs"]) < 2:
        return None
    file["inputs"].pop()
    return file


def forge_short_sequence(file: dict) -> dict | None:
    """The last sequence has fewer steps: its tree has fewer events."""
    if len(file["inputs"][0]) < 2:
        return None
    file["inputs"][-1].pop()
    return file


def forge_short_step(file: dict) -> dict:
    """A step of the last sequence has no features: a product of vectors of unequal lengths leaves out the rest."""
    file["inputs"][-1][-1] = []
    return file


def forge_long_step(file: dict) -> dict:
    """A step of the last sequence has a feature that no neuron reads."""
    file["inputs"][-1][-1].append(1)
    return file


def forge_no_data(file: dict) -> dict:
    """There are no sequences: nothing is to be shown."""
    return file | {"inputs": [], "targets": [], "dual": []}


def forge_no_outputs(file: dict) -> dict:
    """There are no outputs: every bound on prices holds."""
    rows = [[] for _ in file["targets"]]
    return file | {"targets": rows, "dual": rows, "intercept": [], "coef": [[] for _ in file["coef"]]}


def forge_fractional_input(file: dict) -> dict:
    """An input is a float: the events of the proof are not those of the data."""
    file["inputs"][0][0][0] += 0.5
    return file


def forge_true_input(file: dict) -> dict:
    """An input is `true`, which Python adds like a number."""
    file["inputs"][0][0][0] = True
    return file


def forge_missing_coefficients(file: dict) -> dict | None:
    """The last neuron has no weights: a loop over pairs leaves it out."""
    if not file["coef"]:
        return None
    file["coef"].pop()
    return file


def forge_short_coefficients(file: dict) -> dict | None:
    """The last neuron has no weight for the last output: a loop over pairs leaves it out."""
    if not file["coef"]:
        return None
    file["coef"][-1].pop()
    return file


def forge_long_neuron(file: dict) -> dict | None:
    """A neuron has a parameter too many: its last one is taken for the threshold."""
    if not file["neurons"]:
        return None
    file["neurons"][0].append(0)
    return file


def forge_short_neuron(file: dict) -> dict | None:
    """A neuron has a parameter too few: its bias, or its last weight, is taken for the threshold."""
    if not file["neurons"]:
        return None
    file["neurons"][0].pop()
    return file


def forge_negative_threshold_neuron(file: dict) -> dict | None:
    """The network has a neuron with a negative threshold, which is not of the family."""
    if file["negative_threshold"] or not file["neurons"]:
        return None
    file["neurons"][0][-1] = -abs(file["neurons"][0][-1]) - 1
    return restate(file)


def forge_missing_name(file: dict) -> dict:
    """Without a price bound, a default may be taken."""
    del file["price_bound"]
    return file


def forge_unknown_name(file: dict) -> dict:
    """A name with a different spelling states something that is not checked."""
    return file | {"Lower_bound": file["primal"]}


# ---- coordinates -----------------------------------------------------------------------------------------------------


def forge_long_basis(file: dict) -> dict:
    """Rows of the basis are independent only beyond the columns: products that stop there are all zero."""
    return small(file, search([0, 1], [[0, 0, 1, 0], [0, 0, 0, 1]], 1, "..."))


def forge_short_basis(file: dict) -> dict:
    """Rows of the basis are shorter than the columns: the threshold is left out of all products."""
    return small(file, search([0, 1], [[1], [1]], 1, "..."))


def forge_missing_basis_row(file: dict) -> dict:
    """The basis has fewer rows than there are columns: not all neurons are reached."""
    return small(file, search([0, 1], [[0, 1]], 1, "."))


def forge_extra_basis_row(file: dict) -> dict:
    """The basis has more rows than there are columns."""
    return small(file, search([0, 1], [[1, 0], [1, 0], [0, 1]], 1, "....."))


def forge_zero_row(file: dict) -> dict:
    """A row of the basis is zero: only neurons with w = 0 are looked at."""
    return small(file, search([0, 1], [[0, 0], [0, 1]], 1, "..."))


def forge_dependent_rows(file: dict) -> dict | None:
    """The rows of the basis are all equal: only two neurons and a tie are looked at."""
    if constant(file) is None or not file["bias"]:
        return None
    n_columns = width(file) - 1
    row = [0] * (n_columns - 1) + [1]
    file["proofs"] = [search([*range(n_columns)], [row] * n_columns, 4, "." * 2 * n_columns)]
    return file


def forge_missing_column(file: dict) -> dict:
    """The threshold is not among the columns: only neurons with θ = 0 are looked at."""
    return small(file, search([0], [[1]], 1, ".."))


def forge_missing_weight(file: dict) -> dict:
    """The weight is not among the columns: only neurons with w = 0 are looked at."""
    return small(file, search([1], [[1]], 1, "."))


def forge_missing_columns_of_file(file: dict) -> dict | None:
    """Only the threshold is looked at: if there is one step, all events are ties and fire."""
    if constant(file) is None or len(file["inputs"][0]) > 1:
        return None
    file["proofs"] = [search([width(file) - 1], [[1]], 1, "." * n_faces(file, 1))]
    return file


def forge_no_columns(file: dict) -> dict:
    """A search without columns has no faces, so that nothing is left to show."""
    return small(file, search([], [], 1, ""))


def forge_repeated_column(file: dict) -> dict:
    """A column is given twice, and the threshold not at all."""
    return small(file, search([0, 0], [[1, 0], [0, 1]], 1, "...."))


def forge_decreasing_columns(file: dict) -> dict:
    """The threshold is the first column: the half of the cube that is looked at is the one of the weight."""
    return small(file, search([1, 0], [[-1, 0], [0, 1]], 1, "..."))


def forge_negative_column(file: dict) -> dict:
    """Column -1 is the threshold, counted from the end, and not taken for it."""
    return small(file, search([-1, 0], [[1, 0], [0, 1]], 1, "...."))


def forge_column_out_of_range(file: dict) -> dict:
    """A column beyond the parameters."""
    return small(file, search([0, 2], [[1, 0], [0, 1]], 1, "..."))


def forge_true_column(file: dict) -> dict:
    """Columns are booleans, which Python takes for 0 and 1."""
    return small(file, search([False, True], [[1, 0], [0, 1]], 1, "..."))


def forge_downward_threshold(file: dict) -> dict:
    """The coordinate of the threshold points downwards: where it is positive, θ is negative."""
    return small(file, search([0, 1], [[1, 0], [0, -1]], 1, "..a.."))


def forge_slanted_threshold(file: dict) -> dict:
    """Another coordinate changes the threshold: a positive last one does not mean θ ≥ 0, but θ ≥ 8w."""
    return small(file, search([0, 1], [[1, 8], [0, 1]], 1, "..a.."))


def forge_sheared_threshold(file: dict) -> dict:
    """The coordinate of the threshold changes the weight, too: it is no coordinate of its own."""
    return small(file, search([0, 1], [[1, 0], [-8, 1]], 1, "..."))


def forge_fractional_basis(file: dict) -> dict:
    """A basis of floats, with products that are rounded."""
    return small(file, search([0, 1], [[1e-320, 0.0], [0.0, 1e300]], 1, "..."))


def forge_no_search(file: dict) -> dict | None:
    """There is no search at all, which is allowed only if there is nothing to search."""
    return restate(file | {"proofs": []}) if constant(file) else None


# ---- boxes -----------------------------------------------------------------------------------------------------------


def forge_level_zero(file: dict) -> dict:
    """At level 0, half of the side is rounded to nothing: only θ = 0 is looked at on the faces of the weight."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], 0, "..."))


def forge_negative_level(file: dict) -> dict:
    """A cube of negative level has no size, or one that is no integer."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], -1, "..."))


def forge_huge_level(file: dict) -> dict:
    """A cube of side 2^(10^12) takes all memory."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], 10**12, "..."))


def forge_true_level(file: dict) -> dict:
    """The level is `true`, which Python takes for 1."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], True, "b...."))


def forge_wide_box(file: dict) -> dict:
    """The neurons that tell the sequences apart are in the first box, the bounds of which are not looked at."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], 4, "..."))


def forge_wide_box_tilted(file: dict) -> dict:
    """As above, with a linear bound that does not hold."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], 4, ",,,"))


def forge_missing_face(file: dict) -> dict:
    """The list of boxes ends before the last face, which has all neurons that tell the sequences apart."""
    return small(file, search([0, 1], [[16, 0], [0, 1]], 1, ".."))


def forge_empty_code(file: dict) -> dict | None:
    """The list of boxes is empty."""
    if constant(file) is None:
        return None
    for one in file["proofs"]:
        one |= {"code": "", "closer": []}
    return file


def forge_missing_half(file: dict) -> dict:
    """The last box is halved and its upper half left out."""
    return small(file, search([0, 1], [[16, 0], [0, 1]], 2, "..a."))


def forge_longer_code(file: dict) -> dict | None:
    """Boxes after the last one: the faces are not those that the author of the file had in mind."""
    file["proofs"][-1]["code"] += "."
    return file


def forge_odd_half(file: dict) -> dict:
    """A half side of 1 is halved to 0: only the middle of the box is looked at."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "b...."))


def forge_halved_face(file: dict) -> dict:
    """A face is halved along the coordinate in which it has no extent."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "a...."))


def forge_axis_from_the_end(file: dict) -> dict:
    """The character before `a` is coordinate -1, counted from the end: here of half side 1, which becomes 0."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "`...."))


def forge_axis_out_of_range(file: dict) -> dict:
    """A box is halved along a coordinate that it does not have: what is left out are both halves."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "z...."))


def forge_capital_axis(file: dict) -> dict:
    """Capital letters are no coordinates, but counted from the end they may be."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "A...."))


def forge_wide_letter(file: dict) -> dict:
    """A letter that looks like `b`, of another alphabet."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "\uff42...."))


def forge_half_a_letter(file: dict) -> dict:
    """Half of a character, which cannot be written or printed."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "\ud800...."))


def forge_code_as_list(file: dict) -> dict:
    """The code is a list of texts: an empty one ends the list of boxes, or is no box at all."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, ["", ".", "."]))


def forge_space_as_box(file: dict) -> dict:
    """A character without meaning is skipped, or taken for a box that was looked at."""
    return small(file, search([0, 1], [[1, 0], [0, 4]], 1, " .."))


# ---- closer looks ----------------------------------------------------------------------------------------------------


def forge_factor_zero(file: dict) -> dict:
    """A factor of 0 shrinks the box to its middle, where no event is open."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[0, -1]]))


def forge_negative_factor(file: dict) -> dict:
    """A negative factor turns the box inside out: every event is decided."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[-5, -1]]))


def forge_fractional_factor(file: dict) -> dict:
    """A factor between 0 and 1 shrinks the box."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[0.25, -1]]))


def forge_look_without_search(file: dict) -> dict:
    """A closer look without a search, although there are open events."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, -1]]))


def forge_look_at_itself(file: dict) -> dict:
    """A closer look that uses the search it belongs to: what is to be shown is taken for known."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, 0]]))


def forge_look_from_the_end(file: dict) -> dict:
    """Search -2, counted from the end."""
    searches = [search([0], [[1]], 1, ".."), search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, -2]])]
    return small(file, searches)


def forge_look_ahead(file: dict) -> dict:
    """Two searches that use each other."""
    look = search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, 1]])
    return small(file, [look, {**look, "closer": [[1, 0]]}])


def forge_look_with_same_columns(file: dict) -> dict:
    """A closer look that has no fewer columns, and only the faces without the neurons in question."""
    inner = search([0, 1], [[1, 0], [0, 16]], 1, "b....")
    return small(file, [inner, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, 0]])])


def forge_look_with_fewer_columns(file: dict) -> dict:
    """A closer look in which the threshold is open, with a search that leaves it out."""
    inner = search([0], [[1]], 1, "..")
    return small(file, [inner, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, 0]])])


def forge_missing_look(file: dict) -> dict:
    """A box with a closer look that is not given."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", []))


def forge_look_at_everything(file: dict) -> dict | None:
    """Every face gets a closer look without a search."""
    if constant(file) is None:
        return None
    for one in file["proofs"]:
        faces = 2 * len(one["columns"])
        one |= {"code": "!" * faces, "closer": [[1, -1]] * faces}
    return file


def forge_unused_look(file: dict) -> dict | None:
    """A closer look that no box asks for."""
    if not file["proofs"]:
        return None
    file["proofs"][-1]["closer"].append([1, -1])
    return file


def forge_look_of_three(file: dict) -> dict:
    """A closer look with a third entry, which shifts the pairs of a flat list."""
    return small(file, search([0, 1], [[1, 0], [0, 16]], 1, "!..", [[1, -1, 0]]))


def forge_last_search_is_easy(file: dict) -> dict | None:
    """The last search of the file is easy; the one for all neurons is not looked at."""
    if len(file["proofs"]) < 2:
        return None
    file["proofs"].append(file["proofs"][0])
    return file


def forge_search_field(file: dict) -> dict:
    """A search with a field that is not known."""
    file["proofs"][-1]["is_checked"] = True
    return file


# ---- ties and walls --------------------------------------------------------------------------------------------------


def ties(file: dict, inputs: list, code: str) -> dict:
    """State that no neuron fires for two sequences, which only those with w = 0 do."""
    forged = small(file, search([0], [[1]], 1, code))
    forged |= {"inputs": inputs, "targets": [[ONE], [ONE]], "dual": [[1], [1]], "dual_exponent": -4, "price_bound": 1}
    return restate(forged)


def forge_ties(file: dict) -> dict:
    """Without a lift, neurons with w = 0 fire for both sequences: looking at generic ones only accepts it."""
    return ties(file, [[[1]], [[-1]]], "..")


def forge_lift_of_one_sequence(file: dict) -> dict:
    """One sequence has a lift, the other has none."""
    return ties(file, [[[2]], [[-1]]], "..")


def forge_boundary_tie(file: dict) -> dict:
    """The price is too large only where a box ends, at a tie of two events; without a lift it counts."""
    file = small(file, search([0, 1], unit_basis(2), 2, "a..a..b..b.."))
    file |= {
        "inputs": [[[1, 0]], [[-1, 0]]], "targets": [[ONE], [ONE]], "dual": [[1], [1]], "dual_exponent": -4,
        "price_bound": 1, "resets": False,
    }  # fmt: skip
    file["proofs"] = [search([0], [[1]], 2, "..")]
    return restate(file)


def forge_zero_inputs(file: dict) -> dict:
    """All inputs are zero, so all events are ties and fire: no search is needed, but the sum is too large."""
    forged = ties(file, [[[0]], [[0]]], "..")
    return forged | {"proofs": []}


def forge_threshold_without_reset(file: dict) -> dict:
    """The first step is a tie and fires, so the second depends on θ alone, which the search leaves out."""
    forged = small(file, search([0], [[1]], 1, ".."))
    forged |= {"inputs": [[[0], [0]], [[0], [1]]]}
    return restate(forged)


# ---- other data ------------------------------------------------------------------------------------------------------


def forge_smaller_targets(file: dict) -> dict | None:
    """The targets are halved; bound and proof are those of the former ones."""
    if file["loss"] != "squared":
        return None
    file["targets"] = [[(float.fromhex(y) / 2).hex() for y in row] for row in file["targets"]]
    file["primal"] = above(loss(file) + penalty(file))
    return file


def forge_turned_sequence(file: dict) -> dict | None:
    """All inputs of one sequence change their signs; the proof is about the former ones."""
    own = max(range(len(file["inputs"])), key=lambda i: abs(file["dual"][i][0]))
    file["inputs"][own] = [[-x for x in step] for step in file["inputs"][own]]
    return constant(file)


def forge_constant_network(file: dict) -> dict | None:
    """A constant network is said to be optimal, with the proof of something else."""
    return constant(file)


def forge_constant_network_by_dots(file: dict) -> dict | None:
    """A constant network is said to be optimal, and every face to be within the limit."""
    if constant(file) is None:
        return None
    one = file["proofs"][-1]
    steps = n_faces(file, len(one["columns"])) if one["columns"][-1] == width(file) - 1 else 2 * len(one["columns"])
    one |= {"code": "." * steps, "closer": []}
    return file


# ---- texts -----------------------------------------------------------------------------------------------------------


def better(file: dict) -> str:
    """Return a bound that is too good."""
    return nextafter(float.fromhex(above(bound(file))), inf).hex()


def forge_name_twice(file: dict) -> str:
    """The bound is given twice: one parser takes the first value, another one the last."""
    return text_of(file)[:-1] + f', "lower_bound": "{better(file)}"}}'


def forge_name_twice_in_disguise(file: dict) -> str:
    """The bound is given twice, once with an escaped character in its name."""
    return f'{{"lower\\u005fbound": "{better(file)}", ' + text_of(file)[1:]


def forge_code_twice(file: dict) -> str:
    """The code of a search is given twice."""
    return text_of(file).replace('"code": ', '"code": "", "code": ')


def forge_two_files(file: dict) -> str:
    """Two objects in one text: the first one is honest, the second one is not."""
    honest = text_of(file)
    return honest + "\n" + text_of(file | {"lower_bound": better(file)})


def forge_byte_order_mark(file: dict) -> str:
    """A byte order mark before a file with a bound that is too good."""
    return "\ufeff" + text_of(file | {"lower_bound": better(file)})


def forge_not_json_number(file: dict) -> str:
    """A number that JSON does not have, but Python reads."""
    return text_of(file | {"price_bound": float("nan")})


def forge_infinite_number(file: dict) -> str:
    """An integer that Python reads as an infinite float."""
    return text_of(file | {"price_bound": -1}).replace('"price_bound": -1', '"price_bound": 1e999')


def forge_long_integer(file: dict) -> str:
    """An integer of 100,000 digits."""
    return text_of(file | {"price_bound": -1}).replace('"price_bound": -1', '"price_bound": ' + "9" * 100_000)


def forge_many_bits(file: dict) -> dict:
    """An integer with more bits than allowed, but fewer digits than Python refuses."""
    return file | {"price_bound": 1 << 2048}


def forge_integer_as_float(file: dict) -> str:
    """A dual entry like 1.0 is a float, which has 53 bits."""
    first = file["dual"][0][0]
    return text_of(file).replace(f'"dual": [[{first}', f'"dual": [[{first}.0', 1)


def forge_deep_text(file: dict) -> str:
    """A hint of very many nested lists, before a bound that is too good."""
    deep = "[" * 100_000 + "]" * 100_000
    return f'{{"pending": {deep}, ' + text_of(file | {"lower_bound": better(file)})[1:]


def forge_decimal_float(file: dict) -> dict:
    """The bound is a decimal number, which reading rounds."""
    return file | {"lower_bound": repr(float.fromhex(file["lower_bound"]))}


def forge_plain_float(file: dict) -> dict:
    """The bound is a JSON number, not a text."""
    return file | {"lower_bound": float.fromhex(file["lower_bound"])}


def forge_rounded_hexadecimal(file: dict) -> dict:
    """The objective has more digits than a float: what is written is below the truth, what is read may not be."""
    mantissa, exponent = file["primal"].split("p")
    return file | {"primal": f"{mantissa}00000001p{exponent}"}


def forge_hexadecimal_spaces(file: dict) -> dict:
    """The bound has spaces around it, which Python ignores and others may not."""
    return file | {"lower_bound": f" {file['lower_bound']}\n"}


def forge_capital_hexadecimal(file: dict) -> dict:
    """The bound is spelled in capitals."""
    return file | {"lower_bound": file["lower_bound"].upper()}


def forge_list_of_files(file: dict) -> str:
    """A list with the file in it."""
    return text_of([file])


def forge_cut_text(file: dict) -> str:
    """The end of the file is missing."""
    return text_of(file)[:-2]


def all_ideas() -> Iterator[tuple[str, object]]:
    """Yield the names and functions of all ideas."""
    for name, idea in globals().items():
        if name.startswith("forge_"):
            yield name, idea
