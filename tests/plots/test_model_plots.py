import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from layers import draw_stack
from small_models import assert_one_sentence, classes_of, classifier, make_sequences
from tolerances import ROUNDING

from cvxsnn import (
    ConvexProblem,
    InvalidInputError,
    LIFLayer,
    SpikingNetwork,
    ThresholdLayer,
    build_dictionary,
    gaussian_witnesses,
    solve,
    solve_path,
)
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.dictionary import DictionaryHealth
from cvxsnn.estimators.pipelines import as_the_network_reads
from cvxsnn.network import OutputHead
from cvxsnn.neurons import roll_out
from cvxsnn.plots.model_plots import (
    plot_gaps,
    plot_health,
    plot_membranes,
    plot_path,
    plot_raster,
    plot_readout,
    plot_receptive_field,
)

SEQUENCES = make_sequences()


@pytest.fixture(scope="module")
def model():
    return classifier().fit(SEQUENCES, classes_of(SEQUENCES))


@pytest.fixture(scope="module")
def solution():
    data = TrainingSet(SEQUENCES, {"label": classes_of(SEQUENCES)})
    dictionary = build_dictionary(gaussian_witnesses(3, (24,)), SEQUENCES, "mean")
    return solve(ConvexProblem.of(Objective("logistic", "mean"), dictionary, data, l1_strength=0.003, intercept=True))


@pytest.fixture
def axes():
    figure, axes = plt.subplots(layout="constrained")
    yield axes
    plt.close(figure)


@pytest.fixture(autouse=True)
def no_figure_is_left():
    plt.close("all")  # those of tests of other files
    yield
    assert plt.get_fignums() == []


def test_a_raster_has_one_mark_a_spike_and_the_strongest_neuron_on_top(model, axes):
    network, sequence = model.network_, SEQUENCES[0]
    assert plot_raster(network, sequence, axes) is axes
    spikes = roll_out(network.layers, sequence[None], "all")[0][:, network.neurons]
    strongest = int(network.weight.detach().abs().amax(1).argmax())
    marks = axes.collections[0].get_offsets()
    assert len(marks) == int(spikes.sum())
    assert sorted(marks[marks[:, 1] == 1][:, 0]) == [step + 1 for step in range(4) if spikes[step, strongest]]
    assert axes.yaxis_inverted()


def test_a_raster_of_plain_spikes_has_one_mark_a_spike_in_the_order_given(axes):
    spikes = np.random.default_rng(0).random((30, 5)) < 0.3
    assert plot_raster(spikes, axes=axes) is axes
    steps, neurons = np.nonzero(spikes)
    assert np.array_equal(axes.collections[0].get_offsets(), np.stack((steps + 1, neurons + 1), axis=1))


def test_an_estimator_is_drawn_like_its_network_on_standardised_sequences(model):
    sequence = SEQUENCES[0]
    scaled = as_the_network_reads(model, sequence)
    assert not np.array_equal(scaled, sequence)
    figure, (ours, theirs) = plt.subplots(1, 2)
    plot_raster(model, sequence, ours)
    plot_raster(model.network_, scaled, theirs)
    assert np.array_equal(ours.collections[0].get_offsets(), theirs.collections[0].get_offsets())
    plot_membranes(model, sequence, [0], ours)
    plot_membranes(model.network_, scaled, [0], theirs)
    assert np.array_equal(ours.lines[1].get_ydata(), theirs.lines[1].get_ydata())
    plot_readout(model, ours)
    assert "neurons read" in ours.get_title()
    plt.close(figure)


