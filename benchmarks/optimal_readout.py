"""Few trained neurons by three methods: the read-out trained too, solved for at the end, or optimal at all times."""

import time

import numpy as np

import cvxsnn as cs
from cvxsnn.data.tasks import mnist_seq
from cvxsnn.fitting import SurrogateSettings

from .measure import console, make_table
from .memory import data_directory

N_TRAIN, N_NEURONS, N_TEST = 2000, 64, 2000
RATES = (0.003, 0.01, 0.03, 0.1)
FAMILY = {"geometry": "box", "box": (12, 28), "max_delay": 11, "fan_in": None, "weights": "differences"}
"""Each neuron reads the last 12 steps of all 28 features."""

RIDGE = {"penalty": "elastic-net", "l1_strength": 0.0}
METHODS = {"sg": {}, "sg-cvx": RIDGE, "varpro": RIDGE}


def main() -> None:
    """Print test accuracies, each at the learning rate that validates best."""
    task = mnist_seq(28, n_train=N_TRAIN, n_test=10_000, directory=data_directory())
    columns = (
        "method",
        "learning rate",
        "validation",
        f"first {N_TEST:,}",
        "all 10,000",
        "relative gap",
        "seconds",
        "all",
    )
    table = make_table(f"{N_NEURONS} neurons on MNIST-Seq, {N_TRAIN:,} training images", *columns)
    for method, options in METHODS.items():
        fits = []
        for rate in RATES:
            surrogate = SurrogateSettings(
                epochs=40, batch_size=32, learning_rate=rate, steepness=0.5, train_decay=False, train_threshold=False
            )
            model = cs.SpikingClassifier(
                *(method, (N_NEURONS,)),
                **{"witnesses": FAMILY, "surrogate": surrogate, "standardize": False, "random_state": 0, **options},
            )
            begin = time.perf_counter()
            model.fit(task.train.inputs, task.train.heads["label"])
            fits.append((model.history_[-1].score, rate, model, time.perf_counter() - begin))
        score, rate, model, seconds = max(fits, key=lambda fit: fit[0])
        hits = model.predict(task.test.inputs) == task.test.heads["label"]
        certificate = model.certificate_
        table.add_row(
            *(method, f"{rate:g}", f"{np.ravel(score)[0]:.3f}", f"{hits[:N_TEST].mean():.4f}", f"{hits.mean():.4f}"),
            *("none" if certificate is None else f"{certificate.relative_gap:.0e}", f"{seconds:.0f}"),
            f"{sum(fit[3] for fit in fits):.0f}",
        )
    console.print(table)
