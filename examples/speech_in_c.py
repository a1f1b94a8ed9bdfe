"""From wav files to a C program that listens.

python examples/speech_in_c.py                                      # tones
python examples/speech_in_c.py --wav recordings                     # your words
python examples/speech_in_c.py --quick --output .                   # a small one

A folder of yours has files ``LABEL_anything_TAKE.wav`` of 8,000 points per second, like ``recordings`` of the Free
Spoken Digit Dataset. Takes 0 to 4 are for testing.

The program reads 16-bit points from a pipe and prints its answer so far every 20 ms:

    arecord -t raw -f S16_LE -r 8000 | out/speech_in_c/listen

Loudness per frequency is computed in whole numbers, so it is the same in C and Python, and with it the spikes.
"""

import argparse
import shutil
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.io import wavfile

import cvxsnn as cs
from cvxsnn.data.audio import read_wav

RATE, HOP, WINDOW = 8000, 160, 256
FREQUENCIES = 700 * (10 ** np.linspace(0.1, 0.76, 24) - 1)
"""Equally spaced on the mel scale, in hertz."""

PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "tables.h"
#include "words.h"

/* 16 log2(power), rounded down, with straight lines between powers of two. */
static int32_t level(uint64_t power)
{
    int32_t n = 63;
    if (power < 16)
        return 0;
    while (!(power >> n))
        --n;
    return 16 * n + (int32_t)(power >> (n - 4) & 15);
}

