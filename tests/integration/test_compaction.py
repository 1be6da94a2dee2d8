"""What compaction does to readers, on a real broker whose cleaner is made to work.

Each test shows first that an unjudged read goes wrong, and then that the verdict refuses it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import functions as F  # noqa: N812
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import FrontierRecord, Growth
from changelog.contract.log.partition import partition_of
from changelog.contract.rows.relation import TableName
from replay.base.clock import clock_ms
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.broker.probe import read_after_ends, sample_density
from replay.broker.topics import inspect
from replay.cut.cut import make_cut
from replay.pipeline.replay import Replay
from replay.scan import scan
from replay.scan.task import ScanJob
from replay.verdict.verdict import VerdictKind
from tests.support.builders import make_relation
from tests.support.cleaning import present, wait_cleaned
from tests.support.log_writer import CLEAN_AT_ONCE, KEEP, LogWriter
from tests.support.replays import replay_of
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
pytestmark = [pytest.mark.services, pytest.mark.spark]
THINGS = TableName("public", "things")
SHARP = ReplaySettings(clock_allowance_ms=0)
"""One machine has one clock."""
LAG_MS, RETENTION_MS = 1_500, 1_000
QUICK = {
    **CLEAN_AT_ONCE,
    "min.compaction.lag.ms": str(LAG_MS),
    "max.compaction.lag.ms": str(LAG_MS + 500),
    "delete.retention.ms": str(RETENTION_MS),
}


@dataclass
class Line:
    """The servers, and logs of `things (id integer primary key, name text)`."""

    spark: SparkSession
    kafka: KafkaConnection
    registry: RegistryConnection

    def log(self, settings=KEEP, *, partitions=1) -> LogWriter:
        return LogWriter(
            self.kafka,
            self.registry,
            make_relation(),
            prefix=f"t{uuid.uuid4().hex[:10]}",
            partitions=partitions,
            settings=settings,
        )

    def open(self, record: FrontierRecord, settings: ReplaySettings = SHARP) -> Replay:
        tables = [THINGS]
        return replay_of(self.spark, self.kafka, self.registry, record, tables, settings=settings)


def rows(replay: Replay) -> dict[int, str]:
    with translated():
        return {row.id: row.name for row in replay.states[THINGS].frame.collect()}


def folded(log: LogWriter, messages: Iterable[Message]) -> set[bytes]:
    """Return the keys that are alive by what a reader saw."""
    last = {message.key(): message.value() for message in messages}
    return {key or b"" for key, value in last.items() if value is not None}


def keys(log: LogWriter, numbers: Iterable[int]) -> set[bytes]:
    return {log.codec.encode_key((b"%d" % number,)) for number in numbers}


@pytest.fixture(scope="module")
def line(stack, spark) -> Line:
    endpoints = stack.endpoints()
    return Line(
        spark,
        KafkaConnection(brokers=endpoints.brokers),
        RegistryConnection(url=endpoints.schema_registry),
    )


@dataclass
class Deleted:
    """Rows that were deleted, and whose tombstones the cleaner has forgotten since."""

    log: LogWriter
    stored: FrontierRecord
    record: FrontierRecord
    replay: Replay
    before_pause: list[Message]


@dataclass
class Superseded:
    """Rows that were replaced behind a frontier, and cleaned away before it."""

    log: LogWriter
    record: FrontierRecord
    replay: Replay


@dataclass
class Gappy:
    """A topic nearly all of whose records lie in the second half of its offsets."""

    log: LogWriter
    half: int


def make_deleted(line: Line) -> Deleted:
    log = line.log(QUICK)
    for number in range(5):
        log.put((b"%d" % number, b"old"))
    stored = log.freeze()
    before_pause = present(line.kafka, log.topic, most=5)
    for number in range(5):
        log.delete_key(b"%d" % number)
    record = log.freeze()
    return Deleted(log, stored, record, line.open(record), before_pause)


def make_superseded(line: Line) -> Superseded:
    log = line.log({**QUICK, "delete.retention.ms": KEEP["delete.retention.ms"]}, partitions=2)
    for number in range(40):
        log.put((b"%d" % number, b"old"))
    record = log.freeze()
    return Superseded(log, record, line.open(record))


@dataclass
class Grown:
    """A row whose tombstone stood in a partition that was added later, and is gone."""

    log: LogWriter
    key: bytes
    ms: int


def make_grown(line: Line) -> Grown:
    log = line.log(QUICK)
    number, key = next(
        (number, key)
        for number in range(99)
        if partition_of(key := log.codec.encode_key((b"%d" % number,)), 3) == 2
    )
    log.put((b"%d" % number, b"deleted long ago"))
    log.flush()
    grow(line, log, 3)
    send(line, log, 2, key, None, 1_000)
    return Grown(log, key, clock_ms())


def grow(line: Line, log: LogWriter, partitions: int) -> None:
    admin = AdminClient(line.kafka.client_config())
    for future in admin.create_partitions([NewPartitions(log.topic, partitions)]).values():
        future.result(30)

    def grown() -> bool:
        return inspect(line.kafka, [log.topic])[log.topic].partitions == partitions

    wait_until(grown, 30, f"{partitions} partitions")


def send(
    line: Line, log: LogWriter, partition: int, key: bytes, value: bytes | None, lsn: int
) -> None:
    """Write to a partition of which the log's own producer may not have heard yet."""
    producer = Producer(line.kafka.client_config())
    headers = encode_headers(Position(1, Lsn(lsn), 0), Op.UPDATE, 0)
    producer.produce(log.topic, key=key, value=value, headers=headers, partition=partition)
    assert producer.flush(30) == 0


