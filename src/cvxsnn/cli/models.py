"""``cvxsnn fit``, ``predict`` and ``certify``: models in files."""

import csv
import io
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..core.errors import InvalidInputError, OtherDataWarning
from .common import ModelFile, command, complain, parse_widths, put, say, show
from .complete import prove_in_file
from .data_files import DataFile, TableOptions, read_data
from .files import MODEL, PREDICTIONS, PROOF


@dataclass(frozen=True)
class FitOptions:
    """Parameters of the estimators that are options of ``cvxsnn fit``, by their names there."""

    layout: Annotated[
        str | None, typer.Option(help="channels-first if X of an .npz file is (n_samples, n_channels, n_steps).")
    ] = None
    method: Annotated[str, typer.Option(help="cvx, sg, sg-cvx, sg-sg, cvx-sg, r or r-cvx.")] = "cvx"
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers, such as 256,512.")] = None
    n_neurons: Annotated[str, typer.Option("--neurons", help="Number of hidden neurons, or auto.")] = "auto"
    sparsity: Annotated[str | None, typer.Option(help="Largest number of neurons to read, or few.")] = None
    max_seconds: Annotated[float | None, typer.Option("--seconds", help="Time for the fit.")] = None
    loss: Annotated[str | None, typer.Option(help="logistic, softmax, hinge, squared_hinge or squared.")] = None
    penalty: Annotated[str, typer.Option(help="auto, l1, group, elastic-net or group-elastic-net.")] = "auto"
    l1_strength: Annotated[str, typer.Option("--strength", help="Strength of the norm, or auto.")] = "auto"
    l2_strength: Annotated[str, typer.Option(help="Strength of half the sum of squares, or auto.")] = "auto"


@command
def fit(
    data: DataFile,
    table: TableOptions,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the model."), MODEL],
    options: FitOptions,
    subnetworks: Annotated[int | None, typer.Option(min=1, help="Parallel subnetworks.")] = None,
    neuron: Annotated[str | None, typer.Option(help="lif or threshold.")] = None,
    witnesses: Annotated[str, typer.Option(help="auto, mixed, search, gaussian or delayed.")] = "auto",
    trials: Annotated[int | None, typer.Option(min=1, help="Families that a search tries.")] = None,
    decay: Annotated[float | None, typer.Option(help="Decay of all neurons; then nothing is searched for.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Threshold of all neurons, likewise.")] = None,
    readout: Annotated[str | None, typer.Option(help="mean or last; whichever is better by default.")] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="Windows of time that means are taken in.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="For methods with surrogate gradients.")] = 50,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    regress: Annotated[bool, typer.Option("--regress", help="Predict real numbers instead of classes.")] = False,
) -> None:
    """Train a spiking network on a data file and save it."""
    from ..estimators import SpikingClassifier, SpikingRegressor
    from ..estimators.files import save
    from ..fitting.surrogate.settings import SurrogateSettings

    found = read_data(data, table, needs_targets=True)
    if found.is_table:
        say(f"read: {found}")
    kind = SpikingRegressor if regress else SpikingClassifier
    given = asdict(options)
    given["hidden"] = None if options.hidden is None else parse_widths(options.hidden)
    for name in ("n_neurons", "sparsity", "l1_strength", "l2_strength"):
        given[name] = _number_or_word(given[name])
    if windows is not None and readout not in (None, "mean"):
        raise InvalidInputError(f"expected readout='mean' beside --windows, got {readout!r}")
    dynamics = {"n_subnetworks": subnetworks, "neuron": neuron, "decay": decay, "threshold": threshold}
    model = kind(
        **given,
        witnesses=_witnesses(witnesses, trials, dynamics),
        readout=readout if windows is None else f"windows-{windows}",
        surrogate=SurrogateSettings(epochs=epochs, seed=seed),
        random_state=seed,
        verbose=True,
    )
    model.fit(found.X, found.y, sample_weight=found.weight)
    save(model, output)
    show(model.network_)
    name = "R²" if regress else "accuracy"
    say(f"{name} on the training data: {model.score(found.X, found.y):.4f}")
    say(f"certificate: {model.certificate_ or f'none, method {options.method} proves nothing'}")
    say(f"saved: {output}")


def _witnesses(named: str, trials: int | None, dynamics: Mapping[str, Any]) -> Any:
    """Return the family that the options describe, a search with a number of trials, or the name as it is."""
    from ..fitting.search import Tuning

    family = {name: value for name, value in dynamics.items() if value is not None}
    if trials is not None and family:
        raise InvalidInputError(f"expected --trials or dynamics of the neurons, got both: drop {', '.join(family)}")
    if trials is not None:
        return Tuning(n_trials=trials)
    return family or named