int main(void)
{
    static words_state state;
    static int16_t points[WINDOW];
    unsigned char bytes[2 * HOP];
    words_reset(&state);
    while (fread(bytes, 2, HOP, stdin) == HOP) {
        double input[WORDS_FEATURES];
        int i, band;
        memmove(points, points + HOP, sizeof points - HOP * sizeof *points);
        for (i = 0; i < HOP; ++i)
            points[WINDOW - HOP + i] = (int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        for (band = 0; band < WORDS_FEATURES; ++band) {
            int64_t sums[2] = { 0, 0 };
            for (i = 0; i < WINDOW; ++i) {
                sums[0] += (int32_t)waves[2 * band][i] * points[i];
                sums[1] += (int32_t)waves[2 * band + 1][i] * points[i];
            }
            sums[0] >>= 12;
            sums[1] >>= 12;
            input[band] = level((uint64_t)(sums[0] * sums[0] + sums[1] * sums[1]));
        }
        words_step(&state, input);
        puts(labels[words_class(&state)]);
        fflush(stdout);
    }
    return 0;
}
"""


def make_waves() -> np.ndarray:
    """Return cosines and sines under a Hann window as whole numbers, shape (2 * n_bands, WINDOW)."""
    phase = 2 * np.pi / RATE * FREQUENCIES[:, None] * np.arange(WINDOW)
    waves = np.stack((np.cos(phase), np.sin(phase)), axis=1).reshape(-1, WINDOW)
    return np.rint(2**14 * np.hanning(WINDOW) * waves).astype(np.int64)


def listen(points: np.ndarray) -> np.ndarray:
    """Return the loudness of each band for every hop, as the program in C computes it: shape (n_steps, n_bands)."""
    n_steps = len(points) // HOP
    padded = np.concatenate((np.zeros(WINDOW - HOP, dtype=np.int64), points.astype(np.int64)))
    windows = np.stack([padded[step * HOP : step * HOP + WINDOW] for step in range(n_steps)])
    sums = (windows @ make_waves().T) >> 12
    power = np.square(sums).reshape(n_steps, -1, 2).sum(2)
    exponent = sum((power >= 1 << n).astype(np.int64) for n in range(1, 63))
    return np.where(power < 16, 0, 16 * exponent + (power >> np.maximum(exponent - 4, 0) & 15)).astype(float)


def write_tones(folder: Path, n_takes: int) -> None:
    """Write tones that rise, fall or stay, of random pitch, length and loudness, in noise."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for label, octaves in (("falls", -1.0), ("rises", 1.0), ("stays", 0.0)):
        for take in range(n_takes):
            share = np.linspace(0, 1, rng.integers(3200, 4800))
            pitch = rng.uniform(700, 1400) * 2 ** (octaves * share)
            tone = np.sin(2 * np.pi * np.cumsum(pitch) / RATE) + rng.normal(0, 0.3, len(share))
            points = rng.uniform(1000, 8000) * np.sin(np.pi * share) * tone
            wavfile.write(folder / f"{label}_{take}.wav", RATE, points.astype(np.int16))


def read_folder(folder: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the points of all recordings, their labels, and which are for testing."""
    files = sorted(folder.glob("*_*.wav"))
    recordings = []
    for file in files:
        points, rate = read_wav(file)
        if rate != RATE or points.dtype != np.int16:
            raise SystemExit(f"expected 16-bit points, {RATE:,} a second, got others: convert {file}")
        recordings.append(points)
    names = [file.stem.split("_") for file in files]
    return recordings, np.array([name[0] for name in names]), np.array([int(name[-1]) < 5 for name in names])


def write_program(model: cs.SpikingClassifier, sequences: list[np.ndarray], folder: Path) -> Path | None:
    """Write the source and compile it; return the program, or None where there is no compiler."""
    cs.export_c(model, folder / "words.c", X=sequences)
    waves = make_waves()
    rows = ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in waves)
    labels = ", ".join(f'"{label}"' for label in model.classes_)
    sizes = f"#define WINDOW {WINDOW}\n#define HOP {HOP}\n"
    tables = f"static const int16_t waves[{len(waves)}][WINDOW] = {{\n{rows}\n}};\n"
    names = f"static const char *const labels[] = {{ {labels} }};\n"
    (folder / "tables.h").write_text(f"#include <stdint.h>\n{sizes}{tables}{names}")
    (folder / "listen.c").write_text(PROGRAM)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    sources = [folder / "listen.c", folder / "words.c"]
    subprocess.run([compiler, "-std=c99", "-O2", *sources, "-o", folder / "listen"], check=True)
    return folder.resolve() / "listen"


def answer_in_python(model: cs.SpikingClassifier, recording: np.ndarray) -> list[str]:
    """Return the answer after each step."""
    stream = model.stream()
    answers = []
    for step in listen(recording):
        stream.step(step)
        answers.append(str(stream.predict()))
    return answers


def answer_in_c(program: Path, recording: np.ndarray) -> list[str]:
    """Return what the program prints after each step, which it does before it gets the next one."""
    answers = []
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(len(recording) // HOP):
            process.stdin.write(recording[step * HOP : (step + 1) * HOP].astype("<i2").tobytes())
            answers.append(process.stdout.readline().decode().strip())
    return answers


def draw(recording: np.ndarray, label: str, answers: list[str], classes: np.ndarray, path: Path) -> None:
    """Draw what the network hears, and its answer after each step."""
    axes = plt.subplots(2, figsize=(7, 5), sharex=True, height_ratios=(2, 1), layout="constrained")[1]
    end = len(answers) * 1000 * HOP / RATE
    axes[0].imshow(listen(recording).T, origin="lower", aspect="auto", extent=(0, end, 0, len(FREQUENCIES)))
    axes[0].set(ylabel="frequency band", title=f"The network hears “{label}”")
    places = [classes.tolist().index(answer) for answer in answers]
    axes[1].step(np.linspace(0, end, len(answers) + 1)[1:], places, ".-", where="post")
    axes[1].set(yticks=range(len(classes)), yticklabels=classes, xlabel="milliseconds", ylabel="answer so far")
    axes[0].figure.savefig(path, dpi=120)


def main() -> None:
    """Train, export, compile, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wav", type=Path, help="folder of recordings; tones are written when not given")
    parser.add_argument("--quick", action="store_true", help="few neurons, takes and comparisons")
    parser.add_argument("--output", type=Path, default=Path("out/speech_in_c"), help="folder for files")
    options = parser.parse_args()
    folder = options.wav or options.output / "tones"
    if options.wav is None:
        write_tones(folder, 30 if options.quick else 60)
    recordings, labels, is_test = read_folder(folder)
    options.output.mkdir(parents=True, exist_ok=True)
    X = [listen(recording) for recording in recordings]
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    X_train = [X[row] for row in train]
    model = cs.SpikingClassifier(n_neurons=500 if options.quick else 3000, sparsity=64, random_state=0)
    model.fit(X_train, labels[train])
    print(f"{len(train)} recordings to train on, {len(test)} to test")
    print(f"accuracy of {model.network_.n_active} neurons: {model.score([X[row] for row in test], labels[test]):.3f}")
    print(model.certificate_)

    compared = np.random.default_rng(0).permutation(test)[: 10 if options.quick else 100]
    in_python = [answer_in_python(model, recordings[row]) for row in compared]
    draw(recordings[compared[0]], labels[compared[0]], in_python[0], model.classes_, options.output / "answers.png")
    program = write_program(model, X_train, options.output)
    if program is None:
        print("The program was written and not run, since there is no C compiler: install gcc.")
        return
    in_c = [answer_in_c(program, recordings[row]) for row in compared]
    pairs = zip(np.concatenate(in_python), np.concatenate(in_c), strict=True)
    n_equal = sum(bool(ours == theirs) for ours, theirs in pairs)
    n_answers = sum(map(len, in_python))
    print(f"answers in C that are those of Python: {n_equal} of {n_answers}, on {len(compared)} recordings")
    if n_equal < n_answers:
        raise SystemExit("expected the same answers, got others")


if __name__ == "__main__":
    main()