@pytest.mark.parametrize(
    ("draw", "complaint"),
    [
        (lambda: plot_raster(classifier(), SEQUENCES[0]), "got SpikingClassifier, which is not fitted: call fit first"),
        (lambda: plot_raster("network", SEQUENCES[0]), "expected a SpikingNetwork or a fitted estimator, got str"),
        (lambda: plot_membranes(torch.nn.Linear(3, 3), SEQUENCES[0]), "a fitted estimator, got Linear"),
        (lambda: plot_readout(None), "a fitted estimator, got NoneType"),
        (lambda: plot_path([1.0]), "expected path to be a RegularizationPath, got list"),
        (lambda: plot_gaps([1.0]), "expected solutions to map names to values of type Solution, got list"),
        (lambda: plot_gaps({"a": 1}), "expected solutions to map names to values of type Solution, got int"),
        (
            lambda: plot_health({"a": None}),
            "dictionaries to map names to values of type DictionaryHealth, got NoneType",
        ),
    ],
)
def test_a_strangers_object_is_refused_in_one_sentence(draw, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        draw()
    assert_one_sentence(caught.value)


def test_a_sequence_of_the_wrong_shape_is_refused_in_one_sentence(model):
    for wrong in (SEQUENCES, SEQUENCES[0][:, :2]):
        with pytest.raises(InvalidInputError, match=r"expected one sequence of shape \(n_steps, 3\), got shape"):
            plot_raster(model.network_, wrong)


def test_a_raster_refuses_what_it_cannot_draw(model):
    with pytest.raises(InvalidInputError, match="sequence"):
        plot_raster(model.network_)
    with pytest.raises(InvalidInputError, match=r"\(n_steps, n_neurons\)"):
        plot_raster(np.zeros((2, 3, 4)))
    with pytest.raises(InvalidInputError, match="alone"):
        plot_raster(np.zeros((2, 3)), SEQUENCES[0])


@pytest.mark.parametrize("hidden", [(6,), (5, 6)])
def test_membranes_are_at_or_above_zero_exactly_where_the_neuron_fires(hidden, axes):
    network = classifier(hidden=hidden, n_subnetworks=2, decay=0.9).fit(SEQUENCES, classes_of(SEQUENCES)).network_
    sequence = np.random.default_rng(1).normal(size=(40, 3))
    chosen = list(range(network.n_subnetworks * network.hidden[-1]))
    assert plot_membranes(network, sequence, chosen, axes) is axes
    threshold, *lines = axes.lines
    assert set(threshold.get_ydata()) == {0}
    spikes = roll_out(network.layers, sequence[None], "all")[0].numpy()
    assert 0 < spikes.mean() < 1
    for neuron, (trace, marks) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        assert np.array_equal(np.asarray(trace.get_ydata()) >= 0, spikes[:, neuron])
        assert np.array_equal(marks.get_xdata(), np.nonzero(spikes[:, neuron])[0] + 1)


def test_a_membrane_follows_its_equation(axes):
    layer = LIFLayer(torch.tensor([[[0.5]]]), bias=0.25, decay=0.5, threshold=2.0, initial_membrane=-1.0)
    network = SpikingNetwork([layer], torch.ones(1, 1), [OutputHead("label", "hinge", 0, 1)])
    plot_membranes(network, np.array([[1.0], [1.0], [0.0], [-1.0]]), axes=axes)
    # ½·(−1) + ½ + ¼ = ¼ fires; ½·¼ + ¾ − 2 = −1⅛; ½·(−1⅛) + ¼ = −5/16; ½·(−5/16) − ¼ = −13/32.
    assert axes.lines[1].get_ydata().tolist() == [0.25, -1.125, -0.3125, -0.40625]


def delayed_network():
    return SpikingNetwork(draw_stack(3), torch.ones(12, 1), [OutputHead("label", "hinge", 0, 1)])


def test_membranes_of_neurons_with_delays_are_at_or_above_zero_exactly_where_they_fire(axes):
    network, sequence = delayed_network(), np.random.default_rng(1).normal(size=(40, 3))
    plot_membranes(network, sequence, range(12), axes)
    spikes = roll_out(network.layers, sequence[None], "all")[0].numpy()
    assert 0 < spikes.mean() < 1
    for neuron, trace in enumerate(axes.lines[1::2]):
        assert np.array_equal(np.asarray(trace.get_ydata()) >= 0, spikes[:, neuron])


def one_neuron(weight, source, delay, n_sources):
    taps = {"source": torch.tensor(source)[None, :, None], "delay": torch.tensor(delay)[None, :, None]}
    layer = LIFLayer(torch.tensor(weight)[None, :, None], **taps, n_sources=n_sources)
    return SpikingNetwork([layer], torch.ones(1, 1), [OutputHead("label", "hinge", 0, 1)])


def test_a_receptive_field_is_a_map_of_delay_and_feature(axes):
    network = one_neuron([1.0, -2.0, 0.5, 0.25, 0.0], [0, 2, 1, 1, 0], [0, 3, 1, 1, 9], 3)
    assert plot_receptive_field(network, 0, axes=axes) is axes
    (image,) = axes.images
    assert image.get_array().tolist() == [[1, 0, 0], [0, 0.75, 0], [0, 0, 0], [0, 0, -2]]  # taps of one place add up
    assert image.get_clim() == (-2, 2)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("feature", "delay in steps")


def test_receptive_fields_of_all_neurons_sum_up_the_taps(axes):
    figure = axes.figure
    network = delayed_network()
    for number, layer in enumerate(network.layers, 1):
        for neuron in range(2 * layer.width):
            k, i = divmod(neuron, layer.width)
            plot_receptive_field(network, neuron, layer=number, axes=axes)
            field = axes.images[-1].get_array()
            assert field.shape == (layer.max_delay * (number > 1) + 1, layer.n_inputs)
            assert float(field.sum()) == pytest.approx(float(layer.weight[k, :, i].double().sum()), abs=ROUNDING)
            figure.clear()
            axes = figure.add_subplot()


@pytest.mark.parametrize(
    ("max_delay", "names"), [(2, ["0", "1", "2"]), (15, [f"{d}–{d + 1}" for d in range(0, 16, 2)])]
)
def test_a_receptive_field_of_images_has_one_for_each_group_of_delays(max_delay, names, axes):
    network = one_neuron([1.0, 2.0, -4.0], [0, 5, 3], [0, 1, max_delay], 6)
    plot_receptive_field(network, 0, (2, 3), axes=axes)
    shown = np.asarray(axes.images[0].get_array().filled(np.nan))
    assert shown.shape == (2, 4 * len(names) - 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    assert np.isnan(shown[:, 3::4]).all()
    images = [shown[:, 4 * number : 4 * number + 3] for number in range(len(names))]
    first = np.array([[1.0, 0, 0], [0, 0, 2.0 * (max_delay == 15)]])
    assert np.array_equal(images[0], first)
    assert np.array_equal(images[-1], [[0, 0, 0], [-4, 0, 0]])


def test_a_neuron_without_delays_has_a_receptive_field_of_one_row(axes):
    model = classifier(witnesses="gaussian").fit(SEQUENCES, classes_of(SEQUENCES))
    plot_receptive_field(model, 0, axes=axes)
    assert np.array_equal(axes.images[0].get_array()[0], model.network_.layers[0].weight[0, :, 0].double())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"neuron": 12}, "expected a neuron from 0 to 7 of layer 1, got 12"),
        ({"neuron": -1}, "expected a neuron from 0 to 7 of layer 1, got -1"),
        ({"neuron": 0, "layer": 4}, "expected a hidden layer from 1 to 3, got 4"),
        ({"neuron": 0, "layer": 0}, "expected a hidden layer from 1 to 3, got 0"),
        ({"neuron": 0, "feature_shape": (2, 2)}, r"expected a feature_shape of 3 features .* got \(2, 2\)"),
    ],
)
def test_a_receptive_field_that_is_not_there_is_refused_in_one_sentence(options, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        plot_receptive_field(delayed_network(), **options)
    assert_one_sentence(caught.value)


def test_threshold_neurons_have_no_membranes_to_draw():
    network = SpikingNetwork(
        [ThresholdLayer(torch.ones(1, 3, 1))], torch.ones(1, 1), [OutputHead("label", "hinge", 0, 1)]
    )
    with pytest.raises(InvalidInputError, match="threshold neurons"):
        plot_membranes(network, SEQUENCES[0])


def test_the_readout_of_one_output_is_its_weights_that_are_not_zero_in_order(solution, axes):
    assert plot_readout(solution, axes) is axes
    tips = [segment[1, 1] for segment in axes.collections[0].get_segments()]
    weights = solution.coef[solution.support, 0]
    assert tips == sorted(weights.tolist(), reverse=True)
    assert f"{len(weights)} of {len(solution.coef)} atoms" in axes.get_title()


def test_the_readout_of_several_outputs_is_a_map_of_all_weights_grouped_by_output(axes):
    network = classifier().fit(SEQUENCES, classes_of(SEQUENCES, 3)).network_
    plot_readout(network, axes)
    drawn = np.asarray(axes.images[0].get_array()).T
    weight = network.weight.detach().numpy()
    assert sorted(map(tuple, drawn)) == sorted(map(tuple, weight[weight.any(1)]))
    assert (np.diff(abs(drawn).argmax(1)) >= 0).all()
    low, high = axes.images[0].get_clim()
    assert low == -high == -abs(weight).max()


def test_a_path_shows_loss_and_support_of_every_strength(solution, axes):
    path = solve_path(solution.problem, n_strengths=5)
    assert plot_path(path, axes) is axes
    (right,) = (other for other in axes.figure.axes if other is not axes)
    strengths, losses = axes.lines[0].get_data()
    assert axes.get_xscale() == "log"
    assert np.array_equal(strengths, path.strengths)
    for solution, loss in zip(path, losses, strict=True):
        penalty = solution.problem.l1_strength * float(solution.coef.abs().sum())
        assert loss + penalty == pytest.approx(solution.certificate.primal, rel=ROUNDING)
    assert right.lines[0].get_ydata().tolist() == [len(solution.support) for solution in path]


def test_a_path_of_an_elastic_net_has_a_curve_for_each_strength_of_the_quadratic(axes):
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.random((20, 6)) < 0.5, rng.normal(size=20), "squared", penalty="elastic-net")
    path = solve_path(problem, [0.1, 0.01, 0.001], l2_strengths=[0.1, 0.01])
    plot_path(path, axes)
    (right,) = (other for other in axes.figure.axes if other is not axes)
    for number, l2_strength in enumerate((0.1, 0.01)):
        own = [solution for solution in path if solution.problem.l2_strength == l2_strength]
        strengths, losses = axes.lines[number].get_data()
        assert strengths.tolist() == [0.1, 0.01, 0.001]
        expected = [float(solution.problem.loss_value(solution.scores())) for solution in own]
        assert losses == pytest.approx(expected, rel=ROUNDING)
        assert right.lines[number].get_ydata().tolist() == [len(solution.support) for solution in own]
    assert axes.lines[0].get_alpha() > axes.lines[1].get_alpha()


