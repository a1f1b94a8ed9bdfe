"""The prior over families of witnesses."""

import numpy as np
import pytest
import torch

from cvxsnn import gaussian_witnesses, roll_out
from cvxsnn.witnesses import Constant, sample_witnesses
from cvxsnn.witnesses.prior import RELAY, DelayedDraw, FamilyDraw, draw_family, mutate_family

DYNAMICS = ("decay", "threshold", "bias", "gain")
DEPTHS = [1, 2, 9]


def draw_many(n_layers, n_features=20, number=60, seed=0):
    generator = np.random.default_rng(seed)
    return [draw_family(generator, n_features, n_layers) for _ in range(number)]


def sample(family, n_features, width=10):
    return gaussian_witnesses(n_features, (width,) * family.n_layers, **family.arguments())


@pytest.mark.parametrize("n_features", [1, 20])
@pytest.mark.parametrize("n_layers", DEPTHS)
def test_every_family_and_its_mutations_can_be_sampled(n_layers, n_features):
    generator = np.random.default_rng(1)
    for family in draw_many(n_layers, n_features, number=20):
        for one in (family, mutate_family(generator, family, n_features)):
            witnesses = sample(one, n_features)
            assert witnesses.hidden == (10,) * n_layers


@pytest.mark.parametrize("n_layers", DEPTHS)
def test_the_prior_is_broad(n_layers):
    assert len(set(draw_many(n_layers))) > 50


def test_the_same_stream_draws_equal_families_of_equal_hash():
    one, other = draw_many(3), draw_many(3)
    assert one == other
    assert list(map(hash, one)) == list(map(hash, other))
    assert one != draw_many(3, seed=1)
    assert len({*one, *other}) == len(set(one))


def test_only_layers_that_there_are_count_for_equality():
    (family,) = draw_many(2, number=1)
    other = {name: Constant(0.125) for name in RELAY}
    assert family == FamilyDraw(2, family.first, other, family.last)
    assert hash(family) == hash(FamilyDraw(2, family.first, other, family.last))
    assert family != FamilyDraw(2, family.first, family.middle, other)
    assert FamilyDraw(1, family.first, other, other) == FamilyDraw(1, family.first, family.middle, family.last)
    assert FamilyDraw(3, family.first, other, family.last) != FamilyDraw(3, family.first, RELAY, family.last)
    assert family != family.arguments()


@pytest.mark.parametrize("n_features", [2, 16, 17, 50])
def test_first_layers_read_few_inputs_only_where_there_are_many_and_are_never_balanced(n_features):
    families = draw_many(2, n_features)
    fan_ins = {family.first["fan_in"] for family in families}
    assert fan_ins == ({None, 16} if n_features > 16 else {None})
    assert all(family.first["balance"] == Constant(0.0) for family in families)


def test_middle_layers_are_relays_or_like_the_last():
    families = draw_many(4)
    are_relays = [family.middle == RELAY for family in families]
    assert 0.25 < np.mean(are_relays) < 0.75
    for family, is_relay in zip(families, are_relays, strict=True):
        arguments = family.arguments()
        for name in RELAY:
            first, *middle, last = arguments[name]
            assert (first, last) == (family.first[name], family.last[name])
            assert middle == [RELAY[name] if is_relay else last] * 2


def changed(one, other):
    """Names, with their layer, of what differs between two families."""
    return {
        (depth, name)
        for name in RELAY
        for depth, (a, b) in enumerate(zip(one.arguments()[name], other.arguments()[name], strict=True), 1)
        if a != b
    }


@pytest.mark.parametrize("n_layers", DEPTHS)
def test_a_mutation_draws_one_or_two_choices_again(n_layers):
    generator = np.random.default_rng(0)
    names_changed = []
    for family in draw_many(n_layers, number=150):
        before = family.arguments()
        child = mutate_family(generator, family, 20)
        assert family.arguments() == before
        assert child.n_layers == n_layers
        ends = {(depth, name) for depth, name in changed(family, child) if depth in (1, n_layers)}
        names = {name for _, name in ends}
        assert len(names) <= 2
        assert {name for depth, name in ends if depth == 1} <= {*DYNAMICS, "fan_in"}
        assert child.first["balance"] == family.first["balance"]
        assert child.first["fan_in"] in (None, 16)
        # Middle layers stay, become relays, or become like the last.
        middles = [tuple(child.arguments()[name][1:-1]) for name in RELAY]
        if n_layers > 2 and any(a != b for a, b in zip(middles, _middles(family), strict=True)):
            assert child.middle in (RELAY, child.last)
        names_changed.append(names)
    # Some draw what there was; all parts change at some time.
    assert sum(map(bool, names_changed)) > 75
    everything = {*DYNAMICS, "fan_in"} | ({"balance"} if n_layers > 1 else set())
    assert set().union(*names_changed) == everything


