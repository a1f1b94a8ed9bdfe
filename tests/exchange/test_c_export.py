"""C source of models: the same spikes, statistics and scores as in Python, after every step."""

import re
import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from exchange.exported import NETWORKS, as_network, draw_inputs, kinds_layer_of_one_view, kinds_network
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, classes_of, classifier, make_lists, make_sequences
from tolerances import FLOAT64_SUM, PRINTED, WHOLE_ROOTS, WHOLE_SCORES

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.exchange.c.integers import in_integers
from cvxsnn.exchange.c.program import compile_network
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron

COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: install gcc")
SANITIZED = ("-fsanitize=undefined,address", "-fno-sanitize-recover")
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-pedantic")
DRIVER = """
#include <stdio.h>
#include "model.c"
int main(void)
{
    static model_state state;
    NUMBER input[MODEL_FEATURES];
    SCORE scores[MODEL_SCORES];
    int32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1)
        for (model_reset(&state); length > 0; --length) {
            if (fread(input, sizeof input, 1, stdin) != 1 || model_step(&state, input))
                return 1;
            model_scores(&state, scores);
            fwrite(scores, sizeof scores, 1, stdout);
        }
    return 0;
}
"""
CLASSES = """
#include <stdio.h>
#include "model.c"
int main(void)
{
    static model_state state;
    NUMBER input[MODEL_FEATURES];
    int32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        for (model_reset(&state); length > 0; --length)
            if (fread(input, sizeof input, 1, stdin) != 1 || model_step(&state, input))
                return 1;
        length = model_class(&state);
        fwrite(&length, sizeof length, 1, stdout);
    }
    return 0;
}
"""


def build(folder, model, *flags, number="double", score="double", driver=DRIVER, **options):
    """Write the source of a model, compile it with a driver, and return the program."""
    cs.export_c(model, folder / "model.c", **options)
    (folder / "driver.c").write_text(driver)
    types = (f"-DNUMBER={number}", f"-DSCORE={score}")
    compile_c(folder / "driver.c", folder / "driver", *(flags or STRICT), *types)
    return folder / "driver"


