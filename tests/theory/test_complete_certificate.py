import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from cli.commands import run
from small_models import assert_one_sentence, classes_of, make_lists, make_sequences, regressor
from theory.families import draw_sequences
from tolerances import CERTIFIED_AGAIN, PRICED, UNMISTAKABLE

from cvxsnn import (
    ConvexProblem,
    LIFLayer,
    ThresholdLayer,
    WitnessSet,
    build_dictionary,
    certify,
    gaussian_witnesses,
    roll_out,
    save,
    solve,
)
from cvxsnn.convex import Objective, certify_with_bound
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import TrainingSet
from cvxsnn.dictionary.dense import DenseDictionary
from cvxsnn.network import Proof
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, Taps, register_neuron
from cvxsnn.theory import FamilyUnion, LIFFamily, certify_complete, complete_dictionary
from cvxsnn.theory.complete_certificate import family_of
from cvxsnn.witnesses import Provenance, Uniform, single_out

SEQUENCES = make_sequences(6, 3, 1)
TARGETS = np.random.default_rng(0).normal(size=6)
PLAIN = {"decay": 0.5, "bias": 0.0, "hidden": (4,), "l1_strength": 0.01}


def fitted(sequences=SEQUENCES, targets=TARGETS, **parameters):
    """A small model with its proof and the data as it sees them."""
    given = {name: value for name, value in (PLAIN | parameters).items() if value is not None}
    model = regressor(**given).fit(sequences, targets)
    return model, model.proof_, model.training_set(sequences, targets)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_complete_certificate_is_that_of_the_enumerated_dictionary(readout, intercept, n_outputs):
    targets = np.random.default_rng(1).normal(size=(6, n_outputs)).squeeze()
    _, proof, data = fitted(targets=targets, readout=readout, intercept=intercept)
    found = certify_complete(proof, data)
    complete = complete_dictionary(data.inputs, found.family, readout=readout)
    largest = complete.rmatvec(proof.dual_point).abs().amax(0)
    assert float(largest.max()) > proof.l1_strength * (1 + UNMISTAKABLE)
    for price, expected in zip(found.prices, largest.tolist(), strict=True):
        assert price.value <= expected + PRICED
        assert max(expected, proof.l1_strength) == pytest.approx(max(price.bound, proof.l1_strength), abs=PRICED)
    options = {"l1_strength": proof.l1_strength, "penalty": proof.penalty, "intercept": intercept}
    problem = ConvexProblem.of(proof.objective, complete, data, **options)
    dual = certify_with_bound(problem, proof.dual_point, [max(x, proof.l1_strength) for x in largest.tolist()])
    assert found.certificate.dual == pytest.approx(dual, rel=CERTIFIED_AGAIN)
    assert found.certificate.scope == "complete"
    optimum = solve(problem, 1e-9).certificate
    assert found.certificate.dual <= optimum.primal * (1 + CERTIFIED_AGAIN)
    assert found.certificate.primal >= optimum.dual * (1 - CERTIFIED_AGAIN)
    assert found.certificate.primal == pytest.approx(proof.certificate.primal, rel=CERTIFIED_AGAIN)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_with_a_quadratic_the_dictionary_s_own_atoms_are_not_priced(readout, intercept, n_outputs):
    rng = np.random.default_rng(1)
    shape = (6, 3) if readout == "all" else (6,)
    data = TrainingSet(SEQUENCES, {"y": rng.normal(size=(*shape, n_outputs)).squeeze(-1 if n_outputs == 1 else ())})
    objective = Objective("squared", readout)
    options = {"l1_strength": 0.02, "l2_strength": 0.1, "penalty": "elastic-net", "intercept": intercept}
    complete = complete_dictionary(data.inputs, LIFFamily(0.5), readout=readout)
    best = solve(ConvexProblem.of(objective, complete, data, **options), 1e-9)
    gaps = []
    for kept in (complete.column_of_atom[:3], complete.column_of_atom[best.support], complete.column_of_atom):
        few = build_dictionary(single_out(complete.witnesses, kept), data.inputs, readout)
        solution = solve(ConvexProblem.of(objective, few, data, **options), 1e-9)
        assert float(few.rmatvec(solution.dual_point).abs().max()) > 0.02 + PRICED
        found = certify_complete(Proof.of(solution, objective), data).certificate
        assert found.scope == "complete"
        assert found.primal == pytest.approx(solution.certificate.primal, rel=CERTIFIED_AGAIN)
        assert found.dual <= best.certificate.primal * (1 + CERTIFIED_AGAIN)
        gaps.append(found.relative_gap)
    # Over three atoms there is much to gain; over those that are read at the optimum nothing, although the prices of
    # most are above the strength.
    assert gaps[0] > UNMISTAKABLE
    assert max(gaps[1:]) <= 1e-8


