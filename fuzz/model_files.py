"""Damaged and forged model files: they are refused in one sentence, or the model in them can be used."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import make_pipeline
from torch import Tensor

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError, DataFileError
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.network import OutputHead

from .harness import Finding, Hunt

_MAX_SECONDS = 5.0
"""Time to refuse a file."""

_X = np.random.default_rng(0).normal(size=(30, 6, 3))
_SUMS = _X.sum((1, 2))
_LABELS = np.array(["low", "middle", "high"])[np.digitize(_SUMS, np.quantile(_SUMS, [0.3, 0.6]))]
_PLAIN = {"l1_strength": 0.01, "random_state": 0, "verbose": False}

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**20, 2**31, 2**62, 2**64, 10**15, 10**40, 0.5, 2.5, -0.0),
    *(1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", "x", "last", "all", "windows-3", "windows-1000000", "lif", "threshold", "squared", "softmax", "float16"),
    *("os.system", "__import__('os').mkdir('ran')", "ä\n\0", "y" * 5000),
    *([], [[]], [0], [1, 2], ["a", "b"], [0] * 5000, {}, {"a": 1}, {"distribution": "normal", "mean": 0, "sd": 1e308}),
)
_SIZES = (0, 1, 2, 1000, 23_000, 2**20, 10**12)
_TYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
)
_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e308, 1e38, -1.0, 0.0, 1e-320, 0.5)
_INTEGERS = (-1, 0, 7, 2**20, 2**30)


@dataclass(frozen=True)
class _File:
    """A whole model file, and what the model in it predicts."""

    content: bytes
    inputs: Any
    targets: Any
    predictions: Any


def case(rng: np.random.Generator, folder: Path) -> str:
    """Load one damaged or forged file, and use the model if there is one."""
    file = _file(int(rng.integers(len(_MODELS))))
    path = folder / "model"
    is_forged = bool(rng.integers(4))
    if is_forged:
        _forge(rng, file, path)
    else:
        path.write_bytes((_damage if rng.integers(3) else _write_header)(rng, file.content))
    begin = time.process_time()
    try:
        model = cs.load(path)
    except DataFileError as error:
        seconds = time.process_time() - begin
        if "\n" in str(error) or "model" not in str(error):
            raise Finding(f"expected one sentence that names the file, got {str(error)!r}") from error
        if seconds > _MAX_SECONDS:
            raise Finding(f"expected a refusal within {_MAX_SECONDS} s, it took {seconds:.1f} s: {error}") from error
        return "forged, refused" if is_forged else "damaged, refused"
    if [found.name for found in folder.iterdir()] != ["model"]:
        raise Finding(f"expected no file to be written, found {sorted(found.name for found in folder.iterdir())}")
    if not is_forged and not _are_equal(_predict(model, file.inputs), file.predictions):
        raise Finding("a damaged file was read as another model")
    _use(model, file, folder)
    return "forged, used" if is_forged else "damaged, whole"


def _use(model: Any, file: _File, folder: Path) -> None:
    """Predict, certify, and save and load again: all of it works, or says in one sentence why not."""
    n_features = getattr(model, "n_features_in_", None) or getattr(model, "n_features", 3)
    inputs = file.inputs if n_features == 3 else np.ones((4, 6, min(n_features, 1000)))
    predictions = _tolerant(lambda: _predict(model, inputs))
    if predictions is None:
        return
    cs.save(model, folder / "again")
    if not _are_equal(_predict(cs.load(folder / "again"), inputs), predictions):
        raise Finding("a model that was loaded, saved and loaded predicts something else")
    if getattr(model, "certificate_", None) is not None:
        certificate = _tolerant(lambda: model.certify(file.inputs, file.targets))
        if certificate is not None and not 0 <= certificate.gap + 1e-9 * certificate.primal < np.inf:
            raise Finding(f"expected bounds that fit together, got {certificate!r}")


def _tolerant(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or None if the library has refused it."""
    try:
        return call()
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return None


def _predict(model: Any, inputs: Any) -> list[Any]:
    if isinstance(model, cs.SpikingNetwork):
        with torch.no_grad():
            return [model.features(inputs).numpy(), model(inputs).numpy()]
    answers = [model.predict(inputs)]
    if hasattr(model, "predict_proba"):
        answers.append(model.predict_proba(inputs))
    if any(len(own) != len(inputs) for own in answers):
        raise Finding(f"expected answers for {len(inputs)} samples, got {[own.shape for own in answers]}")
    return answers


def _are_equal(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True)
    )


