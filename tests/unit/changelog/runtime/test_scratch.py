"""Scratch folders: gone with their process, at once or with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from changelog.runtime.process import scratch
from changelog.runtime.process.scratch import ScratchFolder

MAKES_ONE = """
import sys
from changelog.runtime.process.scratch import ScratchFolder
folder = ScratchFolder("test", sys.argv[1])
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def another(tmp_path: Path):
    """The folder of another process, and that process."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "rows").write_text("secret")
    yield folder, process
    process.kill()
    process.communicate()


def made_long_ago(folder: Path) -> None:
    os.utime(folder, (0, 0))
    scratch._remove_abandoned.cache_clear()


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    with ScratchFolder("test", tmp_path) as name:
        assert Path(name).parent == tmp_path
    assert not [*tmp_path.iterdir()]


def test_the_folder_of_a_killed_process_goes_with_the_next_one(tmp_path: Path, another) -> None:
    folder, process = another
    made_long_ago(folder)
    with ScratchFolder("test", tmp_path):
        assert (folder / "rows").exists(), "its process lives"
    process.kill()
    process.wait()
    scratch._remove_abandoned.cache_clear()
    with ScratchFolder("test", tmp_path) as name:
        assert [*tmp_path.iterdir()] == [Path(name)]


def test_what_is_young_or_another_programs_stays(tmp_path: Path, another) -> None:
    folder, process = another
    process.kill()
    process.wait()
    foreign = tmp_path / "changelog-foreign"
    foreign.mkdir()
    os.utime(foreign, (0, 0))
    scratch._remove_abandoned.cache_clear()
    with ScratchFolder("test", tmp_path):
        assert foreign.exists(), "it has no lock of ours"
        assert folder.exists(), "its process may be about to lock it"
