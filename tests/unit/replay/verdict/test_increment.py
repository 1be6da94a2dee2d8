"""When a stored state may be read on from, and until when; pure."""

from dataclasses import replace

import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Growth
from changelog.contract.log.scope import Scope
from changelog.contract.rows.schema import SchemaPin
from replay.broker.topic_state import AfterEnds
from replay.verdict.increment import StoredBase, judge_increment
from replay.verdict.limits import VerdictTimes
from replay.verdict.verdict import VerdictKind
from tests.unit.replay.states import APPENDED_MS, IDLE, LAG_MS, RECORD, RETENTION_MS, with_settings

BASE = StoredBase(record=RECORD, lag_ms=LAG_MS, retention_ms=RETENTION_MS, pin=SchemaPin(7, 8))
LATER = replace(
    RECORD,
    frontier=replace(RECORD.frontier, lsn=Lsn(2000), ends={"things": (12, 20)}),
    appended_ms=APPENDED_MS + 60_000,
)
STATE = replace(IDLE, ends=(12, 20))


def at(now_ms, estimate_ms=None):
    return VerdictTimes(
        started_ms=now_ms, asked_ms=now_ms, now_ms=now_ms, estimate_ms=estimate_ms, allowance_ms=0
    )


def judged(
    *, base=BASE, record=LATER, state=STATE, at_ms=APPENDED_MS + 61_000, estimate_ms=1_000, **more
):
    return judge_increment(
        {"things": base}, record, {"things": state}, at(at_ms, estimate_ms), **more
    )


def test_what_came_after_is_exact_while_its_tombstones_are_there() -> None:
    assert judged().kind is VerdictKind.EXACT
    last = APPENDED_MS + LAG_MS + RETENTION_MS
    verdict = judged(at_ms=last - 1, estimate_ms=None)
    assert verdict.allows_read
    assert verdict.deadline_ms == last
    late = judged(at_ms=last)
    assert not late.allows_read
    assert "deletes may have been missed" in late.reasons[0]


def test_the_shorter_of_the_settings_then_and_now_counts() -> None:
    at_ms = APPENDED_MS + LAG_MS + 10_000
    assert judged(at_ms=at_ms).allows_read
    assert not judged(at_ms=at_ms, base=replace(BASE, retention_ms=9_000)).allows_read
    lowered = with_settings(STATE, delete_retention_ms=9_000)
    assert not judged(at_ms=at_ms, state=lowered).allows_read


def test_records_past_the_new_frontier_start_its_lag_as_ever() -> None:
    busy = replace(STATE, ends=(12, 21))
    assert judged(state=busy, at_ms=LATER.appended_ms + LAG_MS - 1).allows_read
    assert not judged(state=busy, at_ms=LATER.appended_ms + LAG_MS).allows_read


def test_what_lies_before_the_stored_state_may_be_gone_and_nothing_behind_it() -> None:
    assert judged(state=replace(STATE, log_starts=(10, 20))).allows_read
    verdict = judged(state=replace(STATE, log_starts=(11, 20)))
    assert not verdict.allows_read
    assert "partition 0 starts at offset 11" in verdict.reasons[0]


def test_a_topic_that_is_gone_is_named() -> None:
    verdict = judge_increment({"things": BASE}, LATER, {}, at(0))
    assert verdict.reasons == ('topic "things": it does not exist any more',)


def test_a_frontier_without_the_topic_is_one_reason_in_words() -> None:
    bare = replace(LATER.frontier, ends={}, topic_ids={}, leader_epochs={})
    verdict = judged(record=replace(LATER, frontier=bare))
    assert verdict.reasons == (f'topic "things": the frontier at LSN {bare.lsn} does not have it',)


FRONTIER = LATER.frontier


@pytest.mark.parametrize(
    ("frontier", "word"),
    [
        (replace(FRONTIER, slot="other"), "slot"),
        (replace(FRONTIER, epoch=2), "epoch"),
        (replace(FRONTIER, system_id="other"), "PostgreSQL cluster"),
        (replace(FRONTIER, cluster_id="other"), "Kafka cluster"),
        (replace(FRONTIER, topic_ids={"things": "id-2"}), "topic's id"),
        (replace(FRONTIER, since={"things": Position(1, Lsn(1500), 0)}), "since"),
        (replace(FRONTIER, whole={"things": Lsn(1500)}), "last copy"),
        (replace(FRONTIER, scopes={"things": Scope(rows="a > 1")}), "captured"),
        (replace(FRONTIER, ends={"things": (12, 20, 0)}), "3 partitions"),
        (replace(FRONTIER, grown={"things": Growth(APPENDED_MS, Lsn(1500))}), "partitions grew"),
        (replace(FRONTIER, ends={"things": (9, 20)}), "newer than"),
        (replace(FRONTIER, lsn=Lsn(999)), "newer than"),
    ],
)
def test_another_log_is_not_read_on(frontier, word) -> None:
    verdict = judged(record=replace(LATER, frontier=frontier))
    assert not verdict.allows_read
    assert any(word in reason for reason in verdict.reasons)


def test_settings_that_lose_rows_are_refused_as_for_a_whole_read() -> None:
    assert not judged(state=with_settings(STATE, cleanup_policy="compact,delete")).allows_read


def grown(at_ms, lsn):
    return {"grown": {"things": Growth(at_ms, Lsn(lsn))}}


def test_a_topic_that_grew_before_the_stored_state_is_read_on_whoever_says_so() -> None:
    base = replace(BASE, record=replace(RECORD, frontier=replace(RECORD.frontier, **grown(1, 500))))
    later = replace(LATER, frontier=replace(FRONTIER, **grown(APPENDED_MS, 700)))
    assert not judged(base=base, record=later).allows_read
    same = replace(
        base, record=replace(RECORD, frontier=replace(RECORD.frontier, **grown(APPENDED_MS, 500)))
    )
    assert judged(base=same, record=later).allows_read


def test_records_that_the_state_has_and_a_new_leader_has_not_are_no_ground_to_read_on() -> None:
    lost = {"things": AfterEnds(first_ms=(None, None), truncated=(1,))}
    verdict = judged(after_bases=lost)
    assert not verdict.allows_read
    assert "partition 1 was truncated below the stored state's end 20" in verdict.reasons[0]
    assert verdict.remedies == ("rebuild from the start of the log",)
    assert judged(after_bases={"things": AfterEnds(first_ms=(1, None))}).allows_read
    assert not judged(after_ends=lost).allows_read, "nor what the new frontier has"
