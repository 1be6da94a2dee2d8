"""Every notebook runs from top to bottom, and is stored without outputs."""

import ast
import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from views import Playground

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CELL_S = 400
COLD = {"01_first_rebuild", "03_design_a_view", "04_prove_it", "06_reprocess_everything"}
"""Each starts a Spark of its own, which takes longer than all that the others do."""
WITH_MARKS = [
    pytest.param(path, marks=[pytest.mark.matrix] if path.stem in COLD else []) for path in NOTEBOOKS
]
OURS = {"changelog", "replay", "views", "tests"}
PUBLIC = {("replay", "Log"), ("views", "Playground"), ("views", "Project")}


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_only_what_is_public(path):
    cells = json.loads(path.read_text())["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    found = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").partition(".")[0] in OURS
    }
    assert found <= PUBLIC
    plain = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Import)]
    assert not OURS & {alias.name.partition(".")[0] for node in plain for alias in node.names}


@pytest.fixture(scope="module")
def playground(downloads, tmp_path_factory):
    """Servers and flights that all notebooks share: each finds them running, and leaves them so."""
    play = Playground.open(tmp_path_factory.mktemp("playground"))
    yield play.folder
    play.close()


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_MARKS, ids=[path.stem for path in NOTEBOOKS])
# Jupyter's client leaves sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_notebook_runs(path, playground, tmp_path, monkeypatch):
    monkeypatch.setenv("CHANGELOG_PLAYGROUND", str(playground))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    before = {*path.parent.iterdir()}
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=CELL_S, resources=resources)
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    plots = sum("plt.show()" in cell.source for cell in notebook.cells)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == plots
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert {*path.parent.iterdir()} == before
