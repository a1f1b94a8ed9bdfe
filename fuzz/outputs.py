"""Outputs that are inputs, or that lie where something else is: no command overwrites what it did not write."""

import os
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from cvxsnn import cli

from .command_line import contents, files, inside
from .harness import Finding, Hunt

_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("fit", "data.npz", "-o", "OUTPUT", "--hidden", "8", "--strength", "0.01", "--witnesses", "gaussian"),
    ("fit", "rows.csv", "-o", "OUTPUT", "--label", "kind", "--hidden", "8", "--strength", "0.01"),
    ("predict", "model", "data.npz", "-o", "OUTPUT"),
    ("predict", "rows-model", "rows.csv", "-o", "OUTPUT", "--proba"),
    ("certify", "model", "data.npz", "--certificate", "OUTPUT", "--seconds", "0.1"),
    ("certify", "model", "data.npz", "--certificate", "proof.json", "--improved", "OUTPUT", "--seconds", "0.1"),
    ("explore", "model", "data.npz", "--train", "data.npz", "-o", "OUTPUT", "--seconds", "0"),
    ("explore", "--compare", "model", "pipeline", "data.npz", "-o", "OUTPUT", "--seconds", "0"),
    ("export", "model", "-o", "OUTPUT"),
    ("report", "mine.toml", "--records", "records", "-o", "OUTPUT"),
    ("report", "mine.toml", "--records", "records", "-o", "page.html", "--tables", "OUTPUT"),
    ("reproduce", "mine.toml", "-o", "OUTPUT", "--jobs", "1", "--device", "cpu"),
    ("demo", "--output", "OUTPUT"),
)
"""Every command that writes, with every option that it writes to."""

_ENDINGS = ("", ".safetensors", ".npz", ".csv", ".html", ".nir", ".json", ".xlsx")


def case(rng: np.random.Generator, folder: Path) -> str:
    """Let one command write to a file that is there."""
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "deep" / "er").mkdir(parents=True)
    command = _COMMANDS[rng.integers(len(_COMMANDS))]
    inputs = [word for word in command if (folder / word).is_file()]
    others = [name for name in files() if name not in inputs and "/" not in name and files()[name]]
    is_input = bool(inputs) and bool(rng.integers(3))
    target = str(rng.choice(inputs if is_input else others))
    with inside(folder) as written:
        output = _spell(rng, target)
        arguments = [output if word == "OUTPUT" else word for word in command]
        before = contents(folder)
        same = {name for name in before if os.path.samefile(name, target)}
        outcome = CliRunner().invoke(cli.app, arguments)
        after = contents(folder)
    told = f"cvxsnn {' '.join(arguments)}, where {output} is {target}\n{outcome.output[-500:]}"
    changed = [name for name, content in before.items() if after.get(name) != content]
    if written:
        raise Finding(f"expected to write in the present folder only, but also wrote {written}: {told}")
    if is_input and (changed or outcome.exit_code != 1 or set(after) != set(before)):
        raise Finding(f"expected status 1 and no change, got {outcome.exit_code} and {changed}: {told}")
    if outcome.exit_code == 1 and not outcome.stderr.startswith("cvxsnn: expected "):
        raise Finding(f"expected one sentence, got {told}")
    if outcome.exit_code not in (0, 1):
        raise Finding(f"expected status 0 or 1, got {outcome.exit_code}: {told}")
    may_replace = command[0] == "fit" or "--improved" in command
    if changed and not (may_replace and files()[target][8:9] == b"{" and {*changed} <= same):
        raise Finding(f"expected files of other kinds to stay, got changes of {changed}: {told}")
    kind = "an input" if is_input else "a file of the same kind" if changed else "another file"
    return f"{command[0]}, {kind}: {'refused' if outcome.exit_code else 'written'}"


def _spell(rng: np.random.Generator, target: str) -> str:
    """Return a name that leads to a file: its own, a longer way, or a link, with an ending of any kind."""
    link = f"link-{rng.integers(1000)}{rng.choice(_ENDINGS)}"
    match rng.integers(7):
        case 0:
            return target
        case 1:
            return str(Path(target).absolute())
        case 2:
            return f"./deep/er/../../{target}"
        case 3:
            return f"{Path.cwd()}/deep/..//{target}"
        case 4:
            os.link(target, link)
        case 5:
            os.symlink(target, link)
        case _:
            os.symlink(Path(target).absolute(), f"deep/{link}")
            os.symlink(f"deep/{link}", link)
    return link


HUNT = Hunt("outputs", "Outputs that are inputs, or lie where something else is.", case, cases=2_000, short=13)
