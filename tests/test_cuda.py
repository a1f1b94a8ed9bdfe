"""The same stages on a GPU: the same spikes, and certificates as good.

Without a GPU, a stand-in takes its paths on the CPU, and refuses the calls that a GPU refuses.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpu_stand_in import paths_of_the_cpu
from layers import draw_stack
from neurons.stacks import draw_lateral
from small_models import BRIEF, classes_of, classifier, make_lists, make_sequences
from tolerances import CERTIFIED_AGAIN, FLOAT64_MEAN, REFITTED, ROUNDING
from torch import nn

import cvxsnn as cs
import cvxsnn.exchange.readout.data
from cvxsnn.convex import linear
from cvxsnn.convex.linear import solve_semidefinite
from cvxsnn.convex.solvers import ridge
from cvxsnn.core import memory
from cvxsnn.core.errors import BudgetError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import count_dictionary, products
from cvxsnn.fitting.scores import TaskScore
from cvxsnn.fitting.surrogate.dropout import Dropout
from cvxsnn.fitting.surrogate.settings import initial_network
from cvxsnn.fitting.surrogate.trainer import SurrogateJob, train_jobs
from cvxsnn.network.evaluation import accuracy
from cvxsnn.neurons import count_spikes
from cvxsnn.neurons.lif import LIFLayer
from cvxsnn.neurons.reading import roll_statistics
from cvxsnn.neurons.statistics import STATISTICS
from cvxsnn.witnesses.kinds import KINDS, readout_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device; run on a machine with one")
pytestmark = pytest.mark.usefixtures("gpu_stand_in")
PLACES = ("cpu", DEVICE)

SAME_EPOCH = 1e-4
"""Relative, on the mean loss of an epoch of three batches in float32: rounding moves it by 1e-7, and by more only if a
membrane comes so close to its threshold that a spike turns."""

SAME_PREDICTIONS = 0.98
"""Share of samples; where two classes are as good as equal, rounding decides."""

LEARNT = 0.75
"""Accuracy on training data of two equally large classes, whichever of the better families rounding picks."""


def assert_same_optimum(here, there):
    """Neither objective is lower than the other by more than was proven."""
    difference = abs(here.certificate.primal - there.certificate.primal)
    assert difference <= max(here.certificate.gap, there.certificate.gap) + ROUNDING
    assert there.coef.device.type == DEVICE


def draw_regression(n_samples=400, n_outputs=10):
    """Sequences of six steps, and targets that sums over them explain in part."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n_samples, 6, 5, generator=generator)
    mixing = torch.randn(5, n_outputs, generator=generator, dtype=torch.float64)
    noise = torch.randn(n_samples, n_outputs, generator=generator, dtype=torch.float64)
    return inputs, inputs.sum(1).double() @ mixing + noise + 0.5


REGRESSING = cs.gaussian_witnesses(5, (150,), bias=cs.witnesses.Normal(0.0, 0.5), seed=2)


@pytest.mark.usefixtures("triton_stand_in")
@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("hidden", [(300,), (96, 160)])
def test_spikes_on_cuda_equal_those_on_the_cpu(neuron, hidden):
    inputs = torch.randn(257, 9, 20, generator=torch.Generator().manual_seed(0))
    witnesses = cs.gaussian_witnesses(20, hidden, 3, bias=cs.witnesses.Normal(0.0, 0.3), neuron=neuron, seed=1)
    with paths_of_the_cpu():
        on_cpu = cs.roll_out(witnesses.layers, inputs, "all")
    on_gpu = cs.roll_out(witnesses.layers, inputs.to(DEVICE), "all")
    assert on_gpu.device.type == DEVICE
    assert torch.equal(on_gpu.cpu(), on_cpu)


@pytest.mark.usefixtures("triton_stand_in")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tie", ["ge", "gt"])
@pytest.mark.parametrize("steps", ["last", "all"])
@pytest.mark.parametrize("n_steps", [1, 33])
def test_every_kind_of_lif_neuron_spikes_on_cuda_as_on_the_cpu(n_steps, steps, tie, dtype):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.rand(*shape, generator=generator, dtype=dtype)

    layer = LIFLayer(
        draw(4, 6, 37) - 0.5,
        bias=0.2 * draw(4, 37) - 0.1,
        initial_spikes=(draw(4, 37) < 0.5).to(dtype),
        decay=draw(4, 37),
        threshold=2 * draw(4, 37) - 0.5,
        initial_membrane=draw(4, 37) - 0.5,
        tie=tie,
    )
    # Whole numbers, so that membranes meet the threshold exactly.
    inputs = torch.randint(-2, 3, (71, n_steps, 6), generator=generator)
    with paths_of_the_cpu():
        on_cpu = cs.roll_out([layer], inputs, steps)
    assert 0.1 < on_cpu.double().mean() < 0.9
    assert torch.equal(cs.roll_out([layer], inputs.to(DEVICE), steps).cpu(), on_cpu)


