"""From a trained network to its optimal read-out.

The spikes that enter the last linear layer are recorded, the convex program for that layer's weights is solved with a
certificate, and the weights are written back. Hidden layers, whatever they are, stay as they are.
"""

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ...convex import ConvexProblem, Solution, solve
from ...convex.losses import LOSSES
from ...core.checks import Array, check_choice, check_positive_int
from ...core.errors import InvalidInputError, first_line
from ...core.seeds import check_seed, child_generator
from ...dictionary import DenseDictionary, Dictionary, count_dictionary
from .batches import Batches, Targets, check_targets
from .guard import untouched
from .layers import LinearLayer, find_readout
from .player import Decide, Layout, Player, Run, largest
from .probe import probe
from .result import ReadoutResult, ReadoutScore

Report = Callable[[str, int, int], None]

_RATIOS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Strengths to try, relative to the critical one."""

_HELD_OUT, _N_SEEN = 0.1, 10_000
"""Share of the samples that strengths are compared on, and most of the others that they are compared with."""

_ROUGH = 1e-3
"""Relative gap to which they are compared."""

_PATIENCE = 2
"""Strengths in a row that may score no better before weaker ones are left out."""

_MAX_HALVINGS = 24
"""How often a strength is halved to get below the loss that the model had."""

_SPREADS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SHIFTS = (-1.0, -0.5, 0.5, 1.0)
"""Spreads of the scores to try for output neurons, and shifts in units of them, relative to what the model had."""

_N_FITTED = 1000
"""Samples on which those are compared."""

_DENSE_BYTES = 2**30
"""Room in which counts are kept as numbers: several times as fast as unpacking their bits for every product."""


def reconstruct_readout(
    model: nn.Module,
    X: Array | Iterable[tuple[Array, Array]],  # noqa: N803 (scikit-learn calls the data X)
    y: Array | None = None,
    *,
    loss: str = "auto",
    l1_strength: float | Literal["auto"] = "auto",
    layer: str | None = None,
    layout: Layout = "batch",
    readout: Literal["mean", "last"] = "mean",
    run: Run | None = None,
    reset: Callable[[nn.Module], None] | None = None,
    decide: Decide | None = None,
    penalty: str = "l1",
    copy_model: bool = False,
    batch_size: int = 128,
    tol: float = 1e-6,
    seed: int = 0,
    report: Report | None = None,
) -> ReadoutResult:
    """Find the optimal weights of a trained network's last linear layer, prove it, and write them back.

    Parameters
    ----------
    model : nn.Module
        Any network: stepped or not, convolutional, recurrent, of any library. Only its last linear layer changes.
    X : array of shape (n_samples, ...), or an iterable of batches ``(inputs, targets)`` such as a DataLoader
        A loader is gone through a batch at a time, and more than once.
    y : array of shape (n_samples,)
        Classes as the model's outputs are numbered, or real targets. Not beside a loader, which has them.
    loss : str
        "softmax", "logistic", "squared", "hinge" or "squared_hinge"; "auto" takes softmax for several outputs and
        classes, logistic for one, squared for real targets.
    l1_strength : float or "auto"
        "auto" takes, of several, the one of the lowest loss on a tenth of the samples that it has not seen; then all
        are used. A weaker one is taken where the training loss would otherwise be above the model's own.
    layer : str, optional
        Its name in the model; found where there is one candidate.
    layout : "batch", "time-first" or "stepped"
        How the model takes a batch: as it is, with its first two axes swapped to (n_steps, n_samples, ...), or one
        step at a time along the second axis.
    readout : "mean" or "last"
        Read the layer's outputs averaged over the steps, or at the last one.
    run : function, optional
        ``run(model, batch)`` runs the model in any other way.
    reset : function, optional
        ``reset(model)`` makes the neurons forget; by default as snnTorch and SpikingJelly do it.
    decide : function, optional
        ``decide(output)`` gives the classes that the model decides for, shape (n_samples,); by default the largest
        output, summed over the steps where there are any.
    penalty : "l1" or "group"
    copy_model : bool
        Whether to leave the model alone and change a copy.
    batch_size : int
        Of arrays; a loader has its own.
    tol : float
        Relative gap to certify.
    seed : int
        Of the samples that are held out, and of random numbers that the model draws.
    report : function, optional
        Told of progress as ``report(stage, done, total)``.
    """
    begin = time.perf_counter()
    check_choice("layout", layout, ("batch", "time-first", "stepped"))
    check_choice("readout", readout, ("mean", "last"))
    check_choice("loss", loss, ("auto", *LOSSES))
    check_choice("penalty", penalty, ("l1", "group"))
    check_seed(seed)
    if l1_strength != "auto" and not (isinstance(l1_strength, (int, float)) and 0 < l1_strength < np.inf):
        raise InvalidInputError(f"expected l1_strength to be 'auto' or a finite number above zero, got {l1_strength!r}")
    _check_model(model)
    batches = Batches(X, y, check_positive_int("batch_size", batch_size))
    model = _copied(model) if copy_model else model
    player, tell = Player(model, layout, run, reset, decide), report or (lambda *_: None)
    with untouched(model, seed):
        opening = batches.opening()
        target = find_readout(model, lambda: player.play(opening), layer)
        player, found_out = probe(player, target, opening, seed, layer is not None)
        recorded = _record(player, target, batches, readout, loss, tell)
    own = target.read()
    before = replace(recorded.score(*own), model_accuracy=recorded.model_accuracy)
    problem = recorded.problem(penalty, target.bias is not None)
    solution = _solve(problem, recorded, l1_strength, before.loss, tol, seed, tell)
    found = recorded.spread(solution)
    after = recorded.score(*target.rounded(*found))
    notes, scale, shift = (*found_out, *recorded.notes), 1.0, 0.0
    has_changed = after.loss <= before.loss
    if has_changed:
        with untouched(model, seed):
            scale, shift, accuracy = _fit_output_neurons(player, target, batches, recorded, found, own, tell)
        target.write(*found, scale, shift)
        after = replace(after, model_accuracy=accuracy)
    else:
        after = before
        notes += ("the optimum at this strength has a higher training loss than the model's weights, which stay",)
    if (scale, shift) != (1.0, 0.0):
        notes += (
            f"output neurons follow the layer: it holds {scale:.3g} times the solution plus {shift:.3g} for all "
            "outputs, a range in which they tell classes apart",
        )
    seconds = time.perf_counter() - begin
    return ReadoutResult(model, target.name, solution, before, after, has_changed, scale, shift, notes, seconds)


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"expected a torch.nn.Module, got {type(model).__name__}")
    if any(is_lazy(own) or own.is_meta for own in model.parameters()):
        raise InvalidInputError(
            "expected a model whose parameters have values, got some that have none yet, of lazy layers or on the meta "
            "device: run the model once, or load its weights"
        )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise InvalidInputError(
            f"expected a model that can be copied, but it says {type(error).__name__}: {first_line(error)}; reset "
            "neurons that still hold the graph of a training step, or pass copy_model=False"
        ) from error


@dataclass(frozen=True, eq=False)
class _Recorded:
    """What a pass over the data gave: one column for each neuron that the layer reads, and the targets."""

    dictionary: Dictionary
    targets: Targets
    model_accuracy: float | None
    notes: tuple[str, ...]

    def problem(self, penalty: Any, intercept: bool, rows: Tensor | None = None) -> ConvexProblem:
        """The convex program over all rows or some."""
        dictionary = self.dictionary if rows is None else self.dictionary.take_rows(rows)
        values = self.targets.values if rows is None else self.targets.values[rows]
        return ConvexProblem(dictionary, values, self.targets.loss, penalty=penalty, intercept=intercept)

    def outputs(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The layer's outputs for each row."""
        coef = weight.new_zeros(self.dictionary.n_atoms, len(weight))
        return self.dictionary.matvec(coef.index_add_(0, self.dictionary.atom_of_witness, weight.T)) + bias

    def score(self, weight: Tensor, bias: Tensor) -> ReadoutScore:
        """Of the layer with weights (n_outputs, n_inputs)."""
        outputs = self.outputs(weight, bias)
        loss = float(self.problem("l1", False).loss_value(outputs).nan_to_num(np.inf))  # weights may have diverged
        is_used = weight != 0
        return ReadoutScore(loss, self.accuracy(outputs), None, int(is_used.sum()), int(is_used.any(0).sum()))

    def accuracy(self, outputs: Tensor, rows: Tensor | slice = slice(None)) -> float | None:
        """Share of rows whose largest output is right; None for real targets."""
        if self.targets.classes is None:
            return None
        return float((largest(outputs).cpu() == self.targets.classes[rows]).double().mean())

    def has_contrast(self, rows: Tensor) -> bool:
        """Whether these rows show more than one class, to each output where each tells one from the rest."""
        values = self.targets.values[rows]
        return self.targets.classes is None or bool((values.amin(0) != values.amax(0)).all())

    def spread(self, solution: Solution) -> tuple[Tensor, Tensor]:
        """A solution's weights and bias as the layer has them; of neurons with equal spikes the first is read."""
        weight = solution.coef.new_zeros(solution.coef.shape[1], self.dictionary.n_witnesses)
        weight[:, self.dictionary.witness_of_atom] = solution.coef.T
        return weight, solution.intercept


