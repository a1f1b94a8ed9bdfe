"""The notebooks run from top to bottom, and print what they show."""

import importlib.util

import pytest
from test_docs import compare

if importlib.util.find_spec("sphinx") is None:
    pytest.skip("Sphinx is not installed: pip install 'cvxsnn[docs]'", allow_module_level=True)

from website.notebooks import NOTEBOOKS, read, run_cell, shown


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_notebooks_print_what_they_show(name, tmp_path, monkeypatch):
    for library in ("pandas", "snntorch"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    cells = [cell for cell in read(NOTEBOOKS / name) if cell["cell_type"] == "code"]
    assert sum(bool(shown(cell)) for cell in cells) >= 4
    for number, cell in enumerate(cells):
        printed, pictures = run_cell("".join(cell["source"]), namespace)
        differences = compare(printed, shown(cell))
        assert not differences, f"{name}, cell {number}: {differences}"
        assert len(pictures) == sum(output["output_type"] == "display_data" for output in cell["outputs"])
