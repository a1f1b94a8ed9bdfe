"""``cvxsnn demo``, ``fit``, ``predict``, ``certify``, ``export``, ``plan``, ``reproduce`` and ``report``."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from ..core.errors import CvxsnnError, InvalidInputError, first_line

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Spiking networks trained to a certified optimum.")
console = Console()

ModelFile = Annotated[Path, typer.Argument(help="A model written by `cvxsnn fit` or cvxsnn.save.")]
DataFile = Annotated[Path, typer.Argument(help="A .npz file with arrays X and y (np.savez).")]


@app.callback()
def main() -> None:
    """Spiking networks trained to a certified optimum."""


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What goes wrong on purpose, and bad input that scikit-learn finds, is one sentence and exit status 1."""
    complaint = Console(stderr=True)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: complaint.print(f"cvxsnn: {text}", style="yellow", markup=False)
            yield
    except (CvxsnnError, ValueError) as error:
        # scikit-learn follows its sentence with advice on its own estimators.
        complaint.print(f"cvxsnn: {first_line(error)}", style="red", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complaint.print("cvxsnn: interrupted; nothing was overwritten", style="red")
        raise typer.Exit(130) from None


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("cvxsnn-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of witnesses and batches.")] = 0,
) -> None:
    """Train spiking networks by five methods on tasks that need no files, and write a report."""
    from ..core.progress import ProgressBar
    from .demo import EXPERIMENTS, FIVE_METHODS, Result, run
    from .page import COLUMNS, rows, write_report

    with _plain_errors():
        results: list[Result] = []
        total = len(EXPERIMENTS) * len(FIVE_METHODS)
        with ProgressBar(console) as bar:
            for experiment in EXPERIMENTS:
                for method in FIVE_METHODS:
                    bar("demo", len(results), total)
                    results.append(run(experiment, method, seed))
        table = Table(*COLUMNS, title="Five ways to train a spiking network")
        for number, row in enumerate(rows(results)):
            if number and results[number].experiment != results[number - 1].experiment:
                table.add_section()
            table.add_row(*row)
        console.print(table)
        console.print(f"report: {write_report(results, output)}", soft_wrap=True, markup=False)


@app.command()
def fit(
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the model.")],
    method: Annotated[str, typer.Option(help="cvx, sg, sg-cvx, sg-sg, cvx-sg, r or r-cvx.")] = "cvx",
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers, such as 256,512.")] = None,
    subnetworks: Annotated[int | None, typer.Option(min=1, help="Parallel subnetworks.")] = None,
    neuron: Annotated[str, typer.Option(help="lif or threshold.")] = "lif",
    witnesses: Annotated[str, typer.Option(help="auto (search for a family of neurons) or gaussian.")] = "auto",
    trials: Annotated[int | None, typer.Option(min=1, help="Families that the search tries.")] = None,
    decay: Annotated[float | None, typer.Option(help="Decay of all neurons; then nothing is searched for.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Threshold of all neurons, likewise.")] = None,
    readout: Annotated[str | None, typer.Option(help="mean or last; whichever is better by default.")] = None,
    loss: Annotated[str | None, typer.Option(help="logistic, softmax, hinge, squared_hinge or squared.")] = None,
    strength: Annotated[str, typer.Option(help="Number that multiplies the L1 norm, or auto.")] = "auto",
    epochs: Annotated[int, typer.Option(min=1, help="For methods with surrogate gradients.")] = 50,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    regress: Annotated[bool, typer.Option("--regress", help="Predict real numbers instead of classes.")] = False,
) -> None:
    """Train a spiking network on a data file and save it."""
    from ..data.npz import read_data
    from ..estimators import SpikingClassifier, SpikingRegressor
    from ..estimators.files import save
    from ..training.surrogate.settings import SurrogateSettings

    with _plain_errors():
        X, y, weight = read_data(data, needs_targets=True)
        _check_folder(output)
        kind = SpikingRegressor if regress else SpikingClassifier
        model = kind(
            method,
            None if hidden is None else _widths(hidden),
            subnetworks,
            witnesses=witnesses,
            n_trials=trials,
            neuron=neuron,
            decay=decay,
            threshold=threshold,
            readout=readout,
            loss=loss,
            l1_strength=_strength(strength),
            surrogate=SurrogateSettings(epochs=epochs, seed=seed),
            random_state=seed,
            verbose=True,
        )
        model.fit(X, y, sample_weight=weight)
        save(model, output)
        console.print(model.network_, highlight=False)
        name = "R²" if regress else "accuracy"
        console.print(f"{name} on the training data: {model.score(X, y):.4f}")
        console.print(f"certificate: {model.certificate_ or f'none, method {method} proves nothing'}", soft_wrap=True)
        console.print(f"saved: {output}", soft_wrap=True, markup=False)


