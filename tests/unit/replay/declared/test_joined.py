"""The cut of several logs: the worst verdict, the first deadline, and names that do not collide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.joined import CapturedLog
from changelog.contract.rows.relation import TableName
from replay.base.config import ReplaySettings
from replay.cut.cut import Cut
from replay.declared.joined import CutParts
from replay.verdict.limits import VerdictTimes
from replay.verdict.verdict import VerdictKind, judge
from tests.unit.replay.states import APPENDED_MS, IDLE, LAG_MS, RECORD, with_settings

PAID = TableName("billing", "paid")
LOG = CapturedLog(table=PAID, topic="payments", frontier_topic="b._frontier", slot="billing")
TIMES = VerdictTimes(
    started_ms=APPENDED_MS, asked_ms=APPENDED_MS, now_ms=APPENDED_MS, estimate_ms=1, allowance_ms=1
)


def cut_of(record, state, table) -> Cut:
    topics = {table: state.topic}
    states = {state.topic: state}
    verdict = judge(record, states, (state.topic,), TIMES)
    settings = ReplaySettings()
    return Cut(
        record=record,
        topics=topics,
        states=states,
        verdict=verdict,
        started_ms=APPENDED_MS,
        settings=settings,
    )


def other(**settings) -> Cut:
    state = with_settings(replace(IDLE, topic="payments", topic_id="id-2"), **settings)
    frontier = replace(
        RECORD.frontier,
        slot="billing",
        tables={"payments": TableName("public", "payments")},
        topic_ids={"payments": "id-2"},
        ends={"payments": (10, 20)},
    )
    return cut_of(replace(RECORD, frontier=frontier), state, PAID)


OWN = cut_of(RECORD, IDLE, TableName("public", "things"))


def test_the_first_deadline_of_all_counts() -> None:
    found = CutParts(own=OWN, others=(other(min_compaction_lag_ms=LAG_MS // 2),)).joined([LOG])
    assert found.verdict.deadline_ms == APPENDED_MS + LAG_MS // 2
    assert '"payments"' in found.verdict.reasons[0]
    assert found.record.frontier.slot == "s"
    assert found.topics == {TableName("public", "things"): "things", PAID: "payments"}


def test_what_one_log_cannot_give_none_of_them_gives() -> None:
    found = CutParts(own=OWN, others=(other(cleanup_policy="delete"),)).joined([LOG])
    assert found.verdict.kind is VerdictKind.NOT_EXACT
    assert found.verdict.topics["things"].allows_read


def test_a_view_of_another_capture_alone_stands_at_its_frontier() -> None:
    found = CutParts(others=(other(),)).joined([LOG])
    assert found.record.frontier.slot == "billing"
    assert dict(found.record.frontier.tables) == {"payments": PAID}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"table": TableName("public", "things")}, "has the name of a captured table"),
        ({"topic": "things"}, "which is that of captured table"),
    ],
)
def test_what_could_be_taken_for_an_own_table_is_refused(changes, says) -> None:
    with pytest.raises(ConfigurationError, match=says):
        CutParts(own=OWN, others=(other(),)).joined([replace(LOG, **changes)])
