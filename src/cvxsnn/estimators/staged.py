"""Training in stages: the methods beside the convex one, and trained neurons beside selected ones."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch

from ..convex import Objective, solve
from ..core.formatting import plural
from ..core.progress import ShownProgress
from ..data import TrainingSet
from ..data.task import UNNAMED_HEAD
from ..fitting.engine import Fitted, find_method
from ..fitting.gradient import Split
from ..fitting.methods import Settings, Stage, Trained, train
from ..fitting.surrogate.optimal_readout import STRENGTH
from ..fitting.surrogate_settings import PROJECTION, SurrogateSettings
from ..network import Proof, reconstruct
from ..witnesses.tap_sampling import has_variation
from .base import Learned, SpikingEstimator
from .choices import DEFAULTS
from .history import History, StageSummary, of_solution, summarise_search

SHARE_OF_FIRST = 0.4
"""Share of the time for the first of two trainings, of which the second has more samples."""


def try_training(
    estimator: SpikingEstimator,
    fitted: Fitted,
    data: TrainingSet,
    seed: int,
    progress: ShownProgress,
    max_seconds: float,
) -> Learned:
    """Train as many neurons as were selected, and keep them if they err less on samples left out."""
    verdict, labels = fitted.chosen.verdict, estimator._classes_of(data)
    rival = estimator._twin(
        method="varpro",
        n_neurons=fitted.chosen.n_neurons,
        hidden=None,
        sparsity=None,
        max_seconds=None if max_seconds == inf else max_seconds,
    )
    own = data if labels is None else replace(data, targets={UNNAMED_HEAD: labels})
    kept, held = rival._divide(own, seed)
    rows = torch.arange(len(data)) if verdict.rows is None else verdict.rows.cpu()
    if len(rows) < len(data):  # the selection was judged on a part: training is judged on the same part
        held, kept = rows, torch.from_numpy(np.setdiff1d(np.arange(len(data)), rows.numpy()))
    if verdict.scores is None or len(kept) == len(data) or not has_variation(data.sequences):
        return fitted.solution, fitted.program.objective, data
    trained = _train(rival, own, rival._objective(rival._loss()), seed, progress, kept, held)
    judged = own.take(held)
    with torch.no_grad():
        outputs = trained.network(judged.sequences).cpu().numpy()
    of_selected = verdict.scores.cpu().numpy()[np.searchsorted(rows.numpy(), held.numpy())]
    of_selection, of_training = (torch.from_numpy(estimator._errors(own, judged)) for own in (of_selected, outputs))
    weight = judged.sample_weight
    weight = torch.ones(len(held), dtype=torch.float64) if weight is None else weight.cpu()
    fall = float((of_selection - of_training) @ (weight / weight.sum()))
    by = f"{abs(fall):.3g} {'less' if fall > 0 else 'more'}" if fall else "as much"
    reason = f"as many trained ones err {by} on {plural(len(held), 'sample')} left out"
    if fall <= 0:
        estimator.history_ = estimator.history_.explained(reason)
        return fitted.solution, fitted.program.objective, data
    learned = _refit(rival, trained, own, seed, progress, kept)
    estimator.network_ = rival.network_
    estimator.probability_scale_ = estimator._left_out = None
    estimator.history_ = History((*estimator.history_.explained(f"{reason} and are read instead"), *rival.history_))
    return learned


def train_in_stages(
    estimator: SpikingEstimator, data: TrainingSet, objective: Objective, seed: int, progress: ShownProgress
) -> Learned:
    """Train by a method with several stages, which held-out data compare."""
    kept, held = estimator._divide(data, seed)
    return _refit(estimator, _train(estimator, data, objective, seed, progress, kept, held), data, seed, progress, kept)


def _train(
    estimator: SpikingEstimator,
    data: TrainingSet,
    objective: Objective,
    seed: int,
    progress: ShownProgress,
    kept: torch.Tensor,
    held: torch.Tensor,
) -> Trained:
    """Train on the rows that are kept; those held out judge."""
    is_projected = find_method(estimator.method).stages[0] == "projection"
    default = PROJECTION if is_projected else SurrogateSettings(epochs=DEFAULTS.epochs)
    surrogate = estimator.surrogate or replace(default, seed=seed)
    settings = Settings(estimator._program(objective), estimator._families(data), surrogate=surrogate, seed=seed)
    held_out, budget = data.take(held), estimator._budget()
    split = Split(data.take(kept), lambda network: estimator._validate(network, held_out))
    if is_projected:  # which is repeated with all samples
        budget = replace(budget, max_seconds=SHARE_OF_FIRST * budget.max_seconds)
    return train(estimator.method, split, settings, callback=progress, budget=budget)


def _refit(
    estimator: SpikingEstimator,
    trained: Trained,
    data: TrainingSet,
    seed: int,
    progress: ShownProgress,
    kept: torch.Tensor,
) -> Learned:
    """Learn from all samples what a part of them has chosen: the read-out, or neurons and read-out together."""
    estimator.network_, estimator.history_ = trained.network, History(map(summarise_stage, trained.history))
    solution, settings = trained.solution, trained.settings
    objective = settings.objective
    if len(kept) == len(data):
        return solution, objective, data
    if find_method(estimator.method).stages[0] == "projection":
        program = replace(settings.program, penalty="elastic-net", l1_strength=0.0, l2_strength=STRENGTH)
        if solution is None or solution.problem.centre is not None:
            last = replace(estimator.history_[-1], reason="ridge as strong as in training, which validated best")
            estimator.history_ = History((*estimator.history_[:-1], last))
        else:
            problem = solution.problem
            norm, quadratic = problem.l1_strength, problem.l2_strength
            program = replace(program, penalty=problem.penalty.name, l1_strength=norm, l2_strength=quadratic)
        budget = estimator._budget()
        budget = replace(budget, max_seconds=budget.max_seconds - sum(stage.seconds for stage in trained.history))
        split = Split(data, lambda network: estimator._validate(network, data))
        trained = train(estimator.method, split, replace(settings, program=program), callback=progress, budget=budget)
        estimator.network_ = trained.network
        return trained.solution, objective, data
    if solution is not None:
        # Validation has chosen the strengths; the read-out itself may learn from all data.
        solution = solve(Proof.of(solution, objective).problem(data), estimator.tol)
        estimator.network_ = reconstruct(solution)
    return solution, objective, data


def summarise_stage(stage: Stage) -> StageSummary:
    """Return the numbers of a stage of a method."""
    if stage.tuned is not None:
        return summarise_search(stage.tuned, stage.seconds)
    assert stage.network is not None
    numbers: dict[str, Any] = {} if stage.solution is None else of_solution(stage.solution)
    if stage.name == "convex" and stage.solution is None:
        numbers["reason"] = "the read-out as it was trained, which validated better than every optimum"
    elif stage.solution is not None and stage.solution.problem.centre is not None:
        numbers["reason"] = "the optimum with a penalty on the distance from the trained read-out"
    if stage.run is not None:
        epochs = stage.run.history
        numbers = {
            "losses": tuple(epoch.loss for epoch in epochs[1:]),  # before the first epoch there is only a score
            "scores": tuple(epoch.score for epoch in epochs),
        }
    return StageSummary(stage.name, stage.score, stage.seconds, stage.network.n_active, **numbers)
