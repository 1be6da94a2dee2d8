"""Checkpoints against a real broker with real cleaning; the log is written by hand."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord, Growth
from changelog.contract.rows.relation import TableName
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.cut.asof import parse_as_of
from replay.cut.past import find_past
from replay.decode.schemas import schemas_of
from replay.store import advancer
from replay.store import plan as advance
from replay.store.advancer import Advancer
from replay.store.checkpoint import CheckpointConflictError, CheckpointStore
from replay.store.plan import plan_advance
from replay.store.stored import StoredStates
from replay.verdict.verdict import Verdict, VerdictKind
from tests.support.builders import INTEGER, TEXT, make_relation
from tests.support.cleaning import wait_cleaned
from tests.support.log_writer import CLEAN_AT_ONCE, KEEP, LogWriter
from tests.support.replays import replay_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
THINGS = TableName("public", "things")
NO_ALLOWANCE = ReplaySettings(clock_allowance_ms=0)


@contextmanager
def unseen(_name, _text):
    yield


@dataclass
class Bench:
    spark: SparkSession
    kafka: KafkaConnection
    registry: RegistryConnection
    prefix: str
    store: CheckpointStore

    def log(self, suffix: str = "", **more) -> LogWriter:
        prefix = self.prefix + suffix
        return LogWriter(self.kafka, self.registry, make_relation(), prefix=prefix, **more)

    def plan(self, record: FrontierRecord, settings: ReplaySettings | None = None):
        return plan_advance(self.kafka, self.store, record, [THINGS], settings=settings)

    def advancer(self) -> Advancer:
        return Advancer(spark=self.spark, kafka=self.kafka, store=self.store, stage=unseen)

    def advance(
        self, record: FrontierRecord, settings: ReplaySettings | None = None
    ) -> StoredStates:
        plan = self.plan(record, settings)
        return self.advancer().advance(plan, self.schemas(plan))

    def schemas(self, plan):
        return schemas_of(self.registry, self.kafka, plan.record.frontier, plan.topics)

    def from_start(self, record: FrontierRecord) -> dict:
        replay = replay_of(self.spark, self.kafka, self.registry, record, [THINGS])
        return rows(replay)


def rows(states) -> dict:
    with translated():
        return {row.id: row.name for row in states.states[THINGS].frame.collect()}


@pytest.fixture
def bench(spark, kafka, registry, prefix, tmp_path) -> Bench:
    return Bench(spark, kafka, registry, prefix, CheckpointStore(str(tmp_path)))


@pytest.mark.matrix
def test_a_state_is_brought_forward_by_what_came_after_it(bench, monkeypatch) -> None:
    monkeypatch.setattr(advancer, "MANY_LAYERS", 2)
    monkeypatch.setattr(advancer, "SMALL_ROWS", 40)
    log = bench.log()
    for number in range(20):
        log.put((b"%d" % number, b"first"))
    record = log.freeze()
    found = bench.advance(record)
    assert found.from_start == {log.topic: "it has no checkpoint yet"}
    shapes = []
    (first,) = found.checkpoints[THINGS].layers
    for wave in range(6):
        log.put((b"%d" % wave, b"wave %d" % wave))
        log.delete_key(b"%d" % (wave + 10))
        log.put((b"%d" % (100 + wave), b"new"))
        record = log.freeze()
        found = bench.advance(record)
        (metrics,) = found.metrics().values()
        assert metrics is not None
        assert (metrics.records_read, metrics.tombstones) == (3, 1), "what changed, and no more"
        assert not found.from_start
        shapes.append([layer.rows for layer in found.checkpoints[THINGS].layers])
    assert rows(found) == bench.from_start(record)
    folded = [[20, 3], [20, 3, 3], [20, 6, 3], [20, 9, 3]]
    assert shapes[:4] == folded, "layers are folded into one"
    assert found.checkpoints[THINGS].layers[0].name != first.name, "and at last into a new base"
    again = bench.advance(record)
    (metrics,) = again.metrics().values()
    assert metrics is not None
    assert metrics.records_read == 0
    assert rows(again) == rows(found)


@pytest.mark.matrix
def test_without_a_record_in_between_a_state_never_grows_old(bench) -> None:
    log = bench.log()
    log.put((b"1", b"x"))
    first = log.freeze()
    bench.advance(first)
    later = log.freeze(lsn=Lsn(first.frontier.lsn + 1000))
    years = 10 * 365 * 24 * 3_600_000
    plan = plan_advance(
        bench.kafka, bench.store, later, [THINGS], clock=lambda: later.appended_ms + years
    )
    assert plan.verdict.allows_read
    assert plan.records_at_most == 0
    found = bench.advance(later)
    assert rows(found) == {1: "x"}
    assert found.checkpoints[THINGS].frontier == later.frontier, "and is younger from here on"
    assert len(found.checkpoints[THINGS].layers) == 1


def test_records_sent_again_after_the_stored_state_change_nothing(bench) -> None:
    log = bench.log()
    old = log.put((b"1", b"old"))
    log.delete_key(b"1")
    log.put((b"2", b"there"))
    bench.advance(log.freeze())
    key, value = log.codec.encode_key((b"1",)), log.codec.encode_value((b"1", b"old"))
    log.put_raw(key, value, headers=[("position", old.to_bytes()), ("op", b"c")])
    log.put((b"3", b"new"))
    assert rows(bench.advance(log.freeze())) == {2: "there", 3: "new"}


@pytest.mark.matrix
def test_stored_records_are_read_under_later_schemas(bench) -> None:
    log = bench.log()
    log.put((b"1", b"old"))
    bench.advance(log.freeze())
    log.evolve(make_relation({"id": INTEGER, "name": TEXT, "more": TEXT}))
    log.put((b"2", b"new", b"x"))
    found = bench.advance(log.freeze())
    assert not found.from_start
    assert {tuple(row) for row in found.states[THINGS].frame.collect()} == {
        (1, "old", None),
        (2, "new", "x"),
    }


@pytest.mark.matrix
def test_a_topic_made_anew_is_read_from_its_start(bench) -> None:
    log = bench.log()
    log.put((b"1", b"x"))
    bench.advance(log.freeze())
    log.delete()
    log.create(log.topic, 2, KEEP)
    for number in range(5):
        log.put((b"%d" % number, b"y"))
    found = bench.advance(log.freeze())
    assert "topic's id changed" in found.from_start[log.topic]
    assert set(rows(found).values()) == {"y"}


@pytest.mark.matrix
def test_a_topic_that_grew_since_is_read_from_its_start(bench) -> None:
    log = bench.log()
    for number in range(8):
        log.put((b"%d" % number, b"x"))
    stored = log.freeze()
    bench.advance(stored)
    log.grow(5)
    for number in range(0, 8, 2):
        log.delete_key(b"%d" % number)
    grown = Growth(stored.appended_ms, stored.frontier.lsn)
    found = bench.advance(log.freeze(grown={log.topic: grown}))
    assert "has 5 partitions, the stored state knows 2" in found.from_start[log.topic]
    assert rows(found) == dict.fromkeys(range(1, 8, 2), "x")


@pytest.mark.matrix
def test_two_runs_that_advance_one_topic_do_not_both_count(bench) -> None:
    log = bench.log()
    log.put((b"1", b"x"))
    bench.advance(log.freeze())
    log.put((b"2", b"y"))
    record = log.freeze()
    advancer = bench.advancer()
    slow = bench.plan(record)
    bench.advance(record)
    with pytest.raises(CheckpointConflictError):
        advancer.advance(slow, bench.schemas(slow))
    assert rows(bench.advance(record)) == {1: "x", 2: "y"}


CLEANED_SOON = {**CLEAN_AT_ONCE, "min.compaction.lag.ms": "4000", "max.compaction.lag.ms": "5000"}


def seconds_of_a_scan(bench: Bench) -> float:
    """Measure how long a topic takes from its start: on a busy machine many times as long."""
    log = bench.log("warm")
    log.put((b"1", b"x"))
    record = log.freeze()
    bench.advance(record)  # a session that has run nothing yet is slow
    log.put((b"2", b"y"))
    record = log.freeze()
    begun = time.monotonic()
    bench.advance(record)
    assert len(bench.from_start(record)) == 2
    return time.monotonic() - begun


def allowed(bases, *_, **__) -> Verdict:
    fine = Verdict(VerdictKind.EXACT, None, ())
    return replace(fine, topics=dict.fromkeys(bases, fine))


@pytest.mark.slow
@pytest.mark.matrix
def test_after_deletes_that_may_have_been_missed_the_log_is_read_from_its_start(
    bench, monkeypatch
) -> None:
    """The tombstones are really gone: reading on would revive rows, and an older state is past."""
    retention_s = max(10, 6 * seconds_of_a_scan(bench))  # a scan must end within nine tenths of it
    settings = {**CLEANED_SOON, "delete.retention.ms": str(round(retention_s * 1000))}
    log = bench.log(partitions=1, settings=settings)
    for number in range(40):
        log.put((b"%d" % number, b"x"))
    first = log.freeze()
    bench.advance(first, NO_ALLOWANCE)
    for number in range(0, 40, 2):
        log.delete_key(b"%d" % number)
    log.flush()

    def stir() -> None:
        log.put((b"99", b"rolls the active segment"))
        log.flush()

    tombstones = [(0, offset) for offset in range(40, 60)]
    wait_cleaned(bench.kafka, stir, {log.topic: tombstones}, deadline_s=90 + 2 * retention_s)
    left = {**dict.fromkeys(range(1, 40, 2), "x"), 99: "rolls the active segment"}
    with monkeypatch.context() as patched:  # the defect: a stored offset that is simply trusted
        patched.setattr(advance, "judge_increment", allowed)
        patched.setattr(bench.store, "seal", lambda *_: None)
        assert set(rows(bench.advance(log.freeze(), NO_ALLOWANCE))) > set(left)
    found = bench.advance(log.freeze(), NO_ALLOWANCE)
    assert "deletes may have been missed" in found.from_start[log.topic]
    assert rows(found) == left

    asked = parse_as_of(str(first.frontier.lsn))
    assert asked is not None
    arguments = (bench.kafka, log.frontier_topic, "slot", asked, [THINGS])
    with pytest.raises(VerdictError, match=r"min\.compaction\.lag") as refused:
        find_past(*arguments, settings=NO_ALLOWANCE)
    assert f"--as-of {log.freeze().frontier.lsn}" in refused.value.hint
    kept = bench.store.manifest(log.topic).checkpoints
    records = [each.base.record for each in kept]
    past = find_past(*arguments, stored=records, settings=NO_ALLOWANCE)
    assert rows(bench.advance(past.record, NO_ALLOWANCE)) == dict.fromkeys(range(40), "x")
