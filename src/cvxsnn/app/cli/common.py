"""Shared by all commands: the application, the console, errors as one sentence, and the parsing of options."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ...core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line, is_out_of_memory
from ...core.progress import ProgressBar
from ..formatting import printable

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Spiking networks trained to a certified optimum.")


class _Console(Console):
    """A console whose reader may leave: `cvxsnn check proof.json | head -1` ends with the status of the check."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be flushed at the end


console = _Console()

ModelFile = Annotated[Path, typer.Argument(help="A model written by `cvxsnn fit` or cvxsnn.save.")]


@app.callback()
def main() -> None:
    """Spiking networks trained to a certified optimum."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of cvxsnn, of input checks of other libraries, and of files, into one sentence and exit status 1."""
    complaint = Console(stderr=True)

    def complain(sentence: str, style: str = "red") -> None:
        complaint.print(f"cvxsnn: {one_line(sentence)}", style=style, soft_wrap=True, markup=False, highlight=False)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: complain(str(text), "yellow")
            yield
    except CvxsnnError as error:
        complain(str(error))
        raise typer.Exit(1) from None
    except ValueError as error:
        complain(first_line(error))  # scikit-learn follows its sentence with advice on its own estimators
        raise typer.Exit(1) from None
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        complain(f"expected files and folders that can be used, got: {error.strerror or first_line(error)}{place}")
        raise typer.Exit(1) from None
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        complain(f"expected the work to fit into memory, got: {first_line(error)}; use fewer samples or neurons")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("interrupted; nothing was overwritten")
        raise typer.Exit(130) from None


def progress_bar() -> ProgressBar:
    """Return a progress bar on the console."""
    return ProgressBar(console)


def show(value: object) -> None:
    """Print a table, or anything else that rich lays out for the width of the terminal."""
    console.print(value, highlight=False)


def say(text: object, style: str | None = None) -> None:
    """Print text as it is: without markup, without coloured numbers, and without line breaks of its own."""
    console.print(printable(str(text)), style=style, soft_wrap=True, markup=False, highlight=False)


def one_line(text: str) -> str:
    """Return a message on one line, whatever the names and values in it."""
    return " ".join(printable(text).split())


def parse_widths(text: str) -> tuple[int, ...]:
    """Return layer widths written such as ``256,512``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"expected widths such as 256,512, got {text!r}") from None


def check_folder(path: Path) -> None:
    """Refuse an output path that cannot be written before the work starts."""
    if not path.parent.is_dir() or path.is_dir():
        raise DataFileError(f"expected a file in an existing folder for the model, got {path}: make the folder first")
