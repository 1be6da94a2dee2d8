"""How topics are told of: what is the same for all of them is said once."""

from __future__ import annotations

from dataclasses import replace

from replay.broker.density import Density
from replay.broker.topic_state import TopicState
from replay.survey import TopicSurvey, lines_of
from replay.verdict.verdict import Verdict, VerdictKind

STATE = TopicState(
    topic="a",
    topic_id="id",
    cluster_id="c",
    settings={"cleanup.policy": "compact"},
    log_starts=(0,),
    ends=(9,),
    leader_epochs=(0,),
)
SURVEY = TopicSurvey(
    state=STATE,
    table=None,
    ends=None,
    cleanable=(0,),
    density=Density(()),
    verdict=Verdict(VerdictKind.EXACT, None, ()),
)
OTHER = replace(SURVEY, state=replace(STATE, topic="b"))
WORSE = replace(OTHER, verdict=Verdict(VerdictKind.NOT_EXACT, None, ("gone",)))


def test_settings_and_verdicts_that_are_the_same_are_said_once() -> None:
    lines = lines_of([SURVEY, OTHER])
    assert [line for line in lines if "cleanup.policy=compact" in line] == lines[:1]
    assert lines[0].startswith("all 2 topics: ")
    assert sum(str(SURVEY.verdict) in line for line in lines) == 1


def test_a_verdict_of_its_own_stands_with_its_topic() -> None:
    lines = lines_of([SURVEY, WORSE])
    assert sum("cleanup.policy=compact" in line for line in lines) == 1
    assert lines[-1] == f"  {WORSE.verdict}"
    assert f"  {SURVEY.verdict}" in lines


def test_one_topic_is_told_whole() -> None:
    assert lines_of([SURVEY]) == SURVEY.lines()
