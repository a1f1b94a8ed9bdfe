from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import decode_digits, decode_operands
from torch import nn

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import Feedback, SequenceData, addition, first_last_xor
from cvxsnn.network.evaluation import (
    accuracy,
    label_accuracy,
    predict_autoregressive,
    score_tokens,
)

SMALL = {"n_train": 5, "n_val": 5, "n_test": 30, "n_test_ood": 30}


@dataclass(frozen=True)
class Adder:
    """Adds by the carry it is given; its state is the number of steps done. At ``flawed_step`` its carry is wrong."""

    base: int
    flawed_step: int | None = None

    def start(self, n_samples):
        return 0

    def step(self, state, inputs):
        column_sum = np.rint(inputs * [self.base - 1, self.base - 1, 1]).astype(np.int64).sum(axis=1)
        carry, digit = np.divmod(column_sum, self.base)
        inputs[:] = np.nan  # nothing may depend on what a model does to its inputs
        return state + 1, {"sum": digit, "carry": 1 - carry if state == self.flawed_step else carry}

    def decide(self, scores):
        return scores


@dataclass(frozen=True)
class SilentAdder:
    """Adds from the operands alone; its state is the carry."""

    base: int

    def start(self, n_samples):
        return np.zeros(n_samples, dtype=np.int64)

    def step(self, state, inputs):
        carry, digit = np.divmod(np.rint(inputs * (self.base - 1)).astype(np.int64).sum(axis=1) + state, self.base)
        return carry, {"sum": digit}

    def decide(self, scores):
        return scores


def predict_from_true_inputs(model, data):
    """Every head's classes, step by step, without feedback."""
    state, steps = model.start(data.n_samples), []
    for t in range(data.n_steps):
        state, scores = model.step(state, data.inputs[:, t].copy())
        steps.append(model.decide(scores))
    return {head: np.stack([own[head] for own in steps], axis=1) for head in data.heads}


@pytest.mark.parametrize("base", [2, 3, 5, 10])
def test_a_perfect_adder_scores_one_at_all_lengths_in_both_modes(base):
    task = addition(base, **SMALL)
    for data in task.splits.values():
        for predictions in (
            predict_from_true_inputs(Adder(base), data),
            predict_autoregressive(Adder(base), data, task.feedback),
        ):
            scores = score_tokens(predictions, data)
            assert scores.joint_token == scores.joint_sequence == 1.0
            assert scores.head_token == {"sum": 1.0, "carry": 1.0}
            np.testing.assert_array_equal(scores.first_error_step, data.n_steps)
            assert scores.mean_first_error_step == data.n_steps


def test_a_model_with_state_adds_without_being_given_the_carry():
    task = addition(3, variant="direct", **SMALL)
    for data in task.splits.values():
        assert score_tokens(predict_from_true_inputs(SilentAdder(3), data), data).joint_sequence == 1.0


@pytest.mark.parametrize("flawed_step", [0, 2, 5])
def test_a_wrong_carry_costs_one_token_per_sequence_where_the_true_one_is_read(flawed_step):
    data = addition(3, **SMALL).test
    scores = score_tokens(predict_from_true_inputs(Adder(3, flawed_step), data), data)
    assert scores.head_token == {"sum": 1.0, "carry": pytest.approx(5 / 6)}
    assert scores.joint_token == pytest.approx(5 / 6)
    assert scores.joint_sequence == 0.0
    np.testing.assert_array_equal(scores.first_error_step, flawed_step)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 7), st.integers(0, 9), st.integers(0, 100))
