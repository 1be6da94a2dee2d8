"""Kept states in a store, `StoredTopic`; here a folder takes the place of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.kept_log import ROWS, TABLE, TOPIC, KeptLog, goes_on, is_whole
from tests.support.native_ways import needs_c
from views.verify.kept import folder, keeper
from views.verify.kept.folder import FOLDER, remove_kept
from views.verify.kept.stored import StoredTopic

pytestmark = needs_c


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptLog:
    """Ten rows that were proved, and what came since: one row new, one other, one gone."""
    for module in (folder, keeper):
        monkeypatch.setattr(module, "kept_root", lambda _: None)
    made = KeptLog(tmp_path)
    for key in range(10):
        made.put(key, ROWS[key % 4])
    made.proved(monkeypatch)
    made.put(10, ROWS[1])
    made.put(3, ROWS[2])
    made.put(4, None)
    return made


def place(log: KeptLog) -> Path:
    return log.folder / FOLDER / TOPIC


def names(log: KeptLog) -> list[str]:
    """List the files, each with its number and kind alone."""
    return sorted(f"{path.name[:8]}{path.suffix}" for path in place(log).iterdir())


def test_only_what_came_since_is_read_and_older_manifests_go(log, monkeypatch) -> None:
    assert names(log) == ["00000001.json", "00000001.parquet"]
    goes_on(log, monkeypatch, 3)
    assert names(log) == ["00000001.parquet", "00000002.json", "00000002.parquet"]
    goes_on(log, monkeypatch, 0)
    log.put(4, ROWS[3])
    goes_on(log, monkeypatch, 1)
    assert names(log)[-2:] == ["00000003.json", "00000003.parquet"]


def test_a_base_takes_its_layers_in(log, monkeypatch) -> None:
    monkeypatch.setattr(keeper, "_SMALL_ROWS", 1)
    goes_on(log, monkeypatch, 3)
    assert names(log) == ["00000002.json", "00000002.parquet"]


def test_of_two_runs_at_once_the_first_to_end_keeps(log, monkeypatch) -> None:
    with log.keeper(monkeypatch, log.frontier()) as (late, _):
        assert late.take(TABLE).since is not None
        log.put(9, None)
        goes_on(log, monkeypatch, 4)
        kept = names(log)
        late.keep()
    log.put(8, None)
    goes_on(log, monkeypatch, 1)
    assert {name for name in kept if name.endswith(".json")} == {"00000002.json"}


def test_twin_a_run_that_replaces_the_manifest_of_another_is_found(log, monkeypatch) -> None:
    def replaced(self: StoredTopic, text: bytes) -> bool:
        self._files.replace(f"{self._number + 1:08d}.json", text)
        return True

    monkeypatch.setattr(StoredTopic, "_create", replaced)
    with pytest.raises(AssertionError):
        test_of_two_runs_at_once_the_first_to_end_keeps(log, monkeypatch)


def test_a_killed_run_loses_nothing_and_its_files_go_later(log, monkeypatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoredTopic, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            log.proved(patch)
    assert names(log) == ["00000001.json", "00000001.parquet", "00000002.parquet"]
    goes_on(log, monkeypatch, 3)
    assert names(log) == ["00000001.parquet", "00000002.json", "00000002.parquet"]


def test_files_of_a_run_that_has_not_ended_stay(log, monkeypatch) -> None:
    goes_on(log, monkeypatch, 3)
    early = place(log) / "00000004-ab.parquet"
    early.touch()
    log.put(9, None)
    goes_on(log, monkeypatch, 1)  # is the third
    assert early.exists()
    log.put(9, ROWS[0])
    goes_on(log, monkeypatch, 1)
    assert not early.exists()


@pytest.mark.parametrize("change", ["altered", "gone", "manifest"])
def test_what_is_not_as_it_was_written_is_told_and_not_used(log, monkeypatch, change) -> None:
    (rows,), (manifest,) = place(log).glob("*.parquet"), place(log).glob("*.json")
    if change == "altered":
        rows.write_bytes(rows.read_bytes()[:-1])
        why = "was changed"
    elif change == "gone":
        rows.unlink()
        why = "is not there"
    else:
        manifest.write_text(manifest.read_text().replace('"appended_ms": 1', '"appended_ms": 2'))
        why = "its manifest was changed"
    is_whole(log, monkeypatch, why)
    goes_on(log, monkeypatch, 0)


def test_a_mismatch_leaves_nothing_and_no_run_brings_it_back(log, monkeypatch) -> None:
    with log.keeper(monkeypatch, log.frontier()) as (late, _):
        assert late.take(TABLE).since is not None
        with log.keeper(monkeypatch, log.frontier()) as (other, _):
            other.forget([TABLE])
        late.keep()  # it began before the mismatch
    is_whole(log, monkeypatch, "nothing is kept of it yet")
    goes_on(log, monkeypatch, 0)


def test_a_store_that_is_away_ends_no_proof(log, monkeypatch, caplog) -> None:
    def away(_: StoredTopic) -> list[str]:
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(StoredTopic, "_names", away)
        for begins in (True, False):
            taken, _ = log.proved(patch, begins=begins)
            assert (taken.since, "no answer" in taken.note) == (None, True)
    goes_on(log, monkeypatch, 3)


def test_what_is_kept_is_removed_also_where_it_was_forgotten(log, monkeypatch) -> None:
    with log.keeper(monkeypatch, log.frontier()) as (other, _):
        other.forget([TABLE])
    assert names(log)[-1] == "00000002.json"
    remove_kept(str(log.folder), [TOPIC])
    assert not names(log)
    is_whole(log, monkeypatch, "nothing is kept of it yet")
