"""Replay against the real broker, registry and Spark; the log is written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.missing import avro_default
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import array_type, column_type
from replay.base.clock import clock_ms
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.base.record_place import TopicRange
from replay.broker.topics import inspect, read_frontier
from replay.cut.cut import make_cut
from replay.pipeline.replay import Replay
from replay.result.state import TableMetrics
from replay.scan.java_source import JavaSource
from replay.verdict.verdict import VerdictKind
from tests.support.beginnings import remove_before
from tests.support.builders import INTEGER, TEXT, decimal_type, make_relation
from tests.support.cleaning import present
from tests.support.log_writer import CLEAN_AT_ONCE, KEEP, LogWriter
from tests.support.replays import replay_of
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
THINGS = TableName("public", "things")
HOUR_MS = 3_600_000
Headers = list[tuple[str, bytes]] | None


@dataclass
class Bench:
    """The servers, and a log of `things (id integer primary key, name text)`."""

    spark: SparkSession
    kafka: KafkaConnection
    registry: RegistryConnection
    prefix: str

    def log(self, relation=None, **more) -> LogWriter:
        return LogWriter(
            self.kafka, self.registry, relation or make_relation(), prefix=self.prefix, **more
        )

    def open(self, record: FrontierRecord, **more) -> Replay:
        return replay_of(self.spark, self.kafka, self.registry, record, [THINGS], **more)

    def rows(self, record: FrontierRecord) -> dict[int, str]:
        frame = self.open(record).states[THINGS].frame
        with translated():
            return {row.id: row.name for row in frame.collect()}


@pytest.fixture
def bench(spark, kafka, registry, prefix) -> Bench:
    return Bench(spark, kafka, registry, prefix)


def test_the_state_is_what_is_left_at_the_frontier(bench):
    log = bench.log()
    for number in range(6):
        log.put((b"%d" % number, b"first"))
    log.put((b"1", b"second"))
    log.delete_key(b"2")
    log.delete_key(b"3")
    log.put((b"3", b"back"))
    log.put((b"4", None))
    record = log.freeze()
    log.put((b"0", b"after the frontier"))
    log.flush()

    replay = bench.open(record)
    state = replay.states[THINGS]
    assert replay.metrics() == {THINGS: None}
    with translated():
        rows = {row.id: row.name for row in state.frame.collect()}
    assert rows == {0: "first", 1: "second", 3: "back", 4: None, 5: "first"}
    assert replay.metrics() == {THINGS: TableMetrics(records_read=11, tombstones=2, rows=5)}
    assert state.key == ("id",)
    assert state.frontier == replay.frontier == record.frontier
    assert replay.verdict.kind is VerdictKind.EXACT
    replay.recheck()


def test_records_of_later_transactions_do_not_count_even_before_the_ends(bench):
    log = bench.log()
    log.put((b"1", b"in"))
    position = log.put((b"1", b"out"))
    record = log.freeze(lsn=position.commit_lsn)
    assert bench.rows(record) == {1: "in"}


def test_records_before_since_are_dead(bench):
    log = bench.log()
    log.put((b"1", b"dead"))
    log.put((b"2", b"dead"))
    since = log.put((b"2", b"alive"))
    assert bench.rows(log.freeze(since={log.topic: since})) == {2: "alive"}


def test_old_rows_have_a_null_in_a_column_that_was_added(bench):
    log = bench.log()
    log.put((b"1", b"old"))
    wider = make_relation({"id": INTEGER, "name": TEXT, "Added, later": TEXT})
    log.evolve(wider)
    log.put((b"2", b"new", b"x"))
    frame = bench.open(log.freeze()).states[THINGS].frame
    rows = {tuple(row) for row in frame.collect()}
    assert frame.columns == ["id", "name", "Added, later"]
    assert rows == {(1, "old", None), (2, "new", "x")}


def test_old_rows_have_the_constant_of_a_column_that_was_added_with_one(bench):
    log = bench.log()
    log.put((b"1", b"old"))
    values = {
        "int": (INTEGER, b"5"),
        "text": (TEXT, b"x"),
        "bytes": (column_type("bytea", "bytea"), b"\\x00ff80"),
        "price": (decimal_type(10, 2), b"-1.50"),
        "day": (column_type("date", "date"), b"2024-02-29"),
        "single": (column_type("float4", "real"), b"0.1"),
    }
    kinds = {"id": INTEGER, "name": TEXT, **{name: kind for name, (kind, _) in values.items()}}
    defaults = {name: avro_default(kind, text) for name, (kind, text) in values.items()}
    log.evolve(make_relation(kinds).with_defaults(defaults))
    log.put((b"2", b"new", *(text for _, text in values.values())))
    log.put((b"3", b"null", *[None] * len(values)))
    frame = bench.open(log.freeze()).states[THINGS].frame
    rows = {row["id"]: list(row)[2:] for row in frame.collect()}
    assert rows[1] == rows[2]
    assert rows[1][:2] == [5, "x"]
    assert rows[3] == [None] * len(values)


def test_an_old_row_that_the_new_type_would_change_fails(bench):
    log = bench.log(make_relation({"id": INTEGER, "name": decimal_type(10, 2)}))
    log.put((b"1", b"1.50"))
    log.evolve(make_relation({"id": INTEGER, "name": decimal_type(10, 3)}))
    log.put((b"2", b"1.500"))
    with pytest.raises(CorruptRecordError, match=r"offset \d.*numeric\(10,2\)"):
        bench.rows(log.freeze())


ESCAPES = [(decimal_type(10, 2), b"NaN"), (array_type(INTEGER, "integer[]"), b"{{1},{2}}")]


@pytest.mark.parametrize(("kind", "text"), ESCAPES)
def test_a_value_without_an_exact_form_fails_and_names_its_row(bench, kind, text):
    log = bench.log(make_relation({"id": INTEGER, "c": kind}))
    log.put((b"17", text))
    frame = bench.open(log.freeze()).states[THINGS].frame
    with pytest.raises(LogError) as failed, translated():
        frame.collect()
    for fact in ("public.things", '"c"', "(17)", text.decode(), "offset 0", "hint:"):
        assert fact in str(failed.value)
    assert frame.select("id").collect()[0].id == 17, "a view without the column may go on"


def test_an_escape_that_was_overwritten_harms_nobody(bench):
    log = bench.log(make_relation({"id": INTEGER, "name": decimal_type(10, 2)}))
    log.put((b"1", b"NaN"))
    log.put((b"1", b"2.50"))
    assert {key: str(value) for key, value in bench.rows(log.freeze()).items()} == {1: "2.50"}


def spoilt(how: str, key: bytes, value: bytes) -> tuple[bytes, bytes, Headers]:
    """Return a good record with one fault; headers None are the right ones."""
    unknown = b"\x00\x00\xff\xff\xff"
    return {
        "truncated body": (key, value[:-4], None),
        "unknown schema id": (key, unknown + value[5:], None),
        "no magic byte": (key, b"\x07" + value[1:], None),
        "empty value": (key, b"", None),
        "another key schema": (unknown + key[5:], value, None),
        "no position": (key, value, []),
        "malformed position": (key, value, [("position", b"short")]),
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "truncated body",
        "unknown schema id",
        "no magic byte",
        "empty value",
        "another key schema",
        "no position",
        "malformed position",
    ],
)
def test_a_corrupt_record_is_named_by_its_place(bench, how):
    log = bench.log(partitions=1)
    log.put((b"1", b"good"))
    good = log.codec.encode_key((b"5",)), log.codec.encode_value((b"5", b"a long name"))
    key, value, headers = spoilt(how, *good)
    log.put_raw(key, value, headers=headers)
    frame = bench.open(log.freeze()).states[THINGS].frame
    for attempt in (frame, frame.select("name")):  # also when the view needs no key
        with pytest.raises(CorruptRecordError) as failed, translated():
            attempt.collect()
        assert f'topic "{log.topic}", partition 0, offset 1' in str(failed.value)


def test_headers_may_come_in_any_order_among_others(bench):
    log = bench.log()
    position = log.put((b"1", b"first"))
    later = position._replace(sequence=1).to_bytes()
    key, value = log.codec.encode_key((b"1",)), log.codec.encode_value((b"1", b"second"))
    log.put_raw(key, value, headers=[("x", b"1"), ("op", b"u"), ("position", later)])
    assert bench.rows(log.freeze()) == {1: "second"}


PLACES = {"in memory": ReplaySettings(), "in a file": ReplaySettings(task_memory_mb=0)}


@pytest.mark.parametrize("settings", PLACES.values(), ids=PLACES)
def test_a_task_gives_the_same_in_memory_and_in_a_file(bench, settings):
    log = bench.log()
    for number in range(1_200):
        log.put((b"%d" % (number % 300), b"%d" % number))
    for number in range(0, 300, 7):
        log.delete_key(b"%d" % number)
    with log.sent_again():
        for number in range(50):
            log.put((b"%d" % number, b"sent again"))
    record = log.freeze()
    log.put((b"0", b"after the frontier"))
    log.flush()

    replay = bench.open(record, settings=settings)
    with translated():
        rows = {row.id: row.name for row in replay.states[THINGS].frame.collect()}
    assert rows == {number: str(900 + number) for number in range(300) if number % 7}
    seen = TableMetrics(records_read=1_293, tombstones=43, rows=257)
    assert replay.metrics() == {THINGS: seen}

    log.put_raw(log.codec.encode_key((b"1",)), b"", headers=[("op", b"u")])
    strange = bench.open(log.freeze(), settings=settings).states[THINGS].frame
    with pytest.raises(CorruptRecordError, match=r"offset .*position.* is missing"), translated():
        strange.collect()


def test_an_empty_topic_has_the_right_columns(bench):
    log = bench.log()
    replay = bench.open(log.freeze())
    frame = replay.states[THINGS].frame
    assert frame.collect() == []
    assert frame.columns == ["id", "name"]
    assert replay.metrics() == {THINGS: TableMetrics(records_read=0, tombstones=0, rows=0)}


@pytest.mark.parametrize(
    "reads", ["WHERE 1 = 0", "JOIN (SELECT id FROM range(9) WHERE id < 0) USING (id)"]
)
def test_what_spark_leaves_out_of_its_plan_is_not_counted(bench, spark, reads):
    log = bench.log()
    log.put((b"1", b"a"))
    replay = bench.open(log.freeze())
    replay.states[THINGS].frame.createOrReplaceTempView("things_read")
    assert spark.sql(f"SELECT * FROM things_read {reads}").collect() == []
    assert replay.metrics() == {THINGS: None}


def test_an_action_that_fails_counts_nothing(bench):
    log = bench.log()
    log.put((b"1", b"a"))
    replay = bench.open(log.freeze())
    frame = replay.states[THINGS].frame
    with pytest.raises(PySparkException), replay.counting():
        frame.selectExpr("raise_error(name)").collect()
    assert replay.metrics() == {THINGS: None}
    with replay.counting():
        frame.collect()
    assert replay.metrics() == {THINGS: None}  # of the first action, and no other


def cleaned_log(bench: Bench) -> tuple[LogWriter, int, dict[int, str]]:
    """Return a log that the broker has really cleaned, its number of records, and its rows."""
    log = bench.log(partitions=1, settings=CLEAN_AT_ONCE)
    filler = b"x" * 700
    written = 0
    for wave in range(3):
        for number in range(1_500):
            log.put((b"%d" % number, b"%d" % wave + filler))
            written += 1
    for number in range(0, 1_500, 3):
        log.delete_key(b"%d" % number)
        written += 1
    log.flush()

    def cleaned() -> bool:
        log.put((b"9999", b"rolls the active segment"))
        log.flush()
        return len(present(bench.kafka, log.topic)) < written // 2

    wait_until(cleaned, 90, "the cleaner has removed half of the log")
    kept = {name.replace(".", "_"): KEEP[name] for name in KEEP if name.endswith(".ms")}
    log.alter(max_compaction_lag_ms=2**63 - 1, **kept)
    rows = {n: f"2{filler.decode()}" for n in range(1_500) if n % 3}
    return log, written, {**rows, 9999: "rolls the active segment"}


@pytest.mark.slow
def test_a_log_with_real_gaps_folds_to_the_same_rows(bench):
    log, written, rows = cleaned_log(bench)
    record = log.freeze()
    replay = bench.open(record)
    with translated():
        found = {row.id: row.name for row in replay.states[THINGS].frame.collect()}
    assert found == rows
    (metrics,) = replay.metrics().values()
    assert metrics is not None
    assert metrics.records_read < written // 2 < replay.cut.records_at_most
    replay.recheck()


@pytest.mark.slow
def test_a_late_read_is_refused_and_would_have_lost_rows(bench):
    """Rows superseded past the ends vanish from before them once the lag is over."""
    log = bench.log(partitions=1, settings=CLEAN_AT_ONCE)
    for number in range(2_000):
        log.put((b"%d" % number, b"x" * 700))
    record = log.freeze()
    for number in range(2_000):
        log.put((b"%d" % number, b"y" * 700))
    log.flush()

    def cleaned() -> bool:
        log.put((b"0", b"rolls the active segment"))
        log.flush()
        return len(present(bench.kafka, log.topic)) < 3_000

    wait_until(cleaned, 90, "the cleaner has removed superseded rows")
    with pytest.raises(VerdictError, match=r"min\.compaction\.lag\.ms") as refused:
        bench.open(record)
    assert refused.value.exit_code == 4
    ends = record.frontier.ends[log.topic]
    key_schema_id = int.from_bytes(log.codec.encode_key((b"1",))[1:5], "big")
    unjudged = TopicRange(topic=log.topic, starts=(0,), ends=ends, key_schema_id=key_schema_id)
    assert JavaSource(bench.spark, bench.kafka).raw(unjudged).count() < 2_000


def test_a_topic_made_anew_is_refused_also_when_it_is_as_long(bench):
    log = bench.log()
    log.put((b"1", b"x"))
    record = log.freeze()
    log.delete()
    with pytest.raises(VerdictError, match="does not exist"):
        bench.open(record)
    log.create(log.topic, 2, KEEP)
    with pytest.raises(VerdictError, match="made anew"):
        bench.open(record)  # it ends before the frontier, and no transaction is open for that
    for number in range(20):
        log.put((b"%d" % number, b"y"))
    log.flush()
    with pytest.raises(VerdictError, match="made anew"):
        bench.open(record)


def test_deleted_records_are_refused(bench):
    log = bench.log(partitions=1)
    for number in range(5):
        log.put((b"%d" % number, b"x"))
    record = log.freeze()
    replay = bench.open(record)
    log.alter(cleanup_policy="compact,delete")  # else the broker refuses to delete records
    remove_before(AdminClient(bench.kafka.client_config()), TopicPartition(log.topic, 0, 3))
    log.alter(cleanup_policy="compact")
    with pytest.raises(VerdictError, match="starts at offset 3"):
        bench.open(record)
    with pytest.raises(VerdictError, match="start moved"):
        replay.recheck()
    with pytest.raises(VerdictError, match="vanished"), translated():
        replay.states[THINGS].frame.collect()


def test_a_change_of_settings_during_the_scan_fails_the_replay(bench):
    log = bench.log()
    log.put((b"1", b"x"))
    replay = bench.open(log.freeze())
    replay.recheck()
    log.alter(delete_retention_ms=HOUR_MS)
    with pytest.raises(VerdictError, match=r"delete\.retention\.ms changed"):
        replay.recheck()


def test_records_behind_the_ends_start_the_lag_of_an_old_frontier(bench):
    log = bench.log()
    log.put((b"1", b"x"))
    record = log.freeze()
    settings = ReplaySettings(clock_allowance_ms=0)

    def later():
        return record.appended_ms + 7 * HOUR_MS

    idle = make_cut(bench.kafka, record, [THINGS], settings=settings, clock=later)
    assert idle.verdict.allows_read
    log.put((b"1", b"y"))
    log.flush()
    busy = make_cut(bench.kafka, record, [THINGS], settings=settings, clock=later)
    assert "min.compaction.lag.ms" in str(busy.verdict)
    assert not busy.verdict.allows_read


def test_the_newest_frontier_of_a_slot_is_read(bench):
    log = bench.log()
    log.put((b"1", b"x"))
    first = log.freeze()
    assert read_frontier(bench.kafka, log.frontier_topic) == first
    second = log.freeze()
    assert second.offset > first.offset
    assert abs(second.appended_ms - clock_ms()) < 60_000
    assert read_frontier(bench.kafka, log.frontier_topic) == second
    other = log.freeze(slot="other")
    assert read_frontier(bench.kafka, log.frontier_topic, "slot") == second
    assert read_frontier(bench.kafka, log.frontier_topic, "other") == other
    with pytest.raises(ConfigurationError, match="other, slot"):
        read_frontier(bench.kafka, log.frontier_topic)


def test_a_missing_frontier_is_named(bench):
    with pytest.raises(NoFrontierError, match="no frontier topic"):
        read_frontier(bench.kafka, "nothing._frontier")
    log = bench.log()
    with pytest.raises(NoFrontierError, match="no frontier on"):
        read_frontier(bench.kafka, log.frontier_topic)
    log.freeze()
    with pytest.raises(NoFrontierError, match='slot "nobody"'):
        read_frontier(bench.kafka, log.frontier_topic, "nobody")


def test_a_broker_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("changelog.kafka.cluster.REQUEST_S", 2.0)
    with pytest.raises(UnavailableLogError, match=r"127\.0\.0\.1:9"):
        inspect(KafkaConnection(brokers="127.0.0.1:9"), ["x"])