def _record(player: Player, layer: LinearLayer, batches: Batches, readout: str, loss: str, tell: Report) -> _Recorded:
    """Go through the data once."""
    n_outputs = layer.weight.shape[0]
    sums, targets, decisions = [], [], []
    are_spikes, n_steps = True, 0
    for number, (inputs, labels) in enumerate(batches, 1):
        output, steps = player.listen(layer, inputs)
        steps = steps[-1:] if readout == "last" else steps
        if n_steps not in (0, len(steps)):
            raise InvalidInputError(
                f"expected sequences of one length, got {n_steps} and {len(steps)} steps: pad them, or sort them apart"
            )
        n_steps = len(steps)
        are_spikes = are_spikes and n_steps < 2**15 and bool(((steps == 0) | (steps == 1)).all())
        # Counts of spikes fit into two bytes.
        sums.append(steps.sum(0, dtype=torch.float64).to(torch.int16 if are_spikes else torch.float64))
        targets.append(labels)
        decisions.append(player.decisions(output, len(inputs), n_outputs))
        tell("recording", number, max(len(batches), number))
    checked = check_targets(np.concatenate(targets), n_outputs, loss)
    notes = checked.notes
    n_bytes = 8 * sum(own.numel() for own in sums)
    dictionary: Dictionary
    if are_spikes and n_bytes > _DENSE_BYTES:
        dictionary = count_dictionary(torch.cat(sums), n_steps)
    else:
        dictionary = DenseDictionary(torch.cat([own.to(torch.float64) for own in sums]) / n_steps)
    if not are_spikes:
        notes += ("what enters the layer are not spikes but real numbers; the program is convex all the same",)
    known = [own for own in decisions if own is not None]
    accuracy = None
    if checked.classes is not None and len(known) == len(decisions):
        accuracy = float((torch.cat(known) == checked.classes).double().mean())
    elif checked.classes is not None:
        notes += ("what the model decides cannot be told from its output: pass decide=lambda output: ...",)
    return _Recorded(dictionary, checked, accuracy, notes)


