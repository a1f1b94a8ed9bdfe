"""Read-outs over windows of time, from the spikes to the files, against a plain definition."""

import pickle

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_groups_equal, window_means
from networks import Case, draw_inputs
from small_models import assert_close_certificates, assert_one_sentence, classes_of, classifier, make_lists, regressor
from tolerances import CERTIFIED_AGAIN, FLOAT64_SUM, ROUNDING, SINGLE_PRECISION
from witnesses.pools import INPUTS as POOL_INPUTS
from witnesses.pools import all_witnesses, draw_pool

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.core.formatting import plural
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences, window_of_step, window_shares
from cvxsnn.dictionary import open_dictionary, stream_dictionary
from cvxsnn.dictionary.base import parse_readout
from cvxsnn.exchange import quantise, quantise_and_solve, to_nir
from cvxsnn.exchange.merging import merge_subnetworks
from cvxsnn.fitting import SurrogateSettings, train_surrogate
from cvxsnn.fitting.pools import solve_pool
from cvxsnn.fitting.surrogate.networks import TrainableNetwork
from cvxsnn.fitting.surrogate.settings import average_networks, initial_network
from cvxsnn.network import OutputHead, Proof, count_operations, summarise
from cvxsnn.network.evaluation import predict_autoregressive
from cvxsnn.neurons.rollout import count_spikes
from cvxsnn.plots.model_plots import plot_membranes, plot_raster, plot_readout
from cvxsnn.theory import LIFFamily, complete_dictionary, rescale_hidden, solve_complete
from cvxsnn.witnesses import Normal

HEAD = [OutputHead("label", "squared", 0, 1)]
WINDOWS = st.integers(1, 9)
STEPS = st.integers(1, 9)


def draw_witnesses(width=12, n_subnetworks=2, seed=0, **options):
    return cs.gaussian_witnesses(3, (5, width), n_subnetworks, bias=Normal(0, 0.5), seed=seed, **options)


def draw_sequences(n_samples, n_steps, is_ragged, seed=0):
    inputs = draw_inputs(n_samples, n_steps, seed)
    lengths = np.random.default_rng(seed).integers(1, n_steps + 1, n_samples)
    lengths[0] = n_steps
    return Sequences(inputs, torch.tensor(lengths) if is_ragged else None)


def naive_columns(witnesses, sequences, n_windows):
    spikes = cs.roll_out(witnesses.layers, sequences.inputs, "all").numpy()
    return torch.tensor(window_means(spikes, n_windows, sequences.lengths))


def refuse(message, call, *arguments, **options):
    with pytest.raises(cs.InvalidInputError, match=message) as caught:
        call(*arguments, **options)
    assert_one_sentence(caught.value)


# Counts and columns


def test_more_windows_than_steps_are_refused_in_one_sentence(tmp_path):
    witnesses, sequences = draw_witnesses(), draw_sequences(9, 4, is_ragged=True)
    message = "at most 4 windows, the steps of the longest sequence, got 5 windows"
    targets = torch.zeros(9)
    batch = (sequences.inputs, targets, sequences.lengths)
    refuse(message, cs.build_dictionary, witnesses, sequences, "mean", windows=5)
    refuse(message, stream_dictionary, witnesses, [batch], tmp_path, windows=5, readout="mean")
    refuse(message, classifier(method="sg", windows=5).fit, sequences.inputs.numpy(), np.arange(9) % 2)
    assert cs.build_dictionary(witnesses, sequences, windows=4, readout="mean").n_columns == 4 * witnesses.n_witnesses


