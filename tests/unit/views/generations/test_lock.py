"""The lock of a rebuild: exclusive per view, named, free when its owner is dead."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from changelog.contract.base.errors import ChangelogError, LockedError
from views.generations.lock import LockPatience, Moving, advancing, building, following, locked
from views.generations.place import FOLDER, LockPlace

HOLD = """
import sys
from pathlib import Path
from views.generations.lock import locked
from views.generations.place import LockPlace
with locked(LockPlace(Path(sys.argv[1])), ["a"]):
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
        with pytest.raises(LockedError) as error, locked(LockPlace(tmp_path), ["a"]):
            pass
        assert error.value.exit_code == 5
        assert f'view "a" runs: process {owner.pid} on ' in str(error.value)
        assert str(tmp_path) in str(error.value)
        assert "hunter2" not in str(error.value)
        owner.kill()
    assert (tmp_path / FOLDER / "a.json").exists()
    with locked(LockPlace(tmp_path), ["a"]):
        held = json.loads((tmp_path / FOLDER / "a.json").read_text(encoding="utf-8"))
        assert held["pid"] != owner.pid
    assert not (tmp_path / FOLDER / "a.json").exists()


def test_who_has_patience_gets_the_lock_when_its_owner_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert owner.stdout.readline() == "held\n"
        asked_to_end = LockPatience.of(60, stop=lambda: True)
        with (
            pytest.raises(LockedError, match="--wait"),
            locked(LockPlace(tmp_path), ["a"], asked_to_end),
        ):
            pass
        threading.Timer(0.7, owner.stdin.close).start()
        with building(LockPlace(tmp_path), ["a"], LockPatience.of(60, stop=lambda: False)):
            assert owner.wait(20) == 0


def test_different_views_are_locked_apart(tmp_path: Path) -> None:
    with locked(LockPlace(tmp_path), ["a"]), locked(LockPlace(tmp_path), ["b", "c"]):
        pass


def test_a_refused_run_gives_back_the_locks_that_it_had(tmp_path: Path) -> None:
    with locked(LockPlace(tmp_path), ["b"]):
        with pytest.raises(LockedError, match='view "b"'), locked(LockPlace(tmp_path), ["a", "b"]):
            pass
        with locked(LockPlace(tmp_path), ["a"]):
            pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / ".changelog").write_text("a file", encoding="utf-8")
    with (
        pytest.raises(ChangelogError, match="cannot make the folder"),
        locked(LockPlace(tmp_path), ["a"]),
    ):
        pass


def test_a_builder_and_a_follower_go_side_by_side_and_who_works_alone_waits_for_neither(
    tmp_path: Path,
) -> None:
    with following(LockPlace(tmp_path), ["a"]), building(LockPlace(tmp_path), ["a"]):
        with (
            pytest.raises(LockedError, match="another rebuild"),
            locked(LockPlace(tmp_path), ["a"]),
        ):
            pass
        with pytest.raises(LockedError, match="is followed"), following(LockPlace(tmp_path), ["a"]):
            pass
    with (
        following(LockPlace(tmp_path), ["a"]),
        pytest.raises(LockedError, match="is followed"),
        locked(LockPlace(tmp_path), ["a"]),
    ):
        pass


def rounds_without_rest(root: Path, ended: threading.Event, made: list[int]) -> None:
    while not ended.is_set():
        with Moving(LockPlace(root), ["a", "b"], lambda: False) as moving, moving:
            made.append(1)


def test_who_waits_to_move_readers_comes_before_a_follower_without_rest(tmp_path: Path) -> None:
    ended, made = threading.Event(), list[int]()
    follower = threading.Thread(target=rounds_without_rest, args=(tmp_path, ended, made))
    follower.start()
    try:
        for _ in range(20):
            with Moving(LockPlace(tmp_path), ["a", "b"], lambda: False):
                before = len(made)
                assert len(made) == before, "nobody else moves them meanwhile"
    finally:
        ended.set()
        follower.join()
    assert made


def test_who_keeps_some_views_gets_the_others_from_a_follower_of_both(tmp_path: Path) -> None:
    ended, made = threading.Event(), list[int]()
    follower = threading.Thread(target=rounds_without_rest, args=(tmp_path, ended, made))
    follower.start()
    mine = Moving(LockPlace(tmp_path), ["a", "b"], lambda: False)
    try:
        for _ in range(5):
            with mine.holding(["b"]):
                before = len(made)
                with mine, mine:
                    assert len(made) == before, "nobody else moves them meanwhile"
                with mine:
                    assert len(made) == before, "and nobody did between"
    finally:
        ended.set()
        follower.join()
    assert made


def test_who_is_asked_to_end_waits_no_longer(tmp_path: Path) -> None:
    with (
        Moving(LockPlace(tmp_path), ["a"], lambda: False),
        pytest.raises(LockedError, match='moves readers of view "a"'),
        Moving(LockPlace(tmp_path), ["a"], lambda: True),
    ):
        pass


def test_who_is_asked_to_end_waits_for_no_checkpoints(tmp_path: Path) -> None:
    place = LockPlace(tmp_path)
    with (
        advancing(place),
        pytest.raises(LockedError, match="checkpoints"),
        advancing(place, stop=lambda: True),
    ):
        pass
    with advancing(place):
        pass
