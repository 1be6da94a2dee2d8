"""The verdict on compaction: each fact that can spoil a read, and the deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.errors import VerdictError
from changelog.contract.scope import Scope
from replay.verdict import Kind, Verdict, judge
from tests.unit.replay.states import (
    APPENDED_MS,
    BUSY,
    IDLE,
    LAG_MS,
    RECORD,
    RETENTION_MS,
    with_settings,
)

MINUTE_MS = 60_000


def judged(state, *, now_ms=APPENDED_MS + MINUTE_MS, record=RECORD, estimate_ms=1000, **more):
    more.setdefault("started_ms", now_ms)
    more.setdefault("allowance_ms", 0)
    topics = {} if state is None else {state.topic: state}
    return judge(record, topics, ("things",), now_ms=now_ms, estimate_ms=estimate_ms, **more)


def test_a_fresh_frontier_is_exact_until_the_lag_has_passed():
    verdict = judged(BUSY)
    assert verdict.kind is Kind.EXACT
    assert verdict.deadline_ms == APPENDED_MS + LAG_MS
    assert "min.compaction.lag.ms" in str(verdict)
    verdict.require()


def test_the_deadline_may_come_before_a_slow_finish():
    verdict = judged(BUSY, estimate_ms=LAG_MS)
    assert verdict.kind is Kind.EXACT_UNTIL
    assert verdict.allows_read
    assert judged(BUSY, estimate_ms=None).kind is Kind.EXACT_UNTIL


@pytest.mark.parametrize(("early_ms", "kind"), [(1, Kind.EXACT_UNTIL), (0, Kind.FOLLOW)])
def test_the_lag_ends_to_the_millisecond(early_ms, kind):
    assert judged(BUSY, now_ms=APPENDED_MS + LAG_MS - early_ms).kind is kind


def test_clocks_may_differ_by_the_allowance():
    now_ms = APPENDED_MS + LAG_MS - 5_000
    assert judged(BUSY, now_ms=now_ms, allowance_ms=4_999).kind is Kind.EXACT_UNTIL
    assert judged(BUSY, now_ms=now_ms, allowance_ms=5_000).kind is Kind.FOLLOW


def test_the_scan_may_last_as_long_as_a_tombstone():
    short = with_settings(BUSY, delete_retention_ms=MINUTE_MS)
    start_ms = APPENDED_MS + MINUTE_MS
    verdict = judged(short, started_ms=start_ms, now_ms=start_ms)
    assert verdict.deadline_ms == start_ms + MINUTE_MS
    assert "delete.retention.ms" in str(verdict)
    assert judged(short, started_ms=start_ms, now_ms=start_ms + MINUTE_MS).kind is Kind.NOT_EXACT


def test_an_old_frontier_with_nothing_behind_its_ends_is_still_exact():
    now_ms = APPENDED_MS + 10 * LAG_MS
    assert judged(BUSY, now_ms=now_ms).kind is Kind.FOLLOW
    idle = judged(IDLE, now_ms=now_ms)
    assert idle.kind is Kind.EXACT
    assert idle.deadline_ms == now_ms + LAG_MS


def test_the_earliest_deadline_of_all_topics_counts():
    other = with_settings(replace(BUSY, topic="others"), min_compaction_lag_ms=MINUTE_MS * 10)
    frontier = replace(
        RECORD.frontier,
        topic_ids={"things": "id-1", "others": "id-1"},
        ends={"things": (10, 20), "others": (10, 20)},
    )
    verdict = judge(
        replace(RECORD, frontier=frontier),
        {"things": BUSY, "others": other},
        ("things", "others"),
        started_ms=APPENDED_MS,
        now_ms=APPENDED_MS,
        estimate_ms=0,
        allowance_ms=0,
    )
    assert verdict.deadline_ms == APPENDED_MS + 10 * MINUTE_MS
    assert "others" in str(verdict)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "does not exist"),
        (replace(BUSY, topic_id="id-2"), "made anew"),
        (replace(BUSY, cluster_id="elsewhere"), "cluster"),
        (with_settings(BUSY, cleanup_policy="delete"), "cleanup.policy is delete"),
        (with_settings(BUSY, cleanup_policy="compact,delete"), "cleanup.policy is compact,delete"),
        (with_settings(BUSY, message_timestamp_type="CreateTime"), "message.timestamp.type"),
        (with_settings(BUSY, min_compaction_lag_ms=0), "min.compaction.lag.ms (0)"),
        (with_settings(BUSY, delete_retention_ms=0), "delete.retention.ms (0)"),
        (replace(BUSY, log_starts=(0, 4)), "starts at offset 4"),
        (replace(BUSY, ends=(9, 21)), "partition 0 ends at 9"),
        (replace(BUSY, ends=(1, 2, 3), log_starts=(0, 0, 0)), "has 3 partitions"),
        (replace(BUSY, ends=(30,), log_starts=(0,)), "has 1 partitions"),
    ],
)
def test_what_spoils_a_read_is_refused_with_its_reason(state, reason):
    verdict = judged(state)
    assert verdict.kind is Kind.NOT_EXACT
    assert reason in str(verdict)
    with pytest.raises(VerdictError, match="cannot give") as refused:
        verdict.require()
    assert refused.value.exit_code == 4


def test_a_topic_that_the_frontier_does_not_know_is_refused():
    unknown = replace(RECORD, frontier=replace(RECORD.frontier, ends={}))
    assert "no ends" in str(judged(BUSY, record=unknown))


def test_all_reasons_are_named_at_once():
    spoilt = replace(with_settings(BUSY, cleanup_policy="delete"), topic_id="other")
    assert len(judged(spoilt).reasons) == 2


def test_a_retention_of_for_ever_has_no_date_and_is_no_error():
    endless = with_settings(BUSY, delete_retention_ms=2**63 - 1, min_compaction_lag_ms=2**63 - 1)
    assert judged(endless).kind is Kind.EXACT
    assert str(judged(endless))


def test_a_scan_is_late_from_the_deadline_on():
    verdict = Verdict(Kind.EXACT, 1_000, (), allowance_ms=10)
    assert [verdict.is_late(now) for now in (989, 990, 1_000)] == [False, True, True]
    assert judged(BUSY).is_late(APPENDED_MS + RETENTION_MS)


def test_a_topic_that_is_not_the_table_is_refused_by_name():
    inserts = replace(RECORD.frontier, scopes={"things": Scope(operations=("insert",))})
    verdict = judged(IDLE, record=replace(RECORD, frontier=inserts))
    with pytest.raises(VerdictError, match=r'"things" cannot be rebuilt: .* without update'):
        verdict.require()
    narrow = replace(RECORD.frontier, scopes={"things": Scope(dropped=("a",), rows="id > 1")})
    assert judged(IDLE, record=replace(RECORD, frontier=narrow)).kind is Kind.EXACT
