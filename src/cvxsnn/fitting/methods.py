"""The training methods: where the hidden neurons come from, and how the read-out is trained.

=========  ==============  ===============  ===============
method     hidden neurons  first stage      second stage
=========  ==============  ===============  ===============
sg         sampled         gradient
cvx        sampled         convex
sg-cvx     sampled         gradient         convex
sg-sg      sampled         gradient         gradient
cvx-sg     sampled         convex           gradient
varpro     sampled         projection       convex
r          reservoir       ridge
=========  ==============  ===============  ===============

"sampled" neurons are given, of one family, or of the family that a search finds (:mod:`cvxsnn.fitting.search`). The
first five methods are the paper's (appendix "Training Algorithms and Witness Regimes"). A *gradient* stage trains all
layers by surrogate gradients. A *projection* stage trains the hidden layers so, and solves for the read-out after
every epoch (:mod:`cvxsnn.fitting.surrogate.optimal_readout`). A *convex* stage keeps the hidden neurons and finds the
optimal read-out, with a certificate; after training it keeps the trained read-out if no optimum validates as well
(:func:`readout_stage`). A *ridge* stage is a convex stage with the squared loss on the encoded targets.
The first stage uses the training split, the second the finetuning split.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..convex import Certificate, Solution
from ..convex.objective import Objective
from ..core.checks import check_device, check_positive_int
from ..core.errors import InvalidInputError
from ..core.storage import make_folder
from ..data.sequences import TrainingSet
from ..data.task import Task
from ..dictionary import build_dictionary
from ..network.reconstruction import Form, reconstruct
from ..network.spiking_network import SpikingNetwork
from ..witnesses import Provenance, WitnessSet
from ..witnesses.pool import WitnessPool
from .choosing import choose
from .engine import METHODS, Budget, Family, Method, StageName, fit, sample
from .gradient import GradientPlan, Split, gradient_stage
from .judges import Scored
from .pools import PoolScored
from .program import Program, ridge_of, with_heads_of
from .reservoir import tune_reservoir
from .scores import Score, TaskScore, rank_above
from .search import Tuned, Tuning, tune_witnesses
from .surrogate.optimal_readout import with_open_taps
from .surrogate.settings import SurrogateRun, initial_network
from .surrogate_settings import SurrogateSettings

ProgressCallback = Callable[[str, int, int], None]
"""Called as ``callback(stage, done, total)``."""

for _name, _method in {
    "sg": Method("sampled", ("gradient",)),
    "sg-cvx": Method("sampled", ("gradient", "convex")),
    "sg-sg": Method("sampled", ("gradient", "gradient")),
    "cvx-sg": Method("sampled", ("convex", "gradient")),
    "varpro": Method("sampled", ("projection", "convex")),
    "r": Method("reservoir", ("ridge",)),
}.items():
    METHODS.register(_name, _method)


@dataclass(frozen=True)
class Settings:
    """The settings of a method: its program, its family of neurons, and how gradient stages train.

    Parameters
    ----------
    program : Program or Objective
        The convex program of the read-out. An objective stands for the program with its default penalty; gradient
        stages minimise the objective alone.
    family : mapping, WitnessSet or Tuning
        A family that :func:`cvxsnn.witnesses.sample_witnesses` samples: arguments of
        :func:`cvxsnn.gaussian_witnesses`, or with a key ``"geometry"`` of :func:`cvxsnn.delayed_witnesses`; or
        witnesses to use as they are; or how to search for a family.
    surrogate : SurrogateSettings or sequence of SurrogateSettings, optional
        The settings of gradient stages. Several are all tried, and the one that validates best is kept.
    finetuning : SurrogateSettings or sequence of SurrogateSettings, optional
        The settings of a second gradient stage, or of one after a convex stage; by default ``surrogate`` at a fifth of
        its learning rate.
    n_networks : int
        The number of networks that a first gradient stage trains, each from another sample of the family, by the
        settings that suit the first of them best. The next stage starts from their average, and a convex one
        reads the neurons of all.
    seed : int
        The seed of the samples.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Settings
    >>> settings = Settings(cs.convex.Objective("logistic"), {"hidden": (16, 32)})
    >>> settings.program.tol
    1e-06
    """

    program: Program
    family: Family | Tuning
    surrogate: SurrogateSettings | Sequence[SurrogateSettings] | None = None
    finetuning: SurrogateSettings | Sequence[SurrogateSettings] | None = None
    n_networks: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse invalid settings, also of stages that the method does not have."""
        if isinstance(self.program, Objective):
            object.__setattr__(self, "program", Program(self.program))
        check_positive_int("n_networks", self.n_networks)
        if not isinstance(self.family, (Mapping, WitnessSet, Tuning)):
            raise InvalidInputError(
                "expected a family as a mapping of arguments of gaussian_witnesses or delayed_witnesses, a WitnessSet, "
                f"or a Tuning that searches for one, got {type(self.family).__name__}"
            )

    def candidates(self, stage: int) -> list[SurrogateSettings]:
        """Return the settings to try in a gradient stage.

        Parameters
        ----------
        stage : int
            The number of the stage; the first is 0.

        Returns
        -------
        list of SurrogateSettings
            At least one.
        """
        if stage > 0 and self.finetuning is not None:
            return _listed(self.finetuning)
        settings = _listed(self.surrogate)
        return (
            settings
            if stage == 0
            else [replace(candidate, learning_rate=0.2 * candidate.learning_rate) for candidate in settings]
        )

    @property
    def objective(self) -> Objective:
        """Loss and read-out of the program."""
        return self.program.objective