def make_gappy(line: Line) -> Gappy:
    log = line.log({**CLEAN_AT_ONCE, "delete.retention.ms": KEEP["delete.retention.ms"]})
    for number in range(4_000):
        log.put((b"1" if number < 2_000 else b"%d" % number, b"x"))
    log.flush()
    return Gappy(log, 2_000)


def patiently(attempt: Callable[..., T], *words: object) -> T:
    """Return what is done in time: lags are short here, and a busy machine may outlast one."""
    late = retry_if_exception_type(VerdictError)
    return Retrying(retry=late, stop=stop_after_attempt(5), reraise=True)(attempt, *words)


@pytest.fixture(scope="module")
def cleaned(line: Line) -> tuple[Deleted, Superseded, Gappy, Grown]:
    """Four logs, so that one wait for the cleaner serves all."""
    gappy, grown = make_gappy(line), make_grown(line)
    superseded, deleted = patiently(make_superseded, line), patiently(make_deleted, line)
    assert deleted.replay.verdict.allows_read
    assert superseded.replay.verdict.allows_read

    def stir() -> None:
        for number in range(40):
            superseded.log.put((b"%d" % number, b"new"))
        for log in (gappy.log, deleted.log):
            log.put((b"99", b"stirs"))
        stirring = grown.log.codec.encode_value((b"99", b"stirs"))
        send(line, grown.log, 2, grown.log.codec.encode_key((b"99",)), stirring, 2_000)
        for log in (gappy.log, superseded.log, deleted.log):
            log.flush()

    gone = {
        gappy.log.topic: [(0, offset) for offset in range(gappy.half - 1)],
        superseded.log.topic: [
            (partition, offset)
            for partition, end in enumerate(superseded.record.frontier.ends[superseded.log.topic])
            for offset in range(end)
        ],
        deleted.log.topic: [(0, offset) for offset in range(10)],
        grown.log.topic: [(2, 0)],
    }
    wait_cleaned(line.kafka, stir, gone)
    return deleted, superseded, gappy, grown


@pytest.mark.slow
def test_a_reader_that_outlives_the_tombstones_revives_rows_and_is_refused(line, cleaned):
    deleted, *_ = cleaned
    end = deleted.record.frontier.ends[deleted.log.topic][0]
    after_pause = [
        message
        for message in present(line.kafka, deleted.log.topic, start=5)
        if (message.offset() or 0) < end
    ]
    assert folded(deleted.log, [*deleted.before_pause, *after_pause]) == keys(deleted.log, range(5))
    with pytest.raises(VerdictError, match=r"delete\.retention\.ms"):
        deleted.replay.recheck()