def _middles(family):
    return [tuple(family.arguments()[name][1:-1]) for name in RELAY]


def test_a_mutation_is_of_the_first_layer_of_the_last_or_of_both_alike():
    # Layers that are alike at first: what is drawn again in one alone then shows in that one alone.
    generator, alike, places = np.random.default_rng(0), FamilyDraw(2, RELAY, RELAY, RELAY), []
    for _ in range(200):
        child = mutate_family(generator, alike, 20)
        differing = changed(alike, child)
        for name in DYNAMICS:
            places.append(tuple(sorted(depth for depth, other in differing if other == name)))
            if places[-1] == (1, 2):  # at once, or by two choices that fell on the same name
                assert child.first[name] == child.last[name] or len({other for _, other in differing}) == 1
    assert all(places.count(where) > 20 for where in ((1,), (2,), (1, 2)))


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_above_any_layer_relays_repeat_or_negate_its_neurons_at_any_depth(decay):
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 6, 3)))
    first = {**RELAY, "decay": Constant(decay), "threshold": Constant(1.0), "balance": Constant(0.0), "fan_in": None}
    layers = sample(FamilyDraw(9, first, RELAY, first), 3, width=64).layers
    below, above = (roll_out(layers[:depth], inputs, "all").flatten(0, 1) for depth in (1, 8))
    repeated, negated = ({tuple(column) for column in spikes.T.tolist()} for spikes in (below, ~below))
    columns = {tuple(column) for column in above.T.tolist()}
    assert columns <= repeated | negated
    assert columns & repeated
    assert columns & negated
    assert len(columns) > 1


# Families with delays.

LONG = np.random.default_rng(0).normal(size=(20, 30, 4))


def draw_delayed(n_layers=1, max_delay=29, number=200, seed=0):
    generator = np.random.default_rng(seed)
    drawn = [draw_family(generator, 4, n_layers, max_delay) for _ in range(number)]
    return [family for family in drawn if isinstance(family, DelayedDraw)]


def test_half_of_the_families_have_delays_where_sequences_allow_them():
    assert 70 < len(draw_delayed()) < 130
    assert draw_delayed(max_delay=0) == []


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_families_with_delays_and_their_mutations_can_be_sampled(n_layers):
    generator = np.random.default_rng(1)
    for family in draw_delayed(n_layers, number=40):
        child = mutate_family(generator, family, 4, 29)
        for one in (family, child):
            witnesses = sample_witnesses({**one.arguments(), "hidden": (6,) * n_layers}, LONG)
            assert witnesses.hidden == (6,) * n_layers
            assert all(layer.has_delays for layer in witnesses.layers)
        n_changed = sum(a != b for a, b in zip(family.choices, child.choices, strict=True))
        assert child.n_layers == n_layers
        assert n_changed <= 2


def test_every_choice_of_delays_is_drawn_and_mutated():
    families, generator = draw_delayed(), np.random.default_rng(2)
    arguments = [family.arguments() for family in families]
    for name, values in {
        "geometry": {"scattered", "box", "dilated"},
        "fan_in": {9, 25},
        "max_delay": {4, 16, None},  # 64 would be as long as the sequences
        "decay": {0.0, 0.5, 0.9},
        "weights": {"gaussian", "centred", "two-valued", "differences"},
        "quantiles": {(0.05, 0.95), (0.5, 0.98)},
    }.items():
        assert {own[name][0] if name == "geometry" else own[name] for own in arguments} == values
    children = [mutate_family(generator, families[0], 4, 29) for _ in range(200)]
    places = zip(*(child.choices for child in children), strict=True)
    assert all(len(set(own)) > 1 for own in places)


def test_equal_families_with_delays_have_equal_hashes():
    one, other = draw_delayed(), draw_delayed()
    assert one == other
    assert len({*one, *other}) == len(set(one)) > 60
