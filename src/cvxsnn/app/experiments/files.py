"""Experiment files: those that come with the package, and files of one's own."""

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ...core.errors import DataFileError, InvalidInputError, first_line
from .checks import check_configurations, check_keys
from .experiment import Experiment, RunConfig, Scale, parse_experiment


def experiment_names() -> list[str]:
    """Return the names of the experiments that come with the package, in the order of the paper."""
    return list(_files())


def load_experiment(name: str, scale: Scale = "paper") -> Experiment:
    """Read an experiment and fill in what its cells leave to the defaults.

    Parameters
    ----------
    name : str
        One of :func:`experiment_names`, or the path of a ``.toml`` file, which is checked key by key.
    scale : {"paper", "smoke"}
        At smoke scale, the file's ``[smoke]`` table overrides sizes, and seeds and cells are cut down.

    Returns
    -------
    Experiment
        The experiment.
    """
    if name.endswith(".toml"):
        return _load_own(Path(name), scale)
    files = _files()
    if name not in files:
        raise InvalidInputError(f"expected an experiment among {', '.join(files)}, or a .toml file, got {name!r}")
    return parse_experiment(name, tomllib.loads(files[name].read_text(encoding="utf-8")), scale)


def all_runs(names: Sequence[str], scale: Scale, rows: Collection[str] = ()) -> dict[str, RunConfig]:
    """Return every run of some experiments, or of the rows of that name, shared ones once."""
    experiments = [load_experiment(name, scale) for name in names]
    known = {cell.row: None for experiment in experiments for cell in experiment.cells}
    for row in rows:
        if row not in known:
            raise InvalidInputError(f"expected a row among {', '.join(map(repr, known))}, got {row!r}")
    runs: dict[str, RunConfig] = {}
    for experiment in experiments:
        runs |= experiment.runs(rows)
    return runs


def _files() -> dict[str, Traversable]:
    """Files by name; the number before it gives the order."""
    folder = resources.files(__package__) / "data"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml").partition("-")[2]: file for file in files}


def _load_own(path: Path, scale: Scale) -> Experiment:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(f"expected an experiment at {path}, found no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataFileError(f"expected {path} to be a TOML file that can be read, got: {first_line(error)}") from None
    check_keys(data, str(path))
    experiment = replace(parse_experiment(path.stem, data, scale), source=str(path))
    check_configurations(experiment, str(path))
    return experiment
