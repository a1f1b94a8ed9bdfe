"""Fitted models with one thing changed, in memory or in their file: what is certified is what answers, or is refused.

After the change, the objective is computed again from what the network answers on the training data and from its
weights, in decimal numbers and without the code of the library. Every number that is stated must be that one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor, nn
from typer.testing import CliRunner

import cvxsnn as cs
from cvxsnn import cli
from cvxsnn.convex.penalties import Penalty, make_penalty
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.fitting import SurrogateSettings

from .exact import DIGITS, ZERO, ExactProblem, by_columns, decimals, loss_value
from .harness import Finding, Hunt

Generator = np.random.Generator
Place = tuple[Any, ...]

ROUNDED = Decimal("1e-9")
"""Relative difference that may be rounding."""

_X = np.random.default_rng(0).normal(size=(24, 9, 2))
_SUMS = _X.sum((1, 2))
_LABELS = np.array(["high", "low", "middle"])[np.digitize(_SUMS, np.quantile(_SUMS, [0.35, 0.7]))]
_WEIGHT = np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(_X))
_OPTIONS = {"random_state": 0, "n_neurons": 12, "verbose": False}
_PLAIN = {"l1_strength": 0.01, **_OPTIONS}


@dataclass(frozen=True)
class Data:
    """What a model is fitted to."""

    X: Any
    y: Any
    weight: Any = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of fit and certify."""
        return (self.X, self.y, self.weight)


_CLASSES, _BINARY = Data(_X, _LABELS), Data(_X, _SUMS > 0)
_KINDS: tuple[tuple[Callable[[], Any], Data], ...] = (
    (lambda: cs.SpikingClassifier(**_OPTIONS), _CLASSES),
    (lambda: cs.SpikingClassifier(witnesses="mixed", **_OPTIONS), Data(_X[:, :5], _SUMS > 0, _WEIGHT)),
    (lambda: cs.SpikingClassifier(sparsity=4, **_OPTIONS), _CLASSES),
    (lambda: cs.SpikingRegressor(sparsity="few", **_OPTIONS), Data(_X[:, :5], _SUMS, _WEIGHT)),
    (lambda: cs.SpikingRegressor(**_OPTIONS), Data(_X, _X[:, 0])),
    (lambda: cs.SpikingClassifier(witnesses="gaussian", loss="softmax", penalty="group", **_PLAIN), _CLASSES),
    (
        lambda: cs.SpikingClassifier(
            witnesses={"decay": 0.5}, loss="hinge", readout="windows-2", class_weight="balanced", **_PLAIN
        ),
        _CLASSES,
    ),
    (lambda: cs.SpikingClassifier(witnesses={"neuron": "threshold"}, loss="logistic", **_PLAIN), _BINARY),
    (
        lambda: cs.SpikingClassifier(
            witnesses="delayed", loss="squared_hinge", l2_strength=0.01, penalty="elastic-net", **_PLAIN
        ),
        _BINARY,
    ),
    (
        lambda: cs.SpikingRegressor(
            witnesses={"n_subnetworks": 2}, hidden=(4, 5), l2_strength=0.1, l1_strength=0.0, readout="last",
            penalty="group-elastic-net", random_state=0, verbose=False,
        ),
        Data(_X, _X[:, 0]),
    ),
    (
        lambda: cs.SpikingClassifier(
            method="sg-cvx", witnesses="gaussian", surrogate=SurrogateSettings(epochs=1), **_PLAIN
        ),
        _BINARY,
    ),
    (lambda: cs.SpikingClassifier(witnesses=cs.gaussian_witnesses(2, (8,), seed=1), **_PLAIN), _CLASSES),
)  # fmt: skip

_SEEN_WITH_DATA = (
    *("certificate", "certificate_", "l1_strength", "l2_strength", "penalty", "unit", "class_weight"),
    *("classes", "classes_", "input_scale_", "scale.mean", "scale.spread", "proof.unit"),
)
"""Places of which a summary, which sees no data, cannot tell that its objective is not theirs."""


