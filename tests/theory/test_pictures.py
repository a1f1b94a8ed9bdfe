import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Wedge
from theory.families import draw_sequences

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory import LIFFamily
from cvxsnn.theory.enumeration import split_parameters
from cvxsnn.theory.pictures import plot_cones

mpl.use("agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def wedges(axes):
    return [patch for patch in axes.patches if isinstance(patch, Wedge)]


def bold_rays(axes):
    return [line for line in axes.lines if line.get_color() == "black"]


@pytest.mark.parametrize("negative_threshold", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_one_wedge_is_drawn_for_each_two_dimensional_cone_and_together_they_cover_all(seed, decay, negative_threshold):
    inputs = draw_sequences(np.random.default_rng(seed), 3, 2, 1)
    family = LIFFamily(decay, negative_threshold=negative_threshold)
    frontier, spikes = split_parameters(family, inputs)
    sizes = [len(frontier.cone(k).rays) + len(frontier.cone(k).lines) for k in range(len(frontier))]
    axes = plot_cones(family, inputs)
    drawn = wedges(axes)
    assert len(drawn) == sum(size >= 2 for size in sizes)
    assert sum(wedge.theta2 - wedge.theta1 for wedge in drawn) == pytest.approx(360 if negative_threshold else 180)
    assert len(bold_rays(axes)) >= sum(size == 1 for size in sizes)
    # The middle of each wedge has the spikes of its label.
    labels = [text.get_text() for text in axes.texts]
    assert len(set(labels)) == len(labels) == len(drawn)
    events = family.on(inputs)
    for wedge, label in zip(drawn, labels, strict=True):
        middle = math.radians(0.5 * (wedge.theta1 + wedge.theta2))
        parameters = [round(2**40 * math.cos(middle)), round(2**40 * math.sin(middle) / events.unit)]
        own = events.simulate(np.array([parameters], dtype=object))[0]
        assert label == "\n".join("".join(map(str, train.astype(int))) for train in own)
    assert len(spikes) == len(sizes)


@pytest.mark.parametrize(("family", "degrees"), [(LIFFamily(0.0), 180), (LIFFamily(0.0, negative_threshold=True), 360)])
def test_parameters_that_nothing_cuts_are_one_wedge(family, degrees):
    (wedge,) = wedges(plot_cones(family, np.zeros((1, 1, 1))))
    assert wedge.theta2 - wedge.theta1 == pytest.approx(degrees)


def test_given_axes_are_drawn_on():
    axes = plt.figure().add_subplot()
    assert plot_cones(LIFFamily(0.5), np.ones((1, 2, 1)), axes) is axes


@pytest.mark.parametrize(("family", "n_features"), [(LIFFamily(0.5), 2), (LIFFamily(0.5, bias=True), 1)])
def test_neurons_with_more_than_two_parameters_are_refused(family, n_features):
    with pytest.raises(InvalidInputError, match=r"two parameters, got 3: one feature and no bias"):
        plot_cones(family, np.ones((2, 1, n_features)))
