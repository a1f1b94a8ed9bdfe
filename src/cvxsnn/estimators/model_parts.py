"""Networks and proofs as named tensors and JSON headers: the contents of model files and pickles.

A function ``write_...(part, tensors)`` adds the tensors of a part and returns its header, from which
``read_...(header, tensors)`` makes the part again. A file may come from anybody, so names are looked up in tables and
never imported or called, and types, shapes and amounts of work are checked against :data:`TENSORS` and :data:`LIMITS`
before anything is allocated.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, get_args

import torch
from torch import Tensor

from ..convex import LOSSES, Certificate, Loss, Objective
from ..convex.certificate import Scope
from ..convex.losses import Softmax, Squared, make_loss
from ..convex.penalties import check_strengths, make_penalty, name_of_penalty
from ..convex.sums import RowSums
from ..core.bits import group_equal
from ..core.checks import check_bool, check_choice, check_int_at_least, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..dictionary import Dictionary, SpikeDictionary
from ..dictionary.base import parse_readout
from ..dictionary.statistics import StatisticsDictionary
from ..fitting.updating import Kept, KeptRows, KeptSums, check_updatable
from ..network import OutputHead, Proof, SpikingNetwork
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.layer import tensor_names
from ..witnesses import Provenance, WitnessSet, regenerate
from ..witnesses.families import is_reproducible

TENSORS = {
    "weight": (torch.float64, ("n_read", "n_outputs")),
    "intercept": (torch.float64, ("n_outputs",)),
    "neurons": (torch.int64, ("n_read",)),
    "windows_read": (torch.int64, ("n_read",)),
    "scale.mean": (torch.float64, ("n_features",)),
    "scale.spread": (torch.float64, ("n_features",)),
    "proof.support": (torch.int64, ("n_active",)),
    "proof.coef": (torch.float64, ("n_active", "n_outputs")),
    "proof.intercept": (torch.float64, ("n_outputs",)),
    "proof.dual_point": (torch.float64, ("n_rows", "n_outputs")),
    "proof.unit": (torch.float64, ("n_columns",)),
    "proof.centre": (torch.float64, ("n_columns", "n_outputs")),
    "left_out": (torch.float64, ("n_left_out", "n_outputs")),
    "kept.atom_of_column": (torch.int64, ("n_columns",)),
    "kept.lengths": (torch.int64, ("n_kept",)),
    "kept.targets": (torch.float64, ("n_kept", "n_outputs")),
    "kept.weight": (torch.float64, ("n_kept",)),
    "kept.products": (torch.float64, ("n_sums", "n_sums")),
    "kept.shift": (torch.float64, ("n_outputs",)),
    "steps": (torch.float64, ("n_features",)),
    "critical": (torch.float64, ("n_lost",)),
}
"""Type and axes of the tensors of a model; axes of one name are equally long.

``steps.<number>.<attribute>`` belongs to a transformer of a pipeline, and ``parts.<number>.proof.<attribute>`` to one
of several proofs over the same witnesses, each with a support of its own. The other tensors, of layers, are named
``network.<depth>.<parameter>`` and ``proof.layers.<depth>.<parameter>``; the layers check their shapes. ``kept.spikes``
are bits or counts of columns (:class:`cvxsnn.dictionary.SpikeDictionary`), or numbers of statistics.
"""

_PART = re.compile(r"(parts\.[0-9]+\.)(proof\.[a-z_]+)")

LAYER_TYPES = (torch.float32, torch.float64, torch.int32)
SPIKE_TYPES = (torch.uint8, torch.int16, torch.int32)


@dataclass(frozen=True)
class Limits:
    """Limits on requests of a file that its size does not bound."""

    drawn: int = 2**23
    """Numbers drawn from a recipe: below a quarter of a gigabyte and a few seconds."""
    windows: int = 2**12
    features: int = 2**24
    label_bytes: int = 2**28
    counted: int = 2**40
    """Steps or blocks of rows, so that bounds on the rounding of sums over them hold."""


LIMITS = Limits()


def check_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors of other types and shapes than :data:`TENSORS` states, and values that are not finite."""
    sizes: dict[str, int] = {}
    for name, value in tensors.items():
        found = _PART.fullmatch(name)
        part, own = found.groups() if found else ("", name)
        dtype, axes = TENSORS.get("steps" if name.startswith("steps.") else own, (None, None))
        if axes is None or dtype is None:
            is_index = name.endswith((".source", ".delay")) and value.dtype == torch.int64
            is_spikes = name == "kept.spikes" and value.ndim == 2 and value.dtype in SPIKE_TYPES
            is_known = value.dtype in LAYER_TYPES or is_index or is_spikes
        else:
            is_known = value.dtype == dtype and value.ndim == len(axes)
            names = (part + axis if axis == "n_active" else axis for axis in axes)
            is_known &= all(sizes.setdefault(axis, n) == n for axis, n in zip(names, value.shape, strict=False))
        if not is_known:
            raise InvalidInputError(f"expected another type or shape of {name}, got {value.dtype} of {value.shape}")
        if not bool(torch.isfinite(value).all()):
            raise InvalidInputError(f"expected a finite {name}, got NaN or infinite values")