@dataclass(frozen=True, eq=False)
class Stage:
    """The outcome of one stage.

    Parameters
    ----------
    name : "tuning", "gradient", "projection", "convex" or "ridge"
        What kind of stage it was.
    network : SpikingNetwork or None
        The network at its end; None after a search, which only chooses a family.
    score : Score
        Its validation score.
    seconds : float
        How long the stage took.
    solution : Solution, optional
        The solution of a convex stage; None if it kept the trained read-out.
    run : SurrogateRun, optional
        The run of a gradient stage.
    tuned : Tuned, optional
        The outcome of a search.
    """

    name: StageName
    network: SpikingNetwork | None
    score: Score
    seconds: float
    solution: Solution | None = None
    run: SurrogateRun | None = None
    tuned: Tuned | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network with its history.

    Parameters
    ----------
    method : str
        The method that trained it.
    network : SpikingNetwork
        The network.
    history : tuple of Stage
        The stages, in order.
    settings : Settings
        The settings, with the family that a search has found.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Settings, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (16, 32)}))
    >>> trained.method, trained.certificate.relative_gap <= 1e-6
    ('cvx', True)
    """

    method: str
    network: SpikingNetwork
    history: tuple[Stage, ...]
    settings: Settings

    @property
    def solution(self) -> Solution | None:
        """Convex solution that the network was rebuilt from; None if its read-out was trained, or is ridge alone."""
        return self.history[-1].solution

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the solution; None without one, since gradients and ridge regression prove nothing."""
        return None if self.solution is None else self.solution.certificate

    @property
    def seconds(self) -> float:
        """Seconds that all stages took."""
        return sum(stage.seconds for stage in self.history)