def compile_c(source, program, *flags):
    command = [COMPILER, *flags, source, "-o", program]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def run(program, sequences, n_outputs, number=np.float64, score=np.float64):
    """Return the scores after each step of each sequence."""
    data = b"".join(np.int32(len(x)).tobytes() + np.asarray(x, number).tobytes() for x in sequences)
    outcome = subprocess.run([program], input=data, capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    answers = np.frombuffer(outcome.stdout, score).reshape(-1, n_outputs)
    n_answers = [len(x) if len(answers) > len(sequences) else 1 for x in sequences]
    return np.split(answers, np.cumsum(n_answers)[:-1])


def expected_scores(network, sequences, n_steps=None):
    """Return the scores after each step, from the features of each beginning, added in the order of the source."""
    program = compile_network(network, n_steps)
    beginnings = [x[: t + 1] for x in sequences for t in range(len(x))]
    features = torch.cat([network.features(x[None]).reshape(-1, len(network.neurons))[-1:] for x in beginnings])
    return np.split(program.scores(features), np.cumsum([len(x) for x in sequences])[:-1])


@needs_compiler
@pytest.mark.parametrize("name", NETWORKS)
def test_scores_after_every_step_are_those_of_python_to_the_bit(name, tmp_path):
    network = NETWORKS[name]()
    sequences = draw_inputs()
    if name == "weights of 32 bits":  # whose sums with larger inputs Python refuses
        sequences[6] /= 50
    n_steps = 12 if name == "windows" else None
    found = run(build(tmp_path, network, n_steps=n_steps), sequences, 3)
    expected = expected_scores(network, sequences, n_steps)
    for scores, others in zip(found, expected, strict=True):
        last = slice(-1, None) if n_steps else slice(None)  # features of a beginning have shorter windows
        assert np.array_equal(scores[last], others[last])
    scores = network(sequences).detach().numpy()
    scores = scores[:, -1] if network.readout == "all" else scores
    assert abs(np.array([each[-1] for each in found]) - scores).max() <= compile_network(network, n_steps).tolerance


WHOLE = {"number": "int32_t", "score": "int64_t", "integers": True}


def in_units(sequences):
    return [np.rint(np.asarray(x) * 2**16).astype(np.int32) for x in sequences]


@needs_compiler
@pytest.mark.parametrize(
    "name", ["silent ties of membranes", "deep", "windows", "statistics", "recurrent twice", "kinds"]
)
def test_whole_numbers_give_the_same_spikes_and_about_the_same_scores(name, tmp_path):
    network, sequences, n_steps = NETWORKS[name](), draw_inputs(), 12 if name == "windows" else None
    program = build(tmp_path, network, *STRICT, *SANITIZED, X=sequences, n_steps=n_steps, **WHOLE)
    assert not re.search(r"\b(double|float|sqrt)\b", (tmp_path / "model.c").read_text().partition("CVXSNN_MAIN")[0])
    found = np.array([scores[-1] for scores in run(program, in_units(sequences), 3, np.int32, np.int64)])
    compiled, whole = in_integers(network, compile_network(network, n_steps), cs.Sequences(torch.tensor(sequences)))
    # Equal whole scores take equal spikes: the weights are about 2^30, and none is zero.
    assert np.array_equal(found, whole.scores(compiled, network.features(sequences), np.full(len(sequences), 12)))
    scores = network(sequences).detach().numpy()
    assert abs(found * whole.unit / 12 - scores).max() <= (WHOLE_ROOTS if "root" in network.readout else WHOLE_SCORES)


def test_membranes_that_would_change_spikes_are_refused_with_their_number(tmp_path):
    # Of two membranes, one is zero and fires, and the other tends to zero from below and never does.
    layer = cs.LIFLayer(torch.ones(1, 1, 1), decay=0.5, threshold=0.0, bias=0.0)
    sequences = np.zeros((2, 60, 1))
    sequences[0, 0] = -1000.0
    network = as_network([layer], "mean", n_outputs=1)
    with pytest.raises(InvalidInputError, match="got 31 that differ on X: export without integers") as refused:
        cs.export_c(network, tmp_path / "model.c", X=sequences, integers=True)
    assert_one_sentence(refused.value)
    assert not list(tmp_path.iterdir())


@needs_compiler
@pytest.mark.parametrize("name", ["leaky", "statistics"])
@pytest.mark.parametrize(
    "flags",
    [
        ("-O0",),
        ("-O3", "-march=native", "-ffp-contract=fast"),
        ("-O1", *SANITIZED),
    ],
)
def test_flags_of_the_compiler_change_no_bit(name, flags, tmp_path):
    network, sequences = NETWORKS[name](), draw_inputs()
    found = run(build(tmp_path, network, *flags), sequences, 3)
    assert np.array_equal(np.concatenate(found), np.concatenate(expected_scores(network, sequences)))


@needs_compiler
def test_rounding_that_is_not_that_of_ieee_754_is_refused(tmp_path):
    cs.export_c(NETWORKS["leaky"](), tmp_path / "model.c")
    command = [COMPILER, "-c", "-ffast-math", tmp_path / "model.c", "-o", tmp_path / "model.o"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode != 0
    assert "expected arithmetic of IEEE 754" in outcome.stderr


@needs_compiler
def test_inputs_of_32_bits_are_the_same_or_reported(tmp_path):
    network, sequences = kinds_network(n_witnesses=40), draw_inputs()
    program = build(tmp_path, network, "-O1", "-DMODEL_WIDE=0")
    sequences = sequences[np.arange(len(sequences)) != 6]
    found = run(program, sequences, 3)
    assert np.array_equal(np.concatenate(found), np.concatenate(expected_scores(network, sequences)))
    for outlier in (200.0, np.nan, np.inf):  # the square of the first is beyond 32 bits
        sequences[3, 5, 1] = outlier
        data = np.int32(12).tobytes() + sequences[3].tobytes()
        assert subprocess.run([program], input=data, capture_output=True, check=False).returncode == 1


@needs_compiler
def test_levels_may_be_as_large_as_any_sum(tmp_path):
    layer = cs.LIFLayer(torch.full((1, 1, 1), 0.001), bias=-10000.0, decay=0.0, threshold=0.0)
    network, sequences = as_network([layer], n_outputs=1), np.array([9.0e6, 11.0e6]).reshape(2, 1, 1)
    network = network.with_readout(torch.ones(1, 1))
    found = np.concatenate(run(build(tmp_path, network), sequences, 1))
    assert found.tolist() == network(sequences).tolist() == [[0.0], [1.0]]


@needs_compiler
@pytest.mark.parametrize("integers", [False, True])
def test_a_program_reads_text_as_it_arrives_and_prints_scores(integers, tmp_path):
    sequences = make_lists()
    model = classifier(witnesses={"decay": 0.9}).fit(sequences, classes_of(sequences, 3))
    cs.export_c(model, tmp_path / "model.c", X=sequences, integers=integers)
    compile_c(tmp_path / "model.c", tmp_path / "model", *STRICT, "-DCVXSNN_MAIN")
    scores = model.decision_function(sequences)
    with subprocess.Popen([tmp_path / "model"], stdin=-1, stdout=-1, text=True, bufsize=1) as program:
        for sequence, expected in zip(sequences[:5], scores[:5], strict=True):
            program.stdin.write("".join(" ".join(map(repr, step.tolist())) + "\r\n" for step in sequence) + "\n")
            program.stdin.flush()
            printed = program.stdout.readline()  # before the next sequence is written
            assert abs(np.array(printed.split(), dtype=float) - expected).max() < PRINTED
        program.stdin.write("\n\n\t1 2.5e-1 -3")  # empty lines are no sequences, and the last line may end early
        program.stdin.close()
        expected = model.decision_function([np.array([[1.0, 0.25, -3.0]])])[0]
        assert abs(np.array(program.stdout.read().split(), dtype=float) - expected).max() < PRINTED
    for text in ("1 2\n", "1 2 3 4\n", "1 2 x\n", "1 2 nan\n", "1 2 1e300\n", f"1 2 {'0' * 100}\n"):
        outcome = subprocess.run([tmp_path / "model"], input=text, capture_output=True, text=True, check=False)
        assert outcome.returncode == 1
        assert not outcome.stdout
        assert re.fullmatch("expected 3 numbers a line, got .*\n", outcome.stderr)


MUTATIONS = {
    "nothing": ("leaky", "", ""),
    "delays": ("leaky", "state->head_1 + place_1[tap]", "place_1[tap]"),
    "the ring": ("leaky", "at -= ", "at -= 1 + "),
    "the leak": ("leaky", "* decay_1[i];", "* decay_1[i] * 0.5f;"),
    "the reset": ("leaky", "membrane -= threshold_1[i]", "membrane += threshold_1[i]"),
    "the first membrane": ("leaky", "= start_membranes_1[i]", "= 0"),
    "the last bit of a score": ("statistics", "product = ", "product = 1.0000000000000002 * "),
    "a run": ("statistics", "+ 1 : 0", "+ 1 : 1"),
    "winners": ("kinds", "sum > largest", "sum < largest"),
    "changes": ("kinds", "memcpy(state->before, now", "memcpy(now, state->before"),
    "squares": ("kinds", "/ 65536.0, is_cut", "/ 60000.0, is_cut"),
    "feedback": ("recurrent", "drive + feedback", "drive - feedback"),
}
SELF_TEST = """
#include "model.c"
int main(void) { return model_self_test() != 0; }
"""


@needs_compiler
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_self_test_finds_any_broken_equation(mutation, tmp_path):
    name, equation, broken = MUTATIONS[mutation]
    cs.export_c(NETWORKS[name](), tmp_path / "model.c", X=draw_inputs()[7:])
    source = (tmp_path / "model.c").read_text()
    assert equation in source
    (tmp_path / "model.c").write_text(source.replace(equation, broken) if equation else source)
    (tmp_path / "test.c").write_text(SELF_TEST)
    compile_c(tmp_path / "test.c", tmp_path / "test", "-O0", "-DMODEL_SELF_TEST")
    is_wrong = subprocess.run([tmp_path / "test"], check=False).returncode != 0
    assert is_wrong == (mutation != "nothing")


@needs_compiler
@pytest.mark.parametrize("integers", [False, True])
def test_estimators_are_exported_with_their_scaling_and_their_classes(integers, tmp_path):
    sequences = make_sequences(n_steps=12)
    labels = np.array(["*/ no end", "/* no beginning", "x\ny\\"])[classes_of(sequences, 3)]
    model = cs.SpikingClassifier(n_neurons=40, random_state=0).fit(100 + 7 * sequences, labels)
    types = WHOLE if integers else {}
    program = build(tmp_path, model, X=100 + 7 * sequences, **types)
    header = (tmp_path / "model.h").read_text()
    assert '0: "* / no end"' in header
    read = model.as_sequences(100 + 7 * sequences).inputs.numpy()
    if integers:
        found = np.array([each[-1] for each in run(program, in_units(read), 3, np.int32, np.int64)])
        assert np.array_equal(found.argmax(1), model.decision_function(100 + 7 * sequences).argmax(1))
    else:
        found = np.array([each[-1] for each in run(program, 100 + 7 * sequences, 3)])
        assert np.array_equal(found, compile_network(model.network_).scores(model.network_.features(read)))


@needs_compiler
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize(("loss", "n_classes"), [("softmax", 2), ("squared", 2), ("logistic", 3)])
def test_classes_are_those_of_predict(loss, n_classes, integers, tmp_path):
    sequences = make_lists()
    model = classifier(loss=loss).fit(sequences, classes_of(sequences, n_classes))
    read = [(x - model.input_scale_[0]) / model.input_scale_[1] for x in sequences]
    types = WHOLE if integers else {}
    program = build(tmp_path, model, "-O0", driver=CLASSES, X=sequences, **types)
    found = run(program, in_units(read) if integers else sequences, 1, np.int32 if integers else float, np.int32)
    assert np.array_equal(np.concatenate(found)[:, 0], model.predict(sequences))
    assert f"#define MODEL_SCORES {1 if n_classes == 2 else 3}\n" in (tmp_path / "model.h").read_text()


@needs_compiler
def test_rows_and_several_targets_are_supported(tmp_path):
    rows = make_sequences()[:, 0]
    targets = np.stack([rows.sum(1), rows[:, 0]], axis=1)
    model = cs.SpikingRegressor(n_neurons=30, random_state=0, standardize=False).fit(rows, targets)
    found = run(build(tmp_path, model, "-O0"), rows[:, None], 2)
    assert abs(np.concatenate(found) - model.predict(rows)).max() <= FLOAT64_SUM
    assert "model_class" not in (tmp_path / "model.h").read_text()


def refuse(complaint, model, path, **options):
    with pytest.raises(InvalidInputError, match=complaint) as refused:
        cs.export_c(model, path, **options)
    assert_one_sentence(refused.value)
    assert not path.exists()


def test_what_cannot_be_exported_is_refused_in_one_sentence(tmp_path):
    network, path = NETWORKS["leaky"](), tmp_path / "model.c"
    refuse("expected a path that ends in .c", network, tmp_path / "model.cpp")
    refuse("expected a file name of letters", network, tmp_path / "é.c")
    refuse("expected a name of letters, digits and _", network, path, name="2nd")
    refuse("which is not fitted", cs.SpikingClassifier(), path)
    refuse("expected the number of steps of all sequences", NETWORKS["windows"](), path)
    refuse("pass X", network, path, integers=True)
    refuse("expected inputs up to 32,768", network, path, X=np.full((4, 5, 3), 4e4), integers=True)
    refuse("expected sequences of 3 features, got 2", network, path, X=np.zeros((4, 5, 2)))
    layer = kinds_layer_of_one_view()
    biased = layer.with_tensors({"bias": torch.ones_like(layer.bias)})
    refuse("expected groups of neurons without biases", as_network([biased], "mean"), path)
    sequences = make_sequences()
    pipeline = make_pipeline(cs.SequenceScaler(), classifier()).fit(sequences, classes_of(sequences))
    refuse("a pipeline with SequenceScaler: export pipeline", pipeline, path)


def test_a_neuron_model_that_is_unknown_here_is_refused_by_name(tmp_path):
    @dataclass(frozen=True, eq=False)
    class EagerLayer(cs.LIFLayer):
        pass

    register_neuron(NeuronModel("eager", EagerLayer))
    try:
        network = as_network([EagerLayer(torch.ones(1, 3, 4))])
        refuse(
            "expected LIF or threshold neurons, or lateral neurons in the first layer, got EagerLayer",
            network,
            tmp_path / "x.c",
        )
    finally:
        NEURON_MODELS.unregister("eager")
