"""Build a wheel and a source archive in dist/, install each into an empty environment, and fit a model there.

python tools/check_wheels.py
python tools/check_wheels.py --only wheel
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
KINDS = {"wheel": "*.whl", "sdist": "*.tar.gz"}
FIT = """
import importlib.metadata, pathlib
import numpy as np
import cvxsnn as cs
assert "site-packages" in cs.__file__, cs.__file__
X = np.random.default_rng(0).normal(size=(200, 8, 2))
y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
model = cs.SpikingClassifier(n_neurons=256, random_state=0).fit(X, y)
assert model.certificate_.relative_gap <= model.tol
cs.save(model, "model.safetensors")
np.savez("data.npz", X=X, y=y)
print("cvxsnn", importlib.metadata.version("cvxsnn"), "fitted:", model.certificate_)
"""


def main() -> int:
    """Build and check; return 0 if both packages work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True)
    for kind, pattern in KINDS.items():
        if options.only in (None, kind):
            [package] = dist.glob(pattern)
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                check(package, Path(folder))
            print(f"{package.name}: installed and fitted in {time.monotonic() - begin:.0f} s")
    return 0


def check(package: Path, folder: Path) -> None:
    """Install a package into an empty environment and use it, away from the source tree."""
    venv.create(folder / "venv", with_pip=True)
    bin_folder = folder / "venv" / "bin"
    pip = [str(bin_folder / "python"), "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS)]
    subprocess.run([*pip, "torch"], check=True)
    subprocess.run([*pip, str(package)], check=True)
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    subprocess.run([str(bin_folder / "python"), "-c", FIT], cwd=folder, env=environment, check=True)
    command = [str(bin_folder / "cvxsnn"), "certify", "model.safetensors", "data.npz"]
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
