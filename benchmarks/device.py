"""Classifiers on a microcontroller: 64 of our neurons in whole numbers, beside emlearn's and micromlgen's models.

Each model becomes a function in C, or C++, that answers one sequence. It is compiled with -Os: for a Cortex-M4 with all
that it calls, for its bytes, and for this machine, for its answers and, with Valgrind, its instructions. Memory on the
stack is not counted. Our network and the network of emlearn read standardised inputs, and trees those of the data; the
work of that is not counted. Other models than ours read sequences of unequal length padded with zeros, or mean,
deviation, least and largest value of each channel, whichever has the better accuracy of a forest in cross-validation.
They are as large as fits into 16 kB.

    apt-get install gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib valgrind
    pip install emlearn micromlgen
    python -m benchmarks device
"""

import re
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import cvxsnn as cs
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.core.libraries import import_library

from .defaults_tasks import TASKS, Data
from .measure import console, make_table, verdict

NAMES = ("digits, T = 8", "JapaneseVowels")
FLASH, RAM, LOSS, SPEED = 16_384, 4_096, 0.005, 20.0
"""Goals: bytes, and by how much the accuracy in whole numbers may be lower, and C faster than Python."""

TREES, UNITS = (60, 40, 30, 20, 15, 10, 7, 5, 3), (64, 48, 32, 24, 16, 8)
ARM = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-nostartfiles", "-specs=nano.specs")
N_TRACED, N_STEPPED = 50, 20
"""Sequences whose instructions are counted, and that Python answers step by step."""

OURS = """
#include "model.c"
static model_state state;
int answer(const NUMBER *input, int length)
{
    model_reset(&state);
    for (; length > 0; length -= MODEL_FEATURES, input += MODEL_FEATURES)
        model_step(&state, input);
    return model_class(&state);
}
"""
MAIN = """
#include <stdint.h>
#include <stdio.h>
int answer(const NUMBER *input, int length);
int main(void)
{
    static NUMBER input[100000];
    int32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1 && fread(input, sizeof *input, length, stdin) == (size_t)length)
        printf("%d\\n", answer(input, length));
    return 0;
}
"""


BRANCHES = """
extern "C" int answer(const float *input, int)
{
    Eloquent::ML::Port::RandomForest forest;
    return forest.predict(const_cast<float *>(input));
}
"""


class Source(NamedTuple):
    """A model as source, and what it reads.

    Parameters
    ----------
    text : str
        The source of a function ``answer``.
    number : str
        The type of its inputs in C.
    inputs : list of array
        Test sequences, one after the other, in that type.
    ending : str
        ``c`` or ``cpp``.
    """

    text: str
    number: str
    inputs: list[npt.NDArray[Any]]
    ending: str = "c"


class Measured(NamedTuple):
    """What was measured of a model: answers, bytes, instructions and seconds per answer."""

    answers: npt.NDArray[np.int64]
    flash: int
    ram: int
    instructions: float
    seconds: float


def measure(source: Source, folder: Path) -> Measured:
    """Compile a model twice, and run it."""
    file, number = folder / f"answer.{source.ending}", f"-DNUMBER={source.number}"
    file.write_text(source.text)
    (folder / "main.c").write_text(MAIN)
    flash, ram = compile_for_arm(file, number)
    includes = f"-I{Path(import_peer('emlearn').__file__).parent}"
    for part in (file, folder / "main.c"):
        compiler = "g++" if part.suffix == ".cpp" else "gcc"
        call(compiler, "-Os", number, includes, "-c", part, "-o", part.with_suffix(".o"))
    program = folder / "program"
    call("gcc", file.with_suffix(".o"), folder / "main.o", "-lm", "-o", program)
    data = [np.int32(len(x)).tobytes() + x.tobytes() for x in source.inputs]
    answers = np.array(call(program, stdin=b"".join(data)).split(), dtype=np.int64)
    trace = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'trace'}", "--toggle-collect=answer")
    collected = subprocess.run([*trace, program], input=b"".join(data[:N_TRACED]), capture_output=True, check=True)
    n_instructions = int(re.search(r"Collected : (\d+)", collected.stderr.decode())[1])  # type: ignore[index]
    n_rounds = 1 + 20_000 // len(data)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    call(program, stdin=b"".join(data) * n_rounds)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    n_traced = len(data[:N_TRACED])
    return Measured(answers, flash, ram, n_instructions / n_traced, seconds / (n_rounds * len(data)))