@given(WINDOWS, STEPS, st.booleans(), st.sampled_from([1, 3000, 2**24]), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_counts_and_columns_are_those_of_the_definition(n_windows, n_steps, is_ragged, chunk_bytes, seed):
    witnesses, sequences = draw_witnesses(seed=seed % 7), draw_sequences(11, n_steps, is_ragged, seed)
    expected = naive_columns(witnesses, sequences, n_windows)
    lengths = torch.full((11,), n_steps) if sequences.lengths is None else sequences.lengths
    counts = count_spikes(witnesses.layers, sequences, n_windows)
    assert torch.equal(
        counts.double() * torch.tensor([[n_windows / int(n)] for n in lengths], dtype=torch.float64), expected
    )
    if n_windows <= n_steps:
        options = {"windows": n_windows, "chunk_bytes": chunk_bytes}
        dictionary = cs.build_dictionary(witnesses, sequences, "mean", **options)
        columns = dictionary.columns()
        assert dictionary.readout == str(parse_readout("mean", n_windows))
        assert torch.equal(columns[:, dictionary.atom_of_column], expected)
        assert dictionary.patterns.dtype == torch.uint8
        groups = (dictionary.column_of_atom, dictionary.atom_of_column, dictionary.atom_of_column.bincount())
        assert_groups_equal(groups, torch.round(expected * lengths[:, None]).T)
        assert float(columns.max()) <= dictionary.largest_entry <= n_windows


@pytest.mark.parametrize("is_ragged", [False, True])
def test_columns_of_neurons_with_delays_are_those_of_the_definition(is_ragged):
    generator = torch.Generator().manual_seed(0)
    source, delay = (torch.randint(most, (2, 4, 10), generator=generator) for most in (3, 5))
    layer = cs.LIFLayer(torch.randn(2, 4, 10, generator=generator), source=source, delay=delay, n_sources=3)
    witnesses = cs.WitnessSet((layer,), cs.witnesses.Provenance("pretrained"))
    sequences = draw_sequences(20, 7, is_ragged)
    dictionary = cs.build_dictionary(witnesses, sequences, "windows-3")
    assert torch.equal(dictionary.columns()[:, dictionary.atom_of_column], naive_columns(witnesses, sequences, 3))


def test_windows_that_the_steps_do_not_fill_are_longer_or_shorter():
    assert window_of_step(torch.arange(5), 4, 5).tolist() == [0, 0, 1, 2, 3]
    assert window_of_step(torch.arange(3), 4, torch.tensor([[3], [1]])).tolist() == [[0, 1, 2], [0, 4, 8]]
    # One neuron that always fires: of 5 steps two are in the first of 4 windows, of 1 step none in the others.
    layer = cs.LIFLayer(torch.zeros(1, 1, 1), bias=1.0, decay=0.0, threshold=0.0)
    witnesses = cs.WitnessSet((layer,), cs.witnesses.Provenance("pretrained"))
    sequences = Sequences(torch.ones(2, 5, 1), torch.tensor([5, 1]))
    dictionary = cs.build_dictionary(witnesses, sequences, "windows-4")
    assert dictionary.columns()[:, dictionary.atom_of_column].tolist() == [[1.6, 0.8, 0.8, 0.8], [4.0, 0.0, 0.0, 0.0]]
    assert dictionary.n_atoms == 2
    assert dictionary.largest_entry == 4.0
    assert dictionary.take_rows(torch.tensor([0])).largest_entry == 1.6
    assert cs.build_dictionary(witnesses, torch.ones(2, 5, 1), "windows-4").largest_entry == 1.6
    assert dictionary.row_counts().tolist() == [5, 1]
    assert dictionary.window_steps().tolist() == [[2, 1, 1, 1], [1, 0, 0, 0]]
    health = dictionary.health()
    assert (health.n_columns, health.n_atoms, health.n_saturated, health.n_dead, health.density) == (4, 2, 4, 0, 1.0)


@pytest.mark.parametrize("is_ragged", [False, True])
def test_one_window_is_the_mean_to_the_bit(is_ragged):
    witnesses, sequences = draw_witnesses(), draw_sequences(30, 7, is_ragged)
    dictionaries = [
        cs.build_dictionary(witnesses, sequences, "mean"),
        cs.build_dictionary(witnesses, sequences, "mean", windows=1),
        cs.build_dictionary(witnesses, sequences, "windows-1"),
    ]
    for other in dictionaries[1:]:
        assert torch.equal(other.patterns, dictionaries[0].patterns)
        assert torch.equal(other.gram(), dictionaries[0].gram())
        assert other.health() == dictionaries[0].health()
        assert (other.readout, other.largest_entry) == ("mean", 1.0)
    networks = [cs.SpikingNetwork(witnesses.layers, torch.ones(24, 1), HEAD, readout=r) for r in ("mean", "windows-1")]
    assert torch.equal(networks[0](sequences), networks[1](sequences))
    assert networks[1].state_dict().keys() == networks[0].state_dict().keys()
    assert Objective("squared", "windows-1") == Objective("squared", "mean")


@given(st.integers(2, 9), st.integers(2, 9), st.booleans(), st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_products_are_those_of_the_columns(n_windows, n_steps, is_ragged, seed):
    sequences = draw_sequences(40, max(n_steps, n_windows), is_ragged, seed)
    dictionary = cs.build_dictionary(draw_witnesses(), sequences, "mean", windows=n_windows)
    columns, generator = dictionary.columns(), torch.Generator().manual_seed(seed)
    coef = torch.randn(dictionary.n_atoms, 2, generator=generator, dtype=torch.float64)
    rows = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    tolerance = {"rtol": 0, "atol": FLOAT64_SUM}
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, **tolerance)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, **tolerance)
    torch.testing.assert_close(dictionary.rmatvec(rows.repeat(1, 3)), columns.T @ rows.repeat(1, 3), **tolerance)
    torch.testing.assert_close(dictionary.gram(), columns.T @ columns, **tolerance)
    if not is_ragged:  # whole numbers, divided once
        scale = n_windows / dictionary.n_steps
        counts = torch.round(columns / scale)
        squares = (counts.T @ counts) * n_windows**2
        assert torch.equal(dictionary.gram(), squares / torch.full((1, 1), dictionary.n_steps**2).double())
    groups = dictionary.group_rows()
    assert torch.equal(columns[groups.first][groups.inverse], columns)