def _damage(rng: np.random.Generator, content: bytes) -> bytes:
    """Return a file with some bytes changed, moved, added or gone."""
    damaged = bytearray(content)
    start = 8 + int.from_bytes(content[:8], "little")
    place = int(rng.integers(start if rng.integers(2) else len(damaged)))  # the header is small beside the numbers
    length = int(rng.integers(1, 40))
    match rng.integers(6):
        case 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        case 1:
            damaged[place : place + length] = rng.bytes(len(damaged[place : place + length]))
        case 2:
            del damaged[place:]
        case 3:
            del damaged[place : place + length]
        case 4:
            damaged[place:place] = rng.bytes(length)
        case _:
            size = int(rng.choice([0, 1, start - 8, start, 2**24 + 1, 2**31, 2**62])) + int(rng.integers(-2, 3))
            damaged[:8] = (size % 2**64).to_bytes(8, "little")
    return bytes(damaged)


def _write_header(rng: np.random.Generator, content: bytes) -> bytes:
    """Return a file whose list of tensors is not what safetensors would write."""
    start = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:start])
    names = [name for name in entries if name != "__metadata__"]
    name, other = (names[number] for number in rng.integers(len(names), size=2))
    entry, n_bytes = entries[name], len(content) - start
    header = None
    match rng.integers(10):
        case 0:
            entry["data_offsets"] = entries[other]["data_offsets"]
        case 1:
            entry["data_offsets"] = [int(own) for own in rng.choice([-1, 0, 1, n_bytes, 2**31, 2**63 - 1], 2)]
        case 2:
            entry["shape"] = [int(own) for own in rng.choice([-1, 0, 1, 2**20, 2**31, 2**62, 2**63], 3)]
        case 3:
            entry["dtype"] = str(rng.choice(["F8", "F64", "I64", "BOOL", "U8", "", "é", "F4", "C64"]))
        case 4:
            empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
            entries |= {f"t{number}": empty for number in range(int(rng.choice([10, 20_000, 300_000])))}
        case 5:
            header = json.dumps(entries)[:-1] + f', "{name}": {json.dumps(entries[other])}}}'  # a name twice
        case 6:
            entries["__metadata__"] = [None, [], "x", {"format": 3}, {"format": "cvxsnn"}, {"a" * 2**16: "b"}][
                rng.integers(6)
            ]
        case 7:
            header = (
                "[" * int(rng.choice([10, 2**16])) if rng.integers(2) else json.dumps(entries).replace("1", "1e400")
            )
        case 8:
            entries[name] = [None, 3, [], {}, {"dtype": "F32"}][rng.integers(5)]
        case _:
            header = json.dumps(entries) + " " * int(rng.choice([1, 2**20, 2**25]))
    packed = (json.dumps(entries) if header is None else header).encode()
    if not rng.integers(8):
        packed = packed.replace(b"shape", b"\xff\xfe\x80pe", 1)  # no UTF-8
    return len(packed).to_bytes(8, "little") + packed + content[start:]


def _forge(rng: np.random.Generator, file: _File, path: Path) -> None:
    """Write a file whose contents were changed, with a checksum that is right."""
    path.write_bytes(file.content)
    tensors, header = read_tensors(path, "model")
    for _ in range(1 if rng.integers(4) else 2):
        (_change_tensor if rng.integers(2) else _change_header)(rng, tensors, header)
    path.unlink()
    write_tensors(path, "model", tensors, header)


