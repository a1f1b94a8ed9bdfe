import pytest
import torch
from convex.statistics.streams import batches
from small_models import assert_one_sentence

import cvxsnn as cs
from cvxsnn.convex import StatisticsProblem, gather_statistics


def test_gram_of_spikes_and_equal_columns_are_the_dictionarys(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    dictionary = cs.build_dictionary(witnesses, data[0])
    assert dictionary.n_atoms < witnesses.n_witnesses
    assert torch.equal(found.atoms.first, dictionary.column_of_atom)
    assert torch.equal(found.atoms.inverse, dictionary.atom_of_column)
    assert torch.equal(StatisticsProblem(found, 1.0).gram[:-1, :-1], dictionary.gram())


def test_strengths_and_penalty_are_those_of_the_problem_in_memory(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    dictionary = cs.build_dictionary(witnesses, data[0])
    assert StatisticsProblem(found, 0.1).penalty.name == "l1"
    for l1_strength, l2_strength in ((0.1, 0.0), (0.1, 0.5), (0.0, 0.5)):
        problem = StatisticsProblem(found, l1_strength, True, l2_strength)
        expected = cs.ConvexProblem(
            dictionary,
            data[1],
            "squared",
            l1_strength,
            l2_strength=l2_strength,
            penalty=problem.penalty,
            intercept=True,
        )
        assert repr(problem) == repr(expected).replace("ConvexProblem", "StatisticsProblem")


def test_another_strength_shares_what_was_computed(witnesses, data):
    problem = StatisticsProblem(gather_statistics(witnesses, batches(data, 50)), 0.1, l2_strength=0.5)
    gram = problem.gram
    weaker, ridge = problem.with_strength(0.05), problem.with_strength(0.0, 0.25)
    assert (weaker.l1_strength, weaker.l2_strength) == (0.05, 0.5)
    assert (ridge.l1_strength, ridge.l2_strength) == (0.0, 0.25)
    assert weaker.gram is gram
    assert ridge.gram is gram


@pytest.mark.parametrize(
    ("l1_strength", "l2_strength", "match"),
    [
        (0.0, 0.0, "l1_strength to be a finite number above zero, got 0.0"),
        (-1.0, 0.0, "l1_strength to be a finite number above zero, got -1.0"),
        (-1.0, 0.1, "l1_strength to be a finite number, zero or above, got -1.0"),
        (0.1, -0.1, "l2_strength to be a finite number, zero or above, got -0.1"),
        (0.1, float("nan"), "l2_strength to be a finite number, zero or above, got nan"),
        (0.1, None, "l2_strength to be a finite number, zero or above, got None"),
    ],
)
def test_strengths_without_a_bound_are_refused_in_one_sentence(witnesses, data, l1_strength, l2_strength, match):
    found = gather_statistics(witnesses, batches(data, 50))
    with pytest.raises(cs.InvalidInputError, match=match) as error:
        StatisticsProblem(found, l1_strength, l2_strength=l2_strength)
    assert_one_sentence(error.value)
    if l2_strength is not None:  # which keeps the strength as it is
        with pytest.raises(cs.InvalidInputError, match=match):
            StatisticsProblem(found, 0.1).with_strength(l1_strength, l2_strength)