@pytest.mark.matrix
@pytest.mark.slow
def test_a_stored_offset_proves_nothing_after_deletes_while_away(line, cleaned):
    deleted, *_ = cleaned
    newest = deleted.log.freeze()
    start = deleted.stored.frontier.ends[deleted.log.topic][0]
    missed = present(line.kafka, deleted.log.topic, start=start)
    assert folded(deleted.log, [*deleted.before_pause, *missed]) > keys(deleted.log, range(5))
    going_on = make_cut(line.kafka, newest, [THINGS], settings=SHARP, resumed=deleted.stored)
    assert going_on.verdict.kind is VerdictKind.NOT_EXACT
    assert "deletes may have been missed" in str(going_on.verdict)
    assert "rebuild from the start" in str(going_on.verdict)
    assert patiently(lambda: rows(line.open(deleted.log.freeze()))) == {99: "stirs"}


@pytest.mark.matrix
@pytest.mark.slow
def test_a_stored_offset_is_good_for_as_long_as_the_tombstones_stay(line):
    log = line.log()
    for number in range(3):
        log.put((b"%d" % number, b"old"))
    stored = log.freeze()
    log.delete_key(b"1")
    record = log.freeze()
    cut = make_cut(line.kafka, record, [THINGS], resumed=stored)
    assert cut.verdict.allows_read
    back = make_cut(line.kafka, stored, [THINGS], resumed=record)
    assert "lies before the stored state" in str(back.verdict)
    other = replace(stored, frontier=replace(stored.frontier, topic_ids={log.topic: "other"}))
    assert not make_cut(line.kafka, record, [THINGS], resumed=other).verdict.allows_read


@pytest.mark.slow
def test_rows_replaced_behind_the_ends_vanish_under_a_scan_and_it_is_refused(line, cleaned):
    _, superseded, *_ = cleaned
    assert rows(superseded.replay) == {}
    with pytest.raises(VerdictError, match=r"min\.compaction\.lag\.ms"):
        superseded.replay.recheck()
    late = make_cut(line.kafka, superseded.record, [THINGS], settings=SHARP)
    assert late.verdict.kind is VerdictKind.FOLLOW
    assert "newer frontier" in str(late.verdict)

    def follow() -> None:
        following = line.open(superseded.log.freeze())
        assert rows(following) == dict.fromkeys(range(40), "new")
        following.recheck()

    patiently(follow)


@pytest.mark.slow
def test_the_density_of_a_cleaned_topic_is_sampled_by_records(line, cleaned):
    _, _, gappy, _ = cleaned
    topic = gappy.log.topic
    there = present(line.kafka, topic)
    end = 4_000
    (density,) = sample_density(line.kafka, {topic: ((0,), (end,))}).values()
    assert density.offsets == end
    expected = sum((message.offset() or 0) < end for message in there)
    assert abs(density.records - expected) <= expected / 20
    (strata,) = density.strata
    for stratum in strata:
        ratio = stratum.records / (stratum.end - stratum.start)
        assert ratio < 0.05 if stratum.end <= gappy.half else ratio > 0.95
    assert sample_density(line.kafka, {topic: ((0,), (0,))})[topic].ratio is None


@pytest.mark.matrix
def test_the_first_record_behind_the_ends_starts_the_lag(line):
    log = line.log(partitions=2)
    for number in range(8):
        log.put((b"%d" % number, b"x"))
    record = log.freeze()
    cut = make_cut(line.kafka, record, [THINGS])
    found = read_after_ends(line.kafka, record.frontier, cut.states)[log.topic].first_ms
    assert found == (None, None)
    log.put((b"1", b"y"))
    log.flush()
    cut = make_cut(line.kafka, record, [THINGS])
    found = read_after_ends(line.kafka, record.frontier, cut.states)[log.topic].first_ms
    (first,) = [ms for ms in found if ms is not None]
    assert cut.verdict.deadline_ms == min(first, cut.started_ms) + 6 * 3_600_000


