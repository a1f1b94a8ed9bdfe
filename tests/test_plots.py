import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
from small_models import classes_of, classifier, make_sequences
from tolerances import ROUNDING

from cvxsnn import DictionaryHealth
from cvxsnn.neurons import roll_out
from cvxsnn.plots import plot_gaps, plot_health, plot_raster

SEQUENCES = make_sequences()


@pytest.fixture(scope="module")
def model():
    return classifier().fit(SEQUENCES, classes_of(SEQUENCES))


@pytest.fixture
def axes():
    figure, axes = plt.subplots(layout="constrained")
    yield axes
    plt.close(figure)


@pytest.fixture(autouse=True)
def no_figure_is_left():
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


def test_gaps_are_drawn_for_every_solution_and_end_in_the_certificate(model, axes):
    solution = model.history_[-1].solution
    assert plot_gaps({"one": solution, "two": solution}, axes) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    assert axes.get_yscale() == "log"
    assert len(axes.lines) == 4
    assert axes.lines[1].get_ydata()[0] == max(solution.certificate.relative_gap, 1e-17)


def test_shares_of_witnesses_fill_each_bar(axes):
    unused = {"n_duplicate": 0, "n_complementary": 0, "density": 0.5, "n_rows": 9, "n_distinct_rows": 9}
    healths = {
        "mixed": DictionaryHealth(n_witnesses=20, n_atoms=8, n_dead=5, n_saturated=3, **unused),
        "sound": DictionaryHealth(n_witnesses=4, n_atoms=4, n_dead=0, n_saturated=0, **unused),
    }
    assert plot_health(healths, axes) is axes
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    assert widths == pytest.approx(np.array([[6 / 20, 1], [6 / 20, 0], [3 / 20, 0], [5 / 20, 0]]), abs=ROUNDING)


@pytest.mark.parametrize("draw", ["raster", "gaps", "health"])
def test_a_picture_makes_its_own_axes_when_given_none(model, draw):
    solution = model.history_[-1].solution
    made = {
        "raster": lambda: plot_raster(model.network_, SEQUENCES[0]),
        "gaps": lambda: plot_gaps({"cvx": solution}),
        "health": lambda: plot_health({"cvx": solution.problem.dictionary.health()}),
    }[draw]()
    assert len(plt.get_fignums()) == 1
    assert made.get_title()
    plt.close(made.figure)
