"""Leaders that change, with and without the loss of records, on a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from changelog.stack.servers.kafka import KafkaServer
from replay.cut.cut import make_cut, recheck
from replay.store.checkpoint import Checkpoint, CheckpointStore, Layer, Manifest
from replay.store.plan import TopicStep, plan_advance
from replay.verdict.increment import StoredBase
from tests.support.builders import make_relation
from tests.support.log_writer import KEEP, LogWriter
from tests.support.lost_records import lose_records
from tests.support.services import own_broker

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]
THINGS = TableName("public", "things")


@pytest.fixture
def server(downloads: None) -> Iterator[KafkaServer]:
    with own_broker() as made:
        yield made


def going_on(
    log: LogWriter, stored: FrontierRecord, newer: FrontierRecord, folder: Path
) -> TopicStep:
    """Return how a state that was stored at a frontier is brought to a newer one."""
    store, frontier = CheckpointStore(str(folder)), stored.frontier
    base = StoredBase(
        record=stored,
        lag_ms=int(KEEP["min.compaction.lag.ms"]),
        retention_ms=int(KEEP["delete.retention.ms"]),
        pin=SchemaPin(1, 2),
    )
    made = Checkpoint(
        topic=log.topic,
        base=base,
        layers=(Layer("base", 10),),
        founded=frontier,
        folded=frontier,
        at=datetime.now(UTC),
    )
    store.seal(made, Manifest(), [])
    return plan_advance(log.kafka, store, newer, [THINGS]).steps[log.topic]


def test_a_leader_that_changes_is_noticed_and_one_that_has_lost_records_is_refused(
    server, registry, tmp_path
):
    kafka = KafkaConnection(brokers=server.url)
    log = LogWriter(kafka, registry, make_relation(), prefix="leaders", partitions=1)
    for number in range(10):
        log.put((b"%d" % number, b"x"))
        log.flush()  # a batch each
    record = log.freeze()
    assert record.frontier.leader_epochs[log.topic] == (0,)
    cut = make_cut(kafka, record, [THINGS])
    server.stop()
    server.start()
    with pytest.raises(VerdictError, match="leader changed during the scan"):
        recheck(cut, kafka)

    log.put((b"1", b"y"))
    log.flush()
    again = make_cut(kafka, record, [THINGS])
    assert again.verdict.allows_read, "a leader with all records is as good as the one before"
    moved = going_on(log, record, log.freeze(), tmp_path / "moved")
    assert moved.checkpoint is not None, moved.why

    lose_records(server, log.topic, batches=7)
    lost = make_cut(kafka, record, [THINGS])
    assert "ends at 7, before the frontier's 10: records lost" in str(lost.verdict)
    log.reconnect()
    for number in range(20, 40):
        log.put((b"%d" % number, b"of another life"))
        log.flush()
    refilled = make_cut(kafka, record, [THINGS])
    assert "partition 0 was truncated below the frontier's end 10" in str(refilled.verdict)
    with pytest.raises(VerdictError, match="changelog resnapshot"):
        refilled.verdict.require()
    forgetful = replace(record, frontier=replace(record.frontier, leader_epochs={}))
    blind = make_cut(kafka, forgetful, [THINGS])
    assert blind.verdict.allows_read, "twin: without epochs the other records look like the lost"
    newer = log.freeze()
    with_newer = make_cut(kafka, newer, [THINGS])
    assert with_newer.verdict.allows_read
    from_start = going_on(log, record, newer, tmp_path / "lost")
    assert from_start.checkpoint is None
    assert "partition 0 was truncated below the stored state's end 10" in from_start.why
    older = going_on(log, record, record, tmp_path / "held")
    assert older.needs_no_read, "a state that is stored needs no log"
    trusted = going_on(log, forgetful, newer, tmp_path / "forgetful")
    assert trusted.checkpoint is not None, "twin: without epochs the stored state is gone on from"
