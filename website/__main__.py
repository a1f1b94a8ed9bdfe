"""Build the site: python -m website [--output build/site]."""

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

from .api import write_api
from .check import defects
from .contents import ROOT
from .gallery import write_gallery
from .staging import stage_pages

SOURCE = ROOT / "build" / "site-source"


def main() -> int:
    """Put the sources together and build them, with warnings as errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    options = parser.parse_args()
    for folder in (SOURCE, options.output):  # a page that is gone would stay
        shutil.rmtree(folder, ignore_errors=True)
    stage_pages(SOURCE)
    write_api(SOURCE / "api")
    write_gallery(SOURCE / "gallery")
    here = Path(__file__).parent
    shutil.copytree(here / "static", SOURCE / "static", dirs_exist_ok=True)
    doctrees = ROOT / "build" / "site-doctrees"
    arguments = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(here), "-d", str(doctrees)]
    status = int(sphinx_build([*arguments, str(SOURCE), str(options.output)]))
    if status == 0:
        shutil.copytree(SOURCE / "gallery" / "pages", options.output / "gallery" / "pages")
    found = defects(options.output.resolve()) if status == 0 else []
    print("\n".join([*found, f"{len(found)} defects; the site is {options.output}"]))
    return status or len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
