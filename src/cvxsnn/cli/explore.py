"""``cvxsnn explore``: a page about a model, or about two side by side."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.progress import ProgressBar
from .common import command, console, say
from .data_files import TableOptions, read_data
from .files import PAGE, READ
from .models import load_estimator


@command
def explore(
    files: Annotated[list[Path], Argument(help="A model (two with --compare) and a data file."), READ],
    table: TableOptions,
    output: Annotated[Path, Option("-o", "--output", help="The page to write."), PAGE] = Path("cvxsnn-explore.html"),
    train: Annotated[Path | None, Option(help="The training data, if the data file has others."), READ] = None,
    compare: Annotated[bool, Option("--compare", help="Show two models side by side.")] = False,
    seconds: Annotated[float, Option(min=0.0, help="Time for solving again at other strengths.")] = 60.0,
) -> None:
    """Write a page about a saved model: what it does, why it is optimal, its neurons, single sequences, costs."""
    from ..explore import explore as explore_one
    from ..explore import explore_both

    *models, data = files
    if len(models) != 1 + compare:
        expected = "two models and a data file beside --compare" if compare else "a model and a data file"
        raise InvalidInputError(f"expected {expected}, got {plural(len(files), 'file')}")
    loaded = [load_estimator(model) for model in models]

    def read(path: Path) -> tuple[object, ...]:
        content = read_data(path, table, needs_targets=True, model=loaded[0])
        return content.X, content.y, content.weight

    X, y, weight = read(data)
    training = read(train) if train is not None else None if weight is None else (X, y, weight)
    with ProgressBar(console) as bar:
        options: dict[str, Any] = {"training": training, "max_seconds": seconds, "callback": bar}
        if compare:
            page = explore_both((loaded[0], loaded[1]), X, y, names=_names(*models), **options)
        else:
            page = explore_one(loaded[0], X, y, name=models[0].stem, **options)
    page.save(output)
    say(f"page: {output} ({output.stat().st_size / 2**20:.1f} MB, opens in a browser without a network)")


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Return different names for two files."""
    if first.stem != second.stem:
        return first.stem, second.stem
    return (str(first), str(second)) if first != second else (f"{first.stem} (1)", f"{second.stem} (2)")
