"""The outcome of a read-out reconstruction."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...convex import Certificate, Solution
from ...convex.objective import Objective
from ...core.errors import InvalidInputError
from ...network.reconstruction import Proof
from ...network.spiking_network import SpikingNetwork
from ...witnesses import Provenance, WitnessSet
from .probe import SAME


@dataclass(frozen=True)
class ReadoutScore:
    """How good a read-out is on the data that it was solved for.

    Parameters
    ----------
    loss : float
        Mean loss of the layer's outputs, averaged over the steps or at the last one, without the penalty.
    accuracy : float or None
        Accuracy of the largest of those outputs; None for real targets.
    model_accuracy : float or None
        Accuracy of the model's own decisions, to which output neurons contribute; None where it is unknown.
    n_weights : int
        Number of non-zero weights.
    n_read : int
        Number of neurons that have a non-zero weight.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from cvxsnn import reconstruct_readout
    >>> class Spike(nn.Module):
    ...     def forward(self, x):
    ...         return (x > 0).to(x.dtype)
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(200, 8)
    >>> model = nn.Sequential(nn.Linear(8, 64), Spike(), nn.Linear(64, 2))
    >>> result = reconstruct_readout(model, X, (X[:, 0] > 0).long(), l1_strength=0.001)
    >>> result.after.n_weights <= result.before.n_weights
    True
    """

    loss: float
    accuracy: float | None
    model_accuracy: float | None
    n_weights: int
    n_read: int


@dataclass(frozen=True, eq=False)
class ReadoutResult:
    """The outcome of :func:`cvxsnn.reconstruct_readout`.

    Parameters
    ----------
    model : nn.Module
        The model with the optimal weights.
    layer : str
        Name of the layer that holds them.
    solution : Solution
        The solution of the convex program, in float64. Its certificate is that of the solution.
    certificate : Certificate
        The proof how far the weights that the layer has now, as rounded to its type, are from the optimum of the same
        program. If they were kept, it is theirs. Scale and shift are undone.
    before : ReadoutScore
        Scores of the model's own weights.
    after : ReadoutScore
        Scores of the weights that it has now, with scale and shift undone.
    has_changed : bool
        Whether the weights were written. They are not if the model's own have the lower loss.
    scale : float
        The layer holds ``scale`` times the solution if output neurons, which have to fire, follow it; otherwise 1.
    shift : float
        Added to all outputs for the same purpose; 0 otherwise. Neither changes which output is the largest.
    notes : tuple of str
        What a reader of the numbers should know.
    seconds : float
        Time taken.
    readout : "mean" or "last"
        Whether the layer's outputs were averaged over the steps, or read at the last one.
    example : tuple of Tensor
        A few of the inputs, and the outputs for them that the solution has.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from cvxsnn import reconstruct_readout
    >>> class Spike(nn.Module):
    ...     def forward(self, x):
    ...         return (x > 0).to(x.dtype)
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(200, 8)
    >>> model = nn.Sequential(nn.Linear(8, 64), Spike(), nn.Linear(64, 2))
    >>> result = reconstruct_readout(model, X, (X[:, 0] > 0).long(), l1_strength=0.001)
    >>> result.layer, result.has_changed
    ('2', True)
    """

    model: nn.Module
    layer: str
    solution: Solution
    certificate: Certificate
    before: ReadoutScore
    after: ReadoutScore
    has_changed: bool
    scale: float
    shift: float
    notes: tuple[str, ...]
    seconds: float
    readout: Literal["mean", "last"]
    example: tuple[Tensor, Tensor]

    def to_network(self, *, weight_bits: int | None = None, dtype: torch.dtype | None = None) -> SpikingNetwork:
        """Return the model up to the layer as a network of cvxsnn, which reads the steps as the layer was solved for.

        The model must be a stack of linear layers and neurons of snnTorch, SpikingJelly or Norse, as for
        :func:`cvxsnn.exchange.from_snntorch`. Output neurons after the layer, and the range fitted to them, are left
        out.

        Parameters
        ----------
        weight_bits : int, optional
            Bits per weight, as in :func:`cvxsnn.exchange.from_snntorch`.
        dtype : torch.dtype, optional
            Type of the membranes, as in :func:`cvxsnn.exchange.from_snntorch`.

        Returns
        -------
        SpikingNetwork
            The network.
        """
        from ..peers import PeerNetwork, from_snntorch, leaves_of

        stack: nn.Module | list[nn.Module] = self.model
        if not isinstance(self.model, PeerNetwork):
            (_, modules), last = leaves_of(self.model), self.model.get_submodule(self.layer)
            stack = modules[: modules.index(last) + 1] if last in modules else modules
        loss = self.solution.problem.heads[0].loss.name
        network = from_snntorch(stack, readout=self.readout, loss=loss, weight_bits=weight_bits, dtype=dtype)
        if not isinstance(network, SpikingNetwork):
            raise InvalidInputError(f"expected layer {self.layer!r} to be a linear layer at the end of a stack")
        with torch.no_grad():
            network.weight.div_(self.scale)
            network.intercept.sub_(self.shift).div_(self.scale)
        self._check_same(network)
        return network

    def to_proof(self) -> Proof:
        """Return the program of the layer over the neurons of :meth:`to_network`, with the weights that it has now.

        Returns
        -------
        Proof
            The proof, which ``certify`` checks on a :class:`cvxsnn.data.TrainingSet` of the same data.
        """
        network, problem = self.to_network(), self.solution.problem
        witnesses, centre = WitnessSet(network.layers, Provenance("pretrained")), None
        if problem.centre is not None:
            dictionary = problem.dictionary
            centre = problem.centre.new_zeros(witnesses.n_witnesses, problem.n_outputs)
            centre[network.columns[dictionary.column_of_atom]] = problem.centre * dictionary.units[:, None]
        return Proof(
            witnesses=witnesses,
            support=network.columns,
            coef=network.weight.detach(),
            intercept=network.intercept.detach(),
            dual_point=self.solution.dual_point,
            objective=Objective(problem.heads[0].loss, readout=self.readout),
            l1_strength=problem.l1_strength,
            l2_strength=problem.l2_strength,
            penalty=problem.penalty,
            has_intercept=problem.intercept,
            certificate=self.certificate,
            centre=centre,
        )

    def _check_same(self, network: SpikingNetwork) -> None:
        """Refuse a network that is not the model: its ``forward`` may connect the layers differently."""
        inputs, expected = self.example
        with torch.no_grad():
            outputs = network(inputs.detach().cpu().double()).cpu()
        # Of a model in float32, rounding flips a spike now and then.
        distance = float((outputs - expected.cpu()).abs().median())
        if outputs.shape != expected.shape or not distance <= SAME * (1 + float(expected.abs().max())):
            raise InvalidInputError(
                f"expected the outputs of layer {self.layer!r} from the model's layers in their order, read as "
                f"{self.readout!r}, got others: keep using result.model, or solve with readout= as the model reads them"
            )

    def __str__(self) -> str:
        """Return a table."""
        names = ("", "loss", "accuracy of the layer", "accuracy of the model", "weights", "neurons read")
        columns = []
        for title, score in (("before", self.before), ("after", self.after)):
            shares = ("-" if share is None else f"{share:.4f}" for share in (score.accuracy, score.model_accuracy))
            columns.append([title, f"{score.loss:.5f}", *shares, f"{score.n_weights:,}", f"{score.n_read:,}"])
        table = [f"{name:<24}{before:>12}{after:>12}" for name, before, after in zip(names, *columns, strict=True)]
        head = f"layer {self.layer!r}, {self.seconds:.1f} s"
        return "\n".join([head, *table, str(self.certificate), *(f"note: {note}" for note in self.notes)])
