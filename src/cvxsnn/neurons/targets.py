"""The chips for which networks can be drawn, and their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from .chip import ChipLayer, check_limits
from .layer import HiddenLayer
from .registry import NEURON_MODELS


@dataclass(frozen=True)
class Target:
    """A chip: its neurons, and how many of them it has.

    The ranges of weights, thresholds and decays are those of the neuron model (``LoihiLayer.limits``).

    Parameters
    ----------
    name : str
        The name by which estimators and files refer to it.
    neuron : str
        Its neuron model.
    n_inputs : int
        The most inputs.
    n_neurons : int
        The most hidden neurons.
    n_synapses : int
        The most synapses whose weight is not zero.
    max_delay : int
        The longest delay of a synapse in steps.
    limits : mapping of str to range
        Narrower ranges of parameters than those of the neuron model.
    settings : mapping of str to object
        Settings that its layers must have.

    Examples
    --------
    >>> from cvxsnn.neurons import TARGETS
    >>> TARGETS["xylo-audio2"].n_neurons
    1000
    """

    name: str
    neuron: str
    n_inputs: int
    n_neurons: int
    n_synapses: int
    max_delay: int = 0
    limits: Mapping[str, range] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def check(self, layers: Sequence[HiddenLayer]) -> ChipLayer:
        """Refuse layers that do not fit, with the limit and by how much it is exceeded.

        Parameters
        ----------
        layers : sequence of HiddenLayer
            The hidden layers of a network.

        Returns
        -------
        ChipLayer
            The only layer.
        """
        layer = layers[0]
        neuron = NEURON_MODELS.of(layer).name
        if neuron != self.neuron or not isinstance(layer, ChipLayer):
            raise InvalidInputError(
                f"expected {self.neuron} neurons for {self.name}, got {neuron} neurons: fit an estimator with "
                f"target={self.name!r} and witnesses='auto'"
            )
        self.check_most("hidden layer", 1, len(layers))
        self.check_most("input", self.n_inputs, layer.n_inputs)
        self.check_most("neuron", self.n_neurons, layer.n_subnetworks * layer.width)
        self.check_most("synapse", self.n_synapses, int((layer.weight != 0).sum()))
        self.check_most("step of delay", self.max_delay, layer.max_delay, "steps of delay")
        check_limits(layer, self.limits, self.name)
        for name, value in self.settings.items():
            if getattr(layer, name) != value:
                raise InvalidInputError(f"expected {name}={value!r} for {self.name}, got {getattr(layer, name)!r}")
        return layer

    def check_most(self, noun: str, most: int, found: int, many: str | None = None) -> None:
        """Refuse a number that is larger than that of the chip.

        Parameters
        ----------
        noun : str
            What is counted.
        most : int
            The most that the chip has.
        found : int
            The number.
        many : str, optional
            The plural of ``noun`` if s is not added.
        """
        if found > most:
            raise InvalidInputError(
                f"expected at most {plural(most, noun, many)} for {self.name}, got {found:,}, which is "
                f"{found - most:,} too many: choose fewer"
            )


_NO_BIAS = {"bias": range(1)}

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        # One core. A synapse takes up to 32 of its 2**20 bits. A bias would act before the first input arrives.
        Target("loihi", "loihi", n_inputs=4096, n_neurons=1024, n_synapses=2**15, max_delay=62, limits=_NO_BIAS),
        Target("xylo-audio2", "xylo", 16, 1000, n_synapses=16_000, limits=_NO_BIAS, settings={"core": "v1"}),
        Target("xylo-imu", "xylo", 16, 496, n_synapses=16 * 496, settings={"core": "v2"}),
    )
}
"""Chips by name.

Examples
--------
>>> from cvxsnn.neurons import TARGETS
>>> [*TARGETS]
['loihi', 'xylo-audio2', 'xylo-imu']
"""


def find_target(name: str) -> Target:
    """Return a chip by its name.

    Parameters
    ----------
    name : str
        The name.

    Returns
    -------
    Target
        The chip.

    Examples
    --------
    >>> from cvxsnn.neurons import find_target
    >>> find_target("loihi").max_delay
    62
    """
    return TARGETS[check_choice("target", name, tuple(TARGETS))]
