"""Train four models, write the pages about them, and take the pictures of these pages that the documentation shows.

python tools/draw_pages.py --pages out/pages --pictures docs/images     # all four; needs Chromium and playwright
python tools/draw_pages.py xor --pages out/pages                        # one of them, without pictures

The recordings of spoken digits and electrocardiograms are found as for ``cvxsnn.tasks`` (variable CVXSNN_DATA).
"""

import argparse
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cvxsnn as cs
from cvxsnn.explore import explore

Arrays = tuple[Any, Any]

WAVES = np.array(["P", "PQ", "QR", "RS", "ST", "TP"])
"""Parts of a heartbeat, in the order of the labels of the QT database."""

N_ECG_STEPS = 160
"""About as long as one heartbeat of the slower ones."""


def xor() -> tuple[cs.SpikingClassifier, Arrays, Arrays]:
    """Return a model that compares the first of six bits with the last."""
    task = cs.tasks.first_last_xor(n_steps=6, seed=0)
    names = np.array(["equal", "different"])
    train = task.train.inputs, names[np.asarray(task.train.targets)]
    return _fit(train, sparsity="few"), train, (task.test.inputs, names[np.asarray(task.test.targets)])


def digits() -> tuple[cs.SpikingClassifier, Arrays, Arrays]:
    """Return a model of handwritten digits that are read row by row."""
    task = cs.tasks.digits_seq()
    train = task.train.inputs, np.asarray(task.train.targets)
    return _fit(train, sparsity=300), train, (task.test.inputs, np.asarray(task.test.targets))


def spoken() -> tuple[cs.SpikingClassifier, Arrays, Arrays]:
    """Return a model of spoken digits."""
    task = cs.tasks.spoken_digits()
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    train = task.train.inputs, names[np.asarray(task.train.targets)]
    return _fit(train, sparsity=300), train, (task.test.inputs, names[np.asarray(task.test.targets)])


def ecg() -> tuple[cs.SpikingClassifier, Arrays, Arrays]:
    """Return a model that says which part of a heartbeat an electrocardiogram ends in."""
    task = cs.tasks.ecg_qtdb()
    train = _endings(task.train.inputs, np.asarray(task.train.targets), 220)
    return _fit(train, sparsity=300), train, _endings(task.test.inputs, np.asarray(task.test.targets), 120)


MODELS: dict[str, Callable[[], tuple[cs.SpikingClassifier, Arrays, Arrays]]] = {
    "xor": xor,
    "digits": digits,
    "spoken": spoken,
    "ecg": ecg,
}
TITLES = {"xor": "First-last XOR", "digits": "Digits", "spoken": "Spoken digits", "ecg": "Electrocardiograms"}
PICTURES: dict[str, tuple[str, ...]] = {"digits": (), "spoken": ("optimality", "neurons")}
"""Pages that the documentation shows, and the sections of which it has pictures of their own."""


def _fit(train: Arrays, **parameters: Any) -> cs.SpikingClassifier:
    return cs.SpikingClassifier(random_state=0, verbose=False, **parameters).fit(*train)


def _endings(inputs: Any, labels: Any, n_each: int) -> Arrays:
    """Return pieces of recordings, as many for each part of the heartbeat, that end in a step of this part."""
    rng = np.random.default_rng(0)
    inputs = np.asarray(inputs)
    pieces, names = [], []
    for label, name in enumerate(WAVES):
        recordings, steps = np.nonzero(labels == label)
        is_late = (steps >= 2 * N_ECG_STEPS) & (
            steps < labels.shape[1] - N_ECG_STEPS
        )  # their labels are complete there
        for place in rng.permutation(np.flatnonzero(is_late))[:n_each]:
            end = steps[place] + 1
            pieces.append(inputs[recordings[place], end - N_ECG_STEPS : end])
            names.append(name)
    return np.stack(pieces), np.array(names)


def take_pictures(page: Path, name: str, folder: Path) -> list[Path]:
    """Take pictures of a page and of some of its sections."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as run:
        browser = run.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 1500}, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("document.documentElement.dataset.ready === 'yes'")
        tab.wait_for_timeout(300)
        taken = [_save(tab.screenshot(), folder / f"explore-{name}-wide-light.png")]
        tab.add_style_tag(content="nav.sections { position: static !important }")
        for section in PICTURES[name]:
            shot = tab.locator(f"#{section}").screenshot()
            taken.append(_save(shot, folder / f"explore-section-{section}.png"))
        browser.close()
    return taken


def _save(content: bytes, path: Path) -> Path:
    """Write a picture as small as it gets without a change of its colours."""
    from PIL import Image

    Image.open(io.BytesIO(content)).convert("RGB").save(path, optimize=True)
    return path


def main() -> None:
    """Write pages, and pictures if they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS), choices=[*MODELS, []], help="which models")
    parser.add_argument("--pages", type=Path, required=True, help="folder for the pages")
    parser.add_argument("--pictures", type=Path, help="folder for the pictures; none are taken without it")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for solving each problem again")
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    for name in given.names or MODELS:
        model, train, test = MODELS[name]()
        found = explore(model, *test, training=train, name=TITLES[name], max_seconds=given.seconds)
        page = found.save(given.pages / f"{name}.html")
        print(f"{page}: {page.stat().st_size / 2**20:.1f} MB, score {found.views[0].quality.score:.4f}")
        if given.pictures is not None and name in PICTURES:
            for picture in take_pictures(page, name, given.pictures):
                print(f"  {picture}: {picture.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