def test_a_strength_of_zero_has_no_place_on_the_axis_of_a_path(axes):
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.random((20, 6)) < 0.5, rng.normal(size=20), "squared", penalty="elastic-net")
    plot_path(solve_path(problem, [0.1, 0.01, 0.0], l2_strengths=[0.1]), axes)
    assert axes.lines[0].get_xdata().tolist() == [0.1, 0.01]


def test_gaps_are_drawn_for_every_solution_and_end_in_the_certificate(solution, axes):
    assert plot_gaps({"one": solution, "two": solution}, axes) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    assert axes.get_yscale() == "log"
    assert len(axes.lines) == 4
    assert axes.lines[1].get_ydata()[0] == max(solution.certificate.relative_gap, 1e-17)


def test_shares_of_witnesses_fill_each_bar(axes):
    unused = {"n_duplicate": 0, "n_complementary": 0, "density": 0.5, "n_rows": 9, "n_distinct_rows": 9}
    healths = {
        "mixed": DictionaryHealth(n_columns=20, n_atoms=8, n_dead=5, n_saturated=3, **unused),
        "sound": DictionaryHealth(n_columns=4, n_atoms=4, n_dead=0, n_saturated=0, **unused),
    }
    assert plot_health(healths, axes) is axes
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    assert widths == pytest.approx(np.array([[6 / 20, 1], [6 / 20, 0], [3 / 20, 0], [5 / 20, 0]]), abs=ROUNDING)


@pytest.mark.parametrize("draw", ["raster", "membranes", "readout", "path", "gaps", "health"])
def test_a_picture_makes_its_own_axes_when_given_none(model, solution, draw):
    made = {
        "raster": lambda: plot_raster(model.network_, SEQUENCES[0]),
        "membranes": lambda: plot_membranes(model.network_, SEQUENCES[0]),
        "readout": lambda: plot_readout(model.network_),
        "path": lambda: plot_path(solve_path(solution.problem, n_strengths=3)),
        "gaps": lambda: plot_gaps({"cvx": solution}),
        "health": lambda: plot_health({"cvx": solution.problem.dictionary.health()}),
    }[draw]()
    assert len(plt.get_fignums()) == 1
    assert made.get_title()
    plt.close(made.figure)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_readout_that_uses_nothing_is_drawn_empty(n_outputs, axes):
    layer, heads = LIFLayer(torch.ones(1, 3, 2)), [OutputHead("label", "squared", 0, n_outputs)]
    plot_readout(SpikingNetwork([layer], torch.zeros(2, n_outputs), heads), axes)
    axes.figure.canvas.draw()
    assert "0 of 2 neurons" in axes.get_title()
