"""The settings of surrogate gradients, which a parameter of the estimators holds and model files keep."""

from dataclasses import dataclass
from typing import Literal

from ..core.checks import check_bool, check_fields, check_number
from ..core.errors import InvalidInputError
from ..core.seeds import check_seed
from ..neurons.surrogate import SURROGATES, Surrogate


@dataclass(frozen=True)
class SurrogateSettings:
    """How to train by surrogate gradients.

    Parameters
    ----------
    epochs : int
        The number of passes over the data.
    batch_size : int
        The number of sequences per step.
    learning_rate : float
        The learning rate of Adam; it falls to zero along a cosine unless ``schedule="constant"``.
    weight_decay : float
        The decay of weights, decoupled from the gradient (AdamW).
    surrogate : "sigmoid", "fast_sigmoid" or "arctan"
        The surrogate derivative of the spike.
    steepness : float
        How quickly the surrogate derivative falls off around the threshold.
    clip_norm : float
        The largest norm of a gradient.
    dropout : float
        The share of the hidden neurons that are hidden for a whole sequence at a training step.
    input_dropout : float
        The share of the inputs that are hidden at a training step.
    spike_penalty : float
        The price of spikes: it times the firing rate, the share of hidden neurons and steps that have a spike, is added
        to the loss. With real targets the loss is that of targets of unit variance. Above zero the last epoch is kept,
        since earlier ones fire more.
    train_decay : bool
        Whether the decays are trained.
    train_threshold : bool
        Whether the thresholds are trained.
    train_bias : bool
        Whether the biases are trained.
    patience : int, optional
        The number of epochs without a better validation score after which to stop.
    schedule : "cosine" or "constant"
        How the learning rate changes.
    seed : int
        The seed of the order of the batches.

    Examples
    --------
    >>> from cvxsnn.fitting import SurrogateSettings
    >>> SurrogateSettings(epochs=20, learning_rate=0.01).surrogate
    'arctan'
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 3e-2
    weight_decay: float = 0.0
    surrogate: Surrogate = "arctan"
    steepness: float = 1.0
    clip_norm: float = 1.0
    dropout: float = 0.0
    input_dropout: float = 0.0
    spike_penalty: float = 0.0
    train_decay: bool = True
    train_threshold: bool = True
    train_bias: bool = True
    patience: int | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        check_fields(self, "epochs", "batch_size", "patience", surrogate=SURROGATES, schedule=("cosine", "constant"))
        check_seed(self.seed)
        for name in ("learning_rate", "steepness", "clip_norm"):
            if check_number(name, getattr(self, name)) <= 0:
                raise InvalidInputError(f"expected {name} above zero, got {getattr(self, name)!r}")
        for name in ("weight_decay", "spike_penalty"):
            if check_number(name, getattr(self, name)) < 0:
                raise InvalidInputError(f"expected {name} to be zero or more, got {getattr(self, name)!r}")
        for name in ("dropout", "input_dropout"):
            if not 0 <= check_number(name, getattr(self, name)) < 1:
                raise InvalidInputError(f"expected {name} from 0 to below 1, got {getattr(self, name)!r}")
        for name in ("train_decay", "train_threshold", "train_bias"):
            check_bool(name, getattr(self, name))

    @property
    def dynamics(self) -> frozenset[str]:
        """Names of the per-neuron parameters that are trained."""
        return frozenset(name for name in ("decay", "threshold", "bias") if getattr(self, f"train_{name}"))


PROJECTION = SurrogateSettings(
    epochs=40, batch_size=32, learning_rate=0.005, steepness=1.25, train_decay=False, train_threshold=False
)
"""The settings of "varpro" unless others are given, up to the seed.

Examples
--------
>>> from dataclasses import replace
>>> from cvxsnn.fitting import PROJECTION
>>> replace(PROJECTION, spike_penalty=0.3).epochs
40
"""
