"""The verdict on compaction: each fact that can spoil a read, and the deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.base.errors import VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Growth
from changelog.contract.log.scope import Scope
from replay.broker.topic_state import AfterEnds
from replay.verdict.limits import VerdictTimes
from replay.verdict.verdict import Verdict, VerdictKind, judge, judge_foreign
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


def at(now_ms, *, started_ms=None, estimate_ms=0, allowance_ms=0):
    started_ms = now_ms if started_ms is None else started_ms
    return VerdictTimes(
        started_ms=started_ms,
        asked_ms=started_ms,
        now_ms=now_ms,
        estimate_ms=estimate_ms,
        allowance_ms=allowance_ms,
    )


def judged(
    state,
    *,
    now_ms=APPENDED_MS + MINUTE_MS,
    record=RECORD,
    estimate_ms=1000,
    after_ends=None,
    resumed=None,
    **more,
):
    topics = {} if state is None else {state.topic: state}
    times = at(now_ms, estimate_ms=estimate_ms, **more)
    return judge(record, topics, ("things",), times, after_ends=after_ends, resumed=resumed)


def test_a_fresh_frontier_is_exact_until_the_lag_has_passed():
    verdict = judged(BUSY)
    assert verdict.kind is VerdictKind.EXACT
    assert verdict.deadline_ms == APPENDED_MS + LAG_MS
    assert "min.compaction.lag.ms" in str(verdict)
    verdict.require()


def test_the_deadline_may_come_before_a_slow_finish():
    verdict = judged(BUSY, estimate_ms=LAG_MS)
    assert verdict.kind is VerdictKind.EXACT_UNTIL
    assert verdict.allows_read
    assert judged(BUSY, estimate_ms=None).kind is VerdictKind.EXACT_UNTIL


@pytest.mark.parametrize(
    ("early_ms", "kind"), [(1, VerdictKind.EXACT_UNTIL), (0, VerdictKind.FOLLOW)]
)
def test_the_lag_ends_to_the_millisecond(early_ms, kind):
    assert judged(BUSY, now_ms=APPENDED_MS + LAG_MS - early_ms).kind is kind


def test_clocks_may_differ_by_the_allowance():
    now_ms = APPENDED_MS + LAG_MS - 5_000
    assert judged(BUSY, now_ms=now_ms, allowance_ms=4_999).kind is VerdictKind.EXACT_UNTIL
    assert judged(BUSY, now_ms=now_ms, allowance_ms=5_000).kind is VerdictKind.FOLLOW


def test_the_scan_may_last_as_long_as_a_tombstone():
    short = with_settings(BUSY, delete_retention_ms=MINUTE_MS)
    start_ms = APPENDED_MS + MINUTE_MS
    verdict = judged(short, started_ms=start_ms, now_ms=start_ms)
    assert verdict.deadline_ms == start_ms + MINUTE_MS - MINUTE_MS // 10
    assert "delete.retention.ms" in str(verdict)
    assert (
        judged(short, started_ms=start_ms, now_ms=start_ms + MINUTE_MS).kind
        is VerdictKind.NOT_EXACT
    )


def test_an_old_frontier_with_nothing_behind_its_ends_is_still_exact():
    now_ms = APPENDED_MS + 10 * LAG_MS
    assert judged(BUSY, now_ms=now_ms).kind is VerdictKind.FOLLOW
    idle = judged(IDLE, now_ms=now_ms)
    assert idle.kind is VerdictKind.EXACT
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
        at(APPENDED_MS),
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
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert reason in str(verdict)
    with pytest.raises(VerdictError, match="cannot give") as refused:
        verdict.require()
    assert refused.value.exit_code == 4


def test_a_topic_that_the_frontier_does_not_know_is_refused():
    unknown = replace(RECORD, frontier=replace(RECORD.frontier, ends={}))
    assert "no ends" in str(judged(BUSY, record=unknown))


def test_a_retention_of_for_ever_has_no_date_and_is_no_error():
    endless = with_settings(BUSY, delete_retention_ms=2**63 - 1, min_compaction_lag_ms=2**63 - 1)
    assert judged(endless).kind is VerdictKind.EXACT
    assert str(judged(endless))


def test_a_scan_is_late_from_the_deadline_on():
    verdict = Verdict(VerdictKind.EXACT, 1_000, (), allowance_ms=10)
    assert [verdict.is_late(now) for now in (989, 990, 1_000)] == [False, True, True]
    assert judged(BUSY).is_late(APPENDED_MS + RETENTION_MS)


def test_a_topic_that_is_not_the_table_is_refused_by_name():
    inserts = replace(RECORD.frontier, scopes={"things": Scope(operations=("insert",))})
    verdict = judged(IDLE, record=replace(RECORD, frontier=inserts))
    with pytest.raises(VerdictError, match=r'"things" cannot be rebuilt: .* without update'):
        verdict.require()
    narrow = replace(RECORD.frontier, scopes={"things": Scope(dropped=("a",), rows="id > 1")})
    assert judged(IDLE, record=replace(RECORD, frontier=narrow)).kind is VerdictKind.EXACT


def first_records(*first_ms, truncated=()):
    return {"things": AfterEnds(first_ms=first_ms, truncated=truncated)}


def test_the_first_record_behind_the_ends_starts_the_lag():
    later = APPENDED_MS + 3 * MINUTE_MS
    verdict = judged(
        BUSY, after_ends=first_records(None, later), now_ms=APPENDED_MS + 5 * MINUTE_MS
    )
    assert verdict.deadline_ms == later + LAG_MS


def test_a_frontier_that_was_appended_late_is_no_younger_than_what_came_before_it():
    earlier = APPENDED_MS - 2 * LAG_MS
    verdict = judged(BUSY, after_ends=first_records(None, earlier))
    assert verdict.kind is VerdictKind.FOLLOW


def test_an_old_frontier_with_young_records_behind_it_is_exact():
    now_ms = APPENDED_MS + 3 * LAG_MS
    assert judged(BUSY, now_ms=now_ms).kind is VerdictKind.FOLLOW
    verdict = judged(BUSY, after_ends=first_records(None, now_ms - MINUTE_MS), now_ms=now_ms)
    assert verdict.kind is VerdictKind.EXACT
    assert verdict.deadline_ms == now_ms - MINUTE_MS + LAG_MS


@pytest.mark.parametrize("first", [None, APPENDED_MS + RETENTION_MS + LAG_MS])
def test_from_when_tombstones_may_be_gone_the_records_that_are_left_prove_nothing(first):
    now_ms = APPENDED_MS + LAG_MS + RETENTION_MS
    assert (
        judged(BUSY, after_ends=first_records(None, first), now_ms=now_ms - 1).kind
        is not VerdictKind.FOLLOW
    )
    assert (
        judged(BUSY, after_ends=first_records(None, first), now_ms=now_ms).kind
        is VerdictKind.FOLLOW
    )


def test_offsets_behind_the_ends_that_hold_no_record_are_markers():
    verdict = judged(BUSY, after_ends=first_records(None, None), now_ms=APPENDED_MS + 2 * LAG_MS)
    assert verdict.kind is VerdictKind.EXACT


def test_a_truncated_partition_is_refused_whatever_stands_there_now():
    verdict = judged(BUSY, after_ends=first_records(None, APPENDED_MS, truncated=(1,)))
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert "partition 1 was truncated below the frontier's end 20" in str(verdict)
    assert "changelog resnapshot" in str(verdict)


def test_each_refusal_says_what_to_do():
    with pytest.raises(VerdictError) as refused:
        judged(replace(with_settings(BUSY, cleanup_policy="delete"), log_starts=(1, 0))).require()
    assert "--fix-topics" in refused.value.hint
    assert "changelog resnapshot" in refused.value.hint
    late = judged(BUSY, now_ms=APPENDED_MS + LAG_MS)
    assert late.remedies == ("let capture write a newer frontier, or choose a newer one",)


def test_no_newer_frontier_helps_a_topic_that_keeps_no_lag():
    verdict = judged(with_settings(BUSY, min_compaction_lag_ms=5_000), allowance_ms=5_000)
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert "--fix-topics" in verdict.remedies[0]


def test_the_verdict_on_several_topics_is_the_worst_and_names_each():
    topics = {"things": BUSY}
    verdict = judge(RECORD, topics, ("things", "gone"), at(APPENDED_MS + LAG_MS))
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert len(verdict.reasons) == 2
    kinds = {topic: each.kind for topic, each in verdict.topics.items()}
    assert kinds == {"things": VerdictKind.FOLLOW, "gone": VerdictKind.NOT_EXACT}


STORED = replace(RECORD, appended_ms=APPENDED_MS - 3_600_000)


def test_going_on_is_exact_until_the_first_tombstone_since_may_be_gone():
    short = with_settings(BUSY, min_compaction_lag_ms=LAG_MS, delete_retention_ms=0)
    verdict = judged(short, resumed=STORED)
    assert verdict.deadline_ms == STORED.appended_ms + LAG_MS
    late = judged(IDLE, resumed=STORED, now_ms=STORED.appended_ms + LAG_MS + RETENTION_MS)
    assert late.kind is VerdictKind.NOT_EXACT
    assert "deletes may have been missed" in str(late)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic_ids": {"things": "id-0"}}, "another one"),
        ({"cluster_id": "other"}, "another one"),
        ({"ends": {"things": (10,)}}, "had 1 partitions"),
        ({"ends": {"things": (10, 21)}}, "lies before the stored state"),
        ({"since": {"things": Position(1, Lsn(5), 0)}}, "emptied or copied anew"),
    ],
)
def test_a_stored_state_of_another_log_is_not_gone_on_from(changes, reason):
    stored = replace(STORED, frontier=replace(STORED.frontier, **changes))
    verdict = judged(BUSY, resumed=stored)
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert reason in str(verdict)


def foreign(**settings):
    state = with_settings(BUSY, **settings)
    return judge_foreign(state, at(APPENDED_MS, estimate_ms=1_000, allowance_ms=5_000))


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({}, VerdictKind.EXACT, "of the present end"),
        ({"min_compaction_lag_ms": 30_000}, VerdictKind.EXACT, "of the present end"),
        ({"min_compaction_lag_ms": 6_000}, VerdictKind.EXACT_UNTIL, "of the present end"),
        ({"min_compaction_lag_ms": 0}, VerdictKind.FOLLOW, "min.compaction.lag.ms is 0"),
        ({"message_timestamp_type": "CreateTime"}, VerdictKind.FOLLOW, "CreateTime"),
        ({"delete_retention_ms": 0}, VerdictKind.NOT_EXACT, "longer delete.retention.ms"),
        ({"cleanup_policy": "delete"}, VerdictKind.NOT_EXACT, "set cleanup.policy=compact"),
        (
            {"cleanup_policy": "compact,delete"},
            VerdictKind.NOT_EXACT,
            "cleanup.policy is compact,delete",
        ),
        (
            {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1},
            VerdictKind.EXACT,
            "nothing is ever removed",
        ),
    ],
)
def test_topics_of_others_are_judged_by_their_settings(settings, kind, says):
    verdict = foreign(**settings)
    assert verdict.kind is kind
    assert says in str(verdict)


def test_a_foreign_topic_whose_start_has_moved_has_lost_keys():
    state = replace(BUSY, log_starts=(0, 3))
    verdict = judge_foreign(state, at(APPENDED_MS, estimate_ms=None))
    assert "partition 1 starts at offset 3" in str(verdict)
    assert verdict.kind is VerdictKind.NOT_EXACT


@pytest.mark.parametrize(
    ("alive_from", "starts", "partition"),
    [((0, 4), (0, 4), None), ((0, 4), (0, 5), 1), ((0, 4), (1, 4), 0), ((5,), (5, 1), 1)],
)
def test_a_start_that_moved_over_dead_records_alone_harms_nothing(alive_from, starts, partition):
    frontier = replace(RECORD.frontier, alive_from={"things": alive_from})
    verdict = judged(replace(BUSY, log_starts=starts), record=replace(RECORD, frontier=frontier))
    assert verdict.allows_read == (partition is None)
    assert partition is None or f"partition {partition} starts" in str(verdict)


def test_a_topic_that_has_grown_is_exact_until_a_tombstone_may_be_gone():
    frontier = replace(RECORD.frontier, grown={"things": Growth(APPENDED_MS, Lsn(9))})
    record = replace(RECORD, frontier=frontier)
    last_ms = APPENDED_MS + LAG_MS + RETENTION_MS
    assert judged(IDLE, record=record, now_ms=last_ms - 1).allows_read
    verdict = judged(IDLE, record=record, now_ms=last_ms)
    assert verdict.kind is VerdictKind.NOT_EXACT
    assert "got more partitions" in str(verdict)
    assert "changelog resnapshot" in str(verdict)