def test_a_wrong_carry_runs_on_as_integer_arithmetic_says_when_it_is_fed_back(base, flawed_step, seed):
    task = addition(base, 10, **SMALL, seed=seed)
    predictions = predict_autoregressive(Adder(base, flawed_step), task.test, task.feedback)
    scores = score_tokens(predictions, task.test)
    np.testing.assert_array_equal(scores.first_error_step, flawed_step)

    low = base ** (flawed_step + 1)
    high_digits = predictions["sum"][:, flawed_step + 1 :]
    high_limit = base ** high_digits.shape[1]
    for a, b, predicted in zip(*decode_operands(task.test, base), decode_digits(high_digits, base), strict=True):
        wrong_carry = 1 - (a % low + b % low) // low
        assert predicted == (a // low + b // low + wrong_carry) % high_limit


def test_propagation_of_a_wrong_carry_worked_by_hand():
    # 5999 + 1000 = 6999 in base 10, least significant digit first; a false carry out of the units makes it 7009.
    inputs = np.float32([[9, 0, 0], [9, 0, 0], [9, 0, 0], [5, 1, 0], [0, 0, 0]])[None] / np.float32([9, 9, 1])
    data = SequenceData(inputs, {"sum": np.array([[9, 9, 9, 6, 0]]), "carry": np.zeros((1, 5), dtype=int)})
    predictions = predict_autoregressive(Adder(10, flawed_step=0), data, Feedback("carry", 2))
    np.testing.assert_array_equal(predictions["sum"], [[9, 0, 0, 7, 0]])
    np.testing.assert_array_equal(predictions["carry"], [[1, 1, 1, 0, 0]])
    scores = score_tokens(predictions, data)
    assert (scores.joint_token, scores.head_token) == (1 / 5, {"sum": 2 / 5, "carry": 2 / 5})
    assert scores.first_error_step.tolist() == [0]


@pytest.mark.parametrize("poison", [np.nan, 1e9])
def test_the_true_fed_back_input_is_not_used_after_the_first_step(poison):
    task = addition(3, **SMALL)
    expected = predict_autoregressive(Adder(3, flawed_step=1), task.test, task.feedback)
    task.test.inputs[:, 1:, task.feedback.feature] = poison
    found = predict_autoregressive(Adder(3, flawed_step=1), task.test, task.feedback)
    for head in expected:
        np.testing.assert_array_equal(found[head], expected[head])


def test_the_first_fed_back_input_is_as_given():
    task = addition(3, **SMALL)
    task.test.inputs[:, 0, task.feedback.feature] = 1
    found = predict_autoregressive(Adder(3), task.test, task.feedback)["sum"][:, 0]
    np.testing.assert_array_equal(found, (task.test.heads["sum"][:, 0] + 1) % 3)


def test_inputs_are_left_as_they_were():
    task = addition(3, **SMALL)
    before = task.test.inputs.copy()
    predict_autoregressive(Adder(3, flawed_step=0), task.test, task.feedback)
    np.testing.assert_array_equal(task.test.inputs, before)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_scores_agree_with_their_definitions(draw):
    n_samples, n_steps = draw.draw(st.integers(1, 5)), draw.draw(st.integers(1, 6))
    token = st.integers(0, 1)
    table = st.lists(st.lists(token, min_size=n_steps, max_size=n_steps), min_size=n_samples, max_size=n_samples)
    targets = {head: np.array(draw.draw(table)) for head in ("sum", "carry")}
    predictions = {head: np.array(draw.draw(table)) for head in ("sum", "carry")}
    scores = score_tokens(predictions, SequenceData(np.zeros((n_samples, n_steps, 1)), targets))

    right = [
        [all(predictions[head][i, t] == targets[head][i, t] for head in targets) for t in range(n_steps)]
        for i in range(n_samples)
    ]
    assert scores.joint_token == pytest.approx(sum(map(sum, right)) / (n_samples * n_steps))
    assert scores.joint_sequence == pytest.approx(sum(map(all, right)) / n_samples)
    assert scores.first_error_step.tolist() == [row.index(False) if False in row else n_steps for row in right]
    assert scores.joint_sequence <= scores.joint_token <= min(scores.head_token.values())


TOKENS = SequenceData(np.zeros((2, 3, 1)), {"sum": np.zeros((2, 3), dtype=int)})
RIGHT = np.zeros((2, 3), dtype=int)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ({}, r"heads \['sum'\], got heads \[\]"),
        ({"sum": RIGHT, "carry": RIGHT}, r"heads \['sum'\], got heads \['carry', 'sum'\]"),
        ({"sum": RIGHT[:, :2]}, r"shape \(2, 3\), got int64 of shape \(2, 2\)"),
        ({"sum": RIGHT.astype(float)}, "integer classes .* got float64"),
    ],
)
def test_predictions_that_do_not_fit_the_data_are_refused(predictions, message):
    with pytest.raises(InvalidInputError, match=message):
        score_tokens(predictions, TOKENS)