def test_a_group_over_all_neurons_is_bounded_with_a_quadratic_too():
    data = TrainingSet(SEQUENCES, {"y": np.random.default_rng(1).normal(size=(6, 2))})
    objective = Objective("squared")
    options = {"l1_strength": 0.02, "l2_strength": 0.1, "penalty": "group-elastic-net"}
    complete = complete_dictionary(data.inputs, LIFFamily(0.5))
    best = solve(ConvexProblem.of(objective, complete, data, **options), 1e-8).certificate
    few = build_dictionary(single_out(complete.witnesses, complete.column_of_atom[::2]), data.inputs)
    found = certify_complete(Proof.of(solve(ConvexProblem.of(objective, few, data, **options), 1e-8), objective), data)
    assert found.certificate.dual <= best.primal * (1 + CERTIFIED_AGAIN)
    assert found.certificate.primal >= best.dual * (1 - CERTIFIED_AGAIN)


def test_all_neurons_without_a_norm_are_refused_in_one_sentence():
    data = TrainingSet(SEQUENCES, {"y": TARGETS})
    dictionary = build_dictionary(gaussian_witnesses(1, (4,), decay=0.5), SEQUENCES)
    problem = ConvexProblem.of(
        Objective("squared"), dictionary, data, l1_strength=0.0, l2_strength=0.1, penalty="elastic-net"
    )
    proof = Proof.of(solve(problem, 1e-6, "reference"), Objective("squared"))
    with pytest.raises(InvalidInputError, match="l1_strength above zero for an optimum over all neurons") as caught:
        certify_complete(proof, data)
    assert_one_sentence(caught.value)


def test_an_estimator_s_complete_certificate_is_its_proof_s():
    model, proof, data = fitted()
    found, expected = model.certify_complete(SEQUENCES, TARGETS), certify_complete(proof, data)
    assert found.certificate == expected.certificate
    assert found.family == LIFFamily(0.5)
    assert found.is_finished


@pytest.mark.parametrize("n_subnetworks", [1, 2])
def test_a_last_layer_is_certified_over_all_neurons_on_the_spikes_below(n_subnetworks):
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(9, 3, 2)), rng.normal(size=9)
    data, objective = TrainingSet(inputs, {"y": targets}), Objective("squared", "mean")
    witnesses = gaussian_witnesses(2, (2, 3), n_subnetworks, decay=0.5, seed=4)
    dictionary = build_dictionary(witnesses, inputs, "mean")
    options = {"l1_strength": 0.01}
    solution = solve(ConvexProblem.of(objective, dictionary, data, **options), 1e-9)
    found = certify_complete(Proof.of(solution, objective), data)
    assert "on top of the model's own layers of 2 neurons" in str(found)
    spikes = roll_out(witnesses.layers[:1], inputs, "all").double()
    columns = [
        complete_dictionary(spikes[:, :, 2 * k : 2 * k + 2], found.family, readout="mean").columns()
        for k in range(n_subnetworks)
    ]
    everything = torch.cat([dictionary.columns(), *columns], dim=1).double()
    best = solve(ConvexProblem(DenseDictionary(everything), targets, "squared", 0.01), 1e-9).certificate
    assert found.is_finished
    assert found.certificate.dual <= best.primal * (1 + CERTIFIED_AGAIN)
    largest = float((everything.T @ solution.dual_point).abs().max())
    assert largest > 0.01 * (1 + UNMISTAKABLE)  # other neurons do help
    assert max(price.bound for price in found.prices) == pytest.approx(largest, abs=PRICED)


def test_an_interrupted_search_proves_less_and_nothing_wrong():
    _, proof, data = fitted()
    finished = certify_complete(proof, data)
    for limit in ({"max_boxes": 0}, {"max_boxes": 2}, {"max_seconds": 0.0}):
        found = certify_complete(proof, data, **limit)
        assert found.certificate.dual <= finished.certificate.dual + PRICED
    assert not certify_complete(proof, data, max_boxes=0).is_finished


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"neuron": "threshold", "decay": None, "bias": None}, "threshold neurons without recurrence"),
        ({"decay": Uniform(0.4, 0.6)}, "a multiple of 1/256"),
        ({"decay": Uniform(0.4, 0.6), "hidden": (20,)}, "at most 16 decays"),
        ({"decay": 0.3}, "a multiple of 1/256"),
    ],
)
def test_models_whose_neurons_cannot_be_priced_are_refused_in_one_sentence(parameters, complaint):
    model, *_ = fitted(**parameters)
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        model.certify_complete(SEQUENCES, TARGETS)
    assert_one_sentence(caught.value)


