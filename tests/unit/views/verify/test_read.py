"""Reading a topic: records by column on both ways, shares of offsets, what a frontier promises."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from hypothesis import example, given
from hypothesis import strategies as st

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError, UnavailableLogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.native.columns import SCHEMA, IntakeNews, ReadOutcome
from tests.support.native_ways import WAYS, needs_c, on
from views.verify.records import read as asking
from views.verify.records import topic as reading
from views.verify.records.receipts import require_whole, shared_out
from views.verify.records.survivors import Buckets
from views.verify.records.topic import RecordFindings, TopicRead, _Keys, read_share
from views.verify.values.faults import Quarantine

FRAME = b"\0\0\0\0\7"
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

positions = st.binary(min_size=20, max_size=20)
sound = st.builds(lambda position: [("position", position), ("op", b"u")], position=positions)
odd = st.sampled_from(
    [
        [],
        [("position", None)],
        [("position", b"p" * 19)],
        [("position", b"p" * 21)],
        [("op", b"u"), ("position", b"p" * 20)],
        [("position", b"short"), ("position", b"q" * 20)],
        [("positions", b"p" * 20), ("positio", b"p" * 20)],
        [("op", b"u")],
    ]
)
keys = st.one_of(st.binary(max_size=4).map(lambda raw: FRAME + raw), st.sampled_from([None, b"{}"]))
values = st.none() | st.binary(max_size=5)
logs = st.lists(st.tuples(keys, values, sound | odd), max_size=40)
begins = st.sampled_from([b"", FRAME, b"{"])


def columns_of(way: str, records: list[Record], prefix: bytes, buckets: int = 1) -> list[pa.Table]:
    made = on(way, "RecordColumns")(prefix=prefix, buckets=buckets)
    for offset, (key, value, headers) in enumerate(records):
        made.add(3, offset, key, value, headers)
    assert (made.held_bytes > 0) is bool(records)
    tables = [made.take(bucket) for bucket in range(buckets)]
    assert made.held_bytes == 0
    assert [len(made.take(bucket)) for bucket in range(buckets)] == [0] * buckets
    return tables


@needs_c
@given(logs, begins)
@example([(None, None, [])] * 300, FRAME)
def test_both_ways_make_the_same_columns(records, prefix):
    (compiled,), (plain,) = (columns_of(way, records, prefix) for way in ("compiled", "plain"))
    compiled.validate(full=True)
    assert compiled.schema == plain.schema == SCHEMA
    assert compiled.to_pylist() == plain.to_pylist()


@pytest.mark.parametrize("way", WAYS)
@given(logs, begins, st.integers(1, 5))
def test_a_key_is_in_one_bucket_and_no_record_is_lost(way, records, prefix, buckets):
    tables = columns_of(way, records, prefix, buckets)
    found = [set(table["key"].to_pylist()) for table in tables]
    assert sum(map(len, found)) == len(set().union(*found))
    whole = columns_of(way, records, prefix)[0].to_pylist()
    again = sorted((row for table in tables for row in table.to_pylist()), key=lambda r: r["off"])
    assert again == whole


def findings(quarantine: Quarantine | None = None, keys: _Keys | None = None) -> RecordFindings:
    frontier = Frontier(slot="s", epoch=2, lsn=Lsn(50), ts_us=0, cluster_id="c")
    return RecordFindings("t", frontier, keys or _Keys(False, None), quarantine)


@given(logs, st.sampled_from([_Keys(False, 7), _Keys(False, None), _Keys(True, None)]))
def test_a_record_without_a_place_ends_the_reading_or_is_noted(records, how):
    (table,) = columns_of(WAYS[0], records, how.beginning)
    apart = Quarantine()
    findings(apart, how).look(table)
    faulty = [row["off"] for row in table.to_pylist() if row["fault"]]
    assert [at for at in range(len(records)) if apart.holds(3, at)] == faulty
    if faulty:
        with pytest.raises(CorruptRecordError, match=f"partition 3, offset {faulty[0]}:"):
            findings(None, how).look(table)
    else:
        findings(None, how).look(table)


def at(epoch: int, lsn: int, value: bytes | None = b"v", key: bytes = FRAME) -> Record:
    return key, value, [("position", Position(epoch, Lsn(lsn), 0).to_bytes())]


def test_a_record_behind_the_frontier_ends_the_reading():
    found = findings()
    found.look(columns_of(WAYS[0], [at(2, 49), at(1, 900), at(2, 3)], b"")[0])
    found.require()
    for later in (at(2, 50), at(3, 1)):
        found = findings()
        found.look(columns_of(WAYS[0], [at(2, 49), later, later], b"")[0])
        with pytest.raises(LogError, match="offset 1 belongs to a transaction after the frontier"):
            found.require()


def test_keys_under_two_schema_ids_end_the_reading():
    found = findings()
    for schema_id in (7, 8):
        key = b"\0\0\0\0" + bytes([schema_id])
        found.look(columns_of(WAYS[0], [at(1, 1, key=key)], b"")[0])
    with pytest.raises(LogError, match="keys under 2 schema ids"):
        found.require()


def test_the_newest_value_is_that_of_the_highest_place():
    found = findings()
    records = [at(1, 70, b"\0\0\0\0\1a"), at(2, 9, b"\0\0\0\0\2b"), at(2, 40, None)]
    for record in records:
        found.look(columns_of(WAYS[0], [record], b"")[0])
    assert found.newest == ((2, 9, 0), b"\0\0\0\0\2")


spans_ = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5)


@given(spans_, st.integers(1, 4))
def test_each_offset_is_in_one_share(spans, threads):
    starts = [start for start, _ in spans]
    ends = [start + span for start, span in spans]
    with patch("views.verify.records.receipts.MANY_OFFSETS", 1):
        shares = shared_out(starts, ends, threads)
    found = sorted(
        (part, offset)
        for share in shares
        for part, (first, end) in share.items()
        for offset in range(first, end)
    )
    wanted = [
        (part, offset)
        for part, (first, end) in enumerate(zip(starts, ends, strict=True))
        for offset in range(first, end)
    ]
    assert found == wanted
    require_whole("t", starts, ends, shares)
    for number in range(len(shares)):  # a share that was lost, and one that was read twice
        with pytest.raises(LogError, match="were not read"):
            require_whole("t", starts, ends, shares[:number] + shares[number + 1 :])
        with pytest.raises(LogError, match="were read twice"):
            require_whole("t", starts, ends, [*shares, shares[number]])


def test_few_records_and_one_processor_get_one_share():
    assert len(shared_out([0], [199_999], 2)) == len(shared_out([0], [10**9], 1)) == 1
    assert len(shared_out([0, 0], [10**6, 10**6], 2)) == 2
    assert shared_out([5], [5], 2) == []


class Scripted:
    """A consumer that tells what it is told to."""

    def __init__(self, *news: IntakeNews) -> None:
        self._news = list(news)

    def poll(self, **_: Any) -> IntakeNews:
        return self._news.pop(0)

    def close(self) -> None:
        assert not self._news


@pytest.mark.parametrize(
    ("news", "said"),
    [
        (IntakeNews(0, 1, ReadOutcome.SHORT, 0, 4), "partition 0 ended at 4 .*, before 9"),
        (
            IntakeNews(0, 1, ReadOutcome.REFUSED, 0, 4, 29, "not authorized"),
            "cannot be read: not auth",
        ),
        (IntakeNews(0, 1, ReadOutcome.DISORDER, 0, 4), "offset 4: the record came again"),
    ],
)
def test_what_a_consumer_meets_ends_the_reading(monkeypatch, news, said):
    monkeypatch.setattr(reading, "_lent_intake", lambda *_: closing(Scripted(news)))
    with pytest.raises(LogError, match=said):
        read_share(cast(Any, None), "t", {0: (0, 9)}, TopicRead(findings(), Buckets(1, None)), 9)


def test_a_topic_of_which_nothing_comes_ends_the_reading(monkeypatch):
    silent = IntakeNews(0, 1, ReadOutcome.OK)
    monkeypatch.setattr(reading, "_lent_intake", lambda *_: closing(Scripted(silent)))
    monkeypatch.setattr(reading, "STALL_SECONDS", -1.0)
    with pytest.raises(LogError, match="nothing came"):
        read_share(cast(Any, None), "t", {0: (0, 9)}, TopicRead(findings(), Buckets(1, None)), 9)


def test_a_share_that_was_stopped_does_not_count(monkeypatch):
    monkeypatch.setattr(reading, "_lent_intake", lambda *_: closing(Scripted()))
    work = TopicRead(findings(), Buckets(1, None))
    work.stopped.set()
    assert read_share(cast(Any, None), "t", {0: (0, 9)}, work, 9) == {}


@given(st.lists(st.integers(0, 2), max_size=9), st.integers(0, 300))
def test_buckets_return_what_was_put_in_memory_or_from_files(places, most_bytes):
    buckets = Buckets(3, None, most_bytes=most_bytes)
    for number, place in enumerate(places):
        buckets.put(place, pa.table({"n": [number, number]}))
    for place in range(3):
        wanted = [n for n, each in enumerate(places) if each == place for _ in range(2)]
        found = [n for table in buckets.tables(place) for n in table["n"].to_pylist()]
        assert sorted(found) == wanted
        buckets.forget(place)
        assert list(buckets.tables(place)) == []
    buckets.close()


class Leaderless:
    """A consumer whose partition has a leader again when it was asked a few times."""

    def __init__(self, code: int, refused: int) -> None:
        self.code, self.refused = code, refused

    def offsets_for_times(self, places, timeout):
        if self.refused:
            self.refused -= 1
            raise KafkaException(KafkaError(self.code))
        for place in places:
            place.offset = 0 if place.offset == OFFSET_BEGINNING else 4
        return places

    def close(self) -> None:
        pass


@pytest.mark.parametrize("code", sorted(asking._WITHOUT_LEADER))
def test_a_partition_between_two_leaders_is_asked_again(code, monkeypatch):
    consumer = Leaderless(code, 2)
    monkeypatch.setattr(asking, "Consumer", lambda _: consumer)
    places = asking._places(KafkaConnection(brokers=""), {"topic": 2})
    assert places == {"topic": [(0, 4), (0, 4)]}


def test_twin_what_another_leader_would_not_mend_is_told_at_once(monkeypatch):
    consumer = Leaderless(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    monkeypatch.setattr(asking, "Consumer", lambda _: consumer)
    with pytest.raises(UnavailableLogError, match="do not answer"):
        asking._places(KafkaConnection(brokers=""), {"topic": 2})
    assert consumer.refused == 0


class Silent(Leaderless):
    """A consumer whose request for some offsets ended before there was an answer."""

    def offsets_for_times(self, places, timeout):
        return places  # with the special times in the place of offsets, and without an error


@pytest.mark.parametrize("ask", [
    lambda kafka: asking._places(kafka, {"topic": 2}),
    lambda kafka: asking.appended_ends(kafka, "topic", 2),
])  # fmt: skip
def test_an_offset_that_was_not_told_is_none(ask, monkeypatch):
    """Taken for an offset, -2 would be a start before which nothing is missing."""
    monkeypatch.setattr(asking, "Consumer", lambda _: Silent(0, 0))
    with pytest.raises(UnavailableLogError, match='topic "topic"'):
        ask(KafkaConnection(brokers=""))