@app.command()
def predict(
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="A .npz file with an array X.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .npz file to write; else text.")] = None,
) -> None:
    """Predict with a saved model: one prediction a line, or an array `y` in a file."""
    from ..core.storage import write_atomically
    from ..data.npz import read_data

    with _plain_errors():
        estimator = _load_estimator(model)
        X, y, _ = read_data(data, needs_targets=False)
        predicted = estimator.predict(X)
        if output is None:
            for value in predicted.tolist():
                typer.echo(value)
        else:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, y=predicted.astype(str) if predicted.dtype == object else predicted)
            write_atomically(output, buffer.getvalue())
            console.print(f"saved: {output}", soft_wrap=True, markup=False)
        if y is not None:
            Console(stderr=True).print(f"score against y: {estimator.score(X, y):.4f}")


@app.command()
def certify(
    model: ModelFile,
    data: DataFile,
    complete: Annotated[
        bool, typer.Option("--complete", help="Also over all neurons, not only the sampled ones.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for --complete, for each output.")] = 60.0,
) -> None:
    """Prove again, from a saved model and the data it was trained on, how far from optimal it can be."""
    from ..data.npz import read_data

    with _plain_errors():
        estimator = _load_estimator(model)
        X, y, weight = read_data(data, needs_targets=True)
        found = estimator.certify(X, y, weight)
        stated = estimator.certificate_
        console.print(f"found now:  {found}", soft_wrap=True)
        console.print(f"as saved:   {stated}", soft_wrap=True)
        agrees = abs(found.primal - stated.primal) <= 1e-9 * max(1.0, abs(stated.primal))
        if not agrees:
            console.print("the objectives differ: these are not the data that the model was trained on", style="yellow")
            raise typer.Exit(2)
        console.print(
            "proven: no other read-out of these sampled neurons has an objective lower by more than the gap",
            soft_wrap=True,
        )
        if not complete:
            console.print("not proven: anything about other neurons (see --complete), or about new data")
            return
        whole = estimator.certify_complete(X, y, weight, max_seconds=seconds)
        bias = "with" if whole.family.bias else "without"
        console.print(f"over all:   {whole.certificate}", soft_wrap=True)
        console.print(
            f"proven: no read-out of any LIF neurons with decay {whole.family.decay:g}, {bias} bias, however many, has "
            "an objective lower by more than that",
            soft_wrap=True,
        )
        if not whole.is_finished:
            console.print("the search was stopped by its limit: more --seconds may prove more", style="yellow")
        console.print("not proven: anything about other decays, deeper networks, or new data")


