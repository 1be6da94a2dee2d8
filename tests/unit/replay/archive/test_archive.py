"""An archive's manifests and files, the frontier for a moment, and the fold of its records."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from changelog.contract.base.errors import ConfigurationError, LockedError, LogError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.archive.copy import Copied, Gap
from replay.archive.manifest import ArchiveError, Segment
from replay.archive.read import (
    ArchivedCut,
    FileJob,
    find_archived,
    gives,
    last_records,
    segments_of,
)
from replay.archive.store import Archive, check
from replay.base.record_place import TopicRange, cut_of
from replay.base.task_faults import MarkedError
from replay.cut.asof import AsOf
from replay.scan.last_records import FoldRules
from tests.support.archives import SCHEMAS, THINGS, TOPIC, HandArchive
from tests.support.builders import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, read_avro
from views.verify.records.archived import LogArchive, as_columns
from views.verify.records.topic import read_archived


@pytest.fixture
def made(tmp_path) -> HandArchive:
    """Three segments; the second one has frontiers of its own inside."""
    made = HandArchive(str(tmp_path))
    for number in range(6):
        made.put(number, "first")
    made.seal()
    made.put(2, "second")
    made.put(3, None)
    made.freeze()
    made.put(2, None)
    made.put(9, "new")
    made.seal()
    made.put(3, "third")
    made.seal()
    return made


def at(lsn: Lsn) -> AsOf:
    return AsOf(str(lsn), lsn=lsn)


def found_in(archive: Archive, as_of: AsOf | None, tables: list[TableName]) -> ArchivedCut:
    return find_archived(archive, segments_of(archive), as_of, tables)


def names_of(schema: str, values: list[bytes | None]) -> dict[int, str]:
    rows = [read_avro(schema, value) for value in values if value is not None]
    return {row["id"]: row["name"] for row in rows}


def folded(made: HandArchive, as_of: AsOf | None = None) -> dict[int, str]:
    """Fold what the tasks of a replay give, by position."""
    archived = found_in(made.archive, as_of, [THINGS])
    frontier = archived.cut.record.frontier
    job = FileJob.of(archived, TOPIC)
    topic_range = TopicRange(
        topic=TOPIC, starts=job.begins, ends=job.ends, key_schema_id=KEY_SCHEMA_ID
    )
    rules = FoldRules.of(topic_range, since=None, before=cut_of(frontier), most_bytes=1 << 20)
    last: dict[bytes, tuple[bytes, bytes | None]] = {}
    for number in range(len(job.files)):
        for batch in last_records(rules, job, number):
            for row in batch.to_pylist():
                if (
                    row["position"] is not None
                    and row["position"] > last.get(row["key"], (b"",))[0]
                ):
                    last[row["key"]] = row["position"], row["value"]
    return names_of(SCHEMAS.writers[VALUE_SCHEMA_ID], [value for _, value in last.values()])


def verified(made: HandArchive, record: FrontierRecord) -> dict[int, str]:
    """Fold what the verifier reads of the archive, by position."""
    records = read_archived(
        LogArchive(made.archive.root), record.frontier, TOPIC, key_id=KEY_SCHEMA_ID
    )
    rows = [
        row
        for bucket in range(len(records.buckets))
        for table in records.buckets.tables(bucket)
        for row in table.to_pylist()
    ]
    assert records.count == len(rows)
    assert records.newest_schema_id == VALUE_SCHEMA_ID
    rows.sort(key=lambda row: (row["epoch"], row["commit_lsn"], row["sequence"]))
    last = {row["key"]: row["value"] for row in rows}
    return names_of(SCHEMAS.writers[VALUE_SCHEMA_ID], list(last.values()))


FIRST = dict.fromkeys(range(6), "first")
INSIDE = {0: "first", 1: "first", 2: "second", 4: "first", 5: "first"}
SECOND = {0: "first", 1: "first", 4: "first", 5: "first", 9: "new"}
THIRD = {**SECOND, 3: "third"}


def inside(made: HandArchive) -> FrontierRecord:
    return made.archive.frontiers(made.segments[1])[0]


def test_a_manifest_says_the_same_when_it_is_read_again(made) -> None:
    assert made.archive.segments() == made.segments


def test_each_segment_and_each_frontier_between_gives_its_state(made) -> None:
    first, second, third = (segment.record for segment in made.segments)
    for record, rows in ((first, FIRST), (inside(made), INSIDE), (second, SECOND), (third, THIRD)):
        assert folded(made, at(record.frontier.lsn)) == rows
        assert verified(made, record) == rows
    assert folded(made) == THIRD


def test_an_lsn_between_two_frontiers_is_answered_by_the_first(made) -> None:
    lsn = Lsn(inside(made).frontier.lsn + 3)
    assert folded(made, at(lsn)) == INSIDE
    time = AsOf("", ts_us=inside(made).frontier.ts_us + 5)
    assert folded(made, time) == INSIDE


@pytest.mark.parametrize(
    ("lsn", "why"),
    [("0/1", "the archive begins at LSN"), ("0/FFFF", "the archive goes up to LSN")],
)
def test_what_is_before_or_behind_the_archive_is_refused(made, lsn, why) -> None:
    with pytest.raises(VerdictError, match=why) as error:
        found_in(made.archive, at(Lsn.parse(lsn)), [THINGS])
    assert "the nearest that can be given: --as-of 0/" in error.value.hint
    assert gives(made.archive, at(Lsn.parse(lsn)), [THINGS]) is None


def test_an_archive_says_what_it_gives(made, tmp_path) -> None:
    record = inside(made)
    assert gives(made.archive, at(record.frontier.lsn), [THINGS]) == record.frontier
    empty = HandArchive(str(tmp_path / "none")).archive
    assert gives(empty, at(Lsn(1)), [THINGS]) is None
    with pytest.raises(ArchiveError, match="there is no archive at"):
        found_in(empty, None, [THINGS])


def test_behind_a_gap_the_state_is_that_of_its_base_alone(made) -> None:
    made.put(4, "fourth")
    inner = made.freeze()
    made.put(5, None)
    gap = made.seal(base="min.compaction.lag.ms (1000) of the frontier ended")
    rows = {key: name for key, name in {**THIRD, 4: "fourth"}.items() if key != 5}
    assert folded(made) == rows
    assert verified(made, gap.record) == rows
    with pytest.raises(VerdictError, match="what it held before that is not known") as error:
        found_in(made.archive, at(inner.frontier.lsn), [THINGS])
    before, after = made.segments[-2].frontier, made.segments[-1].frontier
    assert str(before.lsn) in error.value.hint
    assert str(after.lsn) in error.value.hint
    with pytest.raises(LogError, match="does not give topic"):
        verified(made, inner)
    assert folded(made, at(before.lsn)) == THIRD, "what lies before stays exact"


def test_frontiers_that_may_be_missing_answer_for_none_between_them(made) -> None:
    made.put(4, "fourth")
    made.freeze()
    made.put(4, "fifth")
    made.seal(is_dense=False)
    lsn = Lsn(made.segments[2].frontier.lsn + 3)
    with pytest.raises(VerdictError, match="frontiers between two segments"):
        found_in(made.archive, at(lsn), [THINGS])


def manifest(made: HandArchive, number: int) -> Path:
    return Path(made.archive.root) / "manifests" / f"{number:08d}.json"


def test_a_changed_byte_of_a_manifest_is_refused_by_name(made) -> None:
    path = manifest(made, 2)
    path.write_bytes(path.read_bytes().replace(b'"number":2', b'"number":3', 1))
    with pytest.raises(ArchiveError, match=r"00000002\.json was altered"):
        made.archive.segments()
    with pytest.raises(LogError, match=r"00000002\.json was altered"):
        verified(made, made.segments[0].record)


def test_a_manifest_that_was_exchanged_or_lost_is_refused_by_name(made) -> None:
    second = made.segments[1]
    manifest(made, 2).write_bytes(replace(second, is_dense=False).to_bytes())
    with pytest.raises(ArchiveError, match=r"before 00000003.json is another than the one"):
        made.archive.segments()
    with pytest.raises(LogError, match=r"00000003.json does not follow the one before"):
        verified(made, made.segments[0].record)
    manifest(made, 2).unlink()
    with pytest.raises(ArchiveError, match=r"00000002.json is missing"):
        made.archive.segments()


def test_a_changed_byte_of_a_file_is_refused_by_name(made) -> None:
    name = made.segments[1].topics[TOPIC].files[0].name
    path = Path(made.archive.root) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(MarkedError, match=f"{name} was altered"):
        folded(made)
    with pytest.raises(LogError, match=f"{name} was altered"):
        verified(made, made.segments[-1].record)
    with pytest.raises(ArchiveError, match=f"{name} was altered"):
        list(check(made.archive))
    path.unlink()
    with pytest.raises(ArchiveError, match=f"has lost .*{name}"):
        list(check(made.archive))


def test_a_check_counts_every_record(made) -> None:
    *_, (lsn, counts) = check(made.archive)
    assert lsn == str(made.segments[-1].frontier.lsn)
    assert (counts.segments, counts.records) == (3, 6 + 4 + 1 + 1 + 2 + 1)


@pytest.mark.parametrize("defect", ["hole", "overlap", "jump"])
def test_files_that_leave_a_hole_are_refused(made, defect) -> None:
    last = made.segments[-1]
    part = last.topics[TOPIC]
    (file,) = part.files
    files = {
        "hole": (replace(file, start=file.start + 1, end=file.end + 1),),
        "overlap": (file, file),
        "jump": (file,),
    }[defect]
    starts = (part.starts[0] + 1, part.starts[1]) if defect == "jump" else part.starts
    part = replace(part, files=files, starts=starts)
    path = manifest(made, 3)
    path.write_bytes(replace(last, topics={TOPIC: part}).to_bytes())
    with pytest.raises(ArchiveError, match=r"hole|does not begin where the segment before ended"):
        made.archive.segments()


def test_two_that_archive_at_once_do_not_both_count(made) -> None:
    made.put(1, "again")
    segment = made.seal(commits=False)
    made.archive.commit(segment)
    with pytest.raises(LockedError, match="another process archives"):
        made.archive.commit(segment)


def test_only_files_that_can_never_count_are_removed(made) -> None:
    for name in ("00000002-killed", "00000004-in-writing"):
        folder = Path(made.archive.root) / "segments" / name
        folder.mkdir()
        (folder / "0-0-1.parquet").write_bytes(b"x")
    assert made.archive.remove_unnamed(made.segments) == ["00000002-killed"]
    assert made.archive.segments() == made.segments
    list(check(made.archive))


def test_a_gap_says_topic_offsets_and_the_setting(made) -> None:
    gap = Gap(
        topic=TOPIC,
        since=made.segments[0].record,
        offsets=((3, 9), (4, 4)),
        why="min.compaction.lag.ms (1000) of the frontier ended",
    )
    with pytest.raises(VerdictError) as error:
        Copied(segment=made.segments[1], gaps=(gap,)).require_whole()
    assert 'topic "things"' in str(error.value)
    assert "partition 0 from 3 to 9)" in str(error.value)
    assert "min_compaction_lag_ms" in error.value.hint
    Copied(segment=made.segments[1]).require_whole()


def test_a_table_that_is_not_archived_is_named(made) -> None:
    with pytest.raises(ConfigurationError, match=r'table "public\.others" is not captured'):
        found_in(made.archive, None, [TableName("public", "others")])


def test_the_verifier_finds_faults_as_it_does_on_the_log(made) -> None:
    (_, table), *_ = LogArchive(made.archive.root).tables(made.segments[0].frontier, TOPIC, (0, 0))
    rows = table.to_pylist()
    rows[0]["headers"] = []
    rows[1]["key"] = None
    rows[2]["key"] = b"other"
    columns = as_columns(type(table).from_pylist(rows, schema=table.schema), b"\0")
    assert columns["fault"].to_pylist() == [3, 1, 2]
    assert columns["epoch"].to_pylist() == [2**32 - 1, 1, 1]


def test_another_format_is_refused(made) -> None:
    line = made.segments[0].to_bytes().partition(b"\n")[0].replace(b'"format":1', b'"format":9')
    with pytest.raises(ArchiveError, match="x has format 9, this program reads 1"):
        Segment.from_bytes(b"%s\n%s\n" % (line, sha256(line).hexdigest().encode()), "x")
