"""The classifier as it comes on 41 sets of the UCR archive, beside the published accuracies of 13 other classifiers.

The sets and ``peers.json`` lie in the folder ``ucr`` of CVXSNN_DATA. With ``--resamples`` training and test data are
divided anew, stratified by class, and aeon's MiniRocket and MultiRocket-Hydra are fitted to the same parts. With
``--ablate`` parts of the default are fitted. ``--predict`` prints the processor time of predictions beside
MiniRocket's and does nothing else. What is measured is kept as one JSON object a line in ``results/ucr.jsonl``; a run
that was interrupted goes on where it stopped.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cvxsnn import SpikingClassifier
from cvxsnn.witnesses import Kinds
from cvxsnn.witnesses.kinds import ALONG_TIME, KINDS, readout_of

from .defaults import measure
from .defaults_peers import Contender, aeons, channels_first, ours
from .defaults_tasks import Data
from .measure import console, make_table
from .memory import data_directory
from .ucr_report import RECORDS, Record, read_records, render

SMALL, LARGE = 3000, 12_000
"""Numbers of neurons between which the default chooses."""


def only(*kinds: str, n_neurons: int = SMALL) -> Contender:
    """Kinds of neurons alone, with the read-out and the program of the default."""
    family = Kinds(n_witnesses=n_neurons, kinds=kinds)
    program = {"loss": "squared", "penalty": "elastic-net", "l1_strength": 0.0}
    return _own(witnesses=family, readout=readout_of(kinds), **program)


def _own(**parameters: Any) -> Contender:
    return Contender(partial(ours, **parameters))


def _aeons(name: str) -> Contender:
    return Contender(partial(aeons, name), channels_first)


CONTENDERS: Mapping[str, Contender] = {
    "default": _own(),
    "small": _own(n_neurons=SMALL),
    "large": _own(n_neurons=LARGE),
    "MiniRocket": _aeons("MiniRocket"),
    "MR-Hydra": _aeons("MR-Hydra"),
    **{f"{kind} alone": only(kind) for kind in KINDS},
    "rate, winner": only("rate", "winner"),
    "rate, distance": only("rate", "distance"),
    "rate, winner, distance": only("rate", "winner", "distance"),
    "all four": only(*KINDS),
    "6,000 neurons": only(*ALONG_TIME, n_neurons=6000),
    "24,000 neurons": only(*ALONG_TIME, n_neurons=24_000),
}
"""Contenders by name; those after the first five are parts of the default."""

ABLATED = tuple(CONTENDERS)[5:]

PREDICTING: Mapping[str, Mapping[str, int]] = {"default": {}, "small": {"n_neurons": SMALL}, "few": {"sparsity": 64}}
"""Parameters of the classifiers whose predictions are timed."""


def names() -> tuple[str, ...]:
    """The names of the sets."""
    return tuple(sorted(path.stem for path in (data_directory() / "ucr").glob("*.npz")))


def load(name: str, resample: int = 0) -> Data:
    """A set as it is divided officially, or divided anew with as many training sequences of each class."""
    with np.load(data_directory() / "ucr" / f"{name}.npz") as file:
        X, y, X_test, y_test = (file[part] for part in ("X_train", "y_train", "X_test", "y_test"))
    X, X_test = (part.astype(float)[:, :, None] for part in (X, X_test))
    if resample == 0:
        return Data(X, y, X_test, y_test)
    inputs, labels = np.concatenate((X, X_test)), np.concatenate((y, y_test))
    order = np.random.default_rng(resample).permutation(len(labels))
    train = [order[labels[order] == label][: int((y == label).sum())] for label in np.unique(labels)]
    rows = np.sort(np.concatenate(train))
    rest = np.setdiff1d(np.arange(len(labels)), rows)
    return Data(inputs[rows], labels[rows], inputs[rest], labels[rest])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ucr", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="SET", help="some of the sets")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--contenders", nargs="+", choices=tuple(CONTENDERS), metavar="NAME")
    parser.add_argument("--resamples", type=int, default=0, help="how often to divide the data anew")
    parser.add_argument("--ablate", action="store_true", help="parts of the default, with the first seed")
    parser.add_argument("--threads", type=int, default=2, help="threads of each fit")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--predict", action="store_true", help="the time of predictions on one set")
    options = parser.parse_args([] if arguments is None else arguments)
    if options.predict:
        time_predictions(load(options.only[0] if options.only else "OSULeaf"), options.threads)
        return
    done = {_key(record) for record in read_records()}
    warm: set[str] = set()
    for task in () if options.render else options.only or names():
        for contender, seed, resample in _runs(options):
            if (task, contender, seed, resample) in done:
                continue
            data = load(task, resample)
            record = measure(CONTENDERS[contender], data, seed, options.threads, contender not in warm)
            warm.add(contender)
            _add({"set": task, "contender": contender, "seed": seed, "resample": resample, **record})
            console.print(f"{task}, {contender}, seed {seed}, resample {resample}: {record['accuracy']:.4f}")
    render(read_records())


def time_predictions(data: Data, n_threads: int) -> None:
    """Print the processor time of 1,000 predictions, of one, and of one step, least of a few rounds."""
    from aeon.classification.convolution_based import MiniRocketClassifier

    torch.set_num_threads(n_threads)
    many = np.resize(data.X_test, (1000, *data.X_test.shape[1:]))
    times: dict[str, list[float]] = {}
    for name, given in PREDICTING.items():
        model = SpikingClassifier(**given, random_state=0).fit(data.X, data.y)
        network, steps = model.network_, torch.from_numpy(data.X_test[0])
        state, _ = network.step(network.start(1), steps[:1])
        times[f"{name}, {network.n_active} neurons"] = [
            processor_ms(partial(model.predict, many)),
            processor_ms(partial(model.predict, data.X_test[:1])),
            processor_ms(partial(network.step, state, steps[1:2])),
        ]
    # Last: threads that it starts go on spinning, at the expense of whoever is timed next.
    inputs = many.transpose(0, 2, 1).copy()
    peer = MiniRocketClassifier(n_jobs=n_threads, random_state=0).fit(data.X.transpose(0, 2, 1), data.y)
    of_peer = processor_ms(partial(peer.predict, inputs))
    times["MiniRocket"] = [of_peer, processor_ms(partial(peer.predict, inputs[:1]))]
    table = make_table(
        "Predictions, ms of processor time", "classifier", "1,000 series", "MiniRocket's", "one", "a step"
    )
    for name, (of_many, *others) in times.items():
        table.add_row(name, f"{of_many:.0f}", f"{of_many / of_peer:.1f} ×", *(f"{other:.2f}" for other in others))
    console.print(table)


def processor_ms(call: Callable[[], object], n_rounds: int = 5) -> float:
    """The least processor time of a call in ms, after one to warm up."""
    call()
    least = float("inf")
    for _ in range(n_rounds):
        begin = time.process_time()
        call()
        least = min(least, time.process_time() - begin)
    return 1e3 * least


def _runs(options: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Contender, seed and resample of each fit to a set."""
    if options.resamples:
        chosen = options.contenders or ("default", "MiniRocket", "MR-Hydra")
        return [(name, 0, number) for number in range(1, options.resamples + 1) for name in chosen]
    if options.ablate:
        return [(name, options.seeds[0], 0) for name in options.contenders or ABLATED]
    return [(name, seed, 0) for seed in options.seeds for name in options.contenders or ("default", "small")]


def _key(record: Record) -> tuple[str, str, int, int]:
    return record["set"], record["contender"], record["seed"], record["resample"]


def _add(record: Record) -> None:
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")