@app.command()
def export(
    model: ModelFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write.")],
    to: Annotated[str, typer.Option(help="The format: nir.")] = "nir",
    lossy: Annotated[bool, typer.Option("--lossy", help="Plain LIF nodes, which reset otherwise than ours.")] = False,
    dt: Annotated[float, typer.Option(help="Seconds a step.")] = 1e-4,
) -> None:
    """Write a saved model in a format of others."""
    from ..estimators.files import load
    from ..exchange.nir import to_nir, write_nir
    from ..network.spiking_network import SpikingNetwork

    with _plain_errors():
        if to != "nir":
            raise InvalidInputError(
                f"expected --to nir, got {to!r}: other libraries have no file format, so use cvxsnn.exchange in Python"
            )
        _check_folder(output)
        found = load(model)
        network = found if isinstance(found, SpikingNetwork) else found.network_
        graph = to_nir(network, lossy=lossy, dt=dt)
        note = ""
        if not isinstance(found, SpikingNetwork):
            graph.metadata |= {"input_mean": found._mean, "input_scale": found._scale}
            note = "; it reads (X − input_mean) / input_scale, see its metadata"
        write_nir(graph, output)
        kind = "lossy" if lossy else "exact"
        console.print(
            f"saved: {output}, {kind} graph of {len(graph.nodes)} nodes, dt {dt:g} s{note}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; all of them by default.")] = None,
    scale: Annotated[str, typer.Option(help="smoke (minutes) or paper (hours).")] = "smoke",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for records.")] = Path("cvxsnn-results"),
    row: Annotated[list[str] | None, typer.Option(help="Only runs of this row; may be given often.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only runs of this method; may be given often.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one for each core.")] = -1,
    backend: Annotated[str, typer.Option(help="A joblib backend, such as dask or ray once it is registered.")] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="HOST:PORT of a Dask scheduler, for --backend dask.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
) -> None:
    """Run the paper's experiments. Stop it whenever you like: the same command goes on where it was."""
    from joblib import parallel_config

    from ..core.checks import check_choice, check_device
    from ..core.progress import ProgressBar
    from ..training.methods import METHODS
    from .experiments import RecordStore, all_runs, experiment_names, load_experiment, run_all

    with _plain_errors():
        check_choice("--scale", scale, ("smoke", "paper"))
        if show:
            table = Table("name", "title", "cells", "runs")
            for name in experiment_names():
                experiment = load_experiment(name, scale)  # type: ignore[arg-type]
                table.add_row(name, experiment.title, str(len(experiment.cells)), str(len(experiment.runs())))
            console.print(table)
            return
        chosen = names or experiment_names()
        runs = all_runs(chosen, scale, row or ())  # type: ignore[arg-type]
        if method:
            for name in method:
                check_choice("--method", name, tuple(METHODS))
            runs = {name: config for name, config in runs.items() if config.method in method}
        store = RecordStore(output / scale)
        if scheduler is not None and backend != "dask":
            raise InvalidInputError(f"expected --backend dask beside a --scheduler, got --backend {backend}")
        host = {} if scheduler is None else {"scheduler_host": scheduler}
        try:
            carrier = parallel_config(backend, n_jobs=jobs, **host)
        except (ValueError, ImportError, TypeError, OSError) as error:
            raise InvalidInputError(
                f"expected a joblib backend that is at hand, got {backend!r}: {error}; for Dask name a "
                "--scheduler that answers"
            ) from error
        place = str(check_device(device))
        with ProgressBar(console) as bar, carrier:
            outcome = run_all(runs, store, n_jobs=jobs, device=place, retry_failed=retry_failed, report=bar)
        for record in outcome.damaged:
            console.print(
                f"made again: {record.path} had {record.reason}", style="yellow", markup=False, soft_wrap=True
            )
        console.print(
            f"{outcome.n_done} runs done, {outcome.n_failed} failed, {outcome.n_skipped} were there already; "
            f"now: cvxsnn report --records {output} --scale {scale}",
            soft_wrap=True,
            markup=False,
        )
        if outcome.n_failed:
            raise typer.Exit(1)


@app.command()
def report(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; all of them by default.")] = None,
    records: Annotated[Path, typer.Option(help="Folder that `cvxsnn reproduce` wrote.")] = Path("cvxsnn-results"),
    scale: Annotated[str, typer.Option(help="smoke or paper.")] = "smoke",
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("cvxsnn-report.html"),
    tables: Annotated[
        Path | None, typer.Option(help="Folder for small files too: a table and its numbers for each experiment.")
    ] = None,
) -> None:
    """Render records as one page: every table and figure, ours beside the paper's."""
    from ..core.checks import check_choice
    from ..core.errors import DataFileError
    from .experiments import RecordStore, experiment_names, load_experiment
    from .experiments.report import write_report
    from .experiments.tables import write_tables

    with _plain_errors():
        check_choice("--scale", scale, ("smoke", "paper"))
        folder = records / scale
        if not folder.is_dir():
            raise DataFileError(f"expected records in {folder}, found no such folder: run `cvxsnn reproduce` first")
        found, damaged = RecordStore(folder).read_all()
        experiments = [load_experiment(name, scale) for name in names or experiment_names()]  # type: ignore[arg-type]
        write_report(output, experiments, found, damaged, scale)  # type: ignore[arg-type]
        console.print(f"report: {output}", soft_wrap=True, markup=False)
        if tables is not None:
            written = write_tables(tables, experiments, found, scale)  # type: ignore[arg-type]
            console.print(f"tables: {len(written)} files in {tables}", soft_wrap=True, markup=False)


