"""Ranges and gaps of a run that archives, with made-up answers of the brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, LogMovedError, VerdictError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.form import PLAIN
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.scope import Scope
from changelog.contract.rows.relation import TableName
from replay.archive import copy
from replay.archive.copy import CopySource, copy_news
from replay.archive.manifest import ArchiveError
from replay.archive.store import Archive, check
from replay.cut.cut import Cut
from replay.decode.schemas import TopicSchemas
from replay.verdict.problems import Problem
from replay.verdict.verdict import Verdict, VerdictKind, refused
from tests.support.archives import SCHEMAS
from tests.unit.replay.states import IDLE, LAG_MS

NOW_MS = 1_700_000_000_000
FRONTIERS = "_frontier"
"""Their topic."""


class FakeMessage:
    def __init__(self, topic: str, offset: int, lsn: int) -> None:
        self._at, self._lsn = (topic, offset), lsn

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._at[1]

    def timestamp(self) -> tuple[int, int]:
        return 2, NOW_MS

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value %d" % self._at[1]

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        return encode_headers(Position(1, Lsn(self._lsn), 0), Op.UPDATE, 0)


class FakeLog:
    """Topics of one partition; their records, frontiers and states."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self.ends = dict.fromkeys(topics, 0)
        self.ids = {topic: f"id of {topic}" for topic in topics}
        self.starts = dict.fromkeys(topics, 0)
        self.unkeyed: set[str] = set()
        self.refused: dict[str, str] = {}  # why a topic is not exact now
        self.refused_at: dict[int, str] = {}  # and why none is at an older frontier, by its LSN
        self.moved = False  # behind the read
        self.records: list[FrontierRecord] = []
        self.slot = "slot"
        self.read: list[tuple[str, int, int]] = []
        for name in ("make_cut", "recheck", "inspect", "scan", "read_frontier", "read_frontiers"):
            monkeypatch.setattr(copy, name, getattr(self, name))
        monkeypatch.setattr(copy, "SchemaReader", lambda *_: self)
        self.put(2)

    def put(self, count: int, *topics: str) -> None:
        for topic in topics or self.ends:
            self.ends[topic] += count
        number = len(self.records)
        frontier = Frontier(
            slot=self.slot,
            epoch=1,
            lsn=Lsn(100 + number),
            ts_us=number,
            cluster_id="cluster",
            tables={topic: TableName("public", topic) for topic in self.ends},
            topic_ids=dict(self.ids),
            ends={topic: (end,) for topic, end in self.ends.items()},
            scopes={topic: Scope(keyed=False) for topic in self.unkeyed},
        )
        self.records.append(FrontierRecord(frontier, number, NOW_MS))

    def inspect(self, _: Any, topics: Any) -> dict[str, Any]:
        states = {
            topic: replace(
                IDLE,
                topic=topic,
                topic_id=self.ids[topic],
                log_starts=(self.starts[topic],),
                ends=(self.ends[topic],),
                leader_epochs=(0,),
            )
            for topic in topics
            if topic in self.ends
        }
        if FRONTIERS in topics:
            states[FRONTIERS] = replace(IDLE, topic=FRONTIERS, topic_id="frontiers")
        return states

    def make_cut(self, _: Any, record: FrontierRecord, tables: Any, **more: Any) -> Cut:
        topics = {table: record.frontier.topic_of(table) or "" for table in tables}
        older = self.refused_at.get(int(record.frontier.lsn))
        reasons = {topic: older or self.refused.get(topic) for topic in topics.values()}
        verdicts = {
            topic: refused([Problem(why, "mend it")], 0)
            if why
            else Verdict(VerdictKind.EXACT, None, ())
            for topic, why in reasons.items()
        }
        return Cut(
            record=record,
            topics=topics,
            states=self.inspect(None, topics.values()),
            verdict=Verdict(VerdictKind.EXACT, None, (), topics=verdicts),
            started_ms=NOW_MS,
            settings=more["settings"],
        )

    def recheck(self, cut: Cut, *_: Any) -> int:
        assert not {*cut.states} & {*self.refused}
        if self.moved:
            raise LogMovedError("the log changed while it was read")
        return 1

    def scan(self, _: Any, ranges: Any) -> Any:
        self.read += [
            (part.topic, part.start, part.end) for part in ranges if part.start < part.end
        ]
        for part in ranges:
            for offset in range(part.start, part.end):
                yield FakeMessage(part.topic, offset, 10 + offset)

    def read_frontier(self, *_: Any) -> FrontierRecord:
        return self.records[-1]

    def read_frontiers(self, *_: Any) -> list[FrontierRecord]:
        return self.records

    def of_table(self, topic: str, *_: Any) -> TopicSchemas:
        own = SCHEMAS
        return TopicSchemas(topic, own.key_id, own.writers, own.reader_id, PLAIN, own.key)

    def close(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch) -> FakeLog:
    return FakeLog(monkeypatch, "a", "b")


@pytest.fixture
def archive(tmp_path) -> Archive:
    return Archive(str(tmp_path))


SOURCE = CopySource(
    kafka=KafkaConnection(brokers="none:1"),
    registry=RegistryConnection(url=""),
    frontier_topic=FRONTIERS,
    slot="slot",
    clock=lambda: NOW_MS,
)


