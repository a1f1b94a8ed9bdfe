"""Take pictures of the built site in a real browser, wide and narrow: python tools/screenshots.py [build/site].

It needs Chromium and Pillow, and writes docs/images/site-*.png.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
PAGES = {
    "start": "index.html",
    "gallery": "gallery/index.html",
    "api": "api/cvxsnn.SpikingClassifier.html",
    "guide": "elastic-net.html",
}
SIZES = {"wide": (1280, 1000), "narrow": (500, 1000)}
"""Headless Chromium has no window narrower than 500 pixels."""
COLOURS = 64


def main(site: Path) -> int:
    """Write one picture per page and width, with few colours so that they stay small."""
    browser = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("expected chromium on the path: apt-get install chromium")
    for name, page in PAGES.items():
        for size, (width, height) in SIZES.items():
            picture = ROOT / "docs" / "images" / f"site-{name}-{size}.png"
            with tempfile.TemporaryDirectory() as folder:
                raw = Path(folder) / "raw.png"
                command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
                command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=3000"]
                command += [f"--window-size={width},{height}", f"--screenshot={raw}", (site / page).resolve().as_uri()]
                subprocess.run(command, check=True, capture_output=True, timeout=120)
                Image.open(raw).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
