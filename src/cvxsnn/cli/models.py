"""``cvxsnn fit``, ``predict``, ``explain`` and ``certify``: models in files."""

import csv
import io
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from typer import Exit, Option

import cvxsnn as cs

from ..core.errors import InvalidInputError, OtherDataWarning
from ..core.formatting import plural
from .common import ModelFile, command, console, parse_widths, put, say
from .data_files import Data, DataFile, TableOptions, read_data
from .files import FIGURE, MODEL, PREDICTIONS, PROOF


@dataclass(frozen=True)
class FitOptions:
    """Parameters of the estimators that are options of ``cvxsnn fit``, by their names there."""

    layout: Annotated[str | None, Option(help="channels-first if X has channels before steps.")] = None
    method: Annotated[str, Option(help="cvx, sg, sg-cvx, sg-sg, cvx-sg, varpro or r.")] = "cvx"
    hidden: Annotated[str | None, Option(help="Widths of the hidden layers, such as 256,512.")] = None
    n_neurons: Annotated[str, Option("--neurons", help="Number of hidden neurons, or auto.")] = "auto"
    sparsity: Annotated[str | None, Option(help="Largest number of neurons to read, or few.")] = None
    target: Annotated[str | None, Option(help="Neurons of a chip: loihi, xylo-audio2 or xylo-imu.")] = None
    max_seconds: Annotated[float | None, Option("--seconds", help="Time for the fit.")] = None
    loss: Annotated[str | None, Option(help="logistic, softmax, hinge, squared_hinge or squared.")] = None
    penalty: Annotated[str, Option(help="auto, l1, group, elastic-net or group-elastic-net.")] = "auto"
    l1_strength: Annotated[str, Option("--strength", help="Strength of the norm, or auto.")] = "auto"
    l2_strength: Annotated[str, Option(help="Strength of half the sum of squares, or auto.")] = "auto"


@command
def fit(
    data: DataFile,
    table: TableOptions,
    output: Annotated[Path, Option("-o", "--output", help="Where to write the model."), MODEL],
    options: FitOptions,
    groups: Annotated[str | None, Option(help="Column of a table; equal values are left out together.")] = None,
    subnetworks: Annotated[int | None, Option(min=1, help="Parallel subnetworks.")] = None,
    neuron: Annotated[str | None, Option(help="lif or threshold.")] = None,
    witnesses: Annotated[str, Option(help="auto, mixed, search, gaussian or delayed.")] = "auto",
    trials: Annotated[int | None, Option(min=1, help="Families that a search tries.")] = None,
    decay: Annotated[float | None, Option(help="Decay of all neurons; then nothing is searched for.")] = None,
    threshold: Annotated[float | None, Option(help="Threshold of all neurons, likewise.")] = None,
    readout: Annotated[str | None, Option(help="mean or last; whichever is better by default.")] = None,
    windows: Annotated[int | None, Option(min=1, help="Windows of time that means are taken in.")] = None,
    epochs: Annotated[int, Option(min=1, help="For methods with surrogate gradients.")] = 50,
    seed: Annotated[int, Option(min=0)] = 0,
    regress: Annotated[bool, Option("--regress", help="Predict real numbers instead of classes.")] = False,
    class_weight: Annotated[str | None, Option(help="balanced: all classes count alike.")] = None,
    impute: Annotated[str | None, Option(help="Fill missing values: linear, forward or mean.")] = None,
    cv: Annotated[int | None, Option(min=2, help="Folds of a cross-validation before the fit.")] = None,
) -> None:
    """Train a spiking network on a data file and save it."""
    samples = read_data(data, table, needs_targets=True, groups=groups, has_gaps=impute is not None)
    if samples.is_table:
        say(f"read: {samples}")
    kind = cs.SpikingRegressor if regress else cs.SpikingClassifier
    if class_weight is not None and regress:
        raise InvalidInputError("expected --class-weight without --regress, got both: drop one or the other")
    if impute is not None and options.layout == "channels-first":
        raise InvalidInputError(
            "expected --impute with steps before channels, got --layout channels-first: transpose X"
        )
    parameters = asdict(options) | {"hidden": None if options.hidden is None else parse_widths(options.hidden)}
    for name in ("n_neurons", "sparsity", "l1_strength", "l2_strength"):
        parameters[name] = _number_or_word(parameters[name])
    if windows is not None and readout not in (None, "mean"):
        raise InvalidInputError(f"expected readout='mean' beside --windows, got {readout!r}")
    if class_weight is not None:
        parameters["class_weight"] = class_weight
    dynamics = {"n_subnetworks": subnetworks, "neuron": neuron, "decay": decay, "threshold": threshold}
    model = kind(
        **parameters,
        witnesses=_witnesses(witnesses, trials, dynamics),
        readout=readout if windows is None else f"windows-{windows}",
        surrogate=cs.fitting.SurrogateSettings(epochs=epochs, seed=seed),
        random_state=seed,
        verbose=True,
    )
    fills = [] if impute is None else [("impute", cs.SequenceImputer(impute))]
    pipeline = Pipeline([*fills, ("model", model)])
    if cv is not None:
        say(_cross_validate(pipeline, samples, cv, seed))
    pipeline.fit(samples.X, samples.y, model__sample_weight=samples.weight, model__groups=samples.groups)
    cs.save(pipeline if fills else model, output)
    console.print(model.network_)
    say(f"{'R²' if regress else 'accuracy'} on the training data: {pipeline.score(samples.X, samples.y):.4f}")
    say(f"certificate: {model.certificate_ or f'none, method {options.method} proves nothing'}")
    say(f"saved: {output}")


