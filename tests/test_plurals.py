"""Sentences and sizes about one thing are in the singular."""

import re

import numpy as np
import pytest
import torch

import cvxsnn as cs
from cvxsnn.cli.data_files import Data
from cvxsnn.dictionary.dense import DenseDictionary

SHOWN = {
    "sequences": lambda: repr(cs.Sequences(np.ones((1, 1, 1)))),
    "problem": lambda: repr(cs.ConvexProblem(np.ones((1, 1)), [1.0], "squared")),
    "dictionary": lambda: repr(DenseDictionary(torch.ones(1, 1))),
    "rows in a file": lambda: str(Data(np.ones((1, 1)), None)),
    "sequences in a file": lambda: str(Data([np.ones((1, 1))], None)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_one_thing_is_in_the_singular(name):
    assert re.search(r"\b1 \w+", SHOWN[name]())
    assert not re.search(r"\b1 (real )?\w+s\b", SHOWN[name]())
