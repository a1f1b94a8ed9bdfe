"""``cvxsnn explore``: a page about a model, or about two side by side."""

from pathlib import Path
from typing import Annotated

import typer

from ...core.errors import InvalidInputError
from .common import command, progress_bar, say
from .data_files import FeatureColumns, IdColumn, IsSeries, LabelColumn, TimeColumn, read_data
from .files import PAGE, READ
from .models import load_estimator


@command
def explore(
    files: Annotated[
        list[Path], typer.Argument(help="A model (two with --compare), and a data file as for `cvxsnn fit`."), READ
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write."), PAGE] = Path(
        "cvxsnn-explore.html"
    ),
    train: Annotated[
        Path | None, typer.Option(help="The data that the model was fitted to, if the other data are not these."), READ
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show two models side by side.")] = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for solving again at other strengths.")] = 60.0,
    id_column: IdColumn = None,
    time: TimeColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    series: IsSeries = False,
) -> None:
    """Write a page about a saved model: what it does, why it is optimal, its neurons, single sequences, costs."""
    from ..explore import explore as explore_one
    from ..explore import explore_both

    *models, data = files
    if len(models) != 1 + compare:
        wanted = "two models and a data file beside --compare" if compare else "a model and a data file"
        raise InvalidInputError(f"expected {wanted}, got {len(files)} files")
    loaded = [load_estimator(model) for model in models]

    def read(path: Path) -> tuple[object, ...]:
        columns = (id_column, time, label, features, series)
        found = read_data(path, *columns, needs_targets=True, model=loaded[0])
        return found.X, found.y, found.weight

    X, y, weight = read(data)
    training = read(train) if train is not None else None if weight is None else (X, y, weight)
    with progress_bar() as bar:
        if compare:
            names = _names(*models)
            found = explore_both(
                (loaded[0], loaded[1]), X, y, training=training, names=names, max_seconds=seconds, callback=bar
            )
        else:
            found = explore_one(
                loaded[0], X, y, training=training, name=models[0].stem, max_seconds=seconds, callback=bar
            )
    found.save(output)
    say(f"page: {output} ({output.stat().st_size / 2**20:.1f} MB, opens in a browser without a network)")


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Return names that tell two files apart."""
    if first.stem != second.stem:
        return first.stem, second.stem
    return (str(first), str(second)) if first != second else (f"{first.stem} (1)", f"{second.stem} (2)")