def _cross_validate(pipeline: Pipeline, samples: Data, n_folds: int, seed: int) -> str:
    """Return in words how well samples are predicted by models that were fitted without them and their groups."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, r2_score
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, cross_val_predict

    X, y, groups = samples.X, samples.y, samples.groups
    assert y is not None
    is_classifier = isinstance(pipeline[-1], cs.SpikingClassifier)
    splitters = (KFold, GroupKFold, StratifiedKFold, StratifiedGroupKFold)
    splitter = splitters[2 * is_classifier + (groups is not None)](n_folds, shuffle=True, random_state=seed)
    of, n_most = ("samples", len(y)) if groups is None else ("groups", len(set(groups.tolist())))
    if n_folds > n_most:
        raise InvalidInputError(f"expected --cv of at most {n_most}, the number of {of}, got {n_folds}")
    weights = {"model__sample_weight": samples.weight, "model__groups": groups}
    quiet = clone(pipeline).set_params(model__verbose=False)
    predicted = cross_val_predict(quiet, X, y, groups=groups, cv=splitter, params=weights)
    scores = {"R²": r2_score}
    if is_classifier:
        scores = {"accuracy": accuracy_score, "balanced accuracy": balanced_accuracy_score}
    folds = [held for _, held in splitter.split(y, y, groups)]
    parts = []
    for name, score in scores.items():
        by_fold = [score(y[held], predicted[held]) for held in folds]
        parts.append(f"{name} {score(y, predicted):.4f} (folds {min(by_fold):.4f} to {max(by_fold):.4f})")
    return f"cross-validated in {n_folds} folds of {of}: {', '.join(parts)}"


def _witnesses(named: str, trials: int | None, dynamics: Mapping[str, Any]) -> Any:
    """Return the family that the options describe, a search with a number of trials, or the name as it is."""
    family = {name: value for name, value in dynamics.items() if value is not None}
    options = ["--trials"] * (trials is not None) + [f"--{name.removeprefix('n_')}" for name in family]
    if options and named not in ("auto", "gaussian" if trials is None else "search"):
        raise InvalidInputError(
            f"expected {' and '.join(options)} without --witnesses {named}, which it does not apply to, got both: drop "
            "one or the other"
        )
    if trials is not None and family:
        raise InvalidInputError(f"expected --trials or dynamics of the neurons, got both: drop {', '.join(family)}")
    if trials is not None:
        return cs.fitting.Tuning(n_trials=trials)
    return family or named


@command
def predict(
    model: ModelFile,
    data: DataFile,
    table: TableOptions,
    output: Annotated[Path | None, Option("-o", "--output", help="An .npz or .csv file."), PREDICTIONS] = None,
    proba: Annotated[bool, Option("--proba", help="Also write the probabilities of the classes.")] = False,
) -> None:
    """Predict with a saved model: one prediction per line, or a file with an array `y` or a table."""
    from ..core.storage import write_atomically

    estimator = load_estimator(model)
    if proba and not hasattr(estimator, "predict_proba"):
        raise InvalidInputError("expected a classifier that predicts probabilities for --proba, got another model")
    samples = read_data(data, table, needs_targets=False, model=estimator)
    predicted = estimator.predict(samples.X)
    # Everything is computed before anything is written: an error leaves no half of an answer.
    shares = estimator.predict_proba(samples.X) if proba else None
    score = None if samples.y is None else estimator.score(samples.X, samples.y)
    if output is not None and output.suffix.lower() != ".csv":
        write_atomically(output, _archive({"y": predicted, "ids": samples.ids, "proba": shares}))
    elif output is None and samples.ids is None and not proba:
        put("".join(f"{value}\n" for value in predicted.tolist()))
    else:
        columns = {} if samples.ids is None else {table.id_column or "id": samples.ids}
        columns |= _columns("y", predicted)
        if shares is not None:
            columns |= _columns("probability", shares, estimator.classes_)
        if output is None:
            put(_csv(columns))
        else:
            write_atomically(output, _csv(columns).encode())
    if output is not None:
        say(f"saved: {output}")
    if score is not None:
        typer.echo(f"score against y: {score:.4f}", err=True)


@command
def explain(
    model: ModelFile,
    data: DataFile,
    table: TableOptions,
    sample: Annotated[int, Option(min=0, help="Number of the sequence, from 0.")] = 0,
    output: Annotated[Path | None, Option("-o", "--output", help="A figure of evidence over time."), FIGURE] = None,
) -> None:
    """Say which steps and neurons the answer of a saved model to one sequence is due to."""
    from ..core.storage import write_atomically
    from ..estimators.pipelines import split_pipeline

    loaded = load_estimator(model)
    samples = read_data(data, table, needs_targets=False, model=loaded)
    if sample >= len(samples.X):
        count = plural(len(samples.X), "sequence")
        raise InvalidInputError(f"expected a --sample below {len(samples.X)}, got {sample}: {data} has {count}")
    X = samples.X[sample : sample + 1]
    transformers, estimator = split_pipeline(loaded)
    for transformer in transformers:
        X = transformer.transform(X)
    (explanation,) = estimator.explain(X)
    say(explanation)
    if output is not None:
        from matplotlib.figure import Figure

        figure, buffer = Figure(figsize=(7, 5), layout="constrained"), io.BytesIO()
        explanation.plot(figure.subplots(2, sharex=True))
        figure.savefig(buffer, format="png", metadata={"Software": "cvxsnn"})
        write_atomically(output, buffer.getvalue())
        say(f"saved: {output}")


@command
def certify(
    model: ModelFile,
    data: DataFile,
    table: TableOptions,
    complete: Annotated[bool, Option("--complete", help="Also over all neurons.")] = False,
    seconds: Annotated[float, Option(min=0.1, help="Time for --complete, for each output.")] = 60.0,
    certificate: Annotated[Path | None, Option(help="Proof over all neurons; an old one goes on."), PROOF] = None,
    improved: Annotated[Path | None, Option(help="Where to write the network of --certificate."), MODEL] = None,
    tol: Annotated[float, Option(min=0.0, help="The relative gap that --certificate aims at.")] = 1e-3,
) -> None:
    """Prove again, from a saved model and the data it was trained on, how far from optimal it can be."""
    from ..estimators.base import is_same_objective
    from ..estimators.pipelines import replace_last, split_pipeline

    loaded = load_estimator(model)
    transformers, estimator = split_pipeline(loaded)
    if improved is not None and certificate is None:
        raise InvalidInputError("expected --certificate, which finds the network that --improved saves, got none")
    samples = read_data(data, table, needs_targets=True, model=loaded)
    X = samples.X
    for transformer in transformers:
        X = transformer.transform(X)
    warnings.simplefilter("always", OtherDataWarning)  # also if a caller's filter hides warnings
    proven = estimator.certify(X, samples.y, samples.weight)
    stated = estimator.certificate_
    say(f"found now:  {proven}")
    say(f"as saved:   {stated}")
    if not is_same_objective(proven, stated):
        say(
            "the objectives differ: these are not the data that the model was trained on, or the file was changed",
            "yellow",
        )
        raise Exit(2)
    kind = "selected" if proven.scope == "selected" else "hidden"
    say(f"proven: no other read-out of these {kind} neurons has an objective lower by more than the gap")
    if estimator.proof_.penalty.has_quadratic:
        say("neurons with equal spikes on these data count as one: their weights are added before they are squared")
    if certificate is not None:
        from .complete import prove_in_file

        better = prove_in_file(certificate, estimator, proven.primal, X, samples, seconds, tol)
        if improved is not None:
            cs.save(replace_last(loaded, better), improved)
            say(f"saved: {improved}")
        return
    if not complete:
        say("not proven: anything about other neurons (see --complete), or about new data")
        return
    over_all = estimator.certify_complete(X, samples.y, samples.weight, max_seconds=seconds)
    say(f"over all:   {over_all.certificate}")
    say(f"proven: no read-out of any {over_all.neurons}, however many, has an objective lower by more than that")
    if not over_all.is_finished:
        say("the search was stopped by its limit: more --seconds may prove more", "yellow")
    say("not proven: anything about other decays or delays, deeper networks, or new data")


def load_estimator(path: Path) -> Any:
    model = cs.load(path)
    if isinstance(model, cs.SpikingNetwork):
        raise InvalidInputError(f"expected a fitted classifier or regressor in {path}, got a bare network")
    if isinstance(model, cs.EarlyClassifier):
        raise InvalidInputError(
            f"expected a fitted classifier or regressor in {path}, got an EarlyClassifier: save its model_, or load it "
            "in Python with cvxsnn.load"
        )
    return model


def _number_or_word(text: str | None) -> Any:
    """Return a number if the text is one; the estimator checks words."""
    for number in (int, float):
        with suppress(TypeError, ValueError):
            return number(text)  # type: ignore[arg-type]
    return text


def _archive(arrays: Mapping[str, npt.NDArray[Any] | None]) -> bytes:
    """Return the content of a NumPy archive; objects, which it could only pickle, become texts."""
    known: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, **{name: array.astype(str) if array.dtype == object else array for name, array in known.items()}
    )
    return buffer.getvalue()


def _columns(name: str, values: npt.NDArray[Any], labels: Any = None) -> dict[str, npt.NDArray[Any]]:
    """Return an array as named columns, with labels or numbers in their names if there are several."""
    if values.ndim == 1:
        return {name: values}
    labels = range(values.shape[1]) if labels is None else labels
    return {f"{name}_{label}": column for label, column in zip(labels, values.T, strict=True)}


def _csv(columns: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return columns as text, with their names in the first line; every cell can be read back as it is."""
    lines: list[str] = []
    # With both characters in the line end, cells that contain either are quoted.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerows([tuple(columns), *zip(*(column.tolist() for column in columns.values()), strict=True)])
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)