def compile_for_arm(file: Path, number: str) -> tuple[int, int]:
    """Return bytes of flash and RAM on a Cortex-M4, with the functions of libraries that are called."""
    includes = f"-I{Path(import_peer('emlearn').__file__).parent}"
    compiler = "arm-none-eabi-g++" if file.suffix == ".cpp" else "arm-none-eabi-gcc"
    sections = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wl,-e,answer")
    call(compiler, "-Os", *ARM, *sections, number, includes, file, "-lm", "-o", file.with_suffix(".elf"))
    text, initialised, zero = map(int, call("arm-none-eabi-size", file.with_suffix(".elf")).split()[6:9])
    return text + initialised, initialised + zero


def import_peer(name: str) -> Any:
    """Import a library; emlearn makes NumPy raise errors for rounding to zero."""
    with np.errstate():
        return import_library(name, "bench")


def call(*command: Any, stdin: bytes | None = None) -> str:
    """Run a program and return what it prints."""
    finished = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{command[0]} failed: {finished.stderr.decode()[-2000:]}")
    return finished.stdout.decode()


def ours(model: cs.SpikingClassifier, data: Data, folder: Path, *, integers: bool) -> Source:
    """Return the source of a network."""
    cs.export_c(model, folder / "model.c", X=data.X, integers=integers)
    mean, scale = model.input_scale_
    inputs = [np.asarray(x, dtype=np.float64) for x in data.X_test]
    text = f"#define MODEL_WIDE 0\n{OURS}"
    if not integers:
        return Source(text, "double", [x.ravel() for x in inputs])
    return Source(text, "int32_t", [np.rint((x - mean) / scale * 65536).astype(np.int32).ravel() for x in inputs])


def largest(make: Callable[[int], Source], sizes: Sequence[int], folder: Path) -> tuple[int, Source]:
    """Return the largest model that fits."""
    for size in sizes:
        source = make(size)
        file = folder / f"answer.{source.ending}"
        file.write_text(source.text)
        if compile_for_arm(file, f"-DNUMBER={source.number}")[0] <= FLASH:
            break
    return size, source


def flatten(data: Data) -> Data:
    """Return vectors of whole numbers for trees: padded sequences, or statistics of their channels."""
    equal, scale = data.of_equal_length(), 1 if all(np.all(np.round(x) == x) for x in data.X) else 1000

    def padded(sequences: Any) -> npt.NDArray[np.float64]:
        flat: npt.NDArray[np.float64] = sequences.reshape(len(sequences), -1)
        return flat

    def summed(sequences: Any) -> npt.NDArray[np.float64]:
        parts = [[x.mean(0), x.std(0), x.min(0), x.max(0)] for x in map(np.asarray, sequences)]
        return np.array(parts).reshape(len(parts), -1)

    candidates = [(padded(equal.X), padded(equal.X_test)), (summed(data.X), summed(data.X_test))]
    forest = RandomForestClassifier(30, random_state=0)
    train, test = max(candidates, key=lambda own: cross_val_score(forest, own[0], data.y, cv=5).mean())
    return Data(np.rint(scale * train), data.y, np.rint(scale * test), data.y_test)