def test_unequal_lengths_and_other_rows_are_refused_in_one_sentence():
    sequences = make_lists()
    targets = np.random.default_rng(0).normal(size=48)
    model, *_ = fitted(sequences, targets)
    with pytest.raises(InvalidInputError, match="sequences of equal length") as caught:
        model.certify_complete(sequences, targets)
    assert_one_sentence(caught.value)
    _, proof, data = fitted()
    with pytest.raises(InvalidInputError, match="the 6 rows that the model was trained on, got 4") as caught:
        certify_complete(proof, TrainingSet(data.inputs[:4], {name: y[:4] for name, y in data.targets.items()}))
    assert_one_sentence(caught.value)


def test_the_family_has_what_the_neurons_have():
    def family(layer):
        return family_of(WitnessSet((layer,), Provenance("pretrained")))

    weight = torch.ones(2, 1, 3)
    assert family(LIFLayer(weight, decay=0.25)) == family(LIFLayer(weight[:1, :, :1], decay=0.25)) == LIFFamily(0.25)
    assert family(LIFLayer(weight, decay=1.0, bias=torch.tensor([0.0, 1.0, 0.0]))) == LIFFamily(1.0, bias=True)
    negative = torch.tensor([1.0, -1.0, 1.0])
    assert family(LIFLayer(weight, decay=0.0, threshold=negative)) == LIFFamily(0.0, negative_threshold=True)
    for odd in ({"initial_membrane": -1.0}, {"initial_spikes": 1.0}, {"tie": "gt"}):
        with pytest.raises(InvalidInputError, match="start at rest and fire at ties"):
            family(LIFLayer(weight, decay=0.5, **odd))
    assert family(ThresholdLayer(weight, bias=1.0)) == LIFFamily(0.0, bias=True, resets=False)
    several = LIFLayer(weight, decay=torch.tensor([0.5, 0.25, 0.5]))
    assert family(several) == FamilyUnion((LIFFamily(0.25), LIFFamily(0.5)))
    sixteen = LIFLayer(torch.ones(1, 1, 16), decay=torch.arange(16) / 16)
    assert family(sixteen) == FamilyUnion.of_decays(tuple(k / 16 for k in range(16)))
    with pytest.raises(InvalidInputError, match="at most 16 decays, to price all neurons, got 17"):
        family(LIFLayer(torch.ones(1, 1, 17), decay=torch.arange(17) / 32))


def test_delays_in_two_layers_are_not_priced():
    lower = LIFLayer(torch.ones(1, 1, 2), decay=0.5)
    upper = Taps([0, 1], [0, 1], 2).attach(LIFLayer(torch.ones(1, 2, 3), decay=0.5))
    with pytest.raises(InvalidInputError, match="expected delays in the only layer") as caught:
        family_of(WitnessSet((lower, upper), Provenance("pretrained")), 3)
    assert_one_sentence(caught.value)


def test_taps_that_read_nothing_are_not_part_of_the_family():
    layer = LIFLayer(torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0)), decay=0.5, threshold=1.0)
    witnesses = WitnessSet((Taps([0, 0, 0], [0, 2, 3], 1).attach(layer),), Provenance("pretrained"))
    assert family_of(witnesses).taps == Taps([0, 0, 0], [0, 2, 3], 1)
    assert family_of(witnesses, 3).taps == Taps([0, 0], [0, 2], 1)
    _, proof, data = fitted(witnesses=witnesses, decay=None, bias=None, hidden=None)
    assert certify_complete(proof, data).family.taps == Taps([0, 0], [0, 2], 1)


def test_an_unknown_neuron_model_is_not_priced_as_lif():
    class Resonator(LIFLayer):
        """Another equation."""

    register_neuron(NeuronModel("resonator", Resonator, sampled=("decay", "threshold")))
    try:
        with pytest.raises(
            InvalidInputError, match=r"a last layer of LIF or threshold neurons .* got Resonator"
        ) as caught:
            family_of(WitnessSet((Resonator(torch.ones(1, 1, 3), decay=0.5),), Provenance("pretrained")))
    finally:
        NEURON_MODELS.unregister("resonator")
    assert_one_sentence(caught.value)