def _change_header(rng: np.random.Generator, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    places = list(_places(header))
    recipes = [place for place in places if "recipe" in place[2]]
    parent, key, _ = places[rng.integers(len(places))]
    match rng.integers(8):
        case 0:
            del parent[key]
        case 1:
            other, name, _ = places[rng.integers(len(places))]
            parent[key] = json.loads(json.dumps(other[name])) if name in _keys(other) else None
        case 2 if isinstance(parent, dict):
            parent[str(rng.choice(["surprise", "neurons", "n_sources", "device", "recipe", "feature_names"]))] = _value(
                rng
            )
        case 3 if isinstance(parent, list):
            parent.insert(int(rng.integers(len(parent) + 1)), _value(rng))
        case 4 if isinstance(parent[key], (int, float)):
            parent[key] = parent[key] * rng.choice([-1, 0, 2, 1000, 1_000_000]).item() + rng.integers(-1, 2).item()
        case 5 if recipes:
            parent, key, _ = recipes[rng.integers(len(recipes))]
            parent[key] = rng.choice(_SIZES).item() if isinstance(parent[key], (int, float)) else _value(rng)
        case 6 if recipes:
            sizes = [place for place in recipes if place[1] in ("n_features", "n_subnetworks", "hidden")]
            for parent, key, _ in sizes:
                size = rng.choice(_SIZES).item()
                parent[key] = [size] * int(rng.integers(1, 600)) if key == "hidden" else size
        case _:
            parent[key] = _value(rng)


def _change_tensor(rng: np.random.Generator, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    names = list(tensors)
    name = names[rng.integers(len(names))] if names else "weight"
    value = tensors.get(name, torch.zeros(1))
    match rng.integers(9):
        case 0:
            tensors.pop(name, None)
        case 1:
            tensors[str(rng.choice([*names, "surprise", "windows_read", "network.9.weight"]))] = value.clone()
        case 2:
            tensors[name] = value.to(_TYPES[rng.integers(len(_TYPES))])
        case 3:
            shapes = [(-1,), (1, *value.shape), (*value.shape, 1), tuple(reversed(value.shape))]
            tensors[name] = value.reshape(shapes[rng.integers(len(shapes))])
        case 4 if value.ndim:
            tensors[name] = value[: int(rng.integers(len(value) + 1))]
        case 5 if value.ndim:
            tensors[name] = torch.cat([value] * int(rng.integers(2, 5)), dim=int(rng.integers(value.ndim)))
        case 6:
            tensors[name] = torch.zeros((0, 2**40), dtype=value.dtype) if rng.integers(4) else torch.zeros(())
        case 7 if value.numel() and value.is_floating_point():
            changed = value.clone().flatten()
            changed[int(rng.integers(len(changed)))] = torch.tensor(rng.choice(_NUMBERS)).to(changed.dtype)
            tensors[name] = changed.view(value.shape)
        case _:
            number = rng.choice(_NUMBERS if value.is_floating_point() else _INTEGERS)
            tensors[name] = torch.tensor(number).to(value.dtype).expand(value.shape)


def _places(value: Any, names: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Yield every place in nested lists and mappings: what it is in, its key there, and the keys on the way."""
    for key in _keys(value):
        yield value, key, names
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key], (*names, key))


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


def _value(rng: np.random.Generator) -> Any:
    return json.loads(json.dumps(_VALUES[rng.integers(len(_VALUES))]))


def _classifier(**options: Any) -> Any:
    return cs.SpikingClassifier(**{**_PLAIN, **options})


def _network() -> cs.SpikingNetwork:
    source, delay = torch.arange(24).view(1, 3, 8) % 3, torch.arange(24).view(1, 3, 8) % 4
    weight = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 3, 8))).float()
    layers = [
        cs.LIFLayer(weight, source=source, delay=delay, n_sources=3),
        cs.LIFLayer(weight[:, :1].mT @ weight[:, 1:2]),
    ]
    heads = [OutputHead("sum", "softmax", 0, 2), OutputHead("carry", "logistic", 2, 3)]
    return cs.SpikingNetwork(layers, torch.ones(16, 3), heads, readout="windows-2")


_MODELS: tuple[Callable[[], Any], ...] = (
    lambda: _classifier(witnesses={"neuron": "threshold"}, hidden=(5,)).fit(_X, _LABELS),
    lambda: cs.SpikingClassifier(n_neurons=12, random_state=0, verbose=False).fit(_X, _LABELS),
    lambda: _classifier(witnesses=cs.gaussian_witnesses(3, (4, 6), 2, seed=1)).fit(_X, _SUMS > 0),
    lambda: _classifier(method="r", hidden=(4,), surrogate=SurrogateSettings(epochs=1)).fit(_X, _LABELS),
    lambda: cs.SpikingRegressor(witnesses="gaussian", hidden=(9,), penalty="group", **_PLAIN).fit(_X, _X[:, 0, :2]),
    lambda: make_pipeline(
        cs.SequenceImputer(),
        cs.SequenceScaler(),
        cs.SequenceResampler(n_steps=5),
        _classifier(witnesses="gaussian", hidden=(6,)),
    ).fit(_X, _LABELS),
    _network,
)


@cache
def _file(number: int) -> _File:
    model = _MODELS[number]()
    targets = {2: _SUMS > 0, 4: _X[:, 0, :2]}.get(number, _LABELS)
    with TemporaryDirectory() as folder:
        cs.save(model, Path(folder) / "model")
        return _File((Path(folder) / "model").read_bytes(), _X, targets, _predict(model, _X))


HUNT = Hunt("model_files", "Damaged and forged model files.", case, cases=20_000, short=40)
