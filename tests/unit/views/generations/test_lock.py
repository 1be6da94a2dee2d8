"""The lock of a rebuild: exclusive per view, named, free when its owner is dead."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from changelog.contract.base.errors import ChangelogError, LockedError
from views.generations.lock import FOLDER, locked

HOLD = """
import sys
from pathlib import Path
from views.generations.lock import locked
with locked(Path(sys.argv[1]), ["a"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_is_refused_with_its_owner_and_a_dead_owners_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), "--password=hunter2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(LockedError) as error, locked(tmp_path, ["a"]):
            pass
        assert error.value.exit_code == 5
        assert f'view "a" runs: process {owner.pid} on ' in str(error.value)
        assert str(tmp_path) in str(error.value)
        assert "hunter2" not in str(error.value)
        owner.kill()
    assert (tmp_path / FOLDER / "a.json").exists()
    with locked(tmp_path, ["a"]):
        held = json.loads((tmp_path / FOLDER / "a.json").read_text(encoding="utf-8"))
        assert held["pid"] != owner.pid
    assert not (tmp_path / FOLDER / "a.json").exists()


def test_different_views_are_locked_apart(tmp_path: Path) -> None:
    with locked(tmp_path, ["a"]), locked(tmp_path, ["b", "c"]):
        pass


def test_a_refused_run_gives_back_the_locks_that_it_had(tmp_path: Path) -> None:
    with locked(tmp_path, ["b"]):
        with pytest.raises(LockedError, match='view "b"'), locked(tmp_path, ["a", "b"]):
            pass
        with locked(tmp_path, ["a"]):
            pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / ".changelog").write_text("a file", encoding="utf-8")
    with pytest.raises(ChangelogError, match="cannot make the folder"), locked(tmp_path, ["a"]):
        pass
