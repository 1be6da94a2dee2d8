"""What Spark's workers give back of a declared log's records, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from changelog.avro.arrow import arrow_type
from changelog.contract.forms.declared import DeclaredLog, Order, ValueShape, declared_columns
from changelog.contract.rows.relation import TableName
from replay.broker.topic_state import TopicState
from replay.declared.declared import _COLUMNS, _batch
from replay.declared.interpret import Interpreter
from replay.verdict.declared_verdict import judge_declared, lost_meanwhile
from replay.verdict.limits import VerdictTimes

TYPES = {"id": "int", "m": "decimal(10,2)", "day": "date", "t": "timestamp_ntz", "s": "string"}
LOG = DeclaredLog(
    table=TableName("public", "things"),
    topic="things",
    shape=ValueShape.CUD_JSON,
    key=("id",),
    columns=declared_columns(TYPES, "logs.things"),
)


def records(*pairs: tuple[object, object]) -> pa.RecordBatch:
    raw = [[None if p is None else json.dumps(p).encode() for p in pair] for pair in pairs]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([pair[0] for pair in raw], pa.binary()),
            pa.array([pair[1] for pair in raw], pa.binary()),
            pa.array([0] * len(raw), pa.int32()),
            pa.array(range(len(raw)), pa.int64()),
        ],
        ["key", "value", "partition", "offset"],
    )


def interpreted(batch: pa.RecordBatch) -> list[dict[str, object]]:
    types = pa.struct([pa.field(each.column, arrow_type(each.type)) for each in LOG.columns])
    schema = pa.schema([*_COLUMNS, ("row", types)])
    found = _batch(batch, Interpreter(LOG, LOG.columns, {}, {}), LOG.columns, schema)
    assert found.schema == schema
    rows: list[dict[str, object]] = found.to_pylist()
    return rows


def test_a_batch_of_records_becomes_typed_rows_and_keeps_the_bytes_of_the_bad_ones():
    whole = {"id": 1, "m": 1.5, "day": 1, "t": "2024-01-31T00:00:00.5", "s": "x"}
    moved, gone, row, bad, dead = interpreted(
        records(
            (None, {"op": "u", "before": {"id": 7}, "after": whole}),
            (None, {"op": "d", "before": {"id": 2}}),
            ({"id": 3}, {"op": "c", "after": {"id": "x"}}),
            ({"id": 4}, None),
        )
    )[:5]
    assert (moved["key"], moved["row"], moved["step"]) == ("[7]", None, 0)
    assert gone["step"] == 1
    assert gone["row"] == {
        "id": 1,
        "m": Decimal("1.50"),
        "day": date(1970, 1, 2),
        "t": datetime(2024, 1, 31, 0, 0, 0, 500_000),  # noqa: DTZ001 - a timestamp without a zone
        "s": "x",
    }
    assert (row["key"], row["row"], row["offset"]) == ("[2]", None, 1)
    assert bad["fault"] == "column \"id\": 'x' is not an integer"
    assert bad["key"] == "[3]"
    assert bad["raw_value"] == b'{"op": "c", "after": {"id": "x"}}'
    assert (dead["is_tombstone"], dead["key"], dead["raw_key"]) == (True, "[4]", None)


def test_no_records_give_no_rows():
    assert interpreted(records()) == []


def state(**changes: object) -> TopicState:
    settings = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "min.compaction.lag.ms": "1000",
        "delete.retention.ms": "5000",
    }
    starts = changes.pop("log_starts", (0, 0))
    ends = changes.pop("ends", (5, 5))
    settings |= {name.replace("_", "."): str(value) for name, value in changes.items()}
    assert isinstance(starts, tuple)
    assert isinstance(ends, tuple)
    return TopicState(
        topic="things",
        topic_id="t",
        cluster_id="c",
        settings=settings,
        log_starts=starts,
        ends=ends,
        leader_epochs=(0, 0),
    )


def at(now_ms: int) -> VerdictTimes:
    return VerdictTimes(
        started_ms=100, asked_ms=100, now_ms=now_ms, estimate_ms=None, allowance_ms=0
    )


FLAT = DeclaredLog(
    table=LOG.table, topic="things", shape=ValueShape.FLAT_JSON, key=("id",), order=Order.OFFSET
)


@pytest.mark.parametrize(
    ("log", "now", "words"),
    [
        (FLAT, state(log_starts=(0, 3)), "partition 1 starts at offset 3"),
        (FLAT, state(cleanup_policy="compact,delete"), "deletes live rows"),
        (FLAT, state(cleanup_policy="delete", log_starts=(1, 0)), "rows may be missing"),
        (LOG, state(), "key_changes = false"),
        (FLAT, None, "does not exist"),
    ],
)
def test_a_log_that_cannot_give_a_state_says_why(log, now, words):
    topics = {} if now is None else {"things": now}
    verdict = judge_declared([log], topics, at(100))
    assert not verdict.allows_read
    assert words in str(verdict)
    assert verdict.remedies
    assert verdict.topics["things"].reasons == verdict.reasons


@pytest.mark.parametrize(
    ("now", "deadline", "words"),
    [
        (state(), 1100, "last one of its partition; no frontier"),
        (state(min_compaction_lag_ms=0), 4600, "exact only if nothing is appended"),
        (state(message_timestamp_type="CreateTime"), 4600, "exact only if nothing is appended"),
        (state(cleanup_policy="delete"), None, "no frontier"),
    ],
)
def test_a_log_without_a_frontier_says_by_what_rule_and_until_when(now, deadline, words):
    verdict = judge_declared([FLAT], {"things": now}, at(100))
    assert verdict.allows_read
    assert verdict.deadline_ms == deadline
    assert words in str(verdict)


def test_of_several_logs_each_says_its_rule_and_the_first_to_end_sets_the_deadline():
    other = replace(FLAT, table=TableName("public", "others"), topic="others")
    kept = replace(state(cleanup_policy="delete"), topic="others")
    verdict = judge_declared([FLAT, other], {"things": state(), "others": kept}, at(100))
    assert verdict.deadline_ms == verdict.topics["things"].deadline_ms == 1100
    assert verdict.topics["others"].deadline_ms is None
    assert [reason.split(":")[0] for reason in verdict.reasons] == [
        'topic "things"',
        'topic "others"',
    ]


@pytest.mark.parametrize(
    ("before", "ends", "now_ms", "lost"),
    [
        (state(), (5, 6), 1000, False),  # within the lag
        (state(), (5, 6), 1200, True),
        (state(), (5, 5), 1200, False),
        (state(min_compaction_lag_ms=0), (5, 6), 200, True),
        (state(min_compaction_lag_ms=0), (5, 5), 200, False),
        (state(cleanup_policy="delete"), (5, 6), 10_000, False),
        (state(), (5, 5), 4600, True),  # a tombstone may be gone
    ],
)
def test_what_a_scan_may_have_missed_is_known_afterwards(before, ends, now_ms, lost):
    found = lost_meanwhile([FLAT], {"things": before}, {"things": state(ends=ends)}, at(now_ms))
    assert bool(found) is lost
