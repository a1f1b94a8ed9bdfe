"""C source of models: the same spikes, statistics and scores as in Python, after every step."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from layers import draw_layer, draw_stack

import cvxsnn as cs
from cvxsnn.dictionary.base import parse_readout
from cvxsnn.exchange.c.program import compile_network
from cvxsnn.network import OutputHead
from cvxsnn.neurons import LateralLayer
from cvxsnn.neurons.reading import read_columns
from cvxsnn.witnesses.kinds import KINDS, Kinds

COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: install gcc")
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
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
N_FEATURES = 3


def as_network(layers, readout="last", n_outputs=3, seed=0):
    parsed, n_columns = parse_readout(readout), layers[-1].n_subnetworks * layers[-1].width
    n_columns = len(read_columns(layers, parsed.statistics)) if parsed.statistics else n_columns * parsed.n_windows
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n_columns, n_outputs, generator=generator, dtype=torch.float64)
    weight[torch.rand(n_columns, generator=generator) < 0.3] = 0  # some neurons are read by nothing
    intercept = torch.randn(n_outputs, generator=generator, dtype=torch.float64)
    heads = [OutputHead("label", "softmax", 0, n_outputs)]
    return cs.SpikingNetwork(layers, weight, heads, intercept, readout=readout)


def draw_inputs(n_samples=20, n_steps=12, n_features=N_FEATURES, seed=0):
    """Sequences with ties: some are blank, some whole numbers, some beyond what float32 sums hold."""
    inputs = np.random.default_rng(seed).normal(size=(n_samples, n_steps, n_features))
    inputs[:4] = np.round(inputs[:4])
    inputs[4, : n_steps // 2] = 0
    inputs[5] = 0
    inputs[6] *= 50
    inputs[7] *= 2.0**-16
    return inputs


def recurrent_layer(seed=0, width=8, dtype=torch.float32, n_inputs=N_FEATURES):
    generator = torch.Generator().manual_seed(seed)
    weight, recurrent = (torch.randn(2, n, width, generator=generator, dtype=dtype) for n in (n_inputs, width))
    spikes = (torch.rand(2, width, generator=generator) < 0.5).to(dtype)
    return cs.ThresholdLayer(weight, bias=-0.3, initial_spikes=spikes, recurrent_weight=recurrent)


def kinds_network(readout="mean+burst+root+ever+last", n_witnesses=120, kinds=tuple(KINDS)):
    inputs = draw_inputs(n_steps=30, seed=3)
    return as_network(Kinds(n_witnesses=n_witnesses, kinds=kinds).sample(inputs).layers, readout)


NETWORKS = {
    "leaky": lambda: as_network([draw_layer(0, n_inputs=N_FEATURES)]),
    "leaky in float64": lambda: as_network([draw_layer(1, dtype=torch.float64)], "mean"),
    "silent ties": lambda: as_network([draw_layer(2, tie="gt")], "mean"),
    "memoryless": lambda: as_network([draw_layer(3, decay=0.0, threshold=0.0, width=20)]),
    "memoryless, silent ties": lambda: as_network([draw_layer(4, decay=0.0, threshold=0.0, tie="gt")], "mean"),
    "without delays": lambda: as_network([draw_layer(5, n_taps=3, source=None, delay=None, n_sources=None)], "all"),
    "deep": lambda: as_network(draw_stack(6), "mean"),
    "deep in float64": lambda: as_network(draw_stack(7, torch.float64), "last"),
    "weights of 32 bits": lambda: as_network([draw_layer(8, weight_bits=32, dtype=torch.float64)], "mean"),
    "windows": lambda: as_network([draw_layer(9)], "windows-5"),
    "statistics": lambda: as_network([draw_layer(10)], "mean+burst+root+ever+last+first"),
    "recurrent": lambda: as_network([recurrent_layer()], "last+mean"),
    "recurrent twice": lambda: as_network(
        [recurrent_layer(1), draw_layer(11, n_inputs=8), recurrent_layer(2, n_inputs=6)], "mean"
    ),
    "kinds": kinds_network,
    "kinds read at the end": lambda: kinds_network(readout="last"),
    "groups": lambda: kinds_network(readout="root", n_witnesses=32, kinds=("winner",)),
    "one view": lambda: as_network([kinds_layer_of_one_view()], "ever+mean"),
}


def kinds_layer_of_one_view():
    generator = torch.Generator().manual_seed(0)
    return LateralLayer(
        torch.randn(1, 4, 10, generator=generator),
        bias=torch.randn(1, 10, generator=generator) * (torch.arange(10) > 5),
        source=torch.randint(N_FEATURES, (1, 4, 10), generator=generator),
        delay=torch.randint(3, (1, 4, 10), generator=generator),
        n_sources=N_FEATURES,
        group=torch.tensor([[1.0, 1, 2, 2, 2, 1, 0, 0, 0, 0]]),
        views=("changes",),
    )


def build(folder, model, *flags, number="double", score="double", **options):
    """Write the source of a model, compile it with the driver, and return the program."""
    cs.export_c(model, folder / "model.c", **options)
    (folder / "driver.c").write_text(DRIVER)
    types = (f"-DNUMBER={number}", f"-DSCORE={score}")
    compile_c(folder / "driver.c", folder / "driver", *(flags or STRICT), *types)
    return folder / "driver"


def compile_c(source, program, *flags):
    command = [COMPILER, *flags, source, "-o", program, "-lm"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def run(program, sequences, n_outputs, number=np.float64, score=np.float64):
    """Return the scores after each step of each sequence."""
    data = b"".join(np.int32(len(x)).tobytes() + np.asarray(x, number).tobytes() for x in sequences)
    outcome = subprocess.run([program], input=data, capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    scores = np.frombuffer(outcome.stdout, score).reshape(-1, n_outputs)
    return np.split(scores, np.cumsum([len(x) for x in sequences])[:-1])


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
