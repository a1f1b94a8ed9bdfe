"""Neuron models and their capabilities.

A new model is a file with its layer class and one line in the table at the end of this one; outside of the library, it
is one call of :func:`register_neuron`. Models are looked up by the exact type of a layer: a subclass may follow another
equation, so it is another model.
"""

from dataclasses import dataclass

from torch import Tensor

from ..core.checks import Registry
from ..core.errors import InvalidInputError
from .lateral import LateralLayer
from .layer import HiddenLayer, tensor_names
from .lif import LIFLayer
from .loihi import LoihiLayer
from .surrogate import Surrogate, TrainableLayer, TrainableLIF, TrainableThreshold, surrogate_slope
from .threshold import ThresholdLayer
from .xylo import XyloLayer


@dataclass(frozen=True)
class NeuronModel:
    """A neuron model and what it can do.

    Parameters
    ----------
    name : str
        The name by which it is sampled and saved.
    layer : type of HiddenLayer
        Its layer class.
    trainable : type of TrainableLayer, optional
        The layer with surrogate gradients; without one, the model cannot be trained by them.
    sampled : tuple of str
        The parameters per neuron that are drawn when witnesses are sampled, besides weights and bias.
    scaled : tuple of str
        The parameters that scale with the membrane, besides weights and bias.
    keeps_membrane : bool
        Whether a membrane is carried over from step to step, which costs an update per neuron and step.
    is_recurrent : bool
        Whether neurons of one layer read each other, through a tensor ``recurrent_weight``.
    is_integer : bool
        Whether weights and parameters are integers of a chip, so that a layer cannot be scaled.
    libraries : frozenset of str
        The other libraries and formats that can hold it.

    Examples
    --------
    >>> from cvxsnn.neurons import NEURON_MODELS
    >>> model = NEURON_MODELS["lif"]
    >>> model.sampled, model.keeps_membrane
    (('decay', 'threshold', 'initial_membrane'), True)
    """

    name: str
    layer: type[HiddenLayer]
    trainable: type[TrainableLayer] | None = None
    sampled: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    keeps_membrane: bool = True
    is_recurrent: bool = False
    is_integer: bool = False
    libraries: frozenset[str] = frozenset()

    @property
    def all_scaled(self) -> frozenset[str]:
        """Every parameter that scales with the membrane, weights and bias included."""
        if self.is_integer:
            raise InvalidInputError(
                f"expected neurons that can be scaled, got {self.name} neurons, whose weights are integers of a chip"
            )
        return frozenset({"weight", "bias", *self.scaled} | ({"recurrent_weight"} if self.is_recurrent else set()))


NEURON_MODELS: Registry[NeuronModel] = Registry("neuron", NeuronModel, kind="layer")
"""Neuron models by name; ``NEURON_MODELS.of(layer)`` finds that of a layer, by its exact type.

Examples
--------
>>> from cvxsnn.neurons import NEURON_MODELS
>>> NEURON_MODELS["lif"].layer.__name__
'LIFLayer'
"""


def register_neuron(model: NeuronModel) -> None:
    """Make a neuron model known to the library.

    Do so where the layer class is defined: worker processes, which import that module, then know the model too.

    Parameters
    ----------
    model : NeuronModel
        A model whose name and layer class are not taken.

    Examples
    --------
    A LIF neuron that fires in the first step whatever it reads:

    >>> from dataclasses import dataclass
    >>> import torch
    >>> from cvxsnn import LIFLayer, gaussian_witnesses
    >>> from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron
    >>> @dataclass(frozen=True, eq=False)
    ... class EagerLayer(LIFLayer):
    ...     initial_membrane: torch.Tensor = 1000.0
    >>> register_neuron(NeuronModel("eager", EagerLayer, sampled=("decay", "threshold")))
    >>> gaussian_witnesses(3, (8,), neuron="eager")
    WitnessSet(sampled eager, 1 × (3→8))
    >>> NEURON_MODELS.unregister("eager")
    """
    if not (isinstance(model.layer, type) and issubclass(model.layer, HiddenLayer)):
        raise InvalidInputError(f"expected a subclass of HiddenLayer for {model.name!r}, got {model.layer!r}")
    names = tensor_names(model.layer)
    tensors = f"its tensors are {', '.join(names)}"
    unknown = {*model.sampled, *model.scaled} - {*names}
    if unknown:
        raise InvalidInputError(
            f"expected parameters of {model.layer.__name__}, got {', '.join(sorted(unknown))}: {tensors}"
        )
    if model.is_recurrent != ("recurrent_weight" in names):
        raise InvalidInputError(
            f"expected is_recurrent=True if and only if {model.layer.__name__} has a tensor recurrent_weight, got "
            f"{model.is_recurrent}: {tensors}"
        )
    for known in NEURON_MODELS.values():
        if model.name == known.name or model.layer is known.layer:
            raise InvalidInputError(
                f"expected a new neuron model, got {model.name!r} with {model.layer.__name__}, and {known.name!r} with "
                f"{known.layer.__name__} is there already: choose another name, or unregister it first"
            )
    NEURON_MODELS.register(model.name, model)


def make_trainable(
    layer: HiddenLayer, surrogate: Surrogate, steepness: float | Tensor, dynamics: frozenset[str]
) -> TrainableLayer:
    """Return a layer with gradients that starts from a given one.

    ``steepness`` divides the surrogate's width: one number, or one per subnetwork.
    """
    model = NEURON_MODELS.of(layer)
    if model.trainable is None:
        trainable = ", ".join(known.name for known in NEURON_MODELS.values() if known.trainable is not None)
        raise InvalidInputError(
            f"expected neurons with surrogate gradients ({trainable}), got {model.name} neurons, which have none: "
            "register the model with a trainable class, or use a method without a gradient stage"
        )
    return model.trainable(layer, surrogate_slope(surrogate, steepness, layer.weight), dynamics)


for _model in (
    NeuronModel(
        "lif",
        LIFLayer,
        TrainableLIF,
        sampled=("decay", "threshold", "initial_membrane"),
        scaled=("threshold", "initial_membrane"),
        libraries=frozenset({"snntorch", "spikingjelly", "norse", "nir"}),
    ),
    NeuronModel(
        "threshold",
        ThresholdLayer,
        TrainableThreshold,
        keeps_membrane=False,
        is_recurrent=True,
    ),
    NeuronModel("lateral", LateralLayer, keeps_membrane=False),
    NeuronModel("loihi", LoihiLayer, is_integer=True),
    NeuronModel("xylo", XyloLayer, is_integer=True),
):
    register_neuron(_model)
