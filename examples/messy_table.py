"""From a messy CSV file to a saved model.

python examples/messy_table.py                    # writes out/messy_table.png and out/motors.safetensors
python examples/messy_table.py --quick -o .       # a small one

The file has one row per measurement: sequences of different lengths, rows in any order, words in a column of numbers,
and gaps. The ten lines of ``fit`` are all that is needed; the rest of this file writes the data and draws the picture.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import cvxsnn as cs
from cvxsnn.data import sequences_from_table

CHANNELS = ["current", "vibration"]


def fit(file: Path, model_file: Path, n_neurons: int | str = "auto") -> tuple[list[pd.DataFrame], np.ndarray]:
    """Fit a classifier to the file, say what it does, and save it."""
    table = pd.read_csv(file, parse_dates=["time"])
    table[CHANNELS] = table[CHANNELS].apply(pd.to_numeric, errors="coerce")  # "err" becomes a gap
    X, y, _ = sequences_from_table(table, id="motor", time="time", label="state", features=CHANNELS)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    model = make_pipeline(cs.SequenceImputer(), cs.SpikingClassifier(n_neurons=n_neurons, random_state=0)).fit(X, y)
    print(f"accuracy on {len(X_test)} other motors: {model.score(X_test, y_test):.3f}")
    print(model[-1].summary(model[0].transform(X_test)))
    cs.save(model, model_file)
    again = cs.load(model_file)
    probability = again.predict_proba(X_test)
    return X_test, probability


def write_messy(file: Path, n_motors: int) -> None:
    """Write measurements of motors, some of which are worn: now and then their current swings."""
    rng = np.random.default_rng(0)
    tables = []
    for number in range(n_motors):
        n_steps, is_worn = rng.integers(40, 90), number % 2 == 0
        values = rng.normal(size=(n_steps, 2)).cumsum(0) * 0.2 + rng.normal(size=(n_steps, 2)) * 0.3 + 5
        for start in rng.integers(0, n_steps - 12, size=3):
            swing = np.sin(np.arange(12) * (1.0 if is_worn else 2.0))
            values[start : start + 12] += swing[:, None]
        table = pd.DataFrame(values.round(3), columns=CHANNELS).astype(object)
        table[rng.random(table.shape) < 0.05] = ""  # gaps
        table.loc[rng.random(n_steps) < 0.02, "current"] = "err"
        times = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.arange(n_steps), unit="s")
        tables.append(table.assign(motor=f"M{number:03d}", time=times, state="worn" if is_worn else "good"))
    pd.concat(tables).sample(frac=1, random_state=0).to_csv(file, index=False)


def draw(sequences: list[pd.DataFrame], probability: np.ndarray, file: Path) -> None:
    """Draw the two sequences that the model is most certain of."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
    for axes, place, title in zip(panels, probability.argmax(0), ("good", "worn"), strict=True):
        sequence = sequences[int(place)]
        for channel, colour in zip(CHANNELS, ("#0072B2", "#D55E00"), strict=True):
            axes.plot(sequence[channel].to_numpy(dtype=float), ".-", color=colour, label=channel, linewidth=1)
        axes.set(title=f"{title}, probability {probability[place].max():.2f}", xlabel="step")
    panels[0].legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)
    print(f"saved {file}")


def main() -> None:
    """Write the file, fit, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few motors and neurons")
    parser.add_argument("--output", "-o", type=Path, default=Path("out"), help="folder for the files")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "motors.csv"
    write_messy(file, 60 if options.quick else 300)
    model_file = options.output / "motors.safetensors"
    sequences, probability = fit(file, model_file, 200 if options.quick else "auto")
    draw(sequences, probability, options.output / "messy_table.png")


if __name__ == "__main__":
    main()