def test_a_run_takes_what_came_since_the_last_one(fake, archive) -> None:
    first = copy_news(archive, SOURCE)
    assert fake.read == [("a", 0, 2), ("b", 0, 2)]
    first.require_whole()
    assert copy_news(archive, SOURCE).segment is None, "nothing is new"
    fake.put(1, "a")
    fake.put(2)
    fake.read.clear()
    copied = copy_news(archive, SOURCE)
    copied.require_whole()
    assert fake.read == [("a", 2, 5), ("b", 2, 4)]
    assert copied.records == 5
    assert copied.segment is not None
    assert {part.base for part in copied.segment.topics.values()} == {""}
    assert {part.schemas for part in copied.segment.topics.values()} == {None}
    assert [one.offset for one in archive.frontiers(copied.segment)] == [1, 2]
    assert copied.segment.is_dense
    *_, (_, counts) = check(archive)
    assert counts.records == 4 + 1 + 5 + 2


def test_records_are_archived_byte_for_byte(fake, archive) -> None:
    segment = copy_news(archive, SOURCE).segment
    assert segment is not None
    rows = archive.table(segment.topics["a"].files[0]).to_pylist()
    assert [row["offset"] for row in rows] == [0, 1]
    message = FakeMessage("a", 1, 11)
    assert (rows[1]["key"], rows[1]["value"]) == (message.key(), message.value())
    headers = [(header["key"], header["value"]) for header in rows[1]["headers"]]
    assert headers == message.headers()


def test_many_records_go_to_several_files_without_a_hole(fake, archive, monkeypatch) -> None:
    monkeypatch.setattr(copy, "BUFFER_BYTES", 1000)
    fake.put(50, "a")
    segment = copy_news(archive, SOURCE).segment
    assert segment is not None
    assert len(segment.topics["a"].files) > 5
    assert segment.topics["a"].files[-1].end == 52
    list(check(archive))


def test_where_the_last_frontier_is_not_exact_a_topic_is_copied_from_its_start(
    fake, archive
) -> None:
    copy_news(archive, SOURCE)
    fake.refused_at[100] = "min.compaction.lag.ms (1) of the frontier ended"
    fake.put(3)
    fake.read.clear()
    copied = copy_news(archive, SOURCE)
    assert fake.read == [("a", 0, 5), ("b", 0, 5)]
    with pytest.raises(VerdictError, match=r"partition 0 from 2 to 5\): min.compaction.lag.ms"):
        copied.require_whole()
    fake.put(1)
    copy_news(archive, SOURCE).require_whole()


def test_a_topic_that_is_not_exact_is_left_out_until_it_is(fake, archive) -> None:
    fake.refused["b"] = "it starts at offset 1"
    for _ in range(2):  # the second finds nothing new, and still says it
        copied = copy_news(archive, SOURCE)
        with pytest.raises(VerdictError, match='topic "b" is left out: it starts at offset 1'):
            copied.require_whole()
    fake.refused.clear()
    fake.put(1)
    copied = copy_news(archive, SOURCE)
    copied.require_whole()
    assert copied.segment is not None
    assert copied.segment.topics["b"].base == "it was not archived before"
    assert copied.segment.topics["a"].base == ""


def test_a_topic_made_anew_is_another_one(fake, archive) -> None:
    copy_news(archive, SOURCE)
    fake.ids["b"], fake.ends["b"] = "another", 0
    fake.put(1)
    copied = copy_news(archive, SOURCE)
    assert copied.segment is not None
    assert copied.segment.topics["b"].base == "it is another topic now"
    (file,) = copied.segment.topics["b"].files
    assert "/b/another/" in file.name
    assert [gap.topic for gap in copied.gaps] == ["b"]
    assert copied.segment.topics["a"].base == ""


def test_a_table_without_a_key_goes_on_as_long_as_no_record_is_lacking(fake, archive) -> None:
    fake.unkeyed.add("b")
    fake.put(1)
    copy_news(archive, SOURCE)
    fake.starts["b"] = 3  # retention has taken what is archived
    fake.refused["b"] = "it starts at offset 3"
    fake.put(2)
    copy_news(archive, SOURCE).require_whole()
    fake.starts["b"] = 6  # and more than that
    fake.put(2)
    copied = copy_news(archive, SOURCE)
    assert [*copied.left_out] == ["b"]


def test_a_log_that_changed_while_it_was_read_makes_no_segment(fake, archive) -> None:
    fake.moved = True
    with pytest.raises(LogMovedError):
        copy_news(archive, SOURCE)
    assert archive.segments() == []
    fake.moved = False
    copy_news(archive, SOURCE).require_whole()
    fake.put(1)
    copy_news(archive, SOURCE)
    folders = archive._names("segments")
    assert len(folders) == 2, "what the first run left is gone"


def test_frontiers_that_may_be_missing_are_said_to_be(fake, archive) -> None:
    copy_news(archive, SOURCE)
    fake.put(1)
    late = replace(SOURCE, clock=lambda: NOW_MS + LAG_MS)
    segment = copy_news(archive, late).segment
    assert segment is not None
    assert not segment.is_dense


def test_another_slot_and_an_older_log_are_refused(fake, archive) -> None:
    fake.put(1)
    copy_news(archive, SOURCE)
    fake.records.pop()
    with pytest.raises(ArchiveError, match="the archive goes up to LSN 0/65 of epoch 1, the log"):
        copy_news(archive, SOURCE)
    fake.slot = "other"
    fake.put(1)
    with pytest.raises(ConfigurationError, match='is of slot "slot", the log of "other"'):
        copy_news(archive, SOURCE)
