"""What a page is given is JSON that can stand in a script element."""

import base64
import json
from dataclasses import dataclass

import numpy as np
import pytest

from cvxsnn.explore.packing import to_json


@dataclass
class Values:
    name: str
    array: np.ndarray
    number: float


def test_values_arrive_as_they_are():
    array = np.array([[1.5, -2.0], [0.25, 3.0]], dtype=np.float32)
    read = json.loads(to_json({"one": Values("a", array, 0.1), "many": (1, True, None, np.int64(7))}))
    assert read["many"] == [1, True, None, 7]
    assert read["one"]["number"] == 0.1
    packed = read["one"]["array"]
    assert packed["shape"] == [2, 2]
    assert packed["type"] == "f4"
    assert np.frombuffer(base64.b64decode(packed["data"]), "<f4").tolist() == [1.5, -2.0, 0.25, 3.0]


def test_no_text_can_end_the_script_element():
    text = to_json({"<script>": "</script><!--&\u2028 \x00 \ud800"})
    assert not set(text) & set("<>&\u2028\x00")
    text.encode()
    assert json.loads(text) == {"<script>": "</script><!--&\u2028 \ufffd \ufffd"}


def test_numbers_that_are_not_finite_are_null():
    assert to_json([float("nan"), float("inf"), np.float64("nan"), 1.0]) == "[null,null,null,1.0]"


def test_an_array_that_a_page_cannot_read_is_an_error():
    with pytest.raises(KeyError):
        to_json(np.zeros(2, dtype=np.int64))
