"""What is kept of a proof, and whatever may be wrong with it: `views.verify.kept`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.form import Form, Output
from changelog.contract.log.frontier import Growth
from changelog.contract.log.scope import Scope
from changelog.contract.rows.relation import Column, TableName
from changelog.contract.rows.schema import SchemaPin
from tests.support.builders import TEXT
from tests.support.kept_log import ROWS, TABLE, TOPIC, KeptLog, goes_on, is_whole
from tests.support.native_ways import needs_c
from views.verify.kept import judgement
from views.verify.kept import keeper as keeping
from views.verify.kept.folder import FOLDER, KeptTopic, remove_kept
from views.verify.kept.manifest import ProofManifest
from views.verify.processes.scratch import MEMORY_LIMIT, scratch

pytestmark = needs_c

HOUR_MS = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> KeptLog:
    """Ten rows that were proved, and what came since: one row new, one other, one gone."""
    made = KeptLog(tmp_path)
    for key in range(10):
        made.put(key, ROWS[key % 4])
    with pytest.MonkeyPatch.context() as patch:
        made.proved(patch)
    made.put(10, ROWS[1])
    made.put(3, ROWS[2])
    made.put(4, None)
    return made


def place(log: KeptLog) -> Path:
    return log.folder / FOLDER / TOPIC


def manifest_of(log: KeptLog) -> ProofManifest:
    return ProofManifest.from_json((place(log) / "manifest.json").read_bytes())


def rewritten(log: KeptLog, **changes: Any) -> None:
    """Write the manifest anew, as somebody would who knows how."""
    known = manifest_of(log)
    made = replace(known, proved=replace(known.proved, **changes))
    (place(log) / "manifest.json").write_text(made.to_json(), encoding="utf-8")


def test_only_what_came_since_is_read(log, monkeypatch) -> None:
    begun = str(manifest_of(log).proved.frontier.lsn)
    goes_on(log, monkeypatch, 3)
    known = manifest_of(log)
    assert (known.begun, known.records) == (begun, 13)
    assert [each.rows for each in known.files] == [10, 3]
    goes_on(log, monkeypatch, 0)
    log.put(4, ROWS[3])
    goes_on(log, monkeypatch, 1)
    assert {path.name for path in place(log).glob("*.parquet")} == {
        each.name for each in manifest_of(log).files
    }


def test_a_base_takes_its_layers_in_when_they_are_many_rows(log, monkeypatch) -> None:
    monkeypatch.setattr(keeping, "_SMALL_ROWS", 1)
    goes_on(log, monkeypatch, 3)
    assert [each.rows for each in manifest_of(log).files] == [10]
    assert len([*place(log).glob("*.parquet")]) == 1, "the files of before are removed"
    goes_on(log, monkeypatch, 0)


def test_layers_are_put_together_when_they_are_many(log, monkeypatch) -> None:
    monkeypatch.setattr(keeping, "_MANY_LAYERS", 2)
    goes_on(log, monkeypatch, 3)
    for key, layers in ((3, [3, 1]), (5, [4]), (3, [4, 1])):
        log.put(key, ROWS[0])
        goes_on(log, monkeypatch, 1)
        assert [each.rows for each in manifest_of(log).files] == [10, *layers]


def test_who_does_not_refresh_keeps_nothing_but_renews_what_is_kept(tmp_path, monkeypatch) -> None:
    log = KeptLog(tmp_path)
    log.put(1, ROWS[1])
    log.proved(monkeypatch, goes_on=False, begins=False)
    assert not place(log).exists()
    log.proved(monkeypatch, goes_on=False, begins=True)
    log.put(2, ROWS[1])
    taken, _ = log.proved(monkeypatch, goes_on=False, begins=False)
    assert (taken.records, taken.note) == (2, "")
    assert manifest_of(log).begun == str(log.frontier().lsn)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "slot": ({"slot": "other"}, "the slot changed"),
    "epoch": ({"epoch": 2}, "the epoch of the slot changed"),
    "source": ({"system_id": "8"}, "the PostgreSQL cluster changed"),
    "timeline": ({"timeline": 2}, "its timeline changed"),
    "brokers": ({"cluster_id": "other"}, "the Kafka cluster changed"),
    "table": ({"tables": {TOPIC: TableName("public", "others")}}, "the table changed"),
    "topic": ({"topic_ids": {TOPIC: "other"}}, "the topic's id changed"),
    "growth": ({"grown": {TOPIC: Growth(5, Lsn(9))}}, "when its partitions grew changed"),
    "since": ({"since": {TOPIC: Position(1, Lsn(9), 0)}}, "what is alive (since) changed"),
    "copy": ({"whole": {TOPIC: Lsn(9)}}, "the last copy of the table (LSN) changed"),
    "scope": ({"scopes": {TOPIC: Scope(rows="id > 1")}}, "what of the table is captured changed"),
    "leader": ({"leader_epochs": {TOPIC: (2,)}}, "who leads its partitions changed"),
    "newer": ({"lsn": Lsn(10**6)}, "what was proved is newer"),
    "ends": ({"ends": {TOPIC: (99,)}}, "what was proved is newer"),
    "partitions": ({"ends": {TOPIC: (1, 1)}}, "it has 1 partitions and had 2"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_state_of_another_log_is_not_gone_on_from(log, monkeypatch, what) -> None:
    changes, why = OTHERS[what]
    rewritten(log, frontier=replace(manifest_of(log).proved.frontier, **changes))
    is_whole(log, monkeypatch, why)


def test_a_frontier_without_the_topic_is_one_reason_in_words(log) -> None:
    proved = manifest_of(log).proved
    bare = replace(proved.frontier, ends={}, topic_ids={}, leader_epochs={})
    reasons = judgement.obstacles(
        proved, bare, reading=proved.reading, cleaning=proved.cleaning, starts=(), now_ms=0
    )
    assert [*reasons] == [f"the frontier at LSN {bare.lsn} does not have the topic"]


def test_a_state_of_another_topic_or_reading_is_not_gone_on_from(log, monkeypatch) -> None:
    known = manifest_of(log).proved
    rewritten(log, topic="p.others")
    is_whole(log, monkeypatch, 'what is kept in its place is of topic "p.others"')
    for changes in ({"pin": SchemaPin(1, 7)}, {"schema": "0" * 64}, {"program": "0.0.1"}):
        rewritten(log, reading=replace(known.reading, **changes))
        is_whole(log, monkeypatch, "it was read by schemas 1 and")


def test_a_new_version_of_the_schema_is_read_from_the_start(log, monkeypatch) -> None:
    columns = (*log.relation.columns, Column("more", TEXT, "null"))
    log.relation = replace(log.relation, columns=columns)
    log.pin = SchemaPin(key=1, value=3)
    monkeypatch.setattr(KeptLog, "text", text_of_two_versions(log))
    log.put(11, (*ROWS[1], b"more"))
    is_whole(log, monkeypatch, "it was read by schemas 1 and 2")


def text_of_two_versions(log: KeptLog) -> Callable[[Any, int], str]:
    from changelog.contract.rows.schema import value_schema
    from tests.support.kept_log import THINGS

    return lambda _, number: value_schema(THINGS if number == 2 else log.relation)


def test_settings_that_do_not_keep_deletes_are_told(log, monkeypatch) -> None:
    log.settings["cleanup.policy"] = "compact,delete"
    is_whole(log, monkeypatch, "cleanup.policy is compact,delete")
    log.settings |= {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    is_whole(log, monkeypatch, "message.timestamp.type is CreateTime")


def test_documents_and_unknown_leaders_are_not_kept(log, monkeypatch) -> None:
    log.changes = {"scopes": {TOPIC: Scope(form=Form(Output.JSON))}}
    with log.keeper(monkeypatch, log.frontier()) as (keeper, _):
        assert "not rows in Avro" in keeper._case(TABLE)[1]
    for leaders in ({}, {TOPIC: (-1,)}):
        log.changes = {"leader_epochs": leaders}
        is_whole(log, monkeypatch, "does not know the leaders")


@pytest.mark.parametrize("is_judged", [True, False])
def test_a_delete_that_may_be_gone_is_not_missed(log, monkeypatch, is_judged) -> None:
    """The twin has the defect that nobody looks at the clock: the deleted row lives on."""
    ends = manifest_of(log).proved.frontier.ends[TOPIC][0]
    assert (log.records[-1][5][-1:], log.records[-1][6]) == (b"\x08", None)
    log.now_ms += 4 * HOUR_MS
    log.records[-1] = (*log.records[-1][:5], b"\0\0\0\0\1\x1a", log.records[0][6], 0)
    first = next(n for n, each in enumerate(log.records) if each[5][-1:] == b"\x08")
    log.records[first] = (*log.records[first][:5], b"\0\0\0\0\1\x1a", log.records[0][6], 0)
    assert first < ends
    if is_judged:
        is_whole(log, monkeypatch, "deletes may have been missed since")
        return
    monkeypatch.setattr(judgement, "too_late", lambda *_: None)
    monkeypatch.setattr(keeping, "too_late", lambda *_: None)
    with pytest.raises(AssertionError):
        goes_on(log, monkeypatch, 3)


def test_the_window_is_looked_at_after_the_reading_too(log, monkeypatch) -> None:
    sound = KeptLog._read

    def slow(self: KeptLog, *arguments: Any, **more: Any) -> Any:
        if more["behind"] is not None:
            self.now_ms += 4 * HOUR_MS
        return sound(self, *arguments, **more)

    monkeypatch.setattr(KeptLog, "_read", slow)
    is_whole(log, monkeypatch, "deletes may have been missed since")


def test_what_was_read_too_late_is_not_kept(log, monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    before = manifest_of(log)
    sound = KeptLog._read

    def slow(self: KeptLog, *arguments: Any, **more: Any) -> Any:
        self.now_ms += 999_000
        return sound(self, *arguments, **more)

    monkeypatch.setattr(KeptLog, "_read", slow)
    log.appended_ms = log.now_ms
    taken, _ = log.proved(monkeypatch)
    assert taken.since is not None
    assert "later than min.compaction.lag.ms after its frontier" in caplog.text
    assert manifest_of(log) == before
    proved = replace(before.proved, appended_ms=10**15)
    told = judgement.not_exact(proved, begun_ms=0, ended_ms=1_900_000, whole=True)
    assert told == "reading it took longer than delete.retention.ms allows"
    assert judgement.not_exact(proved, begun_ms=0, ended_ms=1_900_000, whole=False) is None


def test_a_manifest_that_was_changed_is_not_gone_on_from(log, monkeypatch) -> None:
    path = place(log) / "manifest.json"
    sound = path.read_text(encoding="utf-8")
    for text in (
        sound.replace('"appended_ms": 1', '"appended_ms": 2'),
        sound.replace('"format": 1', '"format": 9'),
        "{}",
        "",
        "[]",
    ):
        assert text != sound
        path.write_text(text, encoding="utf-8")
        is_whole(log, monkeypatch, "what is kept of it is broken")
        goes_on(log, monkeypatch, 0)
    (place(log) / manifest_of(log).base.name).unlink()
    is_whole(log, monkeypatch, "is not there")


def altered(log: KeptLog) -> None:
    """Change a value in the base, in a file that can be read."""
    path = place(log) / manifest_of(log).base.name
    with duckdb.connect() as database:
        rows = f"SELECT * REPLACE (CASE WHEN id = 1 THEN 'x' ELSE name END AS name) FROM '{path}'"
        database.execute(f"CREATE TABLE rows AS {rows}; COPY rows TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_a_file_that_was_altered_is_told_by_its_digest(log, monkeypatch, is_looked_at) -> None:
    """The twin has the defect that files are taken as they are."""
    altered(log)
    if is_looked_at:
        is_whole(log, monkeypatch, "was changed")
        return
    digests = {each.name: each.sha256 for each in manifest_of(log).files}
    monkeypatch.setattr(KeptTopic, "_digest", lambda _, name: digests.get(name, ""))
    with pytest.raises(AssertionError):
        goes_on(log, monkeypatch, 3)


class KilledError(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("defect", [None, "manifest first"])
def test_a_kill_before_the_manifest_loses_nothing(log, monkeypatch, defect) -> None:
    """The twin has the defect that the manifest is written before its files."""

    def killed(*_: Any) -> None:
        raise KilledError

    def manifest_first(self: KeptTopic, name: str, rows: int, inexact: Any) -> Any:
        known = manifest_of(log)
        layer = replace(known.base, name=name, sha256="0" * 64)
        changed = replace(known, layers=(layer,))
        (place(log) / "manifest.json").write_text(changed.to_json(), encoding="utf-8")
        raise KilledError

    before = manifest_of(log)
    with monkeypatch.context() as patch:
        patch.setattr(KeptTopic, "_replace", killed)
        if defect:
            patch.setattr(KeptTopic, "written", manifest_first)
        with pytest.raises(KilledError):
            log.proved(patch)
    assert len([*place(log).glob("*.parquet")]) == 2, "a file that no manifest names"
    if defect is not None:
        is_whole(log, monkeypatch, "was changed")
        return
    assert manifest_of(log) == before
    goes_on(log, monkeypatch, 3)
    assert {path.name for path in place(log).glob("*.parquet")} == {
        each.name for each in manifest_of(log).files
    }


@pytest.mark.parametrize("by", ["this process", "tasks"])
def test_a_mismatch_leaves_nothing_to_go_on_from(log, monkeypatch, by) -> None:
    with log.keeper(monkeypatch, log.frontier()) as (keeper, _):
        assert by == "tasks" or keeper.take(TABLE).since is not None
        keeper.forget([TABLE])
        keeper.keep()
    is_whole(log, monkeypatch, "nothing is kept of it yet")
    goes_on(log, monkeypatch, 0)


def test_of_two_runs_at_once_the_first_to_end_keeps_and_no_file_goes_from_under_the_other(
    log, monkeypatch
) -> None:
    monkeypatch.setattr(keeping, "_SMALL_ROWS", 1)
    early = log.frontier()
    with log.keeper(monkeypatch, early) as (keeper, database):
        taken = keeper.take(TABLE)
        log.put(9, None)
        goes_on(log, monkeypatch, 4)
        kept = manifest_of(log)
        rows = f'SELECT id, "name" FROM "{taken.state.base}"'
        assert len(database.execute(rows).fetchall()) == 10, "the base is still there"
        keeper.keep()
    assert manifest_of(log) == kept
    log.put(8, None)
    goes_on(log, monkeypatch, 1)


def test_a_table_that_is_not_captured_any_more_is_forgotten(log, monkeypatch) -> None:
    other = place(log).parent / "p.gone"
    known = manifest_of(log)
    for slot, stays in (("slot", False), ("another", True)):
        frontier = replace(known.proved.frontier, slot=slot, tables={"p.gone": TABLE})
        other.mkdir(exist_ok=True)
        gone = replace(known, proved=replace(known.proved, topic="p.gone", frontier=frontier))
        (other / "manifest.json").write_text(gone.to_json(), encoding="utf-8")
        log.put(1, ROWS[0])
        goes_on(log, monkeypatch, 4 if slot == "slot" else 1)
        assert other.exists() is stays


def test_a_reader_that_could_not_sweep_still_keeps_others_from_it(tmp_path) -> None:
    folder = tmp_path / "p.topic"
    with KeptTopic(folder) as reading:
        with KeptTopic(folder) as other:
            reading.sweep()
            other.sweep()
        stray = folder / "read.parquet"
        stray.touch()
        with KeptTopic(folder) as third:
            third.sweep()
            assert stray.exists(), "somebody still reads here"


def test_a_folder_that_cannot_be_looked_at_ends_no_proved_run(log, monkeypatch, caplog) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(keeping, "remove_gone", refused)
    log.proved(monkeypatch)
    assert "no longer captured stay: [Errno 13]" in caplog.text


def test_a_place_that_cannot_keep_is_told() -> None:
    assert "a sign of a pattern" in keeping._why_not_in("/my/views[1]")
    assert not keeping._why_not_in("s3://bucket/views[1]"), "its files are copied to this machine"


def test_rows_of_a_state_that_was_forgotten_are_removed_too(log, monkeypatch) -> None:
    with log.keeper(monkeypatch, log.frontier()) as (keeper, _):
        keeper.forget([TABLE])
    assert [*place(log).glob("*.parquet")]
    remove_kept(str(log.folder), [TOPIC])
    assert not place(log).exists()


def test_a_folder_that_cannot_be_made_is_told(log, monkeypatch) -> None:
    def refused(self: KeptTopic) -> KeptTopic:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(KeptTopic, "__enter__", refused)
    is_whole(log, monkeypatch, "Permission denied")


def test_a_disk_that_is_full_is_told_and_ends_nothing(log, monkeypatch, caplog) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    before = manifest_of(log)
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "write_rows", full)
        log.proved(patch)
    assert "No space left" in caplog.text
    assert manifest_of(log) == before


def test_a_window_over_what_is_kept_leaves_zeros_their_signs(tmp_path) -> None:
    path = tmp_path / "rows.parquet"
    last = (
        "SELECT id, CAST(r AS VARCHAR) FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY k ORDER BY n) AS place FROM '{path}') WHERE place = 1"
    )
    with scratch(None, MEMORY_LIMIT, [tmp_path]) as database:
        row = "SELECT 1 AS id, CAST('-0' AS DOUBLE) AS r, 0 AS k, 0 AS n"
        database.execute(f"COPY ({row}) TO '{path}' (FORMAT parquet)")
        assert database.execute(last).fetchall() == [(1, "-0.0")]