def case(rng: Generator, folder: Path) -> str:
    """Fit one model, change one thing, and check all that is stated about it."""
    torch.set_num_threads(1)
    number, path = int(rng.integers(len(_KINDS))), folder / "model"
    data = _KINDS[number][1]
    if rng.integers(2):
        model = _fitted(number)
        place = _draw_place(rng, model)
        if not _change(rng, model, place, keeps_shape=True):
            return "no change"
        told = f"model {number}, {'.'.join(map(str, place))} is {_show(_get(model, place))}"
        verdicts = [_judge(model, data, place, told)]
        if _tolerant(lambda: cs.save(model, path), told):
            verdicts += _judge_file(path, data, place, told)
    else:
        path.write_bytes(_file(number))
        tensors, header = read_tensors(path, "model")
        parts = {"tensors": tensors, "header": header}
        place = _draw_place(rng, parts)
        if not _change(rng, parts, place):
            return "no change"
        told = f"file {number}, {'.'.join(map(str, place))} is {_show(_get(parts, place))}"
        path.unlink()
        write_tensors(path, "model", tensors, header)
        verdicts = _judge_file(path, data, place, told)
    where = "memory" if place[0] not in ("tensors", "header") else "file"
    return f"{where}, {'refused' if 'refused' in verdicts else 'true'}"


# ---- judges ----------------------------------------------------------------------------------------------------------


def _judge_file(path: Path, data: Data, place: Place, told: str) -> list[str]:
    """Check what a model says that is loaded from a file, and what the command says of it."""
    loaded = _tolerant(lambda: cs.load(path), told)
    verdicts = ["refused"] if loaded is None else [_judge(loaded, data, place, f"loaded, {told}")]
    arrays = {"X": data.X, "y": data.y} | ({} if data.weight is None else {"sample_weight": data.weight})
    np.savez(path.with_name("data.npz"), **arrays)
    outcome = CliRunner().invoke(cli.app, ["certify", str(path), str(path.with_name("data.npz"))])
    if outcome.exit_code == 0:
        if verdicts == ["refused"]:
            raise Finding(f"{told}: refused by certify, and accepted by the command: {outcome.output}")
        certificate, stated = loaded.certify(*data.arguments), loaded.certificate_
        if f"found now:  {certificate}" not in outcome.stdout:
            raise Finding(f"{told}: certified {certificate}, and the command says {outcome.stdout}")
        if stated.scope != certificate.scope:
            raise Finding(f"{told}: the scope is {certificate.scope}, and the command quotes {outcome.stdout}")
    elif outcome.exit_code not in (1, 2) or not isinstance(outcome.exception, SystemExit):
        raise Finding(f"{told}: {outcome.exception!r} with status {outcome.exit_code}") from outcome.exception
    elif outcome.exit_code == 1 and not outcome.stderr.splitlines()[-1].startswith("cvxsnn: "):
        raise Finding(f"{told}: expected one sentence, got {outcome.stderr}")
    return verdicts


def _judge(model: Any, data: Data, place: Place, told: str) -> str:
    """Check the certificate and the summary of a model."""
    summary = _tolerant(model.summary, told)
    certificate = _tolerant(lambda: model.certify(*data.arguments), told)
    if certificate is not None:
        true = _objective(model, data)
        _compare(certificate, true, told)
        best = cs.solve(model.proof_.problem(model.training_set(*data.arguments)), 1e-3, max_seconds=1.0).certificate
        if Decimal(certificate.dual) > Decimal(best.primal) * (1 + ROUNDED):
            raise Finding(f"{told}: certified {certificate!r}, and other weights have {best!r}")
        is_unseen = any(name in _SEEN_WITH_DATA for name in place)
        if summary is not None and not is_unseen:
            _compare(summary.certificate, true, f"summary, {told}")
            if summary.certificate.scope != certificate.scope:
                raise Finding(f"{told}: the scope is {certificate.scope}, the summary says {summary}")
    return "refused" if certificate is None else "true"


def _compare(certificate: cs.Certificate, true: Decimal, told: str) -> None:
    primal = Decimal(certificate.primal)
    if not abs(primal - true) <= ROUNDED * true:
        raise Finding(f"{told}: the objective is stated to be {certificate.primal!r}, and it is {true:.20g}")
    if not certificate.gap >= 0 or Decimal(certificate.dual) > true:
        raise Finding(f"{told}: {certificate!r}, and the objective is {true:.20g}")


