"""Every notebook runs from top to bottom, and is stored without outputs."""

import ast
import json
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

from views import Playground

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
FEW = ("01_first_rebuild",)
CELL_S = 400
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
def kernel(downloads, tmp_path_factory):
    """One kernel for all notebooks, on servers and flights that they share.

    Each finds the servers running and leaves them so, and those with Spark find that warm: a
    session, and the code that its Java has compiled, are most of what a notebook costs.
    """
    play = Playground.open(tmp_path_factory.mktemp("playground"))
    own = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CHANGELOG_PLAYGROUND", str(play.folder))
        patched.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        patched.setenv("IPYTHONDIR", str(own))
        patched.setenv("JUPYTER_RUNTIME_DIR", str(own))
        running = AsyncKernelManager(kernel_name="python3")
        yield running
        if running.has_kernel:
            run_sync(running.shutdown_kernel)(now=True)
    play.close()


def told(notebook: nbformat.NotebookNode) -> str:
    """Say how long a notebook took and which of its cells most, by their first lines."""
    taken = []
    for cell in notebook.cells:
        times = cell.metadata.get("execution", {})
        if {"iopub.execute_input", "shell.execute_reply"} <= times.keys():
            begun, ended = times["iopub.execute_input"], times["shell.execute_reply"]
            seconds = (
                datetime.fromisoformat(ended) - datetime.fromisoformat(begun)
            ).total_seconds()
            taken.append((seconds, cell.source.partition("\n")[0]))
    longest = sorted(taken, reverse=True)[:3]
    most = ", ".join(f"{seconds:.1f} s of {line!r}" for seconds, line in longest)
    return f"{sum(seconds for seconds, _ in taken):.1f} s, {most}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in FEW else pytest.mark.matrix)
        for path in NOTEBOOKS
    ],
)
# Jupyter's client leaves sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_notebook_runs(path, kernel, record_property):
    before = {*path.parent.iterdir()}
    notebook = nbformat.read(path, as_version=4)
    # As in a kernel of its own it finds no names but its own.
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, km=kernel, timeout=CELL_S, resources=resources)
    client.execute()
    record_property("notebook", f"{path.stem}: {told(notebook)}")
    assert client.kc is not None
    client.kc.stop_channels()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    plots = sum("plt.show()" in cell.source for cell in notebook.cells)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == plots
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert {*path.parent.iterdir()} == before