def train(
    method: str,
    first: Split,
    settings: Settings,
    second: Split | None = None,
    *,
    callback: ProgressCallback | None = None,
    checkpoints: Path | None = None,
    device: torch.device | str | None = None,
    n_jobs: int | None = None,
    budget: Budget | None = None,
) -> Trained:
    """Train a spiking network by one of the methods in the table.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    first : Split
        The data of the first stage.
    settings : Settings
        The settings of all stages.
    second : Split, optional
        The data of the second stage; by default those of the first.
    callback : callable, optional
        Called as ``callback(stage, done, total)``.
    checkpoints : Path, optional
        A folder in which gradient stages keep their state, to resume after an interruption.
    device : torch.device or str, optional
        Where to compute, "auto" for the GPU if there is one; there, candidates of a gradient stage train side by
        side. By default the device of the data.
    n_jobs : int, optional
        The number of workers of a search, as in joblib.
    budget : Budget, optional
        The time for all stages, and how many neurons a convex stage reads.

    Returns
    -------
    Trained
        The network, with the outcome of each stage.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Settings, Split, TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> settings = Settings(cs.convex.Objective("logistic"), {"hidden": (16, 32)})
    >>> trained = cs.train("cvx", split, settings)
    >>> trained.certificate.relative_gap <= settings.program.tol
    True
    """
    begin, budget = time.perf_counter(), budget or Budget()
    deadline = begin + budget.max_seconds
    device = None if device is None else check_device(device)
    settings, witnesses, history = prepare(method, first, settings, callback=callback, n_jobs=n_jobs)
    stages = METHODS[method].stages
    network: SpikingNetwork | None = None
    # The search is a stage of its own, whose seconds must not count twice.
    begin += sum(stage.seconds for stage in history)
    for number, name in enumerate(stages):
        split = first if number == 0 or second is None else second
        notify = _labelled(callback, f"{number + 1}. {name}")
        notify(0, 1)
        solution: Solution | None = None
        run: SurrogateRun | None = None
        seconds_left = deadline - time.perf_counter()
        if name in ("gradient", "projection"):
            if network is None:
                layers = witnesses.layers if name == "gradient" else tuple(map(with_open_taps, witnesses.layers))
                network = initial_network(layers, settings.objective, split.data, settings.seed)
            plan = gradient_plan(method, number, network, split, settings, checkpoints, device)
            run = gradient_stage(plan, notify, seconds_left)
            network, witnesses = run.network, trained_witnesses(run.network)
        elif name == "convex":
            limits = replace(budget, n_neurons=None, max_seconds=seconds_left)
            seed, program = settings.seed, settings.program
            if network is not None:
                network, solution = readout_stage(network, split, program, limits, seed=seed, device=device)
            else:
                family = _mapping(settings.family)
                solution = convex_stage(witnesses, split, program, limits, family=family, seed=seed, device=device)
                # A stage that follows trains every sampled neuron, also those that the solution does not use.
                form: Form = "compact" if number == len(stages) - 1 else "full"
                network = reconstruct(solution, form).to(split.data.inputs.device)
        else:
            network = ridge_stage(witnesses, split, settings.program)
        seconds = time.perf_counter() - begin if run is None else run.seconds
        history.append(Stage(name, network, split.score(network), seconds, solution, run))
        if run is None:
            notify(1, 1)
        begin = time.perf_counter()
    assert network is not None
    return Trained(method, network, tuple(history), settings)


def prepare(
    method: str,
    first: Split,
    settings: Settings,
    *,
    callback: ProgressCallback | None = None,
    n_jobs: int | None = None,
) -> tuple[Settings, WitnessSet, list[Stage]]:
    """Return settings with a family, the witnesses of the first stage, and the search for the family if there was one.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    first : Split
        The data of the first stage.
    settings : Settings
        The settings, whose family may be a search.
    callback : callable, optional
        Called as ``callback(stage, done, total)``.
    n_jobs : int, optional
        The number of workers of a search, as in joblib.

    Returns
    -------
    settings : Settings
        The settings, with the family and the read-out that were found.
    witnesses : WitnessSet
        The hidden neurons to begin with.
    history : list of Stage
        The search, or nothing.
    """
    METHODS.find(method)
    if settings.program.pool and method != "cvx":
        raise InvalidInputError(f"expected method 'cvx' for a pool, which is sampled and not trained, got {method!r}")
    begin = time.perf_counter()
    tuned: Tuned | None = None
    family = settings.family
    if isinstance(family, Tuning):
        tuned = tune_witnesses(
            first.data,
            settings.objective,
            first.score,
            family,
            seed=settings.seed,
            callback=_labelled(callback, "0. tuning"),
            n_jobs=n_jobs,
        )
        family = tuned.family
        settings = replace(settings, family=family, program=settings.program.with_readout(tuned.readout))
    witnesses = sample(family, first.data, settings.seed)
    if METHODS[method].hidden == "reservoir":
        witnesses = tune_reservoir(witnesses, first.data)
    seconds = time.perf_counter() - begin
    return settings, witnesses, [] if tuned is None else [Stage("tuning", None, tuned.score, seconds, tuned=tuned)]


