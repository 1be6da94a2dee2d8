"""Make the cut of a replay, and check afterwards that the read was exact. Needs no Spark.

The brokers describe the topics, and the verdict says whether a read up to the frontier can be
exact. During the read and after it the same is checked again: topics, settings and leaders are
unchanged, and the deadline has not passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogMovedError
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.broker.density import Density
from replay.broker.probe import read_after_ends, sample_density
from replay.broker.topic_state import AfterEnds, TopicState, changes
from replay.broker.topics import inspect, require_stable
from replay.verdict import limits
from replay.verdict.verdict import Verdict, judge
from replay.verdict.watch import LOOK_S

_LEADER_WAIT_S = 3.0
"""How long a new leader may report too small an end (KIP-207) before that counts as a loss."""

_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The broker's answers about some topics."""

    states: Mapping[str, TopicState]  # the state of each topic
    after_ends: Mapping[str, AfterEnds]  # the first records after a frontier's ends
    asked_ms: int  # our clock before the request

    def times(
        self,
        now_ms: int,
        settings: ReplaySettings,
        *,
        started_ms: int | None = None,
        estimate_ms: int | None = None,
    ) -> limits.VerdictTimes:
        """Return the moments by which a verdict judges these facts.

        `started_ms`: when the scan began; now if left out. `estimate_ms`: the expected duration of
        the scan, or None if it is not known.
        """
        return limits.VerdictTimes(
            started_ms=self.asked_ms if started_ms is None else started_ms,
            asked_ms=self.asked_ms,
            now_ms=now_ms,
            estimate_ms=estimate_ms,
            allowance_ms=settings.clock_allowance_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A frontier with the topics to read up to it, and the verdict on that read."""

    record: FrontierRecord  # the frontier
    topics: Mapping[TableName, str]  # the topic of each table
    states: Mapping[str, TopicState]  # the state of each topic when the cut was made
    verdict: Verdict  # whether a read that starts now is exact
    started_ms: int  # when the cut was made, by our clock
    settings: ReplaySettings  # the caution of the verdict
    # the frontier of the stored state that the read continues, or None to read from the start
    resumed: FrontierRecord | None = None
    # the density of records of each topic that was sampled
    densities: Mapping[str, Density] = field(default_factory=dict)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the records to read: a cleaned log has gaps."""
        return _records_at_most(self.record.frontier, self.states)

    def start_offsets(self, topic: str) -> tuple[int, ...]:
        """Return per partition the first offset of a topic to read; see `Frontier.begins`."""
        return self.record.frontier.begins(topic, self.states[topic].log_starts)

    def offset_count(self, topic: str) -> int:
        """Return the number of offsets of a topic up to the frontier; 0 if the topic is gone."""
        state = self.states.get(topic)
        return 0 if state is None else _records_at_most(self.record.frontier, {topic: state})


def make_cut(
    kafka: KafkaConnection,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
    resumed: FrontierRecord | None = None,
    sample: bool = False,
    steps: Steps = UNSEEN,
) -> Cut:
    """Make the cut at a frontier: ask the brokers about the topics of `tables`, and judge.

    `tables`: the tables to read. `resumed`: the frontier of a stored state that the read continues;
    then the verdict is on the records after it. `sample`: whether to read some records, for a
    better estimate of their number. `steps`: counts the topics and the places that are sampled.

    Raises ConfigurationError: a table is not part of the frontier; UnavailableLogError: the brokers
    do not answer, or a transaction is open before the ends.
    """
    settings = settings or ReplaySettings()
    topics = {table: topic_of(record.frontier, table) for table in tables}
    steps.more(len(topics))
    steps.begin("how topics stand")
    facts = broker_facts(kafka, record.frontier, topics.values(), clock)
    states = facts.states
    require_stable(kafka, record.frontier, states)
    steps.done(len(topics))
    densities, estimate_ms = estimated(
        kafka, record.frontier, states, settings, sample=sample, steps=steps
    )
    verdict = judge(
        record,
        states,
        tuple(topics.values()),
        facts.times(clock(), settings, estimate_ms=estimate_ms),
        after_ends=facts.after_ends,
        resumed=resumed,
    )
    return Cut(
        record=record,
        topics=topics,
        states=states,
        verdict=verdict,
        started_ms=facts.asked_ms,
        settings=settings,
        resumed=resumed,
        densities=densities,
    )


def broker_facts(
    kafka: KafkaConnection, frontier: Frontier, topics: Iterable[str], clock: Clock = clock_ms
) -> BrokerFacts:
    """Ask the brokers for the state of topics, and for the first records after a frontier's ends.

    Asks again for up to three seconds while a partition ends before the frontier does: a new leader
    may report too small an end at first (KIP-207), which the verdict would call a loss.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    asked_ms = clock()
    names = tuple(topics)
    deadline = time.monotonic() + _LEADER_WAIT_S
    while _lags(states := inspect(kafka, names), frontier) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return BrokerFacts(
        states=states, after_ends=read_after_ends(kafka, frontier, states), asked_ms=asked_ms
    )


def _lags(states: Mapping[str, TopicState], frontier: Frontier) -> bool:
    return any(
        now < end
        for topic, state in states.items()
        for now, end in zip(state.ends, frontier.ends.get(topic, ()), strict=False)
    )


def recheck(cut: Cut, kafka: KafkaConnection, clock: Clock = clock_ms) -> int:
    """Check that a read that began with the cut is exact up to now.

    Returns:
        For how many milliseconds the read stays exact, by what is known now.

    Raises:
        LogMovedError: a topic or its settings changed, or a leader moved.
        VerdictError: the deadline passed.
        UnavailableLogError: the brokers do not answer.
    """

    def judge_facts(facts: BrokerFacts, now_ms: int) -> Verdict:
        return judge(
            cut.record,
            facts.states,
            tuple(cut.states),
            facts.times(now_ms, cut.settings, started_ms=cut.started_ms),
            after_ends=facts.after_ends,
            resumed=cut.resumed,
        )

    return check_still_exact(kafka, cut, judge_facts, clock)


def check_still_exact(
    kafka: KafkaConnection,
    cut: Cut,
    judge_facts: Callable[[BrokerFacts, int], Verdict],
    clock: Clock = clock_ms,
) -> int:
    """Check that a read is exact up to now, by the same judgement as at its start.

    `judge_facts`: returns the verdict on the brokers' facts at a moment of our clock.

    Returns:
        For how many milliseconds the read stays exact, by what is known now.

    Raises:
        LogMovedError: a topic or its settings changed, or a leader moved.
        VerdictError: the deadline passed.
        UnavailableLogError: the brokers do not answer.
    """
    asked_ms = clock()
    states = inspect(kafka, cut.states)
    moved = changes(cut.states, states)
    if moved:
        raise LogMovedError(
            "the log changed while it was read: " + "; ".join(moved), hint="run it again"
        )
    after_ends = read_after_ends(kafka, cut.record.frontier, states)
    facts, now_ms = BrokerFacts(states=states, after_ends=after_ends, asked_ms=asked_ms), clock()
    again = judge_facts(facts, now_ms)
    # The read is exact while either deadline holds. The first one counts from the start of the
    # scan. The second one counts from now, which is later for a partition that still has no record
    # after the frontier's end.
    if cut.verdict.is_late(now_ms):
        again.require()
    if cut.verdict.deadline_ms is None and again.deadline_ms is None:
        return int(LOOK_S * 1000)
    latest = max(cut.verdict.deadline_ms or 0, again.deadline_ms or 0)
    return latest - cut.settings.clock_allowance_ms - now_ms


def topic_of(frontier: Frontier, table: TableName) -> str:
    """Return the topic of a table."""
    topic = frontier.topic_of(table)
    if topic is None:
        captured = ", ".join(sorted(str(table) for table in frontier.tables.values()))
        raise ConfigurationError(
            f'slot "{frontier.slot}": table "{table}" {frontier.why_absent(table)}',
            hint=f"captured are: {captured or 'none'}",
        )
    return topic


def estimated(
    kafka: KafkaConnection,
    frontier: Frontier,
    states: Mapping[str, TopicState],
    settings: ReplaySettings,
    *,
    sample: bool,
    steps: Steps = UNSEEN,
) -> tuple[dict[str, Density], int]:
    """Return the sampled densities of the topics, and the expected milliseconds of a read.

    `steps` counts the places that are sampled.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    if not sample:
        return {}, settings.estimate_ms(_records_at_most(frontier, states))
    densities = sample_density(kafka, _ranges(frontier, states), steps=steps)
    records = sum(density.records for density in densities.values())
    return densities, settings.estimate_ms(records)


def _ranges(
    frontier: Frontier, states: Mapping[str, TopicState]
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the ranges to read of the topics whose partitions the frontier knows."""
    return {
        topic: (
            frontier.begins(topic, state.log_starts),
            tuple(map(min, frontier.ends[topic], state.ends)),
        )
        for topic, state in states.items()
        if len(frontier.ends.get(topic, ())) == state.partitions
    }


def _records_at_most(frontier: Frontier, states: Mapping[str, TopicState]) -> int:
    return sum(
        max(0, end - start)
        for topic, state in states.items()
        for start, end in zip(
            frontier.begins(topic, state.log_starts), frontier.ends.get(topic, ()), strict=False
        )
    )
