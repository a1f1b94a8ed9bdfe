"""Threshold neurons without memory, some of which inhibit each other, and the views of the inputs that they read."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.formatting import plural
from .exact import INPUT_UNIT, snap_inputs
from .layer import HiddenLayer, LayerState
from .lif import fire
from .statistics import STATISTICS

View = Literal["values", "changes", "squares", "squared changes"]
VIEWS: tuple[View, ...] = get_args(View)
"""What taps can read of an input: its value, its change since the step before, and their squares."""


def view_inputs(block: Tensor, before: Tensor | None, views: tuple[View, ...]) -> Tensor:
    """Return the views of inputs, each on the grid of inputs.

    Parameters
    ----------
    block : Tensor of shape (n_steps, n_samples, n_features)
        Inputs on their grid (:func:`cvxsnn.neurons.exact.snap_inputs`).
    before : Tensor of shape (n_samples, n_features), optional
        The step before the first one; none at the start of a sequence, where the change is zero.
    views : tuple of str
        The views, from :data:`VIEWS`.

    Returns
    -------
    Tensor of shape (n_steps, n_samples, n_views * n_features), dtype float64
        Value f of view v is ``v * n_features + f``.
    """
    values = block.to(torch.float64)
    earlier = torch.cat(((values[:1] if before is None else before[None].to(values)), values[:-1]))
    seen: dict[str, Tensor] = {"values": values, "changes": values - earlier}
    # A square has twice the bits, so it is rounded to the grid; differences of grid points lie on it.
    seen["squares"], seen["squared changes"] = (snap_inputs(seen[name].square()) for name in ("values", "changes"))
    return torch.cat([seen[view] for view in views], dim=-1)


def first_largest(drive: Tensor, group: Tensor) -> Tensor:
    """Return which neurons have the largest drive of their group; of equal ones, the first.

    Parameters
    ----------
    drive : Tensor of shape (..., width)
        The drives.
    group : Tensor of shape (width,), dtype int64
        The group of each neuron, from 0.

    Returns
    -------
    Tensor of shape (..., width), dtype bool
        One neuron of each group.
    """
    index, shape = group.expand(drive.shape), (*drive.shape[:-1], int(group.max()) + 1)
    largest = drive.new_full(shape, -torch.inf).scatter_reduce_(-1, index, drive, "amax").gather(-1, index)
    number = torch.arange(len(group), device=group.device).expand(drive.shape)
    number = torch.where(drive == largest, number, len(group))
    first = torch.full(shape, len(group), device=group.device).scatter_reduce_(-1, index, number, "amin")
    return number == first.gather(-1, index)


@dataclass(frozen=True, eq=False)
class LateralLayer(HiddenLayer):
    r"""A layer of threshold neurons without memory, in which groups of neurons inhibit each other.

    A neuron that belongs to no group fires in every step in which its drive is zero or more. Of a group, the neuron
    with the largest drive fires, whatever its sign; of equal drives, the first. Taps read views of the inputs: values,
    changes since the step before, and the squares of both. Since :math:`\|x - s\|^2 \le r^2` is linear in x and x², a
    neuron can fire where the inputs are close to a pattern s. Drives are sums without rounding, in float64.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights, rounded to ``weight_bits`` bits each.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant drive: minus the threshold.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        Not used: spikes of a step do not depend on those before.
    weight_bits : int
        The precision of the weights.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32
        The value that each tap reads: feature f of view v is ``v * n_features + f``.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32
        The delay of each tap in steps.
    n_sources : int
        Number of views times number of features.
    group : Tensor of shape (n_subnetworks, width) or scalar
        The group of each neuron, from 1; 0 for neurons that belong to none.
    statistics : Tensor of shape (n_subnetworks, width) or scalar
        Which statistics of its spikes are read, as the sum of 2ⁱ over their numbers i in
        :data:`cvxsnn.neurons.statistics.STATISTICS`; -1 for all.
    views : tuple of str
        The views of the inputs, from ``"values"``, ``"changes"``, ``"squares"`` and ``"squared changes"``.

    Examples
    --------
    Two neurons of a group: the one with the larger input fires.

    >>> import torch
    >>> from cvxsnn import roll_out
    >>> from cvxsnn.neurons import LateralLayer
    >>> source = torch.tensor([[[0, 1]]])
    >>> layer = LateralLayer(
    ...     torch.ones(1, 1, 2), source=source, delay=torch.zeros(1, 1, 2), n_sources=2, group=1
    ... )
    >>> roll_out([layer], torch.tensor([[[3.0, 2.0], [-1.0, 0.0], [1.0, 1.0]]]), "all").int().tolist()
    [[[1, 0], [0, 1], [1, 0]]]
    """

    group: Tensor = 0.0  # type: ignore[assignment]
    statistics: Tensor = -1.0  # type: ignore[assignment]
    views: tuple[View, ...] = ("values",)

    def __post_init__(self) -> None:
        """Keep weights in float64, whatever the dtype given."""
        if self.weight.is_floating_point():
            self._set("weight", self.weight.to(torch.float64))
        super().__post_init__()

    def _check_dynamics(self) -> None:
        views = tuple(self.views) if isinstance(self.views, (tuple, list)) else (self.views,)
        if not views or not all(isinstance(view, str) and view in VIEWS for view in views):
            raise InvalidInputError(f"expected views from {', '.join(map(repr, VIEWS))}, got {self.views!r}")
        object.__setattr__(self, "views", views)
        if self.n_sources is None or self.n_sources % len(views):
            raise InvalidInputError(
                f"expected taps that read {plural(len(views), 'view')} of the inputs, got "
                f"{plural(self.n_sources or 0, 'source')}: pass source, delay and n_sources, the "
                "number of views times that of features"
            )
        for name, low, high in (("group", 0, 2**31), ("statistics", -1, 2 ** len(STATISTICS) - 1)):
            value = self._expand(name)
            if bool(((value != value.round()) | (value < low) | (value > high)).any()):
                raise InvalidInputError(f"expected {name} in whole numbers from {low} to {high}, got others")

    @property
    def n_inputs(self) -> int:
        """Number of features."""
        return int(self.n_sources) // len(self.views)  # type: ignore[arg-type]

    @property
    def n_values(self) -> int:
        """Number of values of one step that taps can read: one for each view and feature."""
        return int(self.n_sources)  # type: ignore[arg-type]

    @property
    def is_memoryless(self) -> bool:
        """Whether the spikes of a step depend on what is read at that step alone: always."""
        return True

    @property
    def has_groups(self) -> bool:
        """Whether any neurons inhibit each other."""
        return bool(self.group.any())

    @property
    def own_groups(self) -> Tensor:
        """The groups, int64, with numbers that differ from those of other subnetworks; 0 for neurons of none."""
        group = self.group.to(torch.int64)
        first = int(group.max()) * torch.arange(self.n_subnetworks, device=group.device)[:, None]
        return torch.where(group > 0, group + first, 0)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the layer on another device. Its type stays float64, in which sums are exact.

        Parameters
        ----------
        device : torch.device or str, optional
            The device; by default the present one.
        dtype : torch.dtype, optional
            Ignored.

        Returns
        -------
        LateralLayer
            The same neurons.
        """
        return super().to(device)

    def view(self, block: Tensor, before: Tensor | None = None) -> Tensor:
        """Return the values of each step that taps can read: :func:`view_inputs`.

        Parameters
        ----------
        block : Tensor of shape (n_steps, n_samples, n_inputs)
            The inputs.
        before : Tensor of shape (n_samples, n_inputs), optional
            The step before the first one; none at the start of a sequence.

        Returns
        -------
        Tensor of shape (n_steps, n_samples, n_values)
            The views.
        """
        return view_inputs(block, before, self.views)

    def levels_of(self, inputs: Tensor) -> float:
        """Return the largest integer among the views of the inputs, in the unit of inputs.

        Parameters
        ----------
        inputs : Tensor of shape (n_samples, n_steps, n_inputs)
            The inputs.

        Returns
        -------
        float
            The largest integer.
        """
        return max(self.largest_views(inputs)) / INPUT_UNIT + 1

    def largest_views(self, inputs: Tensor) -> list[float]:
        """Return the largest absolute value of each view of the inputs.

        Parameters
        ----------
        inputs : Tensor of shape (n_samples, n_steps, n_inputs)
            The inputs.

        Returns
        -------
        list of float
            One for each view.
        """
        snapped = snap_inputs(inputs)
        value, change = (float(x.abs().max()) if x.numel() else 0.0 for x in (snapped, snapped.diff(dim=1)))
        # A square is rounded to the grid, by half a unit at most. Those beyond 1e200 fit into no sum anyway.
        squares = {
            name: min(number, 1e100) ** 2 + INPUT_UNIT
            for name, number in (("squares", value), ("squared changes", change))
        }
        largest = {"values": value, "changes": change, **squares}
        return [largest[view] for view in self.views]

    def fan_out(self) -> Tensor:
        """Return the number of synapses that read each input, in any view, and whose weight is not zero.

        Returns
        -------
        Tensor of shape (n_subnetworks, n_inputs), dtype int64
            The numbers.
        """
        return super().fan_out().view(self.n_subnetworks, len(self.views), self.n_inputs).sum(1)

    def take_inputs(self, chosen: Tensor) -> Self:
        """Refuse: the layer reads inputs, not neurons."""
        raise InvalidInputError("expected a layer above others, got lateral neurons, which read inputs")

    def side_by_side(self) -> Self:
        """Return the neurons of all subnetworks, one after the other, in one: each group competes for itself.

        Returns
        -------
        LateralLayer
            One subnetwork.
        """
        return super().side_by_side().with_tensors({"group": self.own_groups.view(1, -1)})

    def take_neurons(self, neurons: Tensor) -> Self:
        """Return some neurons of each subnetwork. Their rivals stay in the layer, and nothing is read of them.

        Parameters
        ----------
        neurons : Tensor of shape (n_chosen,), dtype int64
            The neurons to keep; in rising order if any compete, since of equal drives the first wins.

        Returns
        -------
        LateralLayer
            These neurons, and others of their groups between them.
        """
        chosen = torch.zeros(self.n_subnetworks, self.width, dtype=torch.bool, device=self.weight.device)
        chosen[:, neurons] = True
        kept = self.needed_by(chosen).any(0).nonzero().squeeze(1)
        if not bool(self.group[:, neurons].any()):
            return super().take_neurons(neurons)
        if not bool((neurons.diff() > 0).all()):
            raise InvalidInputError("expected neurons that compete in rising order, got others: sort them first")
        part = super().take_neurons(kept)
        return part.with_tensors({"statistics": part.statistics * chosen[:, kept]})

    def take_neuron(self, number: int | Tensor, subnetworks: Tensor | None = None) -> Self:
        """Return the layer with a single neuron per subnetwork, which must not compete.

        Parameters
        ----------
        number : int or Tensor of shape (n_chosen,)
            The neuron to keep, per subnetwork.
        subnetworks : Tensor of shape (n_chosen,), optional
            The subnetworks to keep; all of them when not given.

        Returns
        -------
        LateralLayer
            A layer of width one.
        """
        single = super().take_neuron(number, subnetworks)
        if single.has_groups:
            raise InvalidInputError(
                "expected neurons that work without the rest of their layer, got lateral neurons of groups, which "
                "compete: choose neurons of no group, or rebuild with form='compact'"
            )
        return single

    def needed_by(self, needed: Tensor) -> Tensor:
        """Return some neurons and all others of their groups.

        Parameters
        ----------
        needed : Tensor of shape (n_subnetworks, width), dtype bool
            The neurons.

        Returns
        -------
        Tensor of shape (n_subnetworks, width), dtype bool
            The neurons without which these would fire otherwise.
        """
        group = self.own_groups.to(needed.device)
        return needed | (torch.isin(group, group[needed]) & (group > 0))

    def silence(self, is_live: Tensor) -> Self:
        """Return the layer with some neurons made to read nothing, belong to no group and never fire.

        Parameters
        ----------
        is_live : Tensor of shape (n_subnetworks, width), dtype bool
            Which neurons to leave as they are.

        Returns
        -------
        LateralLayer
            A layer of the same shape.
        """
        live = is_live.to(self.weight.device)
        changes: dict[str, Any] = {"group": self.group * live, "statistics": self.statistics * live}
        return super(LateralLayer, replace(self, **changes)).silence(is_live)

    def initial_state(self, n_samples: int) -> LayerState:
        """Return a new state.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        LayerState
            Silent neurons.
        """
        zeros = self.bias.new_zeros(self.n_subnetworks, n_samples, self.width)
        return LayerState(zeros, zeros.clone())

    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance a state by one step, in place.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_samples, width)
            The weighted input plus bias.
        state : LayerState
            The state, which is overwritten.
        """
        state.membrane.copy_(drive)
        fire(drive, out=state.spikes)
        for k, group in enumerate(self.group.to(torch.int64)):
            rivals = torch.nonzero(group).squeeze(1)
            if len(rivals):
                _, number = torch.unique(group[rivals], return_inverse=True)
                state.spikes[k][:, rivals] = first_largest(drive[k][:, rivals], number).to(drive.dtype)