def test_a_watched_read_ends_when_its_deadline_does(line):
    log = line.log({**KEEP, "delete.retention.ms": "3000"})
    log.put((b"1", b"x"))
    replay = patiently(lambda: line.open(log.freeze()))
    naps = F.expr("java_method('java.lang.Thread', 'sleep', 100L + 0 * id)")
    endless = line.spark.range(0, 1200, 1, 1).select(naps.alias("nap"))
    begun = time.monotonic()
    with pytest.raises(VerdictError, match=r"delete\.retention\.ms"), replay.watched(look_s=0.5):
        endless.collect()
    assert time.monotonic() - begun < 60
    read = patiently(lambda: rows(line.open(log.freeze())))
    assert read == {1: "x"}, "the session goes on"


def test_a_topic_that_grows_under_a_scan_is_refused(line):
    log = line.log()
    log.put((b"1", b"x"))
    replay = line.open(log.freeze())
    grow(line, log, 2)
    with pytest.raises(VerdictError, match="grew during the scan from 1 to 2"):
        replay.recheck()
    with pytest.raises(VerdictError, match="has 2 partitions, the frontier knows 1"):
        line.open(replay.cut.record)


@pytest.mark.slow
def test_a_row_in_an_old_partition_outlives_its_tombstone_and_is_refused(
    line, cleaned, monkeypatch
):
    *_, grown = cleaned

    def read() -> dict[int, str]:
        return rows(line.open(grown.log.freeze(lsn=Lsn(3_000)), SHARP))

    with monkeypatch.context() as twin:  # tasks that do not ask where a key belongs
        twin.setattr(scan, "ScanJob", lambda **given: ScanJob(**{**given, "homes": None}))
        assert "deleted long ago" in patiently(read).values()
    with pytest.raises(CorruptRecordError, match="its key belongs to partition"):
        patiently(read)
    growth = {grown.log.topic: Growth(grown.ms, Lsn(500))}
    record = grown.log.freeze(lsn=Lsn(3_000), grown=growth)
    with pytest.raises(VerdictError, match=r"since it got more partitions .*changelog resnapshot"):
        line.open(record)


@pytest.mark.matrix
def test_a_topic_that_has_grown_is_exact_while_the_tombstones_are_there(line):
    log = line.log()
    key = log.codec.encode_key((b"1",))
    log.put((b"1", b"old"))
    log.flush()
    grow(line, log, 3)
    send(line, log, 2, key, None, 1_000)
    growth = {log.topic: Growth(clock_ms(), Lsn(500))}
    record = log.freeze(lsn=Lsn(3_000), grown=growth)
    assert rows(line.open(record)) == {}


@pytest.mark.matrix
def test_a_topic_made_anew_under_a_scan_reads_well_and_is_refused(line):
    log = line.log()
    for number in range(3):
        log.put((b"%d" % number, b"old"))
    replay = line.open(log.freeze())
    log.delete()
    log.create(log.topic, 1, KEEP)
    for number in range(3):
        log.put((b"%d" % (number + 10), b"of another life"))
    log.flush()
    assert rows(replay) == {}, "Spark reads the new topic without a word"
    with pytest.raises(VerdictError, match="made anew"):
        replay.recheck()


def test_a_log_ends_in_markers_and_aborted_records_and_is_read_to_its_end(line):
    log = line.log()
    log.put((b"1", b"plain"))
    log.flush()
    writer = Producer(line.kafka.client_config(transactional_id=f"t-{uuid.uuid4()}"))
    writer.init_transactions(30)
    for number, ends in ((2, writer.commit_transaction), (3, writer.abort_transaction), (4, None)):
        writer.begin_transaction()
        key = b"%d" % number
        writer.produce(
            log.topic,
            key=log.codec.encode_key((key,)),
            value=log.codec.encode_value((key, b"in a transaction")),
            headers=encode_headers(Position(1, Lsn(100 + number), 0), Op.CREATE, 0),
        )
        assert writer.flush(30) == 0
        if ends is not None:
            ends(30)
    record = log.freeze()
    assert record.frontier.ends[log.topic] == (6,), "a marker each, of the first two"
    writer.abort_transaction(30)  # one that stays open is refused: test_committed_readers.py
    replay = line.open(record)
    assert {1, 2} <= set(rows(replay))
    replay.recheck()