def write_network(network: SpikingNetwork, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Add the tensors of a network, and return its header."""
    tensors.update(weight=network.weight, intercept=network.intercept, neurons=network.neurons)
    if network.windows_read is not None:
        tensors["windows_read"] = network.windows_read
    layers = _write_layers("network", network.layers, tensors)
    return {"layers": layers, "heads": [asdict(head) for head in network.heads], "readout": network.readout}


def read_network(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SpikingNetwork:
    """Return the network of a header."""
    network = SpikingNetwork(
        _read_layers("network", header["layers"], tensors),
        tensors["weight"],
        [OutputHead(**head) for head in header["heads"]],
        tensors["intercept"],
        tensors["neurons"],
        header["readout"],
        tensors.get("windows_read"),
    )
    if network.n_windows > LIMITS.windows or network.n_features > LIMITS.features:
        raise InvalidInputError(
            f"expected at most {LIMITS.windows:,} windows and {LIMITS.features:,} features, got {network!r}"
        )
    return network


def _write_layers(prefix: str, layers: tuple[HiddenLayer, ...], tensors: dict[str, Tensor]) -> list[dict[str, Any]]:
    for depth, layer in enumerate(layers):
        tensors.update({f"{prefix}.{depth}.{name}": value for name, value in layer.tensors().items()})
    return [{"neuron": NEURON_MODELS.of(layer).name, **layer.settings()} for layer in layers]


def _read_layers(prefix: str, headers: list[dict[str, Any]], tensors: Mapping[str, Tensor]) -> tuple[HiddenLayer, ...]:
    layers = []
    for depth, header in enumerate(headers):
        settings = dict(header)
        kind = NEURON_MODELS.find(settings.pop("neuron")).layer
        names = {name: f"{prefix}.{depth}.{name}" for name in tensor_names(kind)}
        parameters: dict[str, Any] = {name: tensors[key] for name, key in names.items() if key in tensors}
        # A layer would fill in a parameter that is missing, at a size that the file does not account for.
        without_delays = set() if "n_sources" in settings else {"source", "delay"}
        missing = {*names} - {*parameters} - without_delays
        if missing:
            raise InvalidInputError(f"expected every parameter of layer {depth}, got no {', '.join(sorted(missing))}")
        layers.append(kind(**parameters, **settings))
    return tuple(layers)


_PROOF_TENSORS = ("support", "coef", "intercept", "dual_point")


def write_proof(proof: Proof, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Add the tensors of a proof, and return its header, with sampled witnesses as recipe and digest."""
    tensors.update({f"proof.{name}": getattr(proof, name) for name in _PROOF_TENSORS})
    optional = {"proof.unit": proof.unit, "proof.centre": proof.centre}
    tensors.update({name: value for name, value in optional.items() if value is not None})
    provenance = proof.witnesses.provenance
    witnesses: dict[str, Any]
    if has_recipe(proof.witnesses):
        witnesses = {"kind": "sampled", "recipe": provenance.recipe, "digest": _digest(proof.witnesses)}
    else:
        witnesses = {"kind": "pretrained" if provenance.kind == "sampled" else provenance.kind}
        if proof.witnesses.is_selection:
            witnesses["neurons"] = provenance.recipe["neurons"]
        witnesses["layers"] = _write_layers("proof.layers", proof.witnesses.layers, tensors)
    assert not isinstance(proof.objective.loss, Mapping)  # estimators have one head
    return {
        "witnesses": witnesses,
        "objective": {
            "loss": [_write_loss(proof.objective.loss)],
            "readout": proof.objective.readout,
        },
        "l1_strength": proof.l1_strength,
        "l2_strength": proof.l2_strength,
        "penalty": name_of_penalty(proof.penalty),
        "has_intercept": proof.has_intercept,
        "certificate": asdict(proof.certificate),
    }


def write_part(proof: Proof, number: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Add the tensors of one of several proofs over the same witnesses, and return its header without these."""
    own: dict[str, Tensor] = {}
    header = write_proof(proof, own)
    del header["witnesses"]
    tensors.update({f"parts.{number}.{name}": own[name] for name in own if not name.startswith("proof.layers")})
    return header


def read_part(
    header: Mapping[str, Any], number: int, tensors: Mapping[str, Tensor], network: SpikingNetwork, like: Proof
) -> Proof:
    """Return one of several proofs over the witnesses of another."""
    prefix = f"parts.{number}."
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    return read_proof(header, own, network, witnesses=like.witnesses)


def read_proof(
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    network: SpikingNetwork,
    max_drawn: int = LIMITS.drawn,
    witnesses: WitnessSet | None = None,
) -> Proof:
    """Return the proof of a header, for a network that reads some of its witnesses, unless these are given."""
    objective = _read_objective(header["objective"], network.n_outputs)
    if witnesses is None:
        witnesses = _read_witnesses(header["witnesses"], tensors, network, max_drawn)
    if witnesses.n_features != network.n_features:
        raise InvalidInputError(
            f"expected witnesses of {plural(network.n_features, 'feature')}, got {witnesses.n_features}"
        )
    readout = parse_readout(objective.readout)
    n_columns = witnesses.n_witnesses * readout.n_windows
    unit = tensors.get("proof.unit")
    _check_indices("support", tensors["proof.support"].tolist(), n_columns)
    if (unit is None) == bool(readout.statistics) or (unit is not None and not _are_units(unit, n_columns, tensors)):
        raise InvalidInputError(
            f"expected a unit for each of {plural(n_columns, 'column')} of statistics, and no others"
        )
    centre = tensors.get("proof.centre")
    if centre is not None and len(centre) != n_columns:
        raise InvalidInputError(f"expected a centre of {plural(n_columns, 'column')}, got one of {len(centre)}")
    penalty = make_penalty(str(header["penalty"]))
    l1_strength, l2_strength = check_strengths(header["l1_strength"], header["l2_strength"], penalty)
    if centre is not None and not l2_strength:
        raise InvalidInputError("expected l2_strength above zero for a centre, got 0")
    for name in ("primal", "dual"):
        check_number(name, header["certificate"][name])
    stated = Certificate(**header["certificate"])
    check_choice("scope", stated.scope, get_args(Scope))
    if stated.n_witnesses is not None:
        check_positive_int("n_witnesses", stated.n_witnesses)
    # A bound over more neurons holds for these; that it is one over more, nothing in the file shows.
    certificate = Certificate(stated.primal, stated.dual, "selected" if witnesses.is_selection else "sampled")
    return Proof(
        witnesses=witnesses,
        objective=objective,
        l1_strength=l1_strength,
        l2_strength=l2_strength,
        penalty=penalty,
        has_intercept=check_bool("has_intercept", header["has_intercept"]),
        certificate=certificate,
        unit=unit,
        centre=centre,
        **{name: tensors[f"proof.{name}"] for name in _PROOF_TENSORS},
    )


def write_kept(kept: Kept, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Add the tensors of what is kept of training rows, and return its header."""
    if isinstance(kept, KeptSums):
        sums = kept.sums
        parts = {"atom_of_column": kept.atom_of_column, "products": sums.products, "shift": sums.shift}
        header = {"n_blocks": sums.n_blocks}
    else:
        assert isinstance(kept, KeptRows)
        dictionary: Any = kept.dictionary
        spikes = dictionary.numbers if isinstance(dictionary, StatisticsDictionary) else dictionary.patterns
        parts = {"atom_of_column": dictionary.atom_of_column, "spikes": spikes}
        parts |= {"targets": kept.targets, "weight": kept.weight}
        if dictionary.lengths is not None:
            parts["lengths"] = dictionary.lengths
        header = {"n_steps": dictionary.n_steps}
    tensors.update({f"kept.{name}": value for name, value in parts.items()})
    return header


def read_kept(header: Mapping[str, Any], tensors: Mapping[str, Tensor], proof: Proof) -> Kept:
    """Return what is kept of the rows of a proof."""
    check_updatable(proof)
    readout = parse_readout(proof.objective.readout)
    columns, n_columns = tensors["kept.atom_of_column"], proof.witnesses.n_witnesses * readout.n_windows
    groups = group_equal(columns[:, None])
    n_atoms = len(groups.first)
    if len(columns) != n_columns or not torch.equal(groups.inverse, columns):
        raise InvalidInputError(f"expected an atom for each of {plural(n_columns, 'column')}, in order, got others")
    if "n_blocks" in header:
        sums = RowSums(tensors["kept.products"], tensors["kept.shift"], header["n_blocks"])
        if sums.n_atoms != n_atoms or not float(sums.products[n_atoms, n_atoms]) > 0:
            raise InvalidInputError(f"expected sums of {plural(n_atoms, 'atom')} over rows with weight, got others")
        _check_count("n_blocks", sums.n_blocks)
        return KeptSums(columns, sums)
    spikes, targets, weight = (tensors[f"kept.{name}"] for name in ("spikes", "targets", "weight"))
    n_rows, n_steps = len(targets), _check_count("n_steps", header["n_steps"])
    lengths = tensors.get("kept.lengths")
    dtype, width = spikes.dtype, n_rows
    if not readout.statistics:
        dtype = readout.dtype(n_steps)
        width = readout.column_bytes(n_rows, n_steps) // dtype.itemsize
    fits = spikes.dtype == dtype and spikes.shape == (n_atoms, width)
    if readout.kind != "last":
        fits &= int(spikes.min()) >= 0 and int(spikes.max()) <= n_steps
    fits &= lengths is None or (int(lengths.min()) > 0 and int(lengths.max()) <= n_steps)
    if not fits or not n_rows or not bool((weight >= 0).all() and weight.any()):
        raise InvalidInputError(f"expected spikes of {plural(n_rows, 'row')} with lengths and weights, got others")
    shared: dict[str, Any] = {"n_rows": n_rows, "n_steps": n_steps, "readout": str(readout), "lengths": lengths}
    shared |= {"atom_of_column": columns, "column_of_atom": groups.first}
    dictionary: Dictionary
    if readout.statistics:
        assert proof.unit is not None
        dictionary = StatisticsDictionary(spikes, groups.first % readout.n_windows, proof.unit, **shared)
    else:
        dictionary = SpikeDictionary(spikes, **shared)
    return KeptRows(dictionary, targets, weight)


def _check_count(name: str, value: Any) -> int:
    if check_positive_int(name, value) > LIMITS.counted:
        raise InvalidInputError(f"expected {name} to be at most {LIMITS.counted:,}, got more")
    return int(value)


def _are_units(unit: Tensor, n_columns: int, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether there is a unit for each column: a power of two, or zero for columns that are not read."""
    is_power = torch.frexp(unit)[0] == 0.5
    return len(unit) == n_columns and bool((is_power | (unit == 0)).all() and is_power[tensors["proof.support"]].all())


def _read_witnesses(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], network: SpikingNetwork, max_drawn: int
) -> WitnessSet:
    if header["kind"] != "sampled":
        recipe = {"neurons": header["neurons"]} if "neurons" in header else {}
        # The sample that was selected from is not in the file, so its size is unknown.
        _check_indices("neurons", recipe.get("neurons", ()), 2**62)
        return WitnessSet(_read_layers("proof.layers", header["layers"], tensors), Provenance(header["kind"], recipe))
    recipe = header["recipe"]
    check_recipe(recipe, max_drawn)
    drawn, needed = (recipe["n_features"], *recipe["hidden"]), (network.n_features, *network.hidden)
    # A network may have fewer neurons than were drawn: those without a path to the output are dropped.
    fits = len(drawn) == len(needed) and drawn[0] == needed[0] and all(map(int.__ge__, drawn, needed))
    if not fits or {type(layer) for layer in network.layers} != {NEURON_MODELS.find(recipe["neuron"]).layer}:
        raise InvalidInputError(f"expected a recipe for the neurons of {network!r}, got {drawn} {recipe['neuron']}")
    witnesses = regenerate(Provenance("sampled", recipe))
    # Another version of NumPy might draw other numbers, and the proof would be about other neurons.
    if _digest(witnesses) != header["digest"]:
        raise InvalidInputError("expected the seed to give the same witnesses as when the model was saved")
    return witnesses


def _read_objective(header: Mapping[str, Any], n_outputs: int) -> Objective:
    readout = parse_readout(header["readout"])
    if readout.kind == "all" or readout.n_windows > LIMITS.windows:
        raise InvalidInputError(f"expected a proof of the last step or of means, got {str(readout)!r}")
    return Objective(_read_loss(header["loss"][0], n_outputs), header["readout"])


def _write_loss(loss: str | Loss) -> dict[str, Any]:
    if isinstance(loss, Softmax):
        return {"name": "softmax", "n_classes": loss.n_classes}
    if isinstance(loss, Squared) and loss.shift:
        return {"name": "squared", "shift": list(loss.shift)}
    return {"name": loss if isinstance(loss, str) else LOSSES.of(loss).name}


def _read_loss(header: Mapping[str, Any], n_outputs: int) -> Loss:
    n_classes = header.get("n_classes")
    if n_classes is not None and check_positive_int("n_classes", n_classes) > n_outputs:
        raise InvalidInputError(f"expected a loss of at most {plural(n_outputs, 'class', 'classes')}, got {n_classes}")
    if header["name"] == "softmax":
        return Softmax(n_classes)
    if "shift" not in header:
        return make_loss(header["name"])
    shift = [check_number("shift", value) for value in header["shift"]]
    if header["name"] != "squared" or len(shift) != n_outputs:
        raise InvalidInputError(
            f"expected a shift of the squared loss for {plural(n_outputs, 'output')}, got {len(shift)} for the "
            f"{header['name']} loss"
        )
    return Squared(shift)


def has_recipe(witnesses: WitnessSet) -> bool:
    """Return whether witnesses are stored as their recipe: one that draws them again, and not too much at once.

    A recipe is checked entry by entry when it is read, so only recipes of Gaussian witnesses are stored.
    """
    recipe = witnesses.provenance.recipe
    is_known = "n_features" in recipe and "sampler" not in recipe
    return is_known and n_drawn(recipe) <= LIMITS.drawn and is_reproducible(witnesses)


def n_drawn(recipe: Mapping[str, Any]) -> int:
    """Return about how many numbers are drawn or kept to sample the witnesses of a recipe.

    A neuron's parameters count for ten numbers, and the start of a layer for ten thousand.
    """
    sizes = [check_positive_int("n_features", recipe["n_features"])]
    sizes += [check_positive_int("hidden", width) for width in recipe["hidden"]]
    per_weight = 1 if recipe.get("fan_in") is None else 2
    is_recurrent = NEURON_MODELS.find(recipe["neuron"]).is_recurrent
    layers = [(per_weight * below + (width if is_recurrent else 0) + 10) * width for below, width in pairwise(sizes)]
    n_subnetworks = check_positive_int("n_subnetworks", recipe["n_subnetworks"])
    kept = max(n_subnetworks, len(recipe.get("subnetworks", ())))
    chosen = len(recipe.get("neurons", ())) * (sizes[0] + 10)
    return kept * sum(layers) + chosen + 10_000 * len(layers)


def check_recipe(recipe: Any, max_drawn: int) -> None:
    """Refuse a recipe with unknown entries, or one that draws too many numbers, before it is used."""
    if not isinstance(recipe, Mapping) or not isinstance(recipe["hidden"], (list, tuple)):
        raise InvalidInputError("expected a recipe that lists the widths of hidden layers, got another one")
    known = {"n_features", "hidden", "n_subnetworks", "neuron", "fan_in", "seed", "dtype", "subnetworks", "neurons"}
    known |= {"decay", "threshold", "bias", "gain", "initial_membrane", "balance"}
    unknown = {*recipe} - known - {*NEURON_MODELS.find(recipe["neuron"]).sampled}
    if unknown:
        raise InvalidInputError(f"expected a recipe of {sorted(known)}, got {sorted(unknown)} too")
    check_choice("dtype", recipe["dtype"], ("float32", "float64"))
    number = n_drawn(recipe)
    if number > max_drawn:
        raise InvalidInputError(
            f"expected a recipe that draws at most {max_drawn:,} numbers, got one that draws {number:,}: pass "
            "max_drawn to load if you trust the file"
        )
    _check_indices("subnetworks", recipe.get("subnetworks", ()), recipe["n_subnetworks"])
    _check_indices("neurons", recipe.get("neurons", ()), recipe["hidden"][-1])


def _check_indices(name: str, indices: Any, limit: int) -> None:
    """Refuse anything but a list of integers from 0 to ``limit - 1``."""
    if not isinstance(indices, (list, tuple)) or any(check_int_at_least(name, index, 0) >= limit for index in indices):
        raise InvalidInputError(f"expected {name} to be a list of integers below {limit}, got others")


def _digest(witnesses: WitnessSet) -> str:
    digest = hashlib.sha256()
    for layer in witnesses.layers:
        for name, value in sorted(layer.tensors().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