def test_scope_says_whether_the_dictionary_is_complete():
    rng = np.random.default_rng(0)
    inputs, others = draw_sequences(rng, 5, 2, 1), draw_sequences(rng, 5, 2, 1)
    complete = complete_dictionary(inputs, LIFFamily(0.5))
    scopes = {
        "complete": complete,
        "other sequences": build_dictionary(complete.witnesses, others),
        "the same sequences, rolled out": build_dictionary(complete.witnesses, inputs),
        "sampled": build_dictionary(gaussian_witnesses(1, (50,), decay=0.5), inputs),
        "plain": build_dictionary(complete.columns().numpy()),
    }
    for name, dictionary in scopes.items():
        problem = ConvexProblem(dictionary, rng.normal(size=5), "squared", 0.1)
        certificate, _ = certify(problem, torch.zeros(dictionary.n_atoms, 1, dtype=torch.float64))
        assert (
            certificate.scope == solve(problem).certificate.scope == ("complete" if name == "complete" else "sampled")
        )


def test_a_part_of_all_atoms_is_not_complete():
    rng = np.random.default_rng(0)
    complete = complete_dictionary(draw_sequences(rng, 5, 2, 1), LIFFamily(0.5))
    targets, rows, everything = rng.normal(size=5), torch.tensor([3, 1]), torch.arange(complete.n_atoms).flip(0)
    problem = ConvexProblem(complete, targets, "squared", 0.1)
    edited = replace(complete, patterns=complete.patterns[everything])
    scopes = {
        "complete": problem,
        "in another order": problem.take_atoms(everything),
        "on fewer rows": problem.take_rows(rows),
        "two": problem.take_atoms(everything[:2]),
        "two, on fewer rows": problem.take_atoms(everything[:2]).take_rows(rows),
        "all but one, of few rows": problem.take_rows(rows).take_atoms(everything[1:]),
        "edited": ConvexProblem(edited, targets, "squared", 0.1),
    }
    found = {name: solve(part).certificate.scope for name, part in scopes.items()}
    are_complete = dict.fromkeys(("complete", "in another order", "on fewer rows"), "complete")
    assert found == dict.fromkeys(scopes, "selected") | are_complete | {"edited": "sampled"}


@pytest.fixture
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_a_folder_of_its_own")
def test_the_command_says_what_is_proven_over_all_neurons_and_what_is_not():
    np.savez("data.npz", X=SEQUENCES, y=classes_of(SEQUENCES))
    assert run("fit", "data.npz", "-o", "model", "--hidden", 6, "--strength", 0.01, "--decay", 0.5).exit_code == 0
    outcome = run("certify", "model", "data.npz", "--complete")
    assert outcome.exit_code == 0, outcome.output
    text = outcome.stdout
    bounds = re.search(r"over all: +objective (\S+), proven within (\S+) .* of the optimum over all witnesses", text)
    assert bounds
    assert "no other read-out of these hidden neurons" in text
    neurons = "LIF neurons with decay 0.5, without bias and with thresholds of at least zero"
    assert f"proven: no read-out of any {neurons}, however many" in text
    assert "not proven: anything about other decays or delays, deeper networks, or new data" in text
    assert "see --complete" not in text
    assert "stopped by its limit" not in text


@pytest.mark.usefixtures("in_a_folder_of_its_own")
def test_the_command_names_the_taps_that_it_covers():
    layer = LIFLayer(torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(0)), decay=0.5, threshold=1.0)
    witnesses = WitnessSet((Taps([0, 0], [0, 2], 1).attach(layer),), Provenance("pretrained"))
    save(regressor(witnesses=witnesses, l1_strength=0.01).fit(SEQUENCES, TARGETS), "model")
    np.savez("data.npz", X=SEQUENCES, y=TARGETS)
    outcome = run("certify", "model", "data.npz", "--complete")
    assert outcome.exit_code == 0, outcome.output
    text = " ".join(outcome.stdout.split())
    assert "with thresholds of at least zero, that read only input 0 at delays 0 and 2, however many" in text


@pytest.mark.usefixtures("in_a_folder_of_its_own")
def test_the_command_says_when_its_time_was_up_and_refuses_what_cannot_be_priced():
    sequences = make_sequences(80, 6, 4)
    np.savez("data.npz", X=sequences, y=classes_of(sequences))
    options = ["--hidden", 6, "--strength", 0.01]
    assert run("fit", "data.npz", "-o", "model", *options, "--decay", 0.5).exit_code == 0
    outcome = run("certify", "model", "data.npz", "--complete", "--seconds", 0.1)
    assert outcome.exit_code == 0, outcome.output
    assert "the search was stopped by its limit: more --seconds may prove more" in outcome.stdout
    assert run("fit", "data.npz", "-o", "spread", *options, "--neuron", "threshold").exit_code == 0
    outcome = run("certify", "spread", "data.npz", "--complete")
    assert outcome.exit_code == 1
    assert "expected threshold neurons without recurrence" in outcome.stderr
