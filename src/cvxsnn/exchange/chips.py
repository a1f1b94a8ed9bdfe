"""Networks of the neurons of a chip as arrays for its tools, and the simulators of its makers."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core import __version__
from ..core.checks import Array, check_choice
from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..core.storage import write_atomically
from ..data.sequences import Sequences
from ..estimators.pipelines import network_of
from ..neurons import TARGETS, LoihiLayer, Target, XyloLayer
from ..neurons.chip import ChipLayer
from ..neurons.taps import lifted_places, spread

Arrays = Mapping[str, npt.NDArray[Any]]
Spikes = npt.NDArray[np.bool_]


def export_xylo(model: Any, path: Path | str, *, target: str | None = None) -> None:
    """Write a model for a chip of the family Xylo as the arrays that configure it.

    The file has the arrays that ``XyloSim.from_specification`` of Rockpool takes, under the same names: ``weights_in``
    of shape (n_inputs, n_neurons), ``weight_shift_in``, ``dash_syn``, ``dash_mem``, ``threshold`` and ``bias``. The
    read-out is computed off the chip: ``readout_weight``, ``readout_intercept``, ``readout_neurons`` and ``readout``
    say how scores follow from the spikes of the hidden neurons; several spikes of a step count as one.

    With the read-out ``"mean"``, scores are ``rates[readout_neurons] @ readout_weight + readout_intercept``, where
    ``rates`` are the shares of the steps in which each neuron fired; with ``"last"``, the spikes of the last step take
    their place. The largest score is that of the label in ``classes``; of two classes with one score, a positive one
    means the second.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model, of neurons of the chip.
    path : Path or str
        Path of the file, which ends in ``.npz``. ``numpy.load`` reads it.
    target : str, optional
        The name of the chip; by default that of the model, or "xylo-audio2" for a network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).integers(0, 4, (60, 8, 3))
    >>> model = cs.SpikingClassifier(target="xylo-audio2", sparsity=8, readout="mean", random_state=0)
    >>> model = model.fit(X, X[:, :, 0].sum(1) > X[:, :, 1].sum(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cs.export_xylo(model, Path(folder) / "chip.npz")
    ...     np.load(Path(folder) / "chip.npz", allow_pickle=False)["weights_in"].shape
    (3, 8)
    """
    names = tuple(name for name, known in TARGETS.items() if known.neuron == "xylo")
    own = getattr(model, "target", None)
    default = own if own in names else "xylo-audio2"
    _write(chip_arrays(model, TARGETS[check_choice("target", target or default, names)]), path)


def export_loihi(model: Any, path: Path | str) -> None:
    """Write a model for one core of Loihi as the integers that configure it.

    Axon i brings input ``axon_source[i]`` after ``axon_delay[i]`` steps, with ``weights[i]`` to each neuron. The other
    arrays have the names of ``nengo-loihi``: ``weight_exp``, ``decay_u``, ``decay_v``, ``vth`` (in units of 64),
    ``bias`` and ``refract_delay``. The read-out is computed off the chip, as that of :func:`export_xylo`.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model, of neurons of the chip.
    path : Path or str
        Path of the file, which ends in ``.npz``. ``numpy.load`` reads it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).integers(0, 4, (60, 8, 3))
    >>> model = cs.SpikingClassifier(target="loihi", sparsity=8, readout="mean", random_state=0)
    >>> model = model.fit(X, X[:, :, 0].sum(1) > X[:, :, 1].sum(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cs.export_loihi(model, Path(folder) / "chip.npz")
    ...     np.load(Path(folder) / "chip.npz", allow_pickle=False)["vth"].shape
    (8,)
    """
    _write(chip_arrays(model, TARGETS["loihi"]), path)


def chip_arrays(model: Any, target: Target) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that an export for a chip writes.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model.
    target : Target
        The chip.

    Returns
    -------
    dict of str to array
        The neurons and the read-out.
    """
    network = network_of(model)
    layer = target.check(network.layers)
    scale = getattr(model, "input_scale_", None)
    if scale is not None and (scale[0].any() or (scale[1] != 1).any()):
        raise InvalidInputError(
            "expected a model that reads counts as they are, got one that standardises: fit it with standardize=False"
        )
    arrays = layer_arrays(layer)
    arrays |= {
        "readout": np.array(network.readout),
        "readout_weight": network.weight.detach().cpu().numpy(),
        "readout_intercept": network.intercept.detach().cpu().numpy(),
        "readout_neurons": network.neurons.cpu().numpy(),
        "target": np.array(target.name),
        "cvxsnn_version": np.array(__version__),
    }
    if network.windows_read is not None:
        arrays["readout_windows"] = network.windows_read.cpu().numpy()
    classes = getattr(model, "classes_", None)
    return arrays if classes is None else {**arrays, "classes": np.asarray(classes)}


def layer_arrays(layer: ChipLayer) -> dict[str, npt.NDArray[Any]]:
    """Return the parameters of a layer under the names of the tools of its chip.

    Parameters
    ----------
    layer : ChipLayer
        A layer of neurons of Loihi or Xylo.

    Returns
    -------
    dict of str to array
        Integers.
    """
    layer = layer.to("cpu").side_by_side()

    def whole(name: str, dtype: npt.DTypeLike = np.int32) -> npt.NDArray[Any]:
        return getattr(layer, name)[0].numpy().astype(dtype)  # type: ignore[no-any-return]

    arrays = {"max_count": np.array(layer.max_count)}
    if isinstance(layer, XyloLayer):
        weight = layer.weight
        if layer.has_delays:
            weight = spread(weight, lifted_places(layer), layer.n_lifted)
        return arrays | {
            "core": np.array(layer.core),
            "weights_in": weight[0].numpy().astype(np.int8),
            "weight_shift_in": np.array(layer.weight_shift),
            "dash_syn": whole("synapse_decay", np.uint8),
            "dash_mem": whole("membrane_decay", np.uint8),
            "threshold": whole("threshold", np.int16),
            "bias": whole("bias", np.int8),
        }
    weight = layer.weight
    if layer.has_delays:
        weight = spread(weight, lifted_places(layer), layer.n_lifted)
    # A lifted input has the oldest values first.
    place = torch.nonzero((weight[0] != 0).any(1)).squeeze(1)
    return arrays | {
        "n_inputs": np.array(layer.n_inputs),
        "axon_source": (place % layer.n_inputs).numpy(),
        "axon_delay": (layer.max_delay - place // layer.n_inputs).numpy(),
        "weights": weight[0, place].numpy().astype(np.int16),
        "weight_exp": np.array(layer.weight_shift),
        "decay_u": whole("current_decay"),
        "decay_v": whole("voltage_decay"),
        "vth": whole("threshold"),
        "bias": whole("bias"),
        "refract_delay": whole("refractory"),
    }


def _write(arrays: Arrays, path: Path | str) -> None:
    path = Path(path)
    if path.suffix != ".npz":
        raise InvalidInputError(f"expected a path that ends in .npz, got {path}: choose another name")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def run_xylosim(arrays: Arrays, counts: Sequences | Array) -> Spikes:
    """Return the spikes of ``xylosim``, the simulator of the maker of Xylo.

    Parameters
    ----------
    arrays : mapping of str to array
        What :func:`export_xylo` wrote, read by ``numpy.load``.
    counts : Sequences, or array of shape (n_samples, n_steps, n_inputs)
        Counts of input spikes.

    Returns
    -------
    array of shape (n_samples, n_steps, n_neurons), dtype bool
        In which steps each hidden neuron fires.

    Examples
    --------
    The simulator is not among the requirements of the library.

    >>> import numpy as np
    >>> from cvxsnn.exchange import run_xylosim
    >>> run_xylosim(np.load("chip.npz", allow_pickle=False), counts)  # doctest: +SKIP
    """
    core = str(arrays["core"])
    simulator = import_library(f"xylosim.{core}", "chips")
    n_neurons = len(arrays["threshold"])
    synapses = [
        [simulator.XyloSynapse(int(post), 0, int(row[post])) for post in np.flatnonzero(row)]
        for row in arrays["weights_in"]
    ]
    none: list[list[Any]] = [[] for _ in range(n_neurons)]
    biases = {"has_bias": True, "bias": arrays["bias"].tolist(), "bias_out": [0]} if core == "v2" else {}
    layer = simulator.XyloLayer(
        synapses_in=synapses,
        synapses_rec=none,
        synapses_out=none,
        aliases=none,
        threshold=arrays["threshold"].tolist(),
        threshold_out=[1],
        weight_shift_inp=int(arrays["weight_shift_in"]),
        weight_shift_rec=0,
        weight_shift_out=0,
        dash_mem=arrays["dash_mem"].tolist(),
        dash_mem_out=[1],
        dash_syns=arrays["dash_syn"][:, None].tolist(),
        dash_syns_out=[[1]],
        name="cvxsnn",
        **biases,
    )
    spikes = []
    for sequence in Sequences.of(counts).inputs.to(torch.int64).tolist():
        layer.reset_all()
        layer.evolve(sequence)
        spikes.append(np.array(layer.rec_recurrent_spikes) > 0)
    return np.array(spikes)


def run_nengo_loihi(arrays: Arrays, counts: Sequences | Array) -> Spikes:
    """Return the spikes of the emulator of ``nengo-loihi``.

    Inputs arrive one step after they were sent, and the step before is left out of the result. A bias acts in it.

    Parameters
    ----------
    arrays : mapping of str to array
        What :func:`export_loihi` wrote, read by ``numpy.load``.
    counts : Sequences, or array of shape (n_samples, n_steps, n_inputs)
        Counts of input spikes.

    Returns
    -------
    array of shape (n_samples, n_steps, n_neurons), dtype bool
        The spikes.

    Examples
    --------
    The simulator is not among the requirements of the library.

    >>> import numpy as np
    >>> from cvxsnn.exchange import run_nengo_loihi
    >>> run_nengo_loihi(np.load("chip.npz", allow_pickle=False), counts)  # doctest: +SKIP
    """
    source, delay = arrays["axon_source"], arrays["axon_delay"]
    sequences = Sequences.of(counts).inputs.to(torch.int64).numpy()
    spikes = []
    # The emulator warns of its version, and of overflows, which are computed exactly.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        emulator = import_library("nengo_loihi.emulator", "chips")
        for sequence in sequences:
            model, sent, probe = loihi_model(arrays)
            for t in range(len(sequence)):
                # The emulator has no delays, so that each pair of input and delay is an axon, which is fed late.
                late = np.where(delay <= t, sequence[np.maximum(t - delay, 0), source], 0)
                sent.add_spikes(t + 1, np.repeat(np.arange(len(late)), late))
            with emulator.EmulatorInterface(model, seed=0) as chip:
                chip.run_steps(len(sequence) + 1)
                spikes.append(np.array(chip.collect_probe_output(probe))[1:] != 0)
    return np.array(spikes)


def loihi_model(arrays: Arrays) -> tuple[Any, Any, Any]:
    """Return a model of ``nengo-loihi`` with one block of neurons.

    Parameters
    ----------
    arrays : mapping of str to array
        What :func:`export_loihi` wrote, read by ``numpy.load``.

    Returns
    -------
    model : nengo_loihi.builder.Model
        The model, which is discretised.
    inputs : nengo_loihi.inputs.SpikeInput
        The input, to which spikes are added.
    probe : nengo_loihi.probe.LoihiProbe
        The probe of the spikes.
    """
    block, builder, inputs, probes = (
        import_library(f"nengo_loihi.{name}", "chips") for name in ("block", "builder", "inputs", "probe")
    )
    n_axons, n_neurons = arrays["weights"].shape
    neurons = block.LoihiBlock(n_neurons)
    compartment = neurons.compartment
    for name in ("decay_u", "decay_v", "bias", "refract_delay"):
        setattr(compartment, name, arrays[name].astype(np.int32))
    compartment.vth = arrays["vth"].astype(np.int32) * LoihiLayer.threshold_unit
    compartment.vmin, compartment.vmax = 1 - 2**23, 2**23 - 1
    compartment.scale_u = compartment.scale_v = False
    synapse = block.Synapse(n_axons)
    exponent = int(arrays["weight_exp"])
    synapse.format(weight_exp=exponent, weight_bits=7, fanout_type=1)
    synapse.weights = [row[None].astype(np.int32) << (6 + exponent) for row in arrays["weights"]]
    synapse.indices = [np.arange(n_neurons, dtype=np.int32)[None] for _ in range(n_axons)]
    neurons.add_synapse(synapse)
    axon = block.Axon(n_axons)
    axon.target = synapse
    sent = inputs.SpikeInput(n_axons)
    sent.add_axon(axon)
    probe = probes.LoihiProbe(target=neurons, key="spiked")
    model = builder.Model()
    model.add_block(neurons)
    model.add_input(sent)
    model.add_probe(probe)
    return model, sent, probe
