"""The paper's experiments as data files, a runner that can be stopped at any time, and the report."""

from .experiment import Experiment, RunConfig
from .files import all_runs, experiment_names, import_tasks, load_experiment
from .records import RecordStore
from .runner import Outcome, run_all

__all__ = [
    "Experiment",
    "Outcome",
    "RecordStore",
    "RunConfig",
    "all_runs",
    "experiment_names",
    "import_tasks",
    "load_experiment",
    "run_all",
]
