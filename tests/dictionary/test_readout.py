import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.dictionary.base import ParsedReadout, parse_readout


@pytest.mark.parametrize(
    ("readout", "windows", "expected"),
    [
        ("mean", None, ParsedReadout("mean")),
        ("last", None, ParsedReadout("last")),
        ("all", None, ParsedReadout("all")),
        ("windows-4", None, ParsedReadout("mean", 4)),
        ("windows-4", 4, ParsedReadout("mean", 4)),
        ("mean", np.int64(3), ParsedReadout("mean", 3)),
        ("windows-1", None, ParsedReadout("mean")),
        ("mean", 1, ParsedReadout("mean")),
    ],
)
def test_a_readout_is_one_string(readout, windows, expected):
    assert parse_readout(readout, windows) == expected
    assert parse_readout(str(expected)) == expected
    assert str(parse_readout("windows-1")) == "mean"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("median",),
            "readout to be one of 'last', 'all', 'mean', 'windows-4' with any number, or .*, got 'median'",
        ),
        (("windows-0",), "got 'windows-0'"),
        (("windows-",), "got 'windows-'"),
        (("windows-two",), "got 'windows-two'"),
        ((["mean"],), r"got \['mean'\]"),
        (("last", 2), "readout='mean' with windows=2, got 'last'"),
        (("all", 1), "readout='mean' with windows=1, got 'all'"),
        (("mean", 0), "windows to be a positive integer, got 0"),
        (("mean", 2.0), "windows to be a positive integer, got 2.0"),
        (("mean", True), "windows to be a positive integer, got True"),
        (("windows-4", 3), "one number of windows, got readout='windows-4' and windows=3"),
    ],
)
def test_other_readouts_are_refused_in_one_sentence(arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_readout(*arguments)
    assert_one_sentence(caught.value)
