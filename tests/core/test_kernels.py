import pytest

from cvxsnn.core.kernels import can_run


def test_a_kernel_that_runs_is_no_reason_for_words(recwarn):
    calls = []
    assert can_run(lambda: calls.append(1), "numbers are added one by one on cpu")
    assert calls == [1]
    assert not recwarn.list


def test_a_kernel_that_cannot_be_made_is_one_sentence():
    def fail():
        raise RuntimeError("no C compiler")

    with pytest.warns(
        UserWarning, match="^numbers are added one by one on cpu, because the kernel does not run: no C compiler$"
    ):
        assert not can_run(fail, "numbers are added one by one on cpu")
