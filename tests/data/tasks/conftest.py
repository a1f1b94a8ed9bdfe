import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests

from cvxsnn.data.tasks import mnist

FILES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


@pytest.fixture(scope="session")
def mnist_directory() -> Path:
    repository = Path(__file__).parents[3]
    folders = [Path(os.environ["CVXSNN_DATA"])] if os.environ.get("CVXSNN_DATA") else []
    for folder in [*folders, repository.parent / "shared" / "data"]:
        for place in (folder, folder / "mnist"):
            if all((place / name).is_file() or (place / f"{name}.gz").is_file() for name in FILES):
                return place
    pytest.skip(
        "the four MNIST files are not here: download them from https://ossci-datasets.s3.amazonaws.com/mnist/ "
        "into a folder and set CVXSNN_DATA to it"
    )


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, **options: object) -> None:
        raise AssertionError(f"a test tried to download {url}")

    monkeypatch.setattr("requests.get", refuse)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let downloads get ``answer(url)``, without waits; the list returned collects their addresses."""

    def start(answer: Callable[[str], bytes], status: int = 200) -> list[str]:
        asked: list[str] = []

        def get(url: str, *, timeout: float, **options: object) -> requests.Response:
            assert 0 < timeout <= 30
            asked.append(url)
            response = requests.Response()
            response.raw, response.status_code, response.url = io.BytesIO(answer(url)), status, url
            return response

        monkeypatch.setattr("requests.get", get)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        return asked

    return start


@pytest.fixture
def stand_in(monkeypatch):
    """Sixteen training and ten test images of noise, read in place of the files."""
    generator = np.random.default_rng(0)
    parts = {
        part: (generator.integers(256, size=(size, 784), dtype=np.uint8), np.arange(size, dtype=np.uint8) % 10)
        for part, size in (("train", 16), ("t10k", 10))
    }
    monkeypatch.setattr(mnist, "N_IMAGES", {"train": 16, "t10k": 10})
    monkeypatch.setattr(mnist, "read_mnist", lambda part, directory: parts[part])
    return parts