def contenders(data: Data, folder: Path) -> dict[str, Source]:
    """Return the other models."""
    emlearn, micromlgen = map(import_peer, ("emlearn", "micromlgen"))
    numbers = np.unique(data.y, return_inverse=True)[1]
    scaler = StandardScaler().fit(data.X)

    def save(model: Any, **options: Any) -> str:
        emlearn.convert(model, method="inline", **options).save(file=str(folder / "peer.h"), name="peer")
        call_it = "int answer(const NUMBER *input, int length) { return peer_predict(input, length); }\n"
        return (folder / "peer.h").read_text() + call_it

    def trees(size: int) -> Source:
        forest = RandomForestClassifier(size, random_state=0).fit(data.X, numbers)
        return Source(save(forest, dtype="int16_t"), "int16_t", list(data.X_test.astype(np.int16)))

    def units(size: int) -> Source:
        network = MLPClassifier((size,), max_iter=1000, random_state=0).fit(scaler.transform(data.X), numbers)
        return Source(save(network), "float", list(scaler.transform(data.X_test).astype(np.float32)))

    def branches(size: int) -> Source:
        text = micromlgen.port(RandomForestClassifier(size, random_state=0).fit(data.X, numbers))
        text = f"#include <stdint.h>\n{text.replace('#pragma once', '')}\n{BRANCHES}"
        return Source(text, "float", list(data.X_test.astype(np.float32)), "cpp")

    sources = {}
    for name, make, sizes in (
        ("emlearn, {} trees", trees, TREES),
        ("emlearn, {} hidden units", units, UNITS),
        ("micromlgen, {} trees", branches, TREES),
    ):
        size, source = largest(make, sizes, folder)
        sources[name.format(size)] = source
    return sources


def seconds_of_python(model: cs.SpikingClassifier, data: Data) -> float:
    """Return the seconds of one answer, step by step."""
    stream = model.stream()
    begin = time.process_time()
    for sequence in list(data.X_test)[:N_STEPPED]:
        stream.reset()
        for step in sequence:
            stream.step(step)
        stream.predict()
    return (time.process_time() - begin) / N_STEPPED


def main() -> None:
    """Print a table and whether the goals are met."""
    for program in ("arm-none-eabi-gcc", "arm-none-eabi-g++", "valgrind"):
        if shutil.which(program) is None:
            raise InvalidInputError(f"expected {program} to be installed, got none: see benchmarks/device.py")
    table = make_table("Classifiers in C", "task", "model", "accuracy", "flash", "RAM", "instructions", "µs")
    goals = []
    for name in NAMES:
        data = TASKS[name](0)[0]
        numbers = np.unique(data.y_test, return_inverse=True)[1]
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as made, chdir(made):  # emlearn leaves files
            warnings.simplefilter("ignore")
            folder = Path(made)
            model = cs.SpikingClassifier(sparsity=64, random_state=0, verbose=False).fit(data.X, data.y)
            sources = {"64 neurons, whole numbers": ours(model, data, folder, integers=True)}
            found = {key: measure(source, folder) for key, source in sources.items()}
            found["64 neurons"] = measure(ours(model, data, folder, integers=False), folder)
            found |= {key: measure(own, folder) for key, own in contenders(flatten(data), folder).items()}
        for key, own in found.items():
            accuracy = f"{np.mean(own.answers == numbers):.4f}"
            sizes = (f"{own.flash:,}", f"{own.ram:,}", f"{own.instructions:,.0f}", f"{own.seconds * 1e6:.1f}")
            table.add_row(name, key, accuracy, *sizes)
        whole = found["64 neurons, whole numbers"]
        loss = model.score(data.X_test, data.y_test) - float(np.mean(whole.answers == numbers))
        speed = seconds_of_python(model, data) / whole.seconds
        goals += [
            f"{name}: flash {verdict(f'{whole.flash:,}', f'≤ {FLASH:,}', whole.flash <= FLASH)}",
            f"{name}: RAM {verdict(f'{whole.ram:,}', f'≤ {RAM:,}', whole.ram <= RAM)}",
            f"{name}: accuracy lost {verdict(f'{loss:.4f}', f'≤ {LOSS}', loss <= LOSS)}",
            f"{name}: faster than Python {verdict(f'{speed:,.0f}×', f'≥ {SPEED:.0f}×', speed >= SPEED)}",
        ]
    console.print(table)
    console.print("\n".join(goals))