@dataclass(frozen=True)
class Parrot:
    """Answers the same at every step."""

    answers: dict[str, np.ndarray]

    def start(self, n_samples):
        return None

    def step(self, state, inputs):
        return None, self.answers

    def decide(self, scores):
        return scores


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"carry": np.zeros(2, dtype=int)}, r"step 0 for heads \['sum'\], got heads \['carry'\]"),
        ({"sum": np.zeros((2, 1), dtype=int)}, r"step 0 for head 'sum' .* shape \(2,\), got int64 of shape \(2, 1\)"),
        ({"sum": np.full(2, 0.5)}, "integer classes .* got float64"),
    ],
)
def test_a_model_whose_answers_do_not_fit_is_told_so(answers, message):
    with pytest.raises(InvalidInputError, match=message):
        predict_autoregressive(Parrot(answers), TOKENS, Feedback("sum", 0))


@pytest.mark.parametrize("feedback", [Feedback("carry", 0), Feedback("sum", 1), Feedback("sum", -1)])
def test_feedback_that_the_data_do_not_have_is_refused(feedback):
    with pytest.raises(InvalidInputError, match=r"heads \['sum'\] to a feature below 1, got Feedback"):
        predict_autoregressive(Parrot({"sum": np.zeros(2, dtype=int)}), TOKENS, feedback)


def test_label_accuracy_is_the_share_of_right_labels():
    data = SequenceData(np.zeros((4, 2, 1)), np.array([0, 1, 2, 1]))
    assert label_accuracy(np.array([0, 1, 1, 1]), data) == 0.75


def test_label_accuracy_refuses_what_it_cannot_compare():
    labelled = SequenceData(np.zeros((2, 3, 1)), np.array([0, 1]))
    with pytest.raises(InvalidInputError, match=r"one label per sequence, got targets of shapes .* use score_tokens"):
        label_accuracy(np.array([0, 1]), TOKENS)
    with pytest.raises(InvalidInputError, match=r"shape \(2,\), got int64 of shape \(3,\)"):
        label_accuracy(np.array([0, 1, 1]), labelled)
    with pytest.raises(InvalidInputError, match="use label_accuracy"):
        score_tokens({"label": RIGHT}, labelled)


@dataclass(frozen=True)
class Whole:
    """Answers for whole sequences at once, from a table."""

    answers: dict

    def predict(self, inputs):
        return self.answers


def test_accuracy_of_a_task_with_feedback_is_of_tokens_that_the_model_finds_alone():
    task = addition(3, **SMALL)
    model = Adder(3, flawed_step=1)
    alone = score_tokens(predict_autoregressive(model, task.test, task.feedback), task.test).joint_token
    assert accuracy(model, task, task.test) == alone
    assert alone < score_tokens(predict_from_true_inputs(model, task.test), task.test).joint_token
    assert accuracy(Adder(3), task, task.test) == 1.0


def test_accuracy_of_steps_without_feedback_is_of_tokens():
    task = addition(3, variant="direct", **SMALL)
    answers = task.test.heads["sum"].copy()
    answers[0, 0] = (answers[0, 0] + 1) % 3
    assert accuracy(Whole({"sum": answers}), task, task.test) == pytest.approx(1 - 1 / answers.size)


def test_accuracy_of_labels_is_the_share_of_right_ones():
    task = first_last_xor(3, n_train=4, n_val=4, n_test=20)
    answers = task.test.targets.copy()
    answers[:5] = 1 - answers[:5]
    assert accuracy(Whole({"label": answers}), task, task.test) == pytest.approx(0.75)


def test_models_tasks_and_data_of_the_wrong_kind_are_refused_in_one_sentence():
    task = addition(3, **SMALL)
    labels = first_last_xor(3, n_train=4, n_val=4, n_test=20)
    cases = {
        r"the methods start, step, decide, such as a SpikingNetwork, got a Linear without start": (
            lambda: accuracy(nn.Linear(3, 2), task, task.test)
        ),
        "the methods predict, such as a SpikingNetwork, got a str": lambda: accuracy("model", labels, labels.test),
        "expected a task, such as cvxsnn.tasks.addition.., got dict": lambda: accuracy(Adder(3), {}, task.test),
        "a split of a task, such as task.test, .* got ndarray": lambda: accuracy(Adder(3), task, task.test.inputs),
        "as a mapping from head to classes, got list": lambda: score_tokens([0, 1], TOKENS),
        r"got object of shape \(\)": lambda: label_accuracy(None, labels.test),
        "to judge a model on, got NoneType": lambda: label_accuracy(np.array([0]), None),
    }
    for message, call in cases.items():
        with pytest.raises(InvalidInputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
