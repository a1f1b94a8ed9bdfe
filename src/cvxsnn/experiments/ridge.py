"""A run of certified ridge: sampled neurons of one or several families, and a least-squares output for each class.

No gradient is used. The strength of the quadratic is a multiple of the mean eigenvalue of the products of rows, chosen
by leave-one-out errors or on validation data. Test data are used once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ..convex import ConvexProblem, Solution, solve
from ..convex.left_out import mean_eigenvalue
from ..convex.objective import Objective, decide_class
from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from ..core.memory import available_bytes
from ..core.seeds import child_seed
from ..data.task import SequenceData, Task
from ..dictionary import build_dictionary
from ..dictionary.building import MEMORY_BUDGET
from ..fitting.choosing import choose
from ..fitting.judges import LeaveOneOut, Scored
from ..fitting.program import Program
from ..fitting.scores import main_score
from ..network.energy import count_operations
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..network.summary import summarise
from ..neurons import count_spikes
from ..witnesses import WitnessSet, join_witnesses, sample_witnesses

METHOD = "ridge"
"""The name of the method in experiment files."""

_N_COUNTED = 20
"""Test sequences on which spikes and synaptic operations are counted."""

_N_RATED = 512
"""Training sequences on which firing rates are measured."""

_VALUES_AT_ONCE = 2**20
"""Steps, over all sequences of a block, that are scored at once."""


@dataclass(frozen=True)
class RidgeSettings:
    """How to choose the strength of ridge, and which data to fit.

    Attributes
    ----------
    l2_ratio : float or sequence of float, strengths relative to the mean eigenvalue of the products of rows
    choose : "leave-one-out" or "validation"
    refit : bool, whether the read-out is fitted to the validation data, too
    tol : float, the relative gap to certify
    loss : "squared" or "squared_hinge", of one output per class; leave-one-out errors are those of the first
    max_rate : float, neurons of the last layer that fire in a larger share of the steps of training data are silenced
    """

    l2_ratio: float | Sequence[float] = (1e-2, 3e-3, 1e-3)
    choose: Literal["leave-one-out", "validation"] = "leave-one-out"
    refit: bool = False
    tol: float = 1e-6
    max_rate: float = 1.0
    loss: Literal["squared", "squared_hinge"] = "squared"

    def __post_init__(self) -> None:
        """Refuse other ways to choose, and other losses."""
        check_choice("choose", self.choose, ("leave-one-out", "validation"))
        check_choice("loss", self.loss, ("squared", "squared_hinge"))
        if self.choose == "leave-one-out" and self.loss != "squared":
            raise InvalidInputError(f"expected choose='validation' for the loss {self.loss!r}, got 'leave-one-out'")


class RidgeRun(NamedTuple):
    """The outcome of a run.

    Attributes
    ----------
    network : SpikingNetwork
    solution : Solution, with its certificate
    ratio : float, the strength that was chosen
    val : float, the accuracy that chose it
    test : float, the accuracy on test data
    """

    network: SpikingNetwork
    solution: Solution
    ratio: float
    val: float
    test: float


def run_ridge(
    task: Task, families: Sequence[Mapping[str, Any]], readout: str, settings: RidgeSettings, seed: int, device: str
) -> RidgeRun:
    """Sample neurons, read them by ridge, and test once.

    Parameters
    ----------
    task : Task
        The task, with one head of classes.
    families : sequence of mapping
        Families of one depth, whose neurons are joined.
    readout : str
        Which spikes are read.
    settings : RidgeSettings
        The strengths, and how one of them is chosen.
    seed : int
        The seed of the samples.
    device : str
        Where to compute.

    Returns
    -------
    RidgeRun
        The network with its certificate and accuracies.
    """
    # A random stream per family: equal families would otherwise sample equal neurons.
    samples = [
        sample_witnesses(family, task.train.inputs, child_seed(seed, METHOD, number))
        for number, family in enumerate(families)
    ]
    witnesses = (samples[0] if len(samples) == 1 else join_witnesses(samples)).to(device)
    if settings.max_rate < 1:
        witnesses = _quiet(witnesses, task.train, settings.max_rate)
    # In its own function: the Gram matrix and whatever else chose the strength is freed before test data are scored.
    solution, ratio, val = _fit(task, witnesses, readout, settings)
    network = reconstruct(solution)
    return RidgeRun(network, solution, ratio, val, _accuracy(network, task.test))


def _fit(task: Task, witnesses: WitnessSet, readout: str, settings: RidgeSettings) -> tuple[Solution, float, float]:
    """Return the certified read-out at the best strength, that strength relative to the data, and its accuracy."""
    (n_classes,) = task.n_classes.values()
    train = all_data = task.train
    if settings.refit:
        heads = {name: np.concatenate((labels, task.val.heads[name])) for name, labels in train.heads.items()}
        all_data = SequenceData(np.concatenate((train.inputs, task.val.inputs)), heads)
    leaves_out = settings.choose == "leave-one-out"
    problem = _problem(witnesses, all_data if leaves_out else train, readout, n_classes, settings.loss)
    ratios = [settings.l2_ratio] if isinstance(settings.l2_ratio, (int, float)) else settings.l2_ratio
    ratio_of = {ratio * mean_eigenvalue(problem): ratio for ratio in ratios}
    objective = Objective(settings.loss, readout)
    program = Program(objective, "elastic-net", 0.0, list(ratio_of), intercept=True, tol=settings.tol)
    workspaces = problem.workspace, problem.row_workspace

    def validate(network: SpikingNetwork) -> float:
        for workspace in workspaces:  # all strengths are solved by now, and scoring needs the room of the Gram matrix
            workspace.clear()
        return _accuracy(network, task.val)

    verdict = choose(problem, program, LeaveOneOut("accuracy") if leaves_out else Scored(validate))
    strength, accuracy = verdict.point[1], main_score(verdict.rank)
    solution = verdict.solution
    if solution is None or settings.refit:
        if not leaves_out:
            del problem, solution, verdict  # and with them the first dictionary, before the second is built
            problem = _problem(witnesses, all_data, readout, n_classes, settings.loss)
        solution = solve(problem.with_strength(0.0, strength), settings.tol)
    return solution, ratio_of[strength], accuracy


def describe_run(run: RidgeRun, task: Task) -> dict[str, Any]:
    """Return the facts of a record: what was proven, and what the network costs."""
    inputs = torch.from_numpy(task.test.inputs[:_N_COUNTED]).to(run.network.weight.device)
    operations = count_operations(run.network, inputs)
    *hidden, _ = operations.layers
    return {
        "val": run.val,
        "scores": {"test": run.test},
        **describe_solution(run.solution),
        "l2_ratio": run.ratio,
        "n_rows": run.solution.problem.dictionary.n_rows,
        "n_active": run.network.n_active,
        "n_neurons": sum(layer.n_neurons for layer in hidden),
        "n_weights": int((run.network.weight != 0).sum()),
        "spikes": operations.total.n_spikes / operations.n_samples,
        "firing_rate": hidden[-1].n_spikes / hidden[-1].n_neurons / operations.n_steps,
        "synaptic_operations": operations.synaptic_per_sample,
        "bytes": summarise(run.network).n_bytes,
    }


def describe_solution(solution: Solution) -> dict[str, Any]:
    """Return the facts of a record about a certified read-out."""
    certificate = solution.certificate
    facts = {name: getattr(certificate, name) for name in ("primal", "dual", "gap", "relative_gap")}
    return facts | {"l2_strength": solution.problem.l2_strength, "n_atoms": solution.problem.dictionary.n_atoms}


def _quiet(witnesses: WitnessSet, data: SequenceData, max_rate: float) -> WitnessSet:
    """Return witnesses without those of the last layer that fire too often on some training sequences."""
    *lower, last = witnesses.layers
    inputs = torch.from_numpy(data.inputs[:_N_RATED]).to(last.weight.device)
    rate = count_spikes(witnesses.layers, inputs).double().mean(0) / inputs.shape[1]
    is_quiet = (rate <= max_rate).view(last.n_subnetworks, last.width)
    return WitnessSet((*lower, last.silence(is_quiet)), witnesses.provenance)


def _problem(witnesses: WitnessSet, data: SequenceData, readout: str, n_classes: int, loss: str) -> ConvexProblem:
    """Return ridge with one output per class, whose target is 1 for the class and 0 for others."""
    device = witnesses.layers[0].weight.device
    budget = max(MEMORY_BUDGET, (available_bytes(device) or 0) // 2)
    dictionary = build_dictionary(witnesses, torch.from_numpy(data.inputs).to(device), readout, memory_budget=budget)
    targets = np.eye(n_classes)[_labels(data)]
    return ConvexProblem(dictionary, targets, loss, 0.0, l2_strength=1.0, penalty="elastic-net", intercept=True)


def _labels(data: SequenceData) -> np.ndarray[Any, Any]:
    (labels,) = data.heads.values()
    return labels.ravel()


@torch.no_grad()
def _accuracy(network: SpikingNetwork, data: SequenceData) -> float:
    """Return the share of sequences, or of steps, whose class has the largest output."""
    size, device = max(1, _VALUES_AT_ONCE // data.n_steps), network.weight.device
    classes = [
        decide_class(network(torch.from_numpy(data.inputs[start : start + size]).to(device))).flatten().cpu()
        for start in range(0, len(data), size)
    ]
    return float((torch.cat(classes).numpy() == _labels(data)).mean())