@pytest.mark.parametrize("n_windows", [2, 3])
@pytest.mark.parametrize("is_ragged", [False, True])
def test_health_counts_what_the_columns_show(n_windows, is_ragged):
    # Negated weights and a bias of half a unit, against ties, give every pattern its negation.
    weight = torch.randint(-2, 3, (1, 3, 30), generator=torch.Generator().manual_seed(0)).float()
    bias = torch.full((30,), 0.5)
    layer = cs.LIFLayer(torch.cat([weight, -weight], dim=2), bias=torch.cat([bias, -bias]), decay=0.0, threshold=0.0)
    witnesses = cs.WitnessSet((layer,), cs.witnesses.Provenance("pretrained"))
    inputs = torch.randint(0, 2, (10, 6, 3), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([6, 2, 4, 6, 6, 2, 4, 2, 6, 4]) if is_ragged else None
    sequences = Sequences(inputs, lengths)
    health = cs.build_dictionary(witnesses, sequences, "mean", windows=n_windows).health()
    columns = naive_columns(witnesses, sequences, n_windows).numpy()
    always = np.tile(window_means(np.ones((10, 6, 1), dtype=bool), n_windows, lengths), 60)
    distinct = {tuple(column) for column in columns.T.round(9).tolist()}
    negated = {tuple((1 - np.array(column)).round(9)) for column in distinct}
    assert (health.n_columns, health.n_atoms) == (60 * n_windows, len(distinct))
    assert health.n_duplicate == health.n_columns - health.n_atoms > 0
    assert health.n_dead == (columns == 0).all(0).sum()
    assert health.n_saturated == (columns == always).all(0).sum() > 0
    assert health.n_complementary == len(distinct & negated) // 2
    assert (health.n_complementary > 5) == (n_windows == 2 or not is_ragged)  # of 2 and 4 steps no third is a whole one
    own = torch.full((10,), 6.0).double() if lengths is None else lengths.double()
    density = float((own / own.sum()) @ torch.tensor(columns).mean(1))
    assert health.density == pytest.approx(density)


@pytest.mark.parametrize("is_ragged", [False, True])
def test_shards_are_the_dictionary_in_memory(tmp_path, is_ragged):
    witnesses, sequences = draw_witnesses(), draw_sequences(50, 7, is_ragged)
    if is_ragged:  # the last shard has no sequence with as many steps as there are windows
        sequences.lengths[40:] = 2
    targets = torch.zeros(50)
    batch = (sequences.inputs, targets, *([sequences.lengths] if is_ragged else []))
    found, _ = stream_dictionary(witnesses, [batch], tmp_path, "windows-3", shard_rows=20)
    expected = cs.build_dictionary(witnesses, sequences, "windows-3")
    for dictionary in (found, open_dictionary(tmp_path, witnesses)[0]):
        assert torch.equal(dictionary.columns(), expected.columns())
        assert torch.equal(dictionary.atom_of_column, expected.atom_of_column)
        assert torch.equal(dictionary.column_of_atom, expected.column_of_atom)
        assert dictionary.largest_entry == expected.largest_entry > 1
        assert (dictionary.readout, dictionary.n_columns) == ("windows-3", 72)
    torch.testing.assert_close(found.gram(), expected.gram(), rtol=ROUNDING, atol=ROUNDING)
    chosen = torch.tensor([44, 3, 21])
    assert torch.equal(found.take_rows(chosen).columns(), expected.columns()[chosen])


# Networks


@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize(("form", "width"), [("compact", 1), ("full", 1), ("parallel", 1), ("parallel", 2)])
def test_a_solution_is_certified_rebuilt_and_predicts_what_its_columns_do(form, width, neuron, is_ragged):
    witnesses, sequences = Case(neuron=neuron).witnesses(), draw_sequences(40, 5, is_ragged)
    dictionary = cs.build_dictionary(witnesses, sequences, "windows-3")
    targets = (sequences.inputs[:, 0, 0] - sequences.inputs[:, 1, 1]).numpy()
    problem = cs.ConvexProblem(dictionary, targets, "squared", intercept=True)
    solution = cs.solve(problem.with_strength(0.05 * problem.critical_strength))
    assert solution.has_converged
    network = cs.reconstruct(solution, form, width)
    scores = dictionary.columns() @ solution.coef + solution.intercept
    torch.testing.assert_close(network(sequences).detach(), scores, rtol=ROUNDING, atol=ROUNDING)
    columns = dictionary.column_of_atom[solution.support]
    repeated = dictionary.columns(solution.support).repeat_interleave(width, 1)
    chosen = columns if form == "full" else slice(None)
    assert torch.equal(network.features(sequences)[:, chosen], repeated)
    assert torch.equal(network.columns, network.neurons * 3 + network.windows_read)
    read = torch.unique(columns // 3)
    assert len(read) < len(columns)  # some neurons are read in several windows, and kept once
    assert network.n_active == (len(columns) * width if form == "parallel" else len(read))
    if form == "compact":
        assert len(torch.unique(network.neurons)) == len(read)
    data = TrainingSet(sequences, {"label": targets})
    proof = Proof.of(solution, Objective("squared", "windows-3"))
    again = proof.certify(data)
    assert again.primal == pytest.approx(solution.certificate.primal, rel=CERTIFIED_AGAIN)
    assert again.dual == pytest.approx(solution.certificate.dual, rel=CERTIFIED_AGAIN)


def draw_network(readout="windows-3", n_outputs=1, seed=0):
    """A network that reads some neurons in some windows, in no order."""
    layers = draw_witnesses(seed=seed).layers
    columns = torch.randperm(24 * parse_readout(readout).n_windows, generator=torch.Generator().manual_seed(seed))[:20]
    weight = torch.randn(20, n_outputs, generator=torch.Generator().manual_seed(seed + 1))
    heads = [OutputHead("label", "squared" if n_outputs == 1 else "softmax", 0, n_outputs)]
    windows = columns % 3 if readout == "windows-3" else None
    return cs.SpikingNetwork(layers, weight, heads, None, columns // parse_readout(readout).n_windows, readout, windows)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 7])
def test_stepping_to_the_end_is_the_whole_sequence_to_the_bit(n_steps):
    network, inputs = draw_network(), draw_inputs(9, n_steps, 1)
    state, spikes = network.start(9, n_steps=n_steps), torch.zeros(9, 7, 24, dtype=torch.bool)
    for t in range(n_steps):
        state, scores = network.step(state, inputs[:, t])
        # Windows to come are silent.
        spikes[:, t] = cs.roll_out(network.layers, inputs, "all")[:, t]
        features = torch.tensor(window_means(spikes.numpy(), 3, [n_steps] * 9))[:, network.columns]
        assert torch.equal(scores, features @ network.weight + network.intercept)
    assert torch.equal(scores, network(inputs))
    refuse(f"expected the {plural(n_steps, 'step')} passed to start, got one more", network.step, state, inputs[:, 0])
    refuse("expected the number of steps in advance to read 'windows-3'", network.start, 9)
    refuse("n_steps to be a positive integer, got 0", network.start, 9, 0)


def test_a_network_is_described_moved_and_restored():
    network = draw_network()
    inputs = draw_inputs(9, 7, 1)
    assert "20 windows of neurons read → 1, windows-3" in repr(network)
    for twin in (pickle.loads(pickle.dumps(network)), network.with_readout(network.weight), rescale_hidden(network, 2)):
        assert torch.equal(twin(inputs), network(inputs))
        assert torch.equal(twin.columns, network.columns)
    other = draw_network(seed=5)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(inputs), network(inputs))
    assert "read-out (windows-3)" in str(summarise(network))
    assert torch.equal(quantise(network, 8).columns, network.columns)


@pytest.mark.parametrize(
    ("neurons", "windows", "readout", "message"),
    [
        (
            [0, 1],
            None,
            "windows-3",
            "windows_read with the window or statistic of each of 2 neurons .*, got None for windows-3",
        ),
        (
            [0, 1],
            [0],
            "windows-3",
            "windows_read with the window or statistic of each of 2 neurons .*, got 1 for windows-3",
        ),
        ([0, 1], [0, 3], "windows-3", "windows_read from 0 to 2, got values from 0 to 3"),
        ([0, 1], [-1, 0], "windows-3", "windows_read from 0 to 2, got values from -1 to 0"),
        ([0, 1], [0, 0], "mean", "and None for others, got 2 for mean"),
    ],
)
def test_windows_that_do_not_fit_the_readout_are_refused(neurons, windows, readout, message):
    windows = None if windows is None else torch.tensor(windows)
    layers = draw_witnesses().layers
    refuse(message, cs.SpikingNetwork, layers, torch.ones(2, 1), HEAD, None, torch.tensor(neurons), readout, windows)


@pytest.mark.parametrize("is_ragged", [False, True])
def test_the_readout_costs_an_addition_for_each_spike_in_a_window_that_is_read(is_ragged):
    network, sequences = draw_network(), draw_sequences(8, 5, is_ragged)
    lengths = torch.full((8,), 5) if sequences.lengths is None else sequences.lengths
    counts = naive_columns(network, sequences, 3) * lengths[:, None] / 3
    operations = count_operations(network, sequences)
    assert operations.layers[-1].n_accumulates == int(counts[:, network.columns].sum().round())
    every = count_operations(cs.SpikingNetwork(network.layers, torch.ones(24, 1), HEAD, readout="mean"), sequences)
    all_windows = cs.SpikingNetwork(network.layers, torch.ones(72, 1), HEAD, readout="windows-3")
    assert count_operations(all_windows, sequences).layers[-1].n_accumulates == every.layers[-1].n_accumulates


def test_a_model_that_feeds_its_decisions_back_is_told_the_number_of_steps():
    task = cs.tasks.addition(n_digits=3, n_train=20, n_val=10, n_test=10)
    layers = cs.gaussian_witnesses(task.train.inputs.shape[2], (8,)).layers
    heads = [OutputHead(name, "softmax", 2 * i, 2 * i + 2) for i, name in enumerate(task.train.heads)]
    weight = torch.randn(16, 2 * len(heads), generator=torch.Generator().manual_seed(0))
    network = cs.SpikingNetwork(layers, weight, heads, readout="windows-2")
    found = predict_autoregressive(network, task.test, task.feedback)
    assert all(classes.shape == task.test.heads[head].shape for head, classes in found.items())


# Training


@pytest.mark.parametrize("lengths", [None, [5, 1, 2, 4]])
def test_surrogate_networks_read_the_means_and_have_a_gradient_in_every_window(lengths):
    network, inputs = draw_network(), draw_inputs(4, 5, 1)
    lengths = None if lengths is None else torch.tensor(lengths)
    model = TrainableNetwork(network, "arctan", 2.0, frozenset())
    scores = model(inputs, lengths)
    expected = network(Sequences(inputs, lengths)).detach().float()
    torch.testing.assert_close(scores.detach(), expected, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    assert torch.equal(model.freeze().columns, network.columns)
    torch.testing.assert_close(model.freeze()(inputs), network(inputs), rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    scores.sum().backward()
    assert bool(model.layers[0].weight.grad.any())


def test_shares_sum_the_definition():
    spikes = (torch.rand(4, 7, 3, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    lengths = torch.tensor([7, 1, 2, 5])
    shares = window_shares(3, 7, lengths, torch.float64)
    found = torch.einsum("itj,itw->ijw", spikes, shares).flatten(1)
    expected = torch.tensor(window_means(spikes.numpy() == 1, 3, lengths))
    torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING)


def test_training_by_gradients_keeps_windows_and_averages_networks():
    data = TrainingSet(draw_sequences(40, 6, is_ragged=True), {"label": np.arange(40) % 3})
    objective = Objective("softmax", "windows-3")
    start = initial_network(draw_witnesses().layers, objective, data)
    assert (tuple(start.weight.shape), start.readout) == ((72, 3), "windows-3")
    run = train_surrogate(start, data, objective, SurrogateSettings(epochs=2), score=lambda network: 0.0)
    assert run.network.readout == "windows-3"
    networks = [draw_network(n_outputs=3, seed=seed) for seed in (0, 1)]
    mean = sum(network(data.sequences) for network in networks) / 2
    torch.testing.assert_close(average_networks(networks)(data.sequences), mean, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("penalty", ["l1", "group", "elastic-net"])
def test_the_optimum_over_a_pool_is_that_over_all_windows_of_all_its_witnesses(penalty):
    pool, l2_strength = draw_pool(), 0.05 if penalty == "elastic-net" else 0.0
    targets = np.stack([POOL_INPUTS[:, t].numpy().prod(1) for t in (0, 3)], axis=1)
    data, objective = TrainingSet(POOL_INPUTS, {"label": targets}), Objective("squared", "windows-2")
    options = {"penalty": penalty, "l2_strength": l2_strength, "intercept": True}
    dictionary = cs.build_dictionary(all_witnesses(pool), POOL_INPUTS, "windows-2")
    problem = cs.ConvexProblem.of(objective, dictionary, data, l1_strength=1.0, **options)
    strength = 0.2 * problem.critical_strength
    expected = cs.solve(problem.with_strength(strength), 1e-7)
    found = solve_pool(pool, data, objective, strength, tol=1e-6, **options)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=2e-6)
    assert found.certificate.relative_gap <= 1e-6
    own = found.solution.problem.dictionary
    columns = naive_columns(all_witnesses(pool), data.sequences, 2).view(len(POOL_INPUTS), -1, 2)[:, found.members]
    assert torch.equal(own.columns()[:, own.atom_of_column], columns.flatten(1))
    network = cs.reconstruct(found.solution)
    torch.testing.assert_close(network(POOL_INPUTS).detach(), found.solution.scores(), rtol=0, atol=FLOAT64_SUM)
    weaker = solve_pool(pool, data, objective, 0.7 * strength, tol=1e-6, start=found, **options)
    assert weaker.certificate.primal < found.certificate.primal
    for solution in (found.solution, weaker.solution):
        assert solution.certificate.relative_gap <= 1e-6
        again, _ = cs.certify(solution.problem, solution.coef, solution.intercept)
        assert again.primal == pytest.approx(solution.certificate.primal, rel=CERTIFIED_AGAIN)


# Estimators, files and pickles


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("method", ["cvx", "sg", "sg-cvx", "cvx-sg"])
def test_an_estimator_reads_windows_and_is_saved_and_pickled(tmp_path, make, method):
    lists = make_lists()
    targets = classes_of(lists) if make is classifier else np.array([own.sum() for own in lists])
    model = make(method, readout="windows-3", witnesses="gaussian").fit(lists, targets)
    assert model.network_.readout == "windows-3"
    cs.save(model, tmp_path / "model")
    cs.save(model.network_, tmp_path / "network")
    network = cs.load(tmp_path / "network")
    assert torch.equal(network.columns, model.network_.columns)
    for twin in (cs.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert twin.readout == "windows-3"
        assert np.array_equal(twin.predict(lists), model.predict(lists))
        assert torch.equal(twin.network_.columns, model.network_.columns)
        if model.certificate_ is not None:
            assert_close_certificates(twin.certify(lists, targets), model.certificate_)
    if model.certificate_ is not None:
        refuse("'mean' for all neurons of a family, got 'windows-3'", model.certify_complete, lists, targets)


def test_windows_are_what_a_search_compares_families_with():
    lists = make_lists()
    model = classifier(readout="windows-2", n_trials=2).fit(lists, classes_of(lists))
    assert (model.network_.readout, model.history_[0].readout) == ("windows-2", "windows-2")


def test_estimators_refuse_windows_of_spikes_in_one_sentence():
    lists = make_lists()
    refuse(
        "expected readout to be 'mean', 'last' or 'windows-k'", classifier(readout="all").fit, lists, classes_of(lists)
    )
    rows = np.random.default_rng(0).normal(size=(20, 3))
    refuse("at most 1 window,", classifier(readout="windows-2").fit, rows, np.arange(20) % 2)


def test_a_file_without_windows_has_no_field_for_them(tmp_path):
    for readout, has_field in (("windows-3", True), ("mean", False)):
        cs.save(draw_network(readout), tmp_path / "network")
        tensors, _ = cs.core.storage.read_tensors(tmp_path / "network", "model")
        assert ("windows_read" in tensors) == has_field


def test_few_bits_are_solved_for_and_proven_again():
    sequences = draw_sequences(40, 5, is_ragged=False)
    data = TrainingSet(sequences, {"label": sequences.inputs[:, 0, 0].numpy()})
    objective = Objective("squared", "windows-2")
    dictionary = cs.build_dictionary(draw_witnesses(), sequences, "windows-2")
    solution = cs.solve(cs.ConvexProblem.of(objective, dictionary, data, l1_strength=0.01))
    found = quantise_and_solve(Proof.of(solution, objective), data, 4, readout_bits=8)
    assert found.network.readout == "windows-2"
    assert_close_certificates(found.proof.certify(data), found.certificate)


# Other libraries, theory and plots


def test_one_wide_network_reads_the_same_windows():
    network, inputs = draw_network(), draw_inputs(9, 7, 1)
    merged = merge_subnetworks(network, "snnTorch")
    torch.testing.assert_close(merged(inputs), network(inputs), rtol=ROUNDING, atol=ROUNDING)


def test_a_nir_graph_has_no_windows():
    pytest.importorskip("nir")
    refuse("readout 'last', 'all' or 'mean' for a NIR graph, got 'windows-3'", to_nir, draw_network())


def test_optima_over_all_neurons_have_no_windows():
    inputs = draw_inputs(3, 2, 0)
    message = "readout 'last', 'all' or 'mean' for all neurons of a family, got 'windows-2'"
    refuse(message, complete_dictionary, inputs, readout="windows-2")
    refuse(message, solve_complete, inputs, np.zeros(3), LIFFamily(0.5), readout="windows-2")


def test_plots_show_each_neuron_once():
    network, sequence = draw_network(), draw_inputs(1, 6, 0)[0]
    assert len(torch.unique(network.neurons)) < 20
    assert plot_raster(network, sequence).get_ylim()[0] == len(torch.unique(network.neurons)) + 1
    assert len({text.get_text() for text in plot_membranes(network, sequence).get_legend().get_texts()}) == 4
    assert "windows of neurons read" in plot_readout(network).get_title()
    plt.close("all")