def _solve(
    problem: ConvexProblem,
    recorded: _Recorded,
    l1_strength: float | Literal["auto"],
    loss_before: float,
    tol: float,
    seed: int,
    tell: Report,
) -> Solution:
    """The optimum at the strength given, or at one that serves held-out samples and lowers the loss."""
    if l1_strength != "auto":
        return solve(problem.with_strength(l1_strength), tol)
    strength, start = _best_strength(problem, recorded, seed, tell)
    tell("solving", 0, 1)
    solution = solve(problem.with_strength(strength), tol, start=start)
    for _ in range(_MAX_HALVINGS):
        if float(problem.loss_value(solution.scores())) < loss_before:
            break
        strength *= 0.5
        solution = solve(problem.with_strength(strength), tol, start=solution)
    tell("solving", 1, 1)
    return solution


def _best_strength(
    problem: ConvexProblem, recorded: _Recorded, seed: int, tell: Report
) -> tuple[float, Solution | None]:
    """The strength whose read-out does best on samples that it has not seen, and that read-out.

    Of many samples some will do to find it. What noise adds to a correlation falls with the root of their number, and
    so does the strength that keeps it out.
    """
    n_rows, critical = problem.dictionary.n_rows, problem.critical_strength or 1.0
    order = torch.from_numpy(child_generator(seed, "readout", "held out").permutation(n_rows))
    n_held = int(_HELD_OUT * n_rows)
    held, seen = order[:n_held], order[n_held : n_held + _N_SEEN]
    if n_held == 0 or not recorded.has_contrast(seen):
        return _RATIOS[len(_RATIOS) // 2] * critical, None
    part = recorded.problem(problem.penalty, problem.intercept, seen)
    rest, (head,) = recorded.dictionary.take_rows(held), problem.heads
    best: tuple[float, float, Solution | None] = (-np.inf, _RATIOS[0], None)
    n_idle, solution = 0, None
    for number, ratio in enumerate(_RATIOS, 1):
        solution = solve(part.with_strength(ratio * (part.critical_strength or 1.0)), _ROUGH, start=solution)
        outputs = rest.matvec(solution.coef) + solution.intercept
        score = -float(head.loss.value(outputs, head.targets[held]).mean())
        tell("choosing the strength", number, len(_RATIOS))
        n_idle = 0 if score > best[0] else n_idle + 1
        best = max(best, (score, ratio, solution), key=lambda found: found[0])
        if n_idle >= _PATIENCE:
            break
    _, ratio, solution = best
    return ratio * critical * float(np.sqrt(len(seen) / (n_rows - n_held))), solution


def _fit_output_neurons(
    player: Player,
    layer: LinearLayer,
    batches: Batches,
    recorded: _Recorded,
    found: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    tell: Report,
) -> tuple[float, float, float | None]:
    """Scale and shift, the same for all outputs, and what the model's decisions are worth with them.

    Where the layer's outputs are the model's, nothing is to be done. Where output neurons follow, the order of the
    layer's outputs is not all: they must drive the neurons within the range in which these fire differently often. The
    weights that the model had did so, and the search begins with their spread and mean.
    """
    n_outputs = len(found[0])
    layer.write(*found)
    at_once = _replay(player, batches, n_outputs, tell)
    ours = recorded.outputs(*found)
    layers_own = recorded.accuracy(ours)
    if player.is_direct or at_once is None or layers_own is None or at_once >= layers_own:
        return 1.0, 0.0, at_once
    theirs = recorded.outputs(*own)
    spread, ratio = float(theirs.std()), float(theirs.std() / ours.std().clamp_min(1e-300))
    few = batches.first(_N_FITTED)

    def best_of(tries: list[tuple[float, float]]) -> tuple[float, float]:
        scores = []
        for number, (scale, shift) in enumerate(tries, 1):
            layer.write(*found, scale, shift)
            scores.append(_replay(player, few, n_outputs, lambda *_: None) or 0.0)
            tell("fitting output neurons", number, len(tries))
        return tries[int(np.argmax(scores))]

    def centred(scale: float) -> float:
        return float(theirs.mean()) - scale * float(ours.mean()) if layer.bias is not None else 0.0

    scales = [relative * ratio for relative in _SPREADS]
    scale, shift = best_of([(1.0, 0.0), *((scale, centred(scale)) for scale in scales)])
    if layer.bias is not None:
        scale, shift = best_of([(scale, shift), *((scale, shift + move * spread) for move in _SHIFTS)])
    layer.write(*found, scale, shift)
    return scale, shift, _replay(player, batches, n_outputs, tell)


def _replay(
    player: Player, batches: Iterable[tuple[Tensor, npt.NDArray[Any]]], n_outputs: int, tell: Report
) -> float | None:
    """Accuracy of what the model decides now; None where nobody can tell."""
    n_right, n_samples = 0, 0
    for number, (inputs, labels) in enumerate(batches, 1):
        decisions = player.decisions(player.play(inputs), len(inputs), n_outputs)
        if decisions is None or labels.ndim != 1 or labels.dtype.kind not in "iub":
            return None
        n_right += int((decisions.numpy() == labels).sum())
        n_samples += len(labels)
        tell("checking", number, number)
    return n_right / n_samples
