"""The training methods, end to end."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn.fitting.judges
import cvxsnn.fitting.methods
from cvxsnn import InvalidInputError, gaussian_witnesses, reconstruct
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet, tasks
from cvxsnn.fitting import (
    METHODS,
    Budget,
    Program,
    Settings,
    Split,
    SurrogateSettings,
    TaskScore,
    Trained,
    Tuning,
    convex_stage,
    readout_stage,
    ridge_stage,
    sample,
    train,
    train_task,
)
from cvxsnn.fitting.methods import trained_witnesses
from cvxsnn.network.evaluation import accuracy
from cvxsnn.witnesses import regenerate

TOL = 1e-6
"""Relative gap that the methods are asked to certify."""

QUICK = SurrogateSettings(epochs=2, batch_size=20)
STEP = Settings(
    Program(Objective({"sum": "softmax", "carry": "logistic"}, "all"), n_strengths=3, tol=TOL),
    {"hidden": (6, 8), "n_subnetworks": 2},
    surrogate=QUICK,
)


def with_convex(settings, **options):
    return replace(settings, program=replace(settings.program, **options))


SEQUENCE = with_convex(STEP, objective=Objective("logistic", "last"), intercept=True)
ADDITION = tasks.addition(2, 2, n_train=24, n_val=10, n_test=4, n_test_ood=4)
XOR = tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)


def small_digits():
    task = tasks.digits_seq(8)
    return replace(task, train=task.train.take(slice(50)), val=task.val.take(slice(30)), test=task.test.take(slice(20)))


CASES = {
    "addition": (ADDITION, STEP),
    "first_last_xor": (XOR, SEQUENCE),
    "digits_seq": (small_digits(), with_convex(STEP, objective=Objective("softmax", "mean"))),
}


def tensors_of(network):
    return network.state_dict()


def assert_same_network(one, other):
    one, other = tensors_of(one), tensors_of(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


class Spy:
    """Stands before a function and keeps what it was called with."""

    def __init__(self, monkeypatch, name, module=cvxsnn.fitting.methods):
        self.calls = []
        original = getattr(module, name)

        def call(*arguments, **options):
            self.calls.append((arguments, options))
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CASES)
def test_every_method_trains_every_task(name, method):
    task, settings = CASES[name]
    trained = train_task(method, task, settings)
    assert isinstance(trained, Trained)
    assert trained.method == method
    assert trained.settings == with_convex(settings, objective=trained.settings.objective)
    assert tuple(stage.name for stage in trained.history) == METHODS[method].stages
    assert trained.network is trained.history[-1].network
    later = task.val if len(trained.history) == 1 else (task.finetune_val or task.val)
    assert trained.history[-1].score == accuracy(trained.network, task, later)
    assert trained.history[0].score == accuracy(trained.history[0].network, task, task.val)
    assert trained.seconds == sum(stage.seconds for stage in trained.history) > 0
    for number, stage in enumerate(trained.history):
        assert stage.solution is None or stage.name == "convex"
        assert stage.solution is not None or stage.name != "convex" or number > 0
        assert (stage.run is None) == (stage.name not in ("gradient", "projection"))


@pytest.mark.parametrize("method", METHODS)
def test_a_certificate_is_given_only_where_the_last_stage_is_convex(method):
    trained = train_task(method, XOR, SEQUENCE)
    if METHODS[method].stages[-1] != "convex":
        assert trained.certificate is None
        assert trained.solution is None
        return
    assert trained.certificate.relative_gap <= TOL
    with torch.no_grad():
        data = XOR.train if len(METHODS[method].stages) == 1 else XOR.finetune
        scores = trained.solution.problem.dictionary.matvec(trained.solution.coef) + trained.solution.intercept
        torch.testing.assert_close(trained.network(data.inputs), scores, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_the_second_stage_sees_the_finetuning_split(monkeypatch, method):
    gradient, convex = Spy(monkeypatch, "gradient_stage"), Spy(monkeypatch, "convex_stage")
    ridge, readout = Spy(monkeypatch, "ridge_stage"), Spy(monkeypatch, "readout_stage")
    train_task(method, XOR, SEQUENCE)
    seen = {"gradient": [], "convex": [], "ridge": []}
    seen["gradient"] = [arguments[0].split.data for arguments, _ in gradient.calls]
    seen["projection"] = seen["gradient"]
    of_readout = [arguments[1].data for arguments, _ in readout.calls]
    seen["convex"] = of_readout or [arguments[1].data for arguments, _ in convex.calls]
    assert all(arguments[1].data is data for data in of_readout for arguments, _ in convex.calls)
    seen["ridge"] = [arguments[1].data for arguments, _ in ridge.calls]
    for number, stage in enumerate(METHODS[method].stages):
        data = seen[stage].pop(0)
        expected = XOR.train if number == 0 else XOR.finetune
        assert np.array_equal(data.inputs.numpy(), expected.inputs)
        assert np.array_equal(data.targets["label"], expected.targets)
    assert not any(seen.values())


def test_without_a_second_split_the_first_is_used_again():
    split = Split(TrainingSet.of(XOR.train), lambda network: accuracy(network, XOR, XOR.val))
    assert_same_network(train("sg-cvx", split, SEQUENCE).network, train("sg-cvx", split, SEQUENCE, split).network)


def test_finetuning_is_at_a_fifth_of_the_rate_unless_told_otherwise(monkeypatch):
    spy = Spy(monkeypatch, "gradient_stage")
    train_task("sg-sg", XOR, SEQUENCE)
    own = SurrogateSettings(epochs=1, seed=9)
    train_task("sg-sg", XOR, replace(SEQUENCE, finetuning=own))
    used = [own for arguments, _ in spy.calls for own in arguments[0].candidates]
    assert used == [QUICK, replace(QUICK, learning_rate=0.2 * QUICK.learning_rate), QUICK, own]


def test_of_several_candidates_the_one_that_validates_best_is_kept():
    rates = (1e-6, 3e-2, 1e-5)
    candidates = [replace(QUICK, epochs=6, learning_rate=rate) for rate in rates]
    together = train_task("sg", XOR, replace(SEQUENCE, surrogate=candidates))
    alone = [train_task("sg", XOR, replace(SEQUENCE, surrogate=own)) for own in candidates]
    scores = [trained.history[-1].score for trained in alone]
    best = scores.index(max(scores))
    assert together.history[-1].run.settings == candidates[best]
    assert_same_network(together.network, alone[best].network)


@pytest.mark.parametrize("method", ["sg", "sg-cvx", "sg-sg"])
def test_several_networks_of_the_best_settings_become_one(method):
    candidates = tuple(SurrogateSettings(epochs=2, batch_size=20, learning_rate=rate) for rate in (1e-4, 0.1))
    alone = train_task("sg", XOR, replace(SEQUENCE, surrogate=candidates))
    several = train_task(method, XOR, replace(SEQUENCE, surrogate=candidates, n_networks=3))
    first = several.history[0]
    assert first.network.n_subnetworks == 3 * alone.network.n_subnetworks
    assert first.run.settings == alone.history[0].run.settings
    shares = first.network.layers[0].weight.chunk(3)
    assert torch.equal(shares[0], alone.network.layers[0].weight)
    assert not torch.equal(shares[0], shares[1])
    assert not torch.equal(shares[1], shares[2])
    assert first.score == accuracy(first.network, XOR, XOR.val)
    if method == "sg-cvx":
        assert several.solution.problem.dictionary.n_columns == 3 * 2 * 8


def test_every_class_of_a_task_has_an_output_even_where_it_does_not_occur():
    task = tasks.addition(base=5, n_digits=1, n_train=4, n_val=4, n_test=4, ood_digits=(2,), n_test_ood=2)
    objective = Objective({"sum": "softmax", "carry": "logistic"}, "all").for_classes(task.n_classes)
    heads, _ = objective.heads(TrainingSet(task.train.inputs[:2], {n: y[:2] for n, y in task.train.heads.items()}))
    assert [head.targets.shape[1] for head in heads] == [5, 1]


@pytest.mark.parametrize("name", CASES)
def test_gradients_after_a_convex_stage_start_from_its_solution(name):
    task, settings = CASES[name]
    trained = train_task("cvx-sg", task, settings)
    first, second = trained.history
    full = reconstruct(first.solution, "full")
    assert_same_network(first.network, full)
    assert first.network.hidden == (6, 8)
    assert second.run.history[0].score == accuracy(full, task, task.finetune_val or task.val)
    assert trained.certificate is None


def test_a_convex_stage_after_gradients_reads_the_trained_neurons():
    trained = train_task("sg-cvx", XOR, SEQUENCE)
    network = trained.history[0].network
    witnesses = trained.solution.problem.dictionary.witnesses
    assert witnesses.provenance.kind == "pretrained"
    for layer, expected in zip(witnesses.layers, network.layers, strict=True):
        assert all(torch.equal(value, expected.tensors()[name]) for name, value in layer.tensors().items())


def test_the_strength_is_the_one_that_validates_best():
    strengths = [0.3, 0.001, 0.05]
    trained = train_task("cvx", XOR, with_convex(SEQUENCE, l1_strength=strengths))
    scores = {s: train_task("cvx", XOR, with_convex(SEQUENCE, l1_strength=s)).history[0].score for s in strengths}
    # of equals the sparser one
    best = max(strength for strength, score in scores.items() if score == max(scores.values()))
    assert len(set(scores.values())) > 1
    assert trained.solution.problem.l1_strength == best
    assert trained.history[0].score == scores[best]


@pytest.mark.parametrize("strength", [0.05, 1, np.float64(0.05)])
def test_a_single_strength_is_used_as_it_is(strength):
    assert train_task("cvx", XOR, with_convex(SEQUENCE, l1_strength=strength)).solution.problem.l1_strength == strength


def test_settings_reach_the_convex_program(monkeypatch):
    settings = with_convex(STEP, penalty="group", l1_strength=0.05, tol=1e-4, intercept=True)
    problem = train_task("cvx", ADDITION, settings).solution.problem
    assert (problem.penalty.name, problem.l1_strength, problem.intercept) == ("group", 0.05, True)
    assert problem.dictionary.readout == "all"
    spy = Spy(monkeypatch, "solve_path", cvxsnn.fitting.judges)
    train_task("cvx", XOR, with_convex(SEQUENCE, n_strengths=4, smallest_ratio=0.1, tol=1e-4))
    (((problem, strengths), options),) = spy.calls
    assert options == {"l2_strengths": None, "tol": 1e-4}
    expected = problem.critical_strength * np.geomspace(1, 0.1, 4)
    assert strengths == pytest.approx(expected.tolist(), rel=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_gives_one_network(method):
    one, other = (train_task(method, XOR, SEQUENCE) for _ in range(2))
    assert_same_network(one.network, other.network)
    different = train_task(method, XOR, replace(SEQUENCE, seed=1)).network
    assert different.state_dict().keys() == one.network.state_dict().keys()
    weights = different.layers[0].weight, one.network.layers[0].weight
    assert weights[0].shape != weights[1].shape or not torch.equal(*weights)


@pytest.mark.parametrize(
    ("method", "n_networks"),
    [("sg", 1), ("sg", 3), ("sg-sg", 1), ("sg-sg", 2), ("cvx-sg", 1), ("varpro", 1), ("varpro", 2)],
)
def test_an_interrupted_method_goes_on_from_its_checkpoints(tmp_path, method, n_networks):
    settings = replace(SEQUENCE, n_networks=n_networks)

    last = [name for name in METHODS[method].stages if name != "convex"][-1]
    label = f"{len(METHODS[method].stages) if last == 'gradient' else 1}. {last}"

    def interrupt(stage, done, total):
        if (stage, done) == (label, 1):
            raise KeyboardInterrupt

    whole = train_task(method, XOR, settings)
    with pytest.raises(KeyboardInterrupt):
        train_task(method, XOR, settings, callback=interrupt, checkpoints=tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir())
    resumed = train_task(method, XOR, settings, checkpoints=tmp_path / "new" / "folder")
    assert_same_network(resumed.network, whole.network)


def test_the_callback_is_called_stage_by_stage():
    told = []
    train_task("cvx-sg", XOR, SEQUENCE, callback=lambda *event: told.append(event))
    convex, gradient = "1. convex", "2. gradient"
    assert told == [(convex, 0, 1), (convex, 1, 1), (gradient, 0, 1), (gradient, 1, 2), (gradient, 2, 2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_task("adam", XOR, SEQUENCE), "method to be one of 'cvx', 'sg', .*, got 'adam'"),
        (
            lambda: train_task("cvx", XOR, replace(SEQUENCE, family={"hidden": (4,), "width": 3})),
            r"unknown settings \['width'\]; a gaussian family has \[.*'hidden'.*\]",
        ),
        (
            lambda: train_task("sg", XOR, replace(SEQUENCE, family={"hidden": (4,), "seed": 3})),
            r"unknown settings \['seed'\]; a gaussian family has \[.*\]",
        ),
        (lambda: with_convex(SEQUENCE, l1_strength="large"), "l1_strength to be one of 'auto', got 'large'"),
        (lambda: with_convex(SEQUENCE, n_strengths=0), "n_strengths to be a positive integer, got 0"),
        (lambda: train_task("cvx", XOR, with_convex(SEQUENCE, l1_strength=-1.0)), "l1_strength to be a finite number"),
        (lambda: train_task("cvx", XOR, with_convex(SEQUENCE, l1_strength=[])), "at least one strength, got none"),
        (
            lambda: train_task("r", XOR, replace(SEQUENCE, family={"hidden": (4,), "neuron": "threshold"})),
            "LIF neurons for a reservoir",
        ),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"penalty": "l3"}, {"l1_strength": -1.0}, {"l1_strength": []}, {"l1_strength": [0.1, 0.0]}]
)
def test_settings_of_stages_that_a_method_lacks_are_checked_too(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        with_convex(SEQUENCE, **options)


def test_a_family_without_widths_is_refused():
    with pytest.raises(InvalidInputError, match="hidden layers"):
        train_task("sg", XOR, replace(SEQUENCE, family={"decay": 0.5}))


POOLED = with_convex(replace(SEQUENCE, family={"hidden": (4, 8), "fan_in": 2, "decay": 1.0}), pool=64)


def test_a_convex_stage_over_a_pool_is_certified_as_such():
    trained = train_task("cvx", XOR, POOLED)
    assert (trained.certificate.scope, trained.certificate.n_witnesses) == ("pool", 64)
    assert trained.certificate.relative_gap <= TOL
    scores = trained.solution.scores()
    torch.testing.assert_close(trained.network(XOR.train.inputs).detach(), scores, rtol=ROUNDING, atol=ROUNDING)


def test_a_pool_has_the_strengths_of_an_elastic_net():
    settings = with_convex(POOLED, penalty="elastic-net", l1_strength=0.02, l2_strength=0.1)
    trained = train_task("cvx", XOR, settings)
    assert (trained.certificate.scope, trained.certificate.n_witnesses) == ("pool", 64)
    assert (trained.solution.problem.l1_strength, trained.solution.problem.l2_strength) == (0.02, 0.1)
    assert trained.certificate.relative_gap <= settings.program.tol
    chosen = train_task("cvx", XOR, with_convex(POOLED, penalty="elastic-net", n_strengths=2))
    assert chosen.solution.problem.l1_strength > 0
    assert chosen.solution.problem.l2_strength > 0


def test_a_strength_that_is_given_is_the_pools_too():
    trained = train_task("cvx", XOR, with_convex(POOLED, l1_strength=0.037))
    assert trained.solution.problem.l1_strength == 0.037


DELAYED = {"hidden": (8,), "geometry": "scattered", "fan_in": 3, "n_calibration": 5}


@pytest.mark.parametrize("method", ["cvx", "sg", "sg-cvx", "cvx-sg"])
def test_families_with_delays_are_trained_and_take_thresholds_from_training_inputs(method):
    settings = with_convex(replace(SEQUENCE, family=DELAYED), n_strengths=2)
    trained = train_task(method, XOR, settings)
    assert trained.network.layers[0].has_delays
    if method == "cvx":
        witnesses = trained.solution.problem.dictionary.witnesses
        assert regenerate(witnesses.provenance, inputs=XOR.train.inputs).hidden == (8,)
        scores = trained.solution.scores()
        torch.testing.assert_close(trained.network(XOR.train.inputs).detach(), scores, rtol=ROUNDING, atol=ROUNDING)


def test_a_pool_of_a_family_with_delays_takes_thresholds_from_training_inputs():
    settings = with_convex(replace(SEQUENCE, family=DELAYED), n_strengths=2, pool=64)
    trained = train_task("cvx", XOR, settings)
    assert (trained.certificate.scope, trained.certificate.n_witnesses) == ("pool", 64)
    assert trained.certificate.relative_gap <= TOL
    assert trained.network.layers[0].has_delays


def test_several_networks_with_delays_are_averaged():
    settings = replace(SEQUENCE, family=DELAYED, n_networks=2)
    assert train_task("sg", XOR, settings).network.n_subnetworks == 2


def test_a_reservoir_has_no_delays():
    with pytest.raises(InvalidInputError, match="neurons without delays for a reservoir"):
        train_task("r", XOR, replace(SEQUENCE, family=DELAYED))


@pytest.mark.parametrize("method", ["sg", "sg-cvx", "cvx-sg", "r"])
def test_a_pool_is_refused_where_neurons_are_trained(method):
    with pytest.raises(InvalidInputError, match="'cvx' for a pool"):
        train_task(method, XOR, POOLED)


def test_a_family_is_searched_for_before_the_first_stage():
    trained = train_task("cvx", XOR, replace(SEQUENCE, family=Tuning(n_witnesses=32, n_trials=4)))
    tuning, convex = trained.history
    assert (tuning.name, convex.name) == ("tuning", "convex")
    assert trained.settings.family == tuning.tuned.family
    assert trained.settings.objective.readout == tuning.tuned.readout
    assert tuning.score == tuning.tuned.score
    assert tuning.network is None


def test_a_search_in_two_workers_finds_what_one_finds():
    settings = replace(SEQUENCE, family=Tuning(n_witnesses=32, n_trials=4))
    one, two = (train_task("cvx", XOR, settings, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert_same_network(one.network, two.network)


@pytest.mark.parametrize("method", METHODS)
def test_witnesses_that_are_given_are_those_of_their_recipe(method):
    witnesses = gaussian_witnesses(2, (6, 8), 2, seed=SEQUENCE.seed)
    given = train_task(method, XOR, replace(SEQUENCE, family=witnesses))
    assert_same_network(given.network, train_task(method, XOR, SEQUENCE).network)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SEQUENCE, "witnesses that read 2 features, got witnesses that read 3: build them with n_features=2"),
        (replace(SEQUENCE, n_networks=2), "expected a family to sample several networks from"),
        (with_convex(SEQUENCE, pool=8), "expected a family to draw a pool from"),
    ],
)
def test_witnesses_that_cannot_serve_are_refused_in_one_sentence(settings, message):
    n_features = 3 if settings is SEQUENCE else 2
    method = "cvx" if settings.n_networks == 1 else "sg"
    with pytest.raises(InvalidInputError, match=message) as caught:
        train_task(method, XOR, replace(settings, family=gaussian_witnesses(n_features, (4,))))
    assert "\n" not in str(caught.value)


def test_a_family_that_is_none_is_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match=r"a family as a mapping .* or a Tuning that searches for one, got int"):
        Settings(Objective("logistic"), 3)


def test_an_objective_stands_for_the_program_with_its_default_penalty():
    assert Settings(Objective("hinge"), {"hidden": (4,)}).program == Program(Objective("hinge"))


SPLIT = Split(TrainingSet.of(XOR.train), TaskScore(XOR, XOR.val))
LOGISTIC = Objective("logistic")
FAMILY = {"hidden": (6, 8), "n_subnetworks": 2}
WITNESSES = sample(FAMILY, SPLIT.data, 0)
NET = {"penalty": "elastic-net"}


@pytest.mark.parametrize(
    "program",
    [
        Program(LOGISTIC, l1_strength=0.01),
        Program(LOGISTIC, l1_strength=[0.3, 0.01]),
        Program(LOGISTIC, n_strengths=3),
        Program(LOGISTIC, l1_strength=0.01, l2_strength=0.1, **NET),
        Program(LOGISTIC, l1_strength=[0.1, 0.01], l2_strength=[0.1, 0.0], **NET),
        Program(LOGISTIC, n_strengths=2, **NET),
    ],
)
def test_a_convex_stage_alone_is_the_method_of_that_stage(program):
    solution = convex_stage(WITNESSES, SPLIT, program)
    trained = train_task("cvx", XOR, Settings(program, FAMILY))
    assert torch.equal(solution.coef, trained.solution.coef)
    assert solution.certificate == trained.certificate


def test_a_convex_stage_of_pairs_takes_the_strength_whose_pair_is_largest():
    strengths = [0.3, 0.05, 0.01]
    pairs = {}

    def score(network):
        """Return the same accuracy for all, and the number of neurons read."""
        return (1.0, len(network.neurons))

    for strength in strengths:
        pairs[strength] = score(reconstruct(convex_stage(WITNESSES, SPLIT, Program(LOGISTIC, l1_strength=strength))))
    best = convex_stage(WITNESSES, Split(SPLIT.data, score), Program(LOGISTIC, l1_strength=strengths))
    assert best.problem.l1_strength == max(pairs, key=lambda strength: (pairs[strength], strength))
    assert len(set(pairs.values())) > 1


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
def test_an_elastic_net_takes_the_pair_of_strengths_that_validates_best(penalty):
    norm, quadratic = [0.05, 0.01, 0.0], [0.3, 0.003]
    scores = {}

    def score(network):
        return -abs(float(network.weight.detach().abs().sum()) - 1.0)  # neither end of a path is the best

    for pair in product(norm, quadratic):
        program = Program(LOGISTIC, penalty, *pair)
        fixed = convex_stage(WITNESSES, Split(SPLIT.data, score), program)
        assert (fixed.problem.l1_strength, fixed.problem.l2_strength) == pair
        assert (fixed.problem.penalty.name, fixed.has_converged) == (penalty, True)
        scores[pair] = score(reconstruct(fixed))
    best = convex_stage(WITNESSES, Split(SPLIT.data, score), Program(LOGISTIC, penalty, norm, quadratic))
    expected = max(scores, key=scores.get)
    assert (best.problem.l1_strength, best.problem.l2_strength) == expected
    assert expected not in ((0.05, 0.3), (0.0, 0.003))


def test_strengths_that_are_named_twice_are_tried_once():
    twice = Program(LOGISTIC, l1_strength=[0.01, 0.1, 0.01])
    once = Program(LOGISTIC, l1_strength=[0.1, 0.01])
    assert torch.equal(convex_stage(WITNESSES, SPLIT, twice).coef, convex_stage(WITNESSES, SPLIT, once).coef)


def test_a_pool_is_never_tried_with_ridge():
    """Prices tell nothing at a strength of zero, where every witness is read."""
    split = Split(SPLIT.data, lambda network: float(network.weight.detach().abs().sum()))  # the weaker the better
    program = Program(LOGISTIC, l2_strength=0.1, n_strengths=2, pool=32, **NET)
    best = convex_stage(WITNESSES, split, program, family=FAMILY)
    assert best.certificate.scope == "pool"
    assert best.problem.l1_strength > 0


def test_without_its_quadratic_an_elastic_net_is_its_norm():
    plain = convex_stage(WITNESSES, SPLIT, Program(LOGISTIC, n_strengths=4))
    for l2_strength in (0.0, [0.0]):
        net = convex_stage(WITNESSES, SPLIT, Program(LOGISTIC, n_strengths=4, l2_strength=l2_strength, **NET))
        assert net.problem.l1_strength == pytest.approx(plain.problem.l1_strength, rel=ROUNDING)
        gap = net.certificate.gap + plain.certificate.gap + ROUNDING
        assert net.certificate.primal == pytest.approx(plain.certificate.primal, abs=gap)


def test_a_convex_stage_reads_as_few_neurons_as_its_budget_says():
    flat = replace(SEQUENCE, family={"hidden": (24,)})
    trained = train("cvx", SPLIT, flat, budget=Budget(sparsity=5))
    assert trained.solution.problem.dictionary.witnesses.n_witnesses == 5
    assert trained.certificate.relative_gap <= TOL
    alone = convex_stage(sample(flat.family, SPLIT.data, 0), SPLIT, flat.program, Budget(sparsity=5))
    assert torch.equal(alone.coef, trained.solution.coef)
    with pytest.raises(InvalidInputError, match="one subnetwork of one layer"):
        train("cvx", SPLIT, SEQUENCE, budget=Budget(sparsity=5))


def test_a_method_ends_its_gradient_stage_when_time_is_over():
    trained = train("sg-cvx", SPLIT, SEQUENCE, budget=Budget(max_seconds=0))
    assert len(trained.history[0].run.history) < QUICK.epochs + 1
    assert trained.certificate.relative_gap <= TOL


def test_a_ridge_stage_takes_the_strength_that_validates_best():
    seen = []

    def score(network):
        seen.append(float(network.weight.detach().norm()))
        return -abs(seen[-1] - 1.0)  # neither end is the best

    network = ridge_stage(WITNESSES, Split(SPLIT.data, score), Program(LOGISTIC))
    assert seen == sorted(seen)  # strengths fall
    best = min(range(len(seen)), key=lambda number: abs(seen[number] - 1.0))
    assert 0 < best < len(seen) - 1
    assert float(network.weight.detach().norm()) == seen[best]


def test_a_ridge_stage_keeps_the_heads_of_the_objective():
    objective = STEP.objective.for_classes(ADDITION.n_classes)
    split = Split(TrainingSet.of(ADDITION.train), TaskScore(ADDITION, ADDITION.val))
    network = ridge_stage(WITNESSES_OF_ADDITION, split, Program(objective))
    assert [(head.name, head.loss, head.stop - head.start) for head in network.heads] == [
        ("sum", "softmax", 2),
        ("carry", "logistic", 1),
    ]
    assert network.predict(ADDITION.val.inputs).keys() == {"sum", "carry"}
    features = network.features(split.data.sequences)
    torch.testing.assert_close(
        network(split.data.sequences), features @ network.weight + network.intercept, rtol=ROUNDING, atol=ROUNDING
    )


WITNESSES_OF_ADDITION = sample(FAMILY, TrainingSet.of(ADDITION.train), 0)


def regression(seed):
    """Real targets, with minus the squared error of other samples as the score."""
    rng = np.random.default_rng(seed)
    inputs, held_out = rng.normal(size=(30, 6, 2)), rng.normal(size=(40, 6, 2))
    target = torch.from_numpy(held_out.sum((1, 2)))

    def score(network):
        return -float((network(held_out)[:, 0].detach() - target).square().mean())

    return Split(TrainingSet(inputs, {"label": inputs.sum((1, 2))}), score)


def split_of(name, seed):
    if name == "regression":
        return regression(seed), Objective("squared", "mean")
    task, settings = CASES[name]
    return Split(TrainingSet.of(task.train), TaskScore(task, task.val)), settings.objective.for_classes(task.n_classes)


@pytest.mark.parametrize("method", ["sg-cvx", "varpro"])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", [*CASES, "regression"])
def test_a_read_out_that_is_solved_for_never_validates_worse_than_the_trained_one(name, seed, method):
    split, objective = split_of(name, seed)
    surrogate = SurrogateSettings(epochs=30, batch_size=8)
    program = Program(objective, intercept=seed > 0)
    trained = train(method, split, Settings(program, {"hidden": (12,)}, surrogate=surrogate, seed=seed))
    first, last = trained.history
    assert last.score == split.score(trained.network) >= first.score == split.score(first.network)
    assert (trained.solution is None) == (trained.network is first.network)
    assert trained.solution is None or trained.certificate.relative_gap <= program.tol


TRAINED = train("sg", SPLIT, Settings(LOGISTIC, {"hidden": (12,)}, surrogate=QUICK)).network


@torch.no_grad()
def outputs(network):
    """Return outputs without the intercept."""
    return network(XOR.train.inputs) - network.intercept


def distance(network):
    """Return how far outputs are from those of the trained weights, relative to these."""
    trained = outputs(TRAINED)
    return float((outputs(network) - trained).norm() / trained.norm())


WISHES = {
    "the trained read-out": (lambda network: -distance(network), "trained"),
    "no lower accuracy": (lambda network: (-distance(network), distance(network)), "trained"),
    "equal scores": (lambda network: 1.0, "around"),
    "close to the trained read-out": (lambda network: -abs(distance(network) - 0.1), "around"),
    "small outputs": (lambda network: -float(outputs(network).norm()), "zero"),
}


@pytest.mark.parametrize("wish", WISHES)
def test_the_read_out_with_the_best_score_is_taken_and_of_equals_an_optimum(wish):
    score, expected = WISHES[wish]
    network, solution = readout_stage(TRAINED, Split(SPLIT.data, score), Program(LOGISTIC))
    if solution is None:
        assert (network, expected) == (TRAINED, "trained")
        return
    assert expected == ("zero" if solution.problem.centre is None else "around")
    assert solution.certificate.relative_gap <= TOL
    assert solution.problem.l1_strength == 0 < solution.problem.l2_strength
    torch.testing.assert_close(network(XOR.train.inputs).detach(), solution.scores(), rtol=ROUNDING, atol=ROUNDING)


def test_of_optima_with_no_lower_accuracy_the_loss_decides():
    def score(network):
        """Return an accuracy that rises with the distance, and minus a loss that is least close to the network."""
        return distance(network), -abs(distance(network) - 0.1)

    network, _ = readout_stage(TRAINED, Split(SPLIT.data, score), Program(LOGISTIC))
    assert 0 < distance(network) < 0.3


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({"penalty": "l1"}, None),
        ({"penalty": "group", "l1_strength": [0.1, 0.01]}, None),
        ({"l1_strength": 0.01}, None),
        ({**NET, "l2_strength": [0.1, 0.2]}, None),
        ({**NET, "l1_strength": 0.0, "l2_strength": 0.3}, None),
        ({}, Budget(sparsity=3)),
    ],
)
def test_what_is_given_is_solved_for_even_if_the_trained_read_out_validates_better(options, budget):
    split, program = Split(SPLIT.data, lambda network: -distance(network)), Program(LOGISTIC, **options)
    network, solution = readout_stage(TRAINED, split, program, budget)
    problem = solution.problem
    assert (problem.centre, problem.heads[0].loss.name) == (None, "logistic")
    if "penalty" in options:
        assert problem.penalty.name == options["penalty"]
    for name, strength in (("l1_strength", problem.l1_strength), ("l2_strength", problem.l2_strength)):
        assert strength in np.atleast_1d(options.get(name, strength))
    assert network.n_active <= (12 if budget is None else budget.sparsity)


def test_without_time_one_program_is_solved_over_trained_neurons(monkeypatch):
    spy = Spy(monkeypatch, "convex_stage")
    readout_stage(TRAINED, SPLIT, Program(LOGISTIC), Budget(max_seconds=0))
    assert len(spy.calls) == 1


def test_neurons_of_several_averaged_networks_keep_their_weights_at_a_strong_quadratic():
    settings = replace(SEQUENCE, family={"hidden": (6,)}, n_networks=2)
    network = train("sg", SPLIT, settings).network
    around, _ = settings.program.around(network)
    solution = convex_stage(trained_witnesses(network), SPLIT, replace(around, l2_strength=1e8))
    torch.testing.assert_close(solution.scores() - solution.intercept, outputs(network), rtol=0, atol=1e-5)