@app.command()
def plan(
    rows: Annotated[int, typer.Option(help="Sequences; with --readout all each of their steps is a row.")],
    columns: Annotated[int, typer.Option(help="Witnesses.")],
    steps: Annotated[int, typer.Option(help="Steps of a sequence.")],
    outputs: Annotated[int, typer.Option(help="Outputs, or classes of a softmax.")] = 1,
    features: Annotated[int, typer.Option(help="Numbers of a step.")] = 16,
    hidden: Annotated[str | None, typer.Option(help="Widths of a subnetwork's layers, such as 256,512.")] = None,
    loss: Annotated[str, typer.Option(help="squared, logistic, softmax or hinge.")] = "squared",
    readout: Annotated[str, typer.Option(help="last, mean or all.")] = "last",
    strength_ratio: Annotated[float, typer.Option(help="Strength, relative to the critical one.")] = 0.01,
    active: Annotated[int | None, typer.Option(help="Active atoms of an output, where known.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    memory: Annotated[str | None, typer.Option(help="Of one machine, such as 64GB; what is available here.")] = None,
    machines: Annotated[int, typer.Option(help="Machines of a cluster.")] = 1,
    cores: Annotated[int | None, typer.Option(help="Cores of each; as many threads as here by default.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of each; then they do the work.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Foresee memory and time of a job, from rates measured here in a few seconds."""
    from ..core.memory import parse_bytes
    from .planning import Cluster
    from .planning import plan as foresee

    with _plain_errors():
        found = foresee(
            rows,
            columns,
            steps,
            n_features=features,
            hidden=None if hidden is None else _widths(hidden),
            n_outputs=outputs,
            loss=loss,  # type: ignore[arg-type]
            readout=readout,  # type: ignore[arg-type]
            strength_ratio=strength_ratio,
            n_active=active,
            device=device,
            memory=None if memory is None else parse_bytes(memory),
            cluster=Cluster(machines, cores, gpus),
        )
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=2))
            return
        console.print(found.job, soft_wrap=True, highlight=False)
        table = Table("memory", "", "time", " ", title_justify="left")
        for line in zip_longest(found.memory_rows(), found.time_rows(), fillvalue=("", "")):
            table.add_row(*line[0], *line[1])
        console.print(table)
        style = "green" if found.fits else "red"
        console.print(f"runs {found.place}, solver {found.solver}", style=style, highlight=False, soft_wrap=True)
        for sentence in found.assumptions:
            console.print(f"assumed: {sentence}", highlight=False, soft_wrap=True)


def _load_estimator(path: Path) -> Any:
    from ..estimators.files import load
    from ..network.spiking_network import SpikingNetwork

    model = load(path)
    if isinstance(model, SpikingNetwork):
        raise InvalidInputError(f"expected a fitted classifier or regressor in {path}, got a bare network")
    return model


def _widths(text: str) -> tuple[int, ...]:

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"expected widths such as 256,512, got {text!r}") from None


def _strength(text: str) -> float | str:

    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"expected a number or auto for --strength, got {text!r}") from None


def _check_folder(path: Path) -> None:
    """Refuse a place that cannot be written to before the work, not after it."""
    from ..core.errors import DataFileError

    if not path.parent.is_dir() or path.is_dir():
        raise DataFileError(f"expected a file in an existing folder for the model, got {path}: make the folder first")