def _tolerant(call: Callable[[], Any], told: str) -> Any:
    """Return the result of a call, True in place of None, or None if it has refused in one sentence."""
    try:
        result = call()
    except CvxsnnError as error:
        if "\n" in str(error) or not str(error):
            raise Finding(f"{told}: expected one sentence, got {str(error)!r}") from error
        return None
    except Exception as error:
        error.add_note(told)
        raise
    return True if result is None else result


def _objective(model: Any, data: Data) -> Decimal:
    """Return loss plus penalty of what the network of a model answers on the training data."""
    network, proof = model.network_, model.proof_
    with torch.no_grad():
        sequences = model.as_sequences(data.X)
        features, scores = network.features(sequences).double().numpy(), network(sequences).numpy()
    weight = np.ones(len(scores)) if data.weight is None else data.weight
    if getattr(model, "class_weight", None) is not None:
        weight = weight * compute_sample_weight(model.class_weight, data.y)
    loss, coef = network.heads[0].loss, network.weight.detach().numpy()
    targets = _encode(model, data.y, loss, scores.shape[1])
    with localcontext(DIGITS):
        of_rows = decimals(weight)
        rows = [loss_value(loss, decimals(f), decimals(y)) for f, y in zip(scores, targets, strict=True)]
        total = sum((w * row for w, row in zip(of_rows, rows, strict=True)), ZERO) / sum(of_rows, ZERO)
        unit = np.ones(len(coef))
        if proof.unit is not None:  # rows of the network and of the proof have the same order of columns
            order, support = np.argsort(network.columns.numpy(), kind="stable"), proof.support.sort().values
            order = order[coef[order].any(1)]
            unit[order] = proof.unit[support].numpy()
        coef = coef / unit[:, None]
        # Neurons with equal spikes count as one; statistics do not.
        _, atom = np.unique(features.T, axis=0, return_inverse=True)
        merged = np.zeros((atom.max() + 1, coef.shape[1]))
        np.add.at(merged, atom.ravel(), coef)
        is_group, strengths = "group" in proof.penalty.name, (Decimal(proof.l1_strength), Decimal(proof.l2_strength))
        penalty = ExactProblem([], [], [], is_group, False, *strengths).penalty
        return total + penalty(by_columns(merged if proof.unit is None else coef))


def _encode(model: Any, y: Any, loss: str, n_outputs: int) -> np.ndarray:
    """Return targets as a loss reads them."""
    if isinstance(model, cs.SpikingRegressor):
        return np.asarray(y, dtype=float).reshape(len(y), -1)
    is_class = np.asarray(y)[:, None] == np.asarray(model.classes_)[None]
    if n_outputs == 1:
        is_class = is_class[:, 1:]
    return 1.0 * is_class if loss == "softmax" or (loss == "squared" and n_outputs > 1) else 2.0 * is_class - 1


# ---- places ----------------------------------------------------------------------------------------------------------


