"""The installed command: it starts, and Ctrl-C ends it in one line at any moment of its start."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INTERRUPTED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["cvxsnn", *{arguments!r}]
import {script}
{script}.{function}()
"""


def run(code):
    """Run a program with signals as a terminal has them, also if these tests run in the background."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


@pytest.mark.parametrize("module", ["cvxsnn", "torch", "typer", "cvxsnn.theory.check_certificate"])
def test_an_interrupt_while_libraries_are_loaded_is_one_line(module):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    script, _, function = project["scripts"]["cvxsnn"].partition(":")
    code = INTERRUPTED.format(module=module, script=script, function=function, arguments=["check", "README.md"])
    done = run(code)
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("cvxsnn: interrupted; nothing was ")
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_an_interrupt_is_not_obeyed_where_it_is_ignored():
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += INTERRUPTED.format(module="typer", script="cvxsnn_command", function="main", arguments=["--version"])
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cvxsnn ")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has expandable segments")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "None"),
    ],
)
def test_the_allocator_of_a_gpu_is_set_before_torch_loads_unless_the_user_has_set_it(given, expected):
    code = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n"
        "            raise SystemExit\n"
        f"os.environ |= {given!r}\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import cvxsnn_command\n"
        "cvxsnn_command.main()\n"
    )
    assert run(code).stdout == f"{expected}\n"