@pytest.mark.usefixtures("triton_stand_in")
@pytest.mark.parametrize("n_samples", [3, 300, 2000] if DEVICE == "cuda" else [3, 1100])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_neurons_with_delays_spike_on_cuda_as_on_the_cpu(n_samples, has_lengths):
    layers = draw_stack(n_samples)
    inputs = torch.randn(n_samples, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    lengths = torch.tensor(np.random.default_rng(0).integers(1, 8, n_samples)) if has_lengths else None
    sequences = Sequences(inputs, lengths)
    for steps in ("last", "all"):
        with paths_of_the_cpu():
            expected = cs.roll_out(layers, sequences, steps)
        assert torch.equal(cs.roll_out(layers, sequences.to(DEVICE), steps).cpu(), expected)
    for n_windows in (1, 3, 7):
        with paths_of_the_cpu():
            expected = count_spikes(layers, sequences, n_windows)
        assert torch.equal(count_spikes(layers, sequences.to(DEVICE), n_windows).cpu(), expected)


@pytest.mark.parametrize("has_lengths", [False, True])
def test_lateral_neurons_spike_and_are_counted_on_cuda_as_on_the_cpu(has_lengths):
    generator = torch.Generator().manual_seed(0)
    real = torch.randn(90, 12, 5, generator=generator, dtype=torch.float64)
    lengths = torch.tensor(np.random.default_rng(0).integers(1, 13, 90)) if has_lengths else None
    # Whole numbers, so that rivals have equal drives.
    for layer, inputs in ((draw_lateral(), real), (draw_lateral(weight_bits=2, bias=0.0), real.round())):
        sequences = Sequences(inputs, lengths)
        for steps in ("last", "all"):
            with paths_of_the_cpu():
                expected = cs.roll_out([layer], sequences, steps)
            assert torch.equal(cs.roll_out([layer], sequences.to(DEVICE), steps).cpu(), expected)
        with paths_of_the_cpu():
            numbers = roll_statistics([layer], sequences, STATISTICS)
        found = roll_statistics([layer.to(DEVICE)], sequences.to(DEVICE), STATISTICS)
        assert found.device.type == DEVICE
        assert torch.equal(found.cpu(), numbers)


def test_kinds_on_cuda_are_the_neurons_and_the_columns_of_the_cpu():
    inputs = np.random.default_rng(0).normal(size=(60, 20, 3))
    family = {"kinds": tuple(KINDS), "n_witnesses": 120}
    with paths_of_the_cpu():
        here = cs.witnesses.sample_witnesses(family, inputs)
        expected = cs.build_dictionary(here, inputs, readout_of(tuple(KINDS)))
    there = cs.witnesses.sample_witnesses({**family, "device": DEVICE}, inputs)
    for name, value in there.layers[0].tensors().items():
        assert value.device.type == DEVICE
        assert torch.equal(value.cpu(), here.layers[0].tensors()[name])
    found = cs.build_dictionary(there, torch.tensor(inputs).to(DEVICE), readout_of(tuple(KINDS)))
    assert torch.equal(found.numbers.cpu(), expected.numbers)
    # Standard deviations are rounded elsewhere, so a unit near the edge of its interval may be the next power of two.
    assert (found.unit.cpu() == expected.unit).double().mean() > 0.98


@pytest.mark.parametrize("kind", ["equal", "unequal"])
def test_a_model_of_kinds_fitted_on_cuda_is_certified_and_predicts_as_on_the_cpu(kind, tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(12, 25, 60) if kind == "unequal" else np.full(60, 24)
    y = np.arange(60) % 2
    X = [rng.normal(size=(n, 2)) + label * np.sin(np.arange(n))[:, None] for n, label in zip(lengths, y, strict=True)]
    model = cs.SpikingClassifier(n_neurons=120, random_state=0, device=DEVICE).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certify(X, y).primal == pytest.approx(model.certificate_.primal, rel=CERTIFIED_AGAIN)
    cs.save(model, tmp_path / "model.safetensors")
    scores = cs.load(tmp_path / "model.safetensors").decision_function(X)
    assert np.allclose(scores, model.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("readout", ["last", "all", "mean", "windows-2"])
def test_a_dictionary_built_on_cuda_equals_the_one_built_on_the_cpu(readout):
    task = cs.tasks.addition(base=3, n_train=100)
    witnesses = cs.gaussian_witnesses(3, (64, 128), 2)
    here = cs.build_dictionary(witnesses, task.train.inputs, readout)
    there = cs.build_dictionary(witnesses, torch.tensor(task.train.inputs).to(DEVICE), readout)
    assert there.patterns.device.type == DEVICE
    assert torch.equal(there.patterns.cpu(), here.patterns)
    assert there.health() == here.health()
    assert torch.equal(there.gram().cpu(), here.gram())


def assert_same_gram(make, columns, n_steps):
    """The Gram matrix is the CPU's and that of whole numbers, for as many atoms as there are columns."""
    here, there = make(columns), make(columns.to(DEVICE))
    assert there.n_atoms == columns.shape[1]
    gram = there.gram()
    assert (gram.device.type, gram.dtype) == (DEVICE, torch.float64)
    assert torch.equal(gram.cpu(), here.gram())
    whole = columns.double()
    assert torch.equal(gram.cpu(), whole.T @ whole / n_steps**2)
    assert torch.equal(there.row_gram().cpu(), whole @ whole.T / n_steps**2)


@pytest.mark.parametrize("block", [None, 2**14], ids=["at once", "in blocks"])
@pytest.mark.parametrize("n_atoms", [1, 5, 16, 17, 63, 301, 777])
def test_gram_matrices_of_any_number_of_atoms_are_exact(n_atoms, block, monkeypatch):
    if block is not None:
        monkeypatch.setattr("cvxsnn.dictionary.products.TUNING", replace(products.TUNING, block_bytes_gpu=block))
    generator = torch.Generator().manual_seed(n_atoms)
    spikes = torch.rand(1003, n_atoms, generator=generator) < 0.3
    assert_same_gram(cs.build_dictionary, spikes, 1)
    for n_steps in (28, 127, 128, 196, 255):
        counts = torch.randint(0, n_steps + 1, (1003, n_atoms), generator=generator)
        assert_same_gram(lambda own, n_steps=n_steps: count_dictionary(own, n_steps), counts, n_steps)


@pytest.mark.parametrize("penalty", ["l1", "group"])
@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "softmax", "hinge"])
def test_a_problem_solved_on_cuda_has_the_certified_optimum_of_the_cpu(loss, penalty):
    task = cs.tasks.first_last_xor(5, n_train=300)
    witnesses = cs.gaussian_witnesses(2, (32, 64), decay=0.99)
    targets = task.train.targets.astype(np.float64) if loss == "squared" else task.train.targets
    solutions = []
    for place in PLACES:
        dictionary = cs.build_dictionary(witnesses, torch.tensor(task.train.inputs).to(place))
        problem = cs.ConvexProblem(dictionary, targets, loss, penalty=penalty)
        solutions.append(cs.solve(problem.with_strength(problem.critical_strength / 30), tol=1e-7))
    assert_same_optimum(*solutions)


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("ratio", [0.3, 0.02], ids=["few atoms", "many atoms"])
def test_ten_outputs_are_solved_alike_every_time(ratio, readout):
    inputs, targets = draw_regression()
    here, *there = (
        cs.ConvexProblem(
            cs.build_dictionary(REGRESSING, inputs.to(place), readout), targets.to(place), "squared", intercept=True
        )
        for place in ("cpu", DEVICE, DEVICE, DEVICE)
    )
    strength = ratio * here.critical_strength
    expected = cs.solve(here.with_strength(strength), tol=1e-9)
    found = [cs.solve(problem.with_strength(strength), tol=1e-9) for problem in there]
    for solution in found:
        assert (solution.solver, solution.has_converged) == ("l1", True)
        assert solution.coef.any(0).all()
        assert_same_optimum(expected, solution)
        assert torch.equal(solution.coef, found[0].coef)
        assert torch.equal(solution.intercept, found[0].intercept)


def be_late():
    """Have the device busy for some milliseconds, so that what it is told next has not happened at once."""
    if DEVICE == "cuda":
        torch.cuda._sleep(50_000_000)


@pytest.mark.parametrize("size", [7, 100, 300])
@pytest.mark.parametrize("n_systems", [1, 3, 40])
def test_systems_solved_together_are_solved_as_each_alone(n_systems, size):
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(n_systems, 2 * size, size, generator=generator, dtype=torch.float64)
    truth = torch.randn(n_systems, size, generator=generator, dtype=torch.float64)
    there, expected = columns.to(DEVICE), truth.to(DEVICE)
    matrices = torch.zeros(n_systems, size, size, dtype=torch.float64, device=DEVICE)
    be_late()
    matrices += there.mT @ there
    found = solve_semidefinite(matrices, (matrices @ expected[:, :, None])[:, :, 0], 0.0)
    matrices.zero_()
    torch.testing.assert_close(found.cpu(), truth, rtol=0, atol=1e-9)


def test_of_systems_solved_together_only_the_singular_ones_get_a_ridge():
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(3, 600, 300, generator=generator, dtype=torch.float64).to(DEVICE)
    columns[1, :, 1:] = columns[1, :, :1]
    matrices = columns.mT @ columns
    truth = torch.ones(3, 300, dtype=torch.float64, device=DEVICE)
    right = (matrices @ truth[:, :, None])[:, :, 0]
    found = solve_semidefinite(matrices, right, 1e-13)
    torch.testing.assert_close(found[[0, 2]], truth[[0, 2]], rtol=0, atol=1e-9)
    torch.testing.assert_close((matrices[1] @ found[1]) / right[1], truth[1], rtol=0, atol=1e-3)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_a_path_on_cuda_has_the_certified_optima_of_the_cpu(loss):
    sequences = make_sequences(240)
    targets = classes_of(sequences, 4 if loss == "softmax" else 2)
    witnesses = cs.gaussian_witnesses(
        3, (60,), decay=cs.witnesses.Uniform(0.5, 1.0), bias=cs.witnesses.Normal(0.0, 0.5)
    )
    here, there = (
        cs.ConvexProblem(
            cs.build_dictionary(witnesses, torch.tensor(sequences, device=place), "mean"), targets, loss, intercept=True
        )
        for place in PLACES
    )
    assert there.critical_strength == pytest.approx(here.critical_strength, rel=FLOAT64_MEAN)
    strengths = np.geomspace(1.0, 0.01, 8) * here.critical_strength
    paths = [cs.solve_path(problem, strengths.tolist()) for problem in (here, there)]
    assert torch.equal(paths[1].strengths, paths[0].strengths)
    for expected, solution in zip(*paths, strict=True):
        assert solution.has_converged
        assert_same_optimum(expected, solution)
    assert len(paths[1][-1].support) > 10


@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge"])
def test_a_certificate_of_cuda_holds_for_every_row_in_float64(loss):
    task = cs.tasks.first_last_xor(5, n_train=300)
    inputs, targets = torch.tensor(task.train.inputs), task.train.targets
    targets = targets.astype(np.float64) if loss == "squared" else targets
    witnesses = cs.gaussian_witnesses(2, (32, 64), decay=0.99)
    here, there = (
        cs.ConvexProblem(cs.build_dictionary(witnesses, inputs.to(place)), targets, loss) for place in PLACES
    )
    there = there.with_strength(here.critical_strength / 20)
    here = here.with_strength(there.l1_strength)
    assert there.reduced[0].dictionary.n_rows < 100
    solution = cs.solve(there)
    assert solution.has_converged
    assert tuple(solution.dual_point.shape) == (300, 1)
    for value in (solution.coef, solution.intercept, solution.dual_point, solution.scores()):
        assert (value.device.type, value.dtype) == (DEVICE, torch.float64)
    coef, dual = solution.coef.cpu(), solution.dual_point.cpu()
    columns = here.dictionary.columns()
    assert float((columns.T @ dual).abs().max()) <= there.l1_strength * (1 + FLOAT64_MEAN)
    primal = here.objective(coef, columns @ coef)
    again, _ = cs.certify(here, coef, dual_candidates=[dual])
    assert solution.certificate.primal == pytest.approx(primal, rel=CERTIFIED_AGAIN)
    assert solution.certificate.dual == pytest.approx(again.dual, rel=CERTIFIED_AGAIN)
    assert 0 < solution.certificate.dual <= solution.certificate.primal * (1 + ROUNDING)


@pytest.mark.parametrize("form", ["compact", "parallel", "full"])
@pytest.mark.parametrize("home", PLACES)
def test_a_network_rebuilt_from_a_solution_on_cuda_gives_its_scores(form, home):
    inputs, targets = draw_regression(n_outputs=2)
    dictionary = cs.build_dictionary(REGRESSING.to(home), inputs.to(DEVICE))
    problem = cs.ConvexProblem(dictionary, targets, "squared", intercept=True)
    solution = cs.solve(problem.with_strength(problem.critical_strength / 10))
    network = cs.reconstruct(solution, form)
    assert network.weight.device.type == home
    for place in PLACES:
        scores = network.to(place)(inputs).detach()
        assert scores.device.type == place
        torch.testing.assert_close(scores.cpu(), solution.scores().cpu(), rtol=0, atol=ROUNDING)


def test_jobs_on_cuda_are_scored_as_on_the_cpu():
    loss = {"sum": "softmax", "carry": "logistic"}
    jobs = []
    for seed in range(3):
        sizes = {"n_train": 96, "n_val": 64, "n_test": 8, "ood_digits": (6,), "n_test_ood": 4}
        task = cs.tasks.addition(base=3, n_digits=3, **sizes, seed=seed)
        objective = cs.convex.Objective(loss, "all").for_classes(task.n_classes)
        data = cs.data.TrainingSet.of(task.train)
        network = initial_network(cs.gaussian_witnesses(3, (16, 24), 2, seed=seed).layers, objective, data, seed)
        jobs += [
            SurrogateJob(
                network.to(DEVICE),
                data.to(DEVICE),
                objective,
                cs.fitting.SurrogateSettings(epochs=5, learning_rate=rate),
                score,
            )
            for rate, score in ((1e-2, TaskScore(task, task.val)), (1e-3, TaskScore(task, task.val)))
        ]
    for run, job in zip(train_jobs(jobs), jobs, strict=True):
        assert run.network.weight.device.type == DEVICE
        assert run.best.score == job.score(run.network.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("key", [11, 2**63 - 1, 2**40 + 3])
def test_dropout_hides_the_same_on_cuda_and_on_the_cpu(key, depth, dtype):
    dropout = Dropout(0.2, 0.3, key)
    block = torch.randn(6, 5, 60, 30, generator=torch.Generator().manual_seed(0)).to(dtype)
    there = dropout.hide(block.to(DEVICE), depth)
    assert there.device.type == DEVICE
    assert torch.equal(there.cpu(), dropout.hide(block, depth))
    assert 0.05 < float((there == 0).double().mean()) < 0.5


@pytest.mark.parametrize("kind", ["equal", "unequal"])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_an_epoch_with_dropout_on_cuda_has_the_loss_of_the_cpu(readout, kind):
    sequences = make_sequences(120)
    lengths = torch.arange(120) % 4 + 1 if kind == "unequal" else None
    data = cs.data.TrainingSet(Sequences(torch.tensor(sequences), lengths), {"label": classes_of(sequences, 3)})
    objective = cs.convex.Objective("softmax", readout)
    witnesses = cs.gaussian_witnesses(3, (20, 24), decay=0.8, bias=cs.witnesses.Normal(0.0, 0.3))
    network = initial_network(witnesses.layers, objective, data)

    def train(place, **settings):
        run = cs.fitting.train_surrogate(
            network.to(place),
            data.to(place),
            objective,
            cs.fitting.SurrogateSettings(epochs=1, batch_size=40, learning_rate=3e-3, **settings),
            score=lambda _: 0.0,
        )
        assert run.network.weight.device.type == place
        return run.history[1].loss

    hidden = {"dropout": 0.3, "input_dropout": 0.1}
    here, there = (train(place, **hidden) for place in PLACES)
    assert there == pytest.approx(here, rel=SAME_EPOCH)
    assert there != pytest.approx(train(DEVICE), rel=10 * SAME_EPOCH)


def test_a_pool_solved_on_cuda_has_the_certified_optimum_of_the_cpu():
    task = cs.tasks.first_last_xor(6, n_train=200, n_val=8, n_test=8)
    pool = cs.witnesses.WitnessPool(2, {"hidden": (8, 32), "decay": 1.0, "fan_in": 3}, 10_000)
    here, there = (
        cs.fitting.solve_pool(pool, cs.data.TrainingSet.of(task.train).to(place), cs.convex.Objective("logistic"), 0.01)
        for place in PLACES
    )
    assert_same_optimum(here.solution, there.solution)
    difference = abs(here.certificate.primal - there.certificate.primal)
    assert difference <= max(here.certificate.gap, there.certificate.gap) + ROUNDING
    assert there.certificate.n_witnesses == pool.n_witnesses


class Leaky(nn.Module):
    """Leaky neurons in plain torch; all numbers are multiples of 2^-15 and below 2^8, so that no sum is rounded."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out = nn.Linear(6, 40), nn.Linear(40, 3)
        with torch.no_grad():
            for parameter in self.hidden.parameters():
                parameter.copy_(torch.round(3 * 64 * parameter) / 64)

    def forward(self, x):
        membrane, spikes, total = 0.0, 0.0, 0.0
        for step in range(x.shape[1]):
            membrane = 0.5 * membrane + self.hidden(x[:, step]) - spikes
            spikes = (membrane > 1).to(x.dtype)
            total = total + self.out(spikes)
        return total / x.shape[1]


def draw_classes():
    generator = torch.Generator().manual_seed(1)
    classes = torch.arange(150) % 3
    means = torch.randn(3, 6, generator=generator)
    inputs = means[classes][:, None] + 1.5 * torch.randn(150, 5, 6, generator=generator)
    return torch.round(16 * inputs) / 16, classes


@pytest.mark.parametrize("room", [2**30, 0], ids=["as numbers", "packed"])
@pytest.mark.parametrize("loss", ["softmax", "squared", "logistic"])
def test_the_readout_of_a_model_on_cuda_has_the_certified_optimum_of_the_cpu(loss, room, monkeypatch):
    monkeypatch.setattr(cvxsnn.exchange.readout.data, "DENSE_BYTES", room)
    options = {"loss": loss, "l1_strength": 0.005, "batch_size": 64}
    here, there = (cs.reconstruct_readout(Leaky().to(place), *draw_classes(), **options) for place in PLACES)
    assert isinstance(there.solution.problem.dictionary, cs.dictionary.DenseDictionary if room else cs.SpikeDictionary)
    assert there.solution.has_converged
    assert_same_optimum(here.solution, there.solution)
    assert there.before.loss == pytest.approx(here.before.loss, rel=CERTIFIED_AGAIN)
    assert there.has_changed
    assert all(parameter.device.type == DEVICE for parameter in there.model.parameters())


@pytest.mark.parametrize("home", PLACES)
def test_a_model_on_cuda_is_improved_by_data_of_any_device_at_a_strength_that_is_found(home):
    (inputs, classes), model = draw_classes(), Leaky().to(DEVICE)
    result = cs.reconstruct_readout(model, inputs.to(home), classes.to(home))
    assert result.model is model
    assert result.solution.has_converged
    assert result.after.loss < result.before.loss
    assert all(parameter.device.type == DEVICE for parameter in model.parameters())
    with torch.no_grad():
        right = model(inputs.to(DEVICE)).argmax(1).cpu() == classes
    assert result.after.model_accuracy == float(right.double().mean()) > result.before.model_accuracy


FAMILY = {"decay": cs.witnesses.Uniform(0.5, 1.0), "bias": cs.witnesses.Normal(0.0, 0.5)}


@pytest.mark.parametrize("kind", ["equal", "unequal"])
def test_an_estimator_fitted_on_cuda_predicts_as_one_fitted_on_the_cpu(kind, tmp_path):
    sequences = make_sequences(200) if kind == "equal" else make_lists() * 3
    labels = classes_of(sequences, 3)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(labels))
    here, there = (
        classifier("cvx", device=place, **FAMILY).fit(sequences, labels, sample_weight=weight) for place in PLACES
    )
    assert there.network_.weight.device.type == DEVICE
    assert 0 <= there.certificate_.relative_gap <= there.tol
    predictions = there.predict(sequences)
    assert np.mean(predictions == here.predict(sequences)) >= SAME_PREDICTIONS
    again = there.certify(sequences, labels, weight)
    assert again.primal == pytest.approx(there.certificate_.primal, rel=CERTIFIED_AGAIN)
    assert again.relative_gap <= there.tol
    cs.save(there, tmp_path / "model.safetensors")
    loaded = cs.load(tmp_path / "model.safetensors")
    assert loaded.network_.weight.device.type == "cpu"
    np.testing.assert_array_equal(loaded.predict(sequences), predictions)


def test_a_network_saved_on_cuda_gives_the_same_scores_on_the_cpu(tmp_path):
    sequences = make_sequences(200)
    model = classifier(device=DEVICE, standardize=False, **FAMILY).fit(sequences, classes_of(sequences, 3))
    network = model.network_
    cs.save(network, tmp_path / "network.safetensors")
    loaded = cs.load(tmp_path / "network.safetensors")
    assert loaded.weight.device.type == "cpu"
    there, here = (own(torch.tensor(sequences)).detach() for own in (network, loaded))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=ROUNDING)
    assert torch.equal(there.argmax(1).cpu(), here.argmax(1))
    np.testing.assert_array_equal(model.predict(torch.tensor(sequences).to(DEVICE)), here.argmax(1).numpy())


@pytest.mark.parametrize(
    ("method", "device"), [("cvx", DEVICE), ("cvx", "auto"), ("sg-cvx", DEVICE), ("varpro", DEVICE), ("cvx-sg", "auto")]
)
def test_an_estimator_that_tunes_or_trains_on_cuda_learns(method, device):
    sequences = make_sequences(100)
    labels = classes_of(sequences)
    model = classifier(method, device=device, n_trials=6, l1_strength="auto").fit(sequences, labels)
    assert model.network_.weight.device.type == DEVICE
    assert model.score(sequences, labels) >= LEARNT
    if method != "cvx-sg":
        assert model.certificate_.relative_gap <= model.tol


def test_a_task_trained_on_cuda_comes_home_with_a_certificate():
    task = cs.tasks.first_last_xor(4, n_train=96, n_val=48, n_test=8)
    family = {"hidden": (24,), **FAMILY}
    settings = cs.fitting.Settings(
        cs.fitting.Program(cs.convex.Objective("logistic"), l1_strength=0.01, intercept=True),
        family,
        surrogate=BRIEF,
    )
    trained = cs.fitting.train_task("sg-cvx", task, settings, device=DEVICE)
    assert trained.network.weight.device.type == "cpu"
    assert trained.solution.has_converged
    assert trained.solution.coef.device.type == DEVICE
    scores = trained.network(task.finetune.inputs).detach()
    torch.testing.assert_close(scores, trained.solution.scores().cpu(), rtol=0, atol=ROUNDING)


XOR = cs.tasks.first_last_xor(6, n_train=200, n_val=200, n_test=8)


def test_tuning_on_cuda_tries_and_scores_the_families_that_the_cpu_does():
    here, there = (
        cs.fitting.tune_witnesses(
            cs.data.TrainingSet.of(XOR.train).to(place),
            cs.convex.Objective("logistic"),
            lambda network: accuracy(network, XOR, XOR.val),
            cs.fitting.Tuning(n_witnesses=64, n_trials=16, readouts=("last", "mean")),
        )
        for place in PLACES
    )
    drawn = [[trial for trial in own.trials if trial.round == "draw"] for own in (here, there)]
    assert len(drawn[1]) == 8
    for expected, trial in zip(*drawn, strict=True):
        assert (trial.family, trial.readout, trial.n_rows) == (expected.family, expected.readout, expected.n_rows)
        assert trial.error == pytest.approx(expected.error, rel=REFITTED, abs=ROUNDING)
    finalists = [trial for trial in there.trials if trial.round == "finish"]
    assert there.score == max(trial.score for trial in finalists) >= 0.5
    assert (there.family, there.score) in [(trial.family, trial.score) for trial in finalists]
    if [trial.score for trial in there.trials] == [trial.score for trial in here.trials]:
        assert (there.family, there.readout) == (here.family, here.readout)


@needs_gpu
def test_memory_in_use_is_not_available():
    before = memory.available_bytes(DEVICE)
    held = torch.ones(2**28, dtype=torch.uint8, device=DEVICE)
    during = memory.available_bytes(DEVICE)
    assert before - during > 2**27
    del held
    # Torch keeps it, and has it for the next array.
    assert memory.available_bytes(DEVICE) - during > 2**27


def random_dictionary(n_rows=400, n_columns=90):
    generator = torch.Generator().manual_seed(0)
    return cs.build_dictionary((torch.rand(n_rows, n_columns, generator=generator) < 0.5).to(DEVICE))


@pytest.mark.parametrize(("loss", "array"), [("squared", "the Gram matrix of"), ("logistic", "the Hessian over")])
def test_matrices_too_large_for_cuda_are_refused_in_one_sentence(loss, array, monkeypatch):
    targets = torch.randn(400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    problem = cs.ConvexProblem(random_dictionary(), targets if loss == "squared" else (targets > 0).long(), loss)
    problem = problem.with_strength(0.01 * problem.critical_strength)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**10)
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    with pytest.raises(BudgetError, match=f"expected {array} .* to fit into the memory of {DEVICE}") as refusal:
        cs.solve(problem)
    assert "\n" not in str(refusal.value)
    monkeypatch.undo()
    assert cs.solve(problem).has_converged


def test_a_dictionary_too_large_for_cuda_is_refused_before_the_roll_out(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**20)
    monkeypatch.setattr("cvxsnn.dictionary.building.iterate_rollout", lambda *_, **__: pytest.fail("rolled out"))
    inputs = torch.zeros(400_000, 2, 3, device=DEVICE)
    sentence = rf"400,000 rows × 1,024 columns.* the memory of {DEVICE}.* needs 97\.7 MiB and 1 MiB are available"
    with pytest.raises(BudgetError, match=sentence):
        cs.build_dictionary(cs.gaussian_witnesses(3, (1024,)), inputs)


def test_what_has_no_room_for_a_gram_matrix_on_cuda_is_solved_without_one(monkeypatch):
    targets = torch.randn(400, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    problems = [cs.ConvexProblem(random_dictionary(), targets, "squared") for _ in range(2)]
    strength = 0.05 * problems[0].critical_strength
    expected = cs.solve(problems[0].with_strength(strength))
    monkeypatch.setattr(linear, "available_bytes", lambda device: 2**10)
    monkeypatch.setattr(linear, "MAX_ATOMS", 0)
    solution = cs.solve(problems[1].with_strength(strength))
    assert (expected.solver, solution.solver) == ("l1", "l1")
    assert_same_optimum(expected, solution)


@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic"])
def test_streamed_columns_give_the_optimum_of_those_in_memory(loss):
    labels = (torch.randn(400, 2, generator=torch.Generator().manual_seed(1)) > 0).long()
    terms = {"l2_strength": 0.01, "penalty": "elastic-net", "intercept": True}
    problem = cs.ConvexProblem(random_dictionary(), labels, loss, 0.0, **terms)
    held, streamed = (cs.solve(problem, 1e-7, solver) for solver in (ridge.RidgeCG(), ridge.RidgeCG(is_streamed=True)))
    assert streamed.has_converged
    assert_same_optimum(held, streamed)


def test_sums_of_sums_are_rounded_as_often_as_certificates_allow_for():
    generator = torch.Generator().manual_seed(0)
    dictionary = cs.build_dictionary(torch.rand(5000, 40, generator=generator).to(DEVICE) < 0.5)
    assert dictionary.correlation_roundings == 128 + 40 + 2
    rows = torch.randn(5000, 2, generator=generator, dtype=torch.float64)
    exact = dictionary.columns().cpu().numpy().astype(np.longdouble).T @ rows.numpy().astype(np.longdouble)
    error = np.abs(dictionary.rmatvec(rows.to(DEVICE)).cpu().numpy() - exact)
    assert (error <= dictionary.correlation_roundings * 2.0**-53 * np.abs(rows.numpy()).sum(0)).all()
    coef = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    assert dictionary.score_roundings(40) <= 41
    assert torch.allclose(dictionary.matvec(coef.to(DEVICE)).cpu(), dictionary.columns().cpu() @ coef)


@needs_gpu
def test_explanations_on_a_gpu_add_up_to_the_scores():
    lists = make_lists()
    model = classifier(readout="mean", device="cuda").fit(lists, classes_of(lists, 3))
    found = [explanation.scores for explanation in model.explain(lists)]
    np.testing.assert_allclose(found, model.decision_function(lists), rtol=ROUNDING, atol=ROUNDING)
