import inspect

import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, tasks
from cvxsnn.data.tasks import TASKS, make_task
from cvxsnn.data.tasks.registry import RegisteredTask


def test_every_task_is_a_function_of_its_name_that_reads_files_only_if_it_says_so():
    for name, registered in TASKS.items():
        assert registered.make.__name__ == name
        assert ("directory" in inspect.signature(registered.make).parameters) == bool(registered.files)


def test_a_task_is_made_by_name_with_its_arguments_and_seed():
    found = make_task("first_last_xor", n_steps=4, n_train=8, n_val=4, n_test=4, seed=3)
    expected = tasks.first_last_xor(4, n_train=8, n_val=4, n_test=4, seed=3)
    assert found.settings == expected.settings
    np.testing.assert_array_equal(found.train.inputs, expected.train.inputs)


def test_a_task_without_random_draws_gets_no_seed():
    def fixed(size):
        return size

    TASKS.register("fixed", RegisteredTask(fixed))
    try:
        assert make_task("fixed", seed=7, size=3) == 3
    finally:
        TASKS.unregister("fixed")


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("sums", {}, "expected task to be one of 'addition', 'first_last_xor', .*, got 'sums'"),
        (None, {}, "expected task to be one of .*, got None"),
        ("addition", {"digits": 3}, "expected arguments of addition among base, n_digits, .*, got 'digits'"),
        ("first_last_xor", {}, "expected an argument 'n_steps' of first_last_xor, got none"),
    ],
)
def test_unknown_names_and_arguments_are_one_sentence(name, arguments, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        make_task(name, **arguments)
    assert_one_sentence(caught.value)