def _children(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value by their names; None if it has none."""
    if isinstance(value, BaseEstimator):
        return {name: part for name, part in vars(value).items() if name != "history_"}
    if isinstance(value, nn.Module):
        own = {name: vars(value)[name] for name in ("heads", "readout") if name in vars(value)}
        return {**value._parameters, **value._buffers, **value._modules, **own}
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value):
        return {own.name: getattr(value, own.name) for own in fields(value)}
    return None


def _leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    parts = _children(value)
    if parts is None:
        yield place
    for name, part in (parts or {}).items():
        yield from _leaves(part, (*place, name))


def _draw_place(rng: Generator, root: Any) -> Place:
    """Return a place: first a part at random, so that the many settings do not crowd out the rest."""
    leaves = list(_leaves(root))
    depth = int(rng.integers(1, 4))
    parts = list(dict.fromkeys(leaf[:depth] for leaf in leaves))
    part = parts[rng.integers(len(parts))]
    inside = [leaf for leaf in leaves if leaf[:depth] == part]
    return inside[rng.integers(len(inside))]


def _get(root: Any, place: Place) -> Any:
    for name in place:
        parts = _children(root)
        assert parts is not None
        root = parts[name]
    return root


def _put(root: Any, place: Place, value: Any) -> None:
    owner, name = _get(root, place[:-1]), place[-1]
    if isinstance(owner, tuple):
        _put(root, place[:-1], (*owner[:name], value, *owner[name + 1 :]))
    elif isinstance(owner, (dict, list)):
        owner[name] = value
    elif isinstance(owner, nn.Module) and name in owner._parameters:
        owner._parameters[name] = nn.Parameter(value)
    elif isinstance(owner, nn.Module) and name in owner._buffers:
        owner._buffers[name] = value
    else:
        object.__setattr__(owner, name, value)


# ---- changes ---------------------------------------------------------------------------------------------------------

_WORDS = (
    *("last", "mean", "windows-2", "windows-3", "mean+burst", "squared", "hinge", "squared_hinge", "logistic"),
    *("softmax", "l1", "group", "elastic-net", "group-elastic-net", "sampled", "selected", "pool", "complete"),
    *("lif", "threshold", "balanced", "auto", "gaussian", "pretrained", "float64", ""),
)


def _change(rng: Generator, root: Any, place: Place, keeps_shape: bool = False) -> bool:
    """Change what is at a place, in place or by another value of its kind; return whether it differs now."""
    value = _get(root, place)
    if isinstance(value, (Tensor, np.ndarray)) and value.dtype not in (object,):
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        new = _other_array(rng, array, keeps_shape)
        if new.shape == array.shape:
            if new.tobytes() == array.tobytes():
                return False
            if rng.integers(2) and array.flags.writeable:
                array[...] = new
                return True
        _put(root, place, torch.from_numpy(new) if isinstance(value, Tensor) else new)
        return True
    new = value if keeps_shape and value is None else _other(rng, value, may_be_none=not keeps_shape)
    if new is value or (type(new) is type(value) and new == value):
        return False
    _put(root, place, new)
    return True


def _other_array(rng: Generator, array: np.ndarray, keeps_shape: bool) -> np.ndarray:
    new = array.copy()
    if new.size == 0:
        return new
    entry = int(rng.integers(new.size)) if rng.integers(3) else slice(None)
    match rng.integers(8):
        case 0 if new.ndim:
            return np.ascontiguousarray(new[::-1])
        case 1 if new.ndim and len(new) > 1 and not keeps_shape:
            return new[:-1]
        case 2 if new.ndim and not keeps_shape:
            return np.concatenate((new, new[:1]))
        case 3:
            new.flat[entry] = new.flat[int(rng.integers(new.size))]
        case _ if new.dtype.kind == "f":
            factor = rng.choice([-1.0, 0.0, 0.5, 2.0, 1 + 2.0**-30, 1e6, 1e-6, 1e200, np.nan, np.inf])
            added = rng.choice([0.0, 0.0, 1e-9, 1.0, -0.1])
            with np.errstate(all="ignore"):
                new.flat[entry] = (new.flat[entry] * factor + added).astype(new.dtype)
        case _ if new.dtype.kind in "iu":
            new.flat[entry] = new.flat[entry] + int(rng.choice([-1, 1, 2, 100]))
        case _ if new.dtype.kind == "b":
            new.flat[entry] = ~new.flat[entry]
        case _ if new.dtype.kind == "U":
            new.flat[entry] = "other"
    return new


def _other(rng: Generator, value: Any, may_be_none: bool) -> Any:
    """Return another value of the same kind, or sometimes none."""
    if may_be_none and rng.random() < 0.05:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-1, 1, 2, 100, -value]))
    if isinstance(value, float):
        return value * float(rng.choice([-1.0, 0.0, 0.5, 0.999, 2.0, 1e6, 1e-6, np.nan, np.inf]))
    if isinstance(value, str):
        return str(rng.choice([*_WORDS, value + "x"]))
    if isinstance(value, Penalty):
        return make_penalty(str(rng.choice(["l1", "group", "elastic-net", "group-elastic-net"])))
    if value is None:
        return [0.5, 1, "balanced"][rng.integers(3)]
    return value


def _show(value: Any) -> str:
    return " ".join(repr(value).split())[:300]


# ---- models ----------------------------------------------------------------------------------------------------------


def _fitted(number: int) -> Any:
    """Return a model that was fitted just now: its parts may share memory."""
    make, data = _KINDS[number]
    return make().fit(*data.arguments)


@cache
def _file(number: int) -> bytes:
    with TemporaryDirectory() as folder:
        cs.save(_fitted(number), Path(folder) / "model")
        return (Path(folder) / "model").read_bytes()


HUNT = Hunt(
    "answers",
    "Fitted models with one field changed, in memory or in their file: certified is what answers.",
    case,
    cases=5_000,
    short=24,
    seconds=120.0,
)