def convex_stage(
    witnesses: WitnessSet,
    split: Split,
    program: Program,
    budget: Budget | None = None,
    *,
    family: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Solution:
    """Return the certified optimum over the spikes of some witnesses, at the strengths that validate best.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons, which stay as they are.
    split : Split
        The training data, and the score that chooses the strengths.
    program : Program
        What is minimised.
    budget : Budget, optional
        The time, and how many neurons are read.
    family : mapping, optional
        The family of a pool, if the program is over one.
    seed : int
        The seed of the pool.
    device : torch.device or str, optional
        Where to compute; by default the device of the data.

    Returns
    -------
    Solution
        The optimum with its certificate.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, Split, TaskScore, convex_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> program = Program(cs.convex.Objective("logistic"), l1_strength=0.01)
    >>> solution = convex_stage(cs.gaussian_witnesses(2, (16,), seed=0), split, program)
    >>> solution.certificate.relative_gap <= 1e-6
    True
    """
    data = split.data if device is None else split.data.to(check_device(device))
    witnesses = witnesses.to(data.inputs.device)
    solution = fit(data, witnesses, program, Scored(split.score), budget, seed=seed).solution
    if program.pool == 0:
        return solution
    if family is None:
        raise InvalidInputError("expected a family to draw a pool from, got witnesses or none: pass pool=0")
    # Many small subnetworks differ more than a few large ones.
    lower = (min(width, 32) for width in witnesses.hidden[:-1])
    last = min(128, program.pool)
    pooled = {**family, "hidden": (*lower, last)}
    pool = WitnessPool(witnesses.n_features, pooled, program.pool, seed, inputs=data.sequences)
    # More witnesses fit better at the same price, so weaker penalties than that of the smaller optimum may pay.
    norm, quadratic = solution.problem.l1_strength, solution.problem.l2_strength
    norms = [norm * 0.5**halvings for halvings in range(1 if program.is_fixed else 6)]
    grid = replace(program, l1_strength=norms, l2_strength=[quadratic])
    best = choose(solution.problem, grid, PoolScored(split.score, pool, data)).solution
    assert best is not None
    return best


def readout_stage(
    network: SpikingNetwork,
    split: Split,
    program: Program,
    budget: Budget | None = None,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> tuple[SpikingNetwork, Solution | None]:
    """Return a trained network with the read-out that validates best: an optimum, or the one that was trained.

    The optima are those of :meth:`Program.around`. If they include ridge around the trained read-out, only those count
    whose score is at least that of the trained network; of these, the last entry of the score decides, which is the
    loss if there is one. If none counts, the trained read-out, which is the limit of strong ridge, is kept. So no score
    falls. It cannot be kept if the penalty, a strength or the number of neurons to read is given.

    Parameters
    ----------
    network : SpikingNetwork
        The trained network, whose hidden neurons stay as they are.
    split : Split
        The training data, and the score that chooses.
    program : Program
        What is minimised.
    budget : Budget, optional
        The time, and how many neurons are read. The second program is not begun when time is up.
    seed : int
        The seed of a selection of neurons.
    device : torch.device or str, optional
        Where to compute; by default the device of the data.

    Returns
    -------
    network : SpikingNetwork
        The network with the best read-out; of equal ones, an optimum.
    solution : Solution or None
        The optimum with its certificate; None if the trained read-out was kept.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, Settings, Split, TaskScore, readout_stage, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> program = Program(cs.convex.Objective("logistic"))
    >>> trained = train_task("sg", task, Settings(program, {"hidden": (16,)})).network
    >>> network, solution = readout_stage(trained, split, program)
    >>> split.score(network) >= split.score(trained)
    True
    """
    begin, budget = time.perf_counter(), budget or Budget()
    programs = program.around(network)
    if budget.sparsity is not None:
        programs = programs[-1:]
    own = split.score(network) if len(programs) > 1 else None

    def rank(solved: SpikingNetwork) -> tuple[bool, Score]:
        return rank_above(split.score(solved), own)

    judged = Split(split.data, rank)
    found: list[tuple[tuple[bool, Score], SpikingNetwork, Solution]] = []
    for candidate in programs:
        seconds_left = budget.max_seconds - (time.perf_counter() - begin)
        if found and seconds_left <= 0:
            break
        limits = replace(budget, max_seconds=seconds_left)
        solution = convex_stage(trained_witnesses(network), judged, candidate, limits, seed=seed, device=device)
        solved = reconstruct(solution).to(split.data.inputs.device)
        found.append((rank(solved), solved, solution))
    (counts, _), solved, solution = max(found, key=lambda one: one[0])
    return (solved, solution) if counts else (network, None)


def ridge_stage(witnesses: WitnessSet, split: Split, program: Program) -> SpikingNetwork:
    """Return a network with a ridge regression on the encoded targets, at the strength that validates best.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons, which stay as they are.
    split : Split
        The training data, and the score that chooses the strength.
    program : Program
        The targets, and which spikes are read.

    Returns
    -------
    SpikingNetwork
        The network that validates best.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, Split, TaskScore, ridge_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> program = Program(cs.convex.Objective("logistic"))
    >>> network = ridge_stage(cs.gaussian_witnesses(2, (16,), seed=0), split, program)
    >>> network.predict(task.test.inputs)["label"].shape
    (40,)
    """
    # Encoded classes have means other than zero, which ridge must not have to pay for.
    readout, program = program.objective.readout, replace(program, intercept=True)
    problem = program.problem(build_dictionary(witnesses, split.data.sequences, readout), split.data)
    ridge = Program.ridge(Objective("squared", readout))
    verdict = choose(ridge_of(problem), ridge, Scored(lambda network: split.score(with_heads_of(problem, network))))
    assert verdict.solution is not None
    return with_heads_of(problem, reconstruct(verdict.solution))


def gradient_plan(
    method: str,
    number: int,
    network: SpikingNetwork,
    split: Split,
    settings: Settings,
    checkpoints: Path | None,
    device: torch.device | str | None,
) -> GradientPlan:
    """Return the plan of a gradient stage of a method.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    number : int
        The number of the stage; the first is 0.
    network : SpikingNetwork
        Where to start.
    split : Split
        The data of the stage.
    settings : Settings
        The settings of the method.
    checkpoints : Path or None
        The folder for the state of training.
    device : torch.device, str or None
        Where to compute.

    Returns
    -------
    GradientPlan
        What :func:`cvxsnn.fitting.gradient_stage` carries out.
    """
    # A first stage is the same for every method that begins with it, so that they share its file.
    stage = METHODS[method].stages[number]
    name = f"{method}-{number}" if number else stage
    if checkpoints is not None:
        make_folder(checkpoints, "checkpoints")
    return GradientPlan(
        network,
        split,
        settings.objective,
        settings.candidates(number),
        settings.n_networks if number == 0 else 1,
        _mapping(settings.family),
        settings.seed,
        device,
        None if checkpoints is None else checkpoints / f"{name}.safetensors",
        settings.program if stage == "projection" else None,
    )


def train_task(
    method: str,
    task: Task,
    settings: Settings,
    *,
    callback: ProgressCallback | None = None,
    checkpoints: Path | None = None,
    device: torch.device | str | None = None,
    n_jobs: int | None = None,
) -> Trained:
    """Train on a task's own splits; the accuracy on its validation data decides.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    task : Task
        The task.
    settings : Settings
        The settings of all stages.
    callback : callable, optional
        Called as ``callback(stage, done, total)``.
    checkpoints : Path, optional
        A folder in which gradient stages keep their state, to resume after an interruption.
    device : torch.device or str, optional
        Where to compute; by default on the CPU.
    n_jobs : int, optional
        The number of workers of a search, as in joblib.

    Returns
    -------
    Trained
        The network, with the outcome of each stage.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Settings, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (16, 32)}))
    >>> trained.method, trained.certificate.relative_gap <= 1e-6
    ('cvx', True)
    """
    settings, first, second = task_splits(task, settings)
    return train(
        method, first, settings, second, callback=callback, checkpoints=checkpoints, device=device, n_jobs=n_jobs
    )


def task_splits(task: Task, settings: Settings) -> tuple[Settings, Split, Split]:
    """Return settings with an output for every class of a task, and the data of a first and a second stage.

    Parameters
    ----------
    task : Task
        The task.
    settings : Settings
        The settings of all stages.

    Returns
    -------
    settings : Settings
        The settings, with the numbers of classes.
    first : Split
        The training data, with the accuracy on validation data.
    second : Split
        The finetuning data, if the task has them, else the training data.
    """
    objective = settings.objective.for_classes(task.n_classes)
    settings = replace(settings, program=replace(settings.program, objective=objective))
    first = second = Split(TrainingSet.of(task.train), TaskScore(task, task.val))
    if task.finetune is not None and task.finetune_val is not None:
        second = Split(TrainingSet.of(task.finetune), TaskScore(task, task.finetune_val))
    return settings, first, second


def trained_witnesses(network: SpikingNetwork) -> WitnessSet:
    """Return the hidden neurons of a network that was trained by gradients."""
    return WitnessSet(network.layers, Provenance("pretrained", {"method": "surrogate gradient"}))


def _mapping(family: Family | Tuning) -> Mapping[str, Any] | None:
    """Return a family that further witnesses can be sampled from; None if the witnesses are given."""
    return family if isinstance(family, Mapping) else None


def _labelled(callback: ProgressCallback | None, label: str) -> Callable[[int, int], None]:
    return lambda done, total: None if callback is None else callback(label, done, total)


def _listed(settings: SurrogateSettings | Sequence[SurrogateSettings] | None) -> list[SurrogateSettings]:
    if settings is None:
        return [SurrogateSettings()]
    return [settings] if isinstance(settings, SurrogateSettings) else list(settings)
