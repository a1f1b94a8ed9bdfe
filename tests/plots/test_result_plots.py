"""Plots of answers and of what is proven."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from small_models import assert_one_sentence, classes_of, classifier, make_sequences

import cvxsnn
from cvxsnn import ConvexProblem, InvalidInputError, SpikingRegressor, build_dictionary, gaussian_witnesses, solve
from cvxsnn.plots.result_plots import plot_certificate, plot_confusion, plot_explanation

SEQUENCES = make_sequences()
LABELS = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]


@pytest.fixture(scope="module")
def model():
    return classifier().fit(SEQUENCES, LABELS)


@pytest.fixture
def axes():
    figure, axes = plt.subplots(layout="constrained")
    yield axes
    plt.close(figure)


def test_cells_are_shares_of_a_class_with_counts_on_them(model, axes):
    assert plot_confusion(model, SEQUENCES, LABELS, axes) is axes
    counts = confusion_matrix(LABELS, model.predict(SEQUENCES), labels=model.classes_)
    np.testing.assert_allclose(axes.images[0].get_array(), counts / counts.sum(1, keepdims=True))
    assert sorted(int(text.get_text()) for text in axes.texts) == sorted(counts[counts > 0].tolist())
    assert [label.get_text() for label in axes.get_xticklabels()] == model.classes_.tolist()
    assert axes.get_title() == f"{np.trace(counts)} of 48 correct"


def test_a_matrix_of_many_classes_has_no_numbers(axes):
    sequences, labels = make_sequences(64), np.arange(64) % 30
    plot_confusion(classifier().fit(sequences, labels), sequences, labels, axes)
    assert len(axes.texts) == 0


def test_what_has_no_classes_has_no_confusion():
    with pytest.raises(InvalidInputError, match="expected a fitted classifier, got SpikingRegressor") as caught:
        plot_confusion(SpikingRegressor(), SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


def test_objective_and_bound_meet_at_the_certificate(model, axes):
    assert plot_certificate(model, SEQUENCES, LABELS, axes) is axes
    objective, bound = axes.lines
    assert objective.get_label() == "objective"
    assert objective.get_xdata()[0] == 0
    assert objective.get_ydata()[-1] == pytest.approx(model.certificate_.primal, rel=1e-5)
    assert bound.get_ydata()[-1] == pytest.approx(model.certificate_.primal, rel=1e-5)
    assert (np.array(bound.get_ydata()) <= np.array(objective.get_ydata())).all()


def test_a_solution_is_enough(axes):
    dictionary = build_dictionary(gaussian_witnesses(3, (24,)), SEQUENCES, "mean")
    solution = solve(ConvexProblem(dictionary, classes_of(SEQUENCES), loss="logistic", l1_strength=0.01))
    plot_certificate(solution, axes=axes)
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(solution.certificate.primal, rel=1e-5)


def test_an_estimator_without_data_and_other_values_are_refused(model):
    with pytest.raises(InvalidInputError, match="expected the data that the estimator was fitted to"):
        plot_certificate(model)
    with pytest.raises(InvalidInputError, match="expected a Solution or a fitted estimator, got int"):
        plot_certificate(3)


def test_all_plots_are_in_one_place():
    names = {name for name in dir(cvxsnn.plots) if name.startswith("plot_")}
    assert names == set(cvxsnn.plots.__all__)
    assert {"plot_path", "plot_readout", "plot_membranes", "plot_receptive_field", "plot_raster"} <= names
    with pytest.raises(AttributeError, match="no attribute 'pictures'"):
        _ = cvxsnn.pictures


def test_evidence_rises_to_the_scores_above_the_input(model):
    explanation = model.explain(SEQUENCES[0])
    upper, lower = explanation.plot()
    curves = [line for line in upper.lines if len(line.get_xdata()) == 4]
    assert [curve.get_label() for curve in curves] == ["high", "low", "middle"]
    assert [curve.get_ydata()[-1] for curve in curves] == pytest.approx(explanation.scores)
    np.testing.assert_array_equal([line.get_ydata() for line in lower.lines], SEQUENCES[0].T)
    assert upper.get_title() == explanation.answer
    again = plot_explanation(explanation, (lower, upper))
    assert list(again) == [lower, upper]
    plt.close(upper.figure)


def test_inputs_of_many_channels_are_a_map():
    sequences = make_sequences(n_features=12)
    axes = classifier().fit(sequences, LABELS).explain(sequences[0]).plot()
    np.testing.assert_array_equal(axes[1].images[0].get_array(), sequences[0].T)
    plt.close(axes[0].figure)


def test_what_is_no_explanation_is_not_drawn(model):
    with pytest.raises(InvalidInputError, match=r"expected the explanation of one sequence, got list") as caught:
        plot_explanation(model.explain(SEQUENCES[:1]))
    assert_one_sentence(caught.value)
