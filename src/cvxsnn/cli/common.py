"""Shared by all commands: the application, its console, and errors as one sentence."""

import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer import Argument, Exit, Option

from ..core import __version__
from ..core.errors import CvxsnnError, InvalidInputError, JointInputError, first_line, is_out_of_memory
from ..core.formatting import plural, printable
from .files import READ, Output, check_files

ModelFile = Annotated[Path, Argument(help="A model written by `cvxsnn fit` or cvxsnn.save."), READ]


class PrintableConsole(Console):
    """A console on which names and labels cannot control the terminal: it alone writes control characters."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments, with control characters in texts replaced."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> None:
        """Go on without a reader: `cvxsnn check proof.json | head -1` ends with the status of the check."""
        self.quiet = True
        sys.stdout = io.StringIO()  # the rest is not flushed at the end


app = typer.Typer(no_args_is_help=True, add_completion=False)
console = PrintableConsole(highlight=False)

_MOST_COMPLAINTS = 20
"""Complaints about one file that are printed."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"cvxsnn {__version__}")
        raise Exit


@app.callback()
def _main(version: Annotated[bool, Option("--version", callback=_print_version, is_eager=True)] = False) -> None:
    """Spiking networks trained to a certified optimum."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: its files are checked before it starts, and its errors are one sentence.

    A parameter that is a dataclass adds one option per field.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        group = inspect.signature(groups[name]).parameters if name in groups else {name: parameter}
        types = get_type_hints(groups[name], include_extras=True) if name in groups else hints
        for key, option in group.items():
            options[key] = option.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[key])
    roles = [
        (name, role) for name, option in options.items() for role in getattr(option.annotation, "__metadata__", ())
    ]

    def run(**values: Any) -> None:
        with plain_errors():
            paths = [(role, path) for name, role in roles for path in _paths(role, values[name])]
            check_files([path for role, path in paths if role == READ], [pair for pair in paths if pair[0] != READ])
            for name, group in groups.items():
                values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
            function(**values)

    # typer derives the options from signature and annotations.
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    app.command()(run)
    return run


def _paths(role: Any, value: Any) -> list[Path]:
    """Return the paths that a parameter with the role of a file has: none, one or several."""
    is_file = role == READ or isinstance(role, Output)
    return [Path(path) for path in (value if isinstance(value, list) else [value]) if is_file and path is not None]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of cvxsnn, of input checks of other libraries, and of files, into sentences and exit status 1."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: complain(str(text), "yellow")
            yield
    except KeyboardInterrupt:
        complain("interrupted; nothing was overwritten")
        raise Exit(130) from None  # 128 + SIGINT, as shells report it
    except (CvxsnnError, ValueError, OSError, MemoryError, RuntimeError) as error:
        sentence = first_line(error)  # scikit-learn follows its sentence with advice on its own estimators
        if isinstance(error, CvxsnnError):
            sentence = str(error)
        elif isinstance(error, OSError):
            name = f": {error.filename}" if error.filename else ""
            sentence = f"expected files and folders that can be used, got: {error.strerror or sentence}{name}"
        elif not isinstance(error, ValueError):
            if not is_out_of_memory(error):
                raise  # a defect of ours, which needs its traceback
            sentence = f"expected the work to fit into memory, got: {sentence}; use fewer samples or neurons"
        sentences = [str(one) for one in error.errors] if isinstance(error, JointInputError) else [sentence]
        for one in sentences[:_MOST_COMPLAINTS]:
            complain(one)
        if len(sentences) > _MOST_COMPLAINTS:
            complain(f"and {plural(len(sentences) - _MOST_COMPLAINTS, 'more complaint')} about this file")
        raise Exit(1) from None


def say(text: object, style: str | None = None) -> None:
    """Print text as it is: without markup, without coloured numbers, and without line breaks of its own."""
    console.print(str(text), style=style, soft_wrap=True, markup=False, highlight=False)


def complain(sentence: str, style: str = "red") -> None:
    """Print a sentence on one line of the standard error, whatever the names and values in it."""
    line = f"cvxsnn: {' '.join(sentence.split())}"
    PrintableConsole(stderr=True).print(line, style=style, soft_wrap=True, markup=False, highlight=False)


def put(text: str) -> None:
    """Write data to the standard output: a file or another program gets every character, a terminal printable ones."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


def parse_widths(text: str) -> tuple[int, ...]:
    """Return layer widths written such as ``256,512``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"expected widths such as 256,512, got {text!r}") from None