@command
def predict(
    model: ModelFile,
    data: DataFile,
    table: TableOptions,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .npz or .csv file to write; else text."), PREDICTIONS
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probabilities of the classes.")] = False,
) -> None:
    """Predict with a saved model: one prediction per line, or a file with an array `y` or a table."""
    from ..core.storage import write_atomically

    estimator = load_estimator(model)
    if proba and not hasattr(estimator, "predict_proba"):
        raise InvalidInputError("expected a classifier that predicts probabilities for --proba, got another model")
    found = read_data(data, table, needs_targets=False, model=estimator)
    predicted = estimator.predict(found.X)
    shares = estimator.predict_proba(found.X) if proba else None
    score = None if found.y is None else estimator.score(found.X, found.y)
    if output is not None and output.suffix.lower() != ".csv":
        arrays = {"y": predicted, "ids": found.ids, "proba": shares}
        write_atomically(output, _archive({name: array for name, array in arrays.items() if array is not None}))
    elif output is None and found.ids is None and not proba:
        put("".join(f"{value}\n" for value in predicted.tolist()))
    else:
        ids = {} if found.ids is None else {table.id_column or "id": found.ids}
        columns = ids | _columns("y", None, predicted)
        if shares is not None:
            columns |= _columns("probability", estimator.classes_, shares)
        text = _csv(columns)
        if output is None:
            put(text)
        else:
            write_atomically(output, text.encode())
    if output is not None:
        say(f"saved: {output}")
    if score is not None:
        typer.echo(f"score against y: {score:.4f}", err=True)


@command
def certify(
    model: ModelFile,
    data: DataFile,
    table: TableOptions,
    complete: Annotated[bool, typer.Option("--complete", help="Also over all neurons.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for --complete, for each output.")] = 60.0,
    certificate: Annotated[
        Path | None,
        typer.Option(help="A file for the proof over all neurons; where it exists, the proof goes on from it."),
        PROOF,
    ] = None,
    improved: Annotated[
        Path | None, typer.Option(help="Where to write the model with the network that --certificate is about."), MODEL
    ] = None,
    tol: Annotated[float, typer.Option(min=0.0, help="The relative gap that --certificate aims at.")] = 1e-3,
) -> None:
    """Prove again, from a saved model and the data it was trained on, how far from optimal it can be."""
    from ..estimators.files import save
    from ..estimators.pipelines import replace_last, split_pipeline

    loaded = load_estimator(model)
    transformers, estimator = split_pipeline(loaded)
    if improved is not None and certificate is None:
        raise InvalidInputError("expected --certificate, which finds the network that --improved saves, got none")
    given = read_data(data, table, needs_targets=True, model=loaded)
    X = given.X
    for transformer in transformers:
        X = transformer.transform(X)
    warnings.simplefilter("always", OtherDataWarning)
    found = estimator.certify(X, given.y, given.weight)
    stated = estimator.certificate_
    say(f"found now:  {found}")
    say(f"as saved:   {stated}")
    agrees = abs(found.primal - stated.primal) <= 1e-9 * max(1.0, abs(stated.primal))
    if not agrees:
        say("the objectives differ: these are not the data that the model was trained on", "yellow")
        raise typer.Exit(2)
    kind = "selected" if found.scope == "selected" else "sampled"
    say(f"proven: no other read-out of these {kind} neurons has an objective lower by more than the gap")
    if estimator.proof_.penalty.has_quadratic:
        say("neurons with equal spikes on these data count as one: their weights are added before they are squared")
    if certificate is not None:
        better = prove_in_file(certificate, estimator, X, given, seconds, tol)
        if improved is not None:
            save(replace_last(loaded, better), improved)
            say(f"saved: {improved}")
        return
    if not complete:
        say("not proven: anything about other neurons (see --complete), or about new data")
        return
    whole = estimator.certify_complete(X, given.y, given.weight, max_seconds=seconds)
    say(f"over all:   {whole.certificate}")
    say(f"proven: no read-out of any {whole.neurons}, however many, has an objective lower by more than that")
    if not whole.is_finished:
        say("the search was stopped by its limit: more --seconds may prove more", "yellow")
    say("not proven: anything about other decays or delays, deeper networks, or new data")


def load_estimator(path: Path) -> Any:
    from ..estimators.files import load
    from ..network.spiking_network import SpikingNetwork

    model = load(path)
    if isinstance(model, SpikingNetwork):
        raise InvalidInputError(f"expected a fitted classifier or regressor in {path}, got a bare network")
    return model


def _number_or_word(text: str | None) -> Any:
    """Return a number if the text is one; the estimator checks words."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _archive(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays as the content of a NumPy archive, without objects."""
    buffer = io.BytesIO()
    plain: dict[str, Any] = {
        name: array.astype(str) if array.dtype == object else array for name, array in arrays.items()
    }
    np.savez_compressed(buffer, **plain)
    return buffer.getvalue()


def _columns(name: str, labels: Any, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return an array as named columns; ``labels`` tell columns apart, by default numbers."""
    if values.ndim == 1:
        return {name: values}
    labels = range(values.shape[1]) if labels is None else labels
    return {f"{name}_{label}": column for label, column in zip(labels, values.T, strict=True)}


def _csv(columns: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return columns as text, with their names in the first line; every cell can be read back as it is.

    Labels that a spreadsheet would run as formulas are not changed, which would make other labels of them; a note
    names the first.
    """
    rows = [tuple(columns), *zip(*(column.tolist() for column in columns.values()), strict=True)]
    formula = next((cell for row in rows for cell in row if isinstance(cell, str) and _is_formula(cell)), None)
    if formula is not None:
        complain(
            f"spreadsheets take texts such as {formula!r} for formulas: open the table as text, or write .npz", "yellow"
        )
    lines: list[str] = []
    # With both characters in the line end, cells that contain either are quoted.
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def _is_formula(text: str) -> bool:
    """Return whether a spreadsheet computes a cell with this text, which is no number."""
    try:
        float(text)
    except ValueError:
        return text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return False
