"""What ``import cvxsnn`` loads, and what it loads on demand."""

import ast
import subprocess
import sys
from pathlib import Path

import cvxsnn

HEAVY = ("IPython", "joblib", "matplotlib", "numba", "pandas", "rich", "scipy", "sklearn")


def test_import_loads_no_library_that_takes_long():
    script = f"import sys, cvxsnn; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_loaded_on_demand_and_is_the_one_that_type_checkers_see():
    tree = ast.parse(Path(cvxsnn.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert {*cvxsnn.__all__, "__version__", "names_on_demand"} == {*seen} <= {*dir(cvxsnn)}
    for name, room in seen.items():
        own = getattr(cvxsnn, name)
        assert own is (sys.modules[f"cvxsnn.{name}"] if room is None else getattr(sys.modules[f"cvxsnn.{room}"], name))


def test_short_names_of_modules_can_be_imported_from():
    from cvxsnn.audio import mel_spectrogram

    from cvxsnn.tasks import addition

    assert (addition, mel_spectrogram) == (cvxsnn.data.tasks.addition, cvxsnn.data.audio.mel_spectrogram)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    assert not hasattr(cvxsnn, "no_such_name")
