"""Plan the read that brings tables to a frontier, from checkpoints or from the start.

The newest checkpoint of each topic that leads to the frontier is chosen, and the verdict says
whether reading on from there is exact. Needs no Spark; `replay.store.advancer` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.broker.probe import read_after_ends
from replay.broker.topic_state import AfterEnds, TopicState
from replay.cut.cut import BrokerFacts, Cut, broker_facts, topic_of
from replay.store.checkpoint import Checkpoint, CheckpointStore, Manifest
from replay.verdict import limits
from replay.verdict.increment import is_one_log, judge_increment
from replay.verdict.verdict import Verdict, VerdictKind, judge, together


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStep:
    """The planned read of one topic."""

    topic: str  # its name
    manifest: Manifest  # its checkpoints
    checkpoint: Checkpoint | None  # the one to go on from; None to read from the log's start
    why: str = ""  # why it is read from the start; empty otherwise
    needs_no_read: bool = False  # whether the checkpoint already is the state at the frontier

    def starts(self, frontier: Frontier, states: Mapping[str, TopicState]) -> tuple[int, ...]:
        """Return the first offset of each partition to read on the way to a frontier."""
        if self.checkpoint is None:
            there = self.topic in states
            return frontier.begins(self.topic, states[self.topic].log_starts) if there else ()
        return self.checkpoint.frontier.ends[self.topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The planned read that brings tables to a frontier; nothing has been read yet."""

    record: FrontierRecord  # the frontier
    topics: Mapping[TableName, str]  # the topic of each table
    steps: Mapping[str, TopicStep]  # by topic
    states: Mapping[str, TopicState]  # by topic
    verdict: Verdict  # whether the read is exact
    started_ms: int  # when it was judged, by our clock
    settings: ReplaySettings  # the verdict's margins
    # the cut for the verifier, which reads the log from its start; None if it does not read it
    proof: Cut | None = None

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the records to read."""
        return sum(self.records_of(topic) for topic in self.steps)

    def records_of(self, topic: str) -> int:
        """Return an upper bound of the records to read of a topic."""
        if self.steps[topic].needs_no_read:
            return 0
        starts = self.steps[topic].starts(self.record.frontier, self.states)
        ends = self.record.frontier.ends.get(topic, ())
        return sum(max(0, end - start) for start, end in zip(starts, ends, strict=False))

    def from_start(self) -> dict[str, str]:
        """Return the topics that are read from their start, and why."""
        return {topic: step.why for topic, step in self.steps.items() if step.checkpoint is None}

    def cut(self) -> Cut:
        """Return the plan as a cut."""
        return Cut(
            record=self.record,
            topics=self.topics,
            states=self.states,
            verdict=self.verdict,
            started_ms=self.started_ms,
            settings=self.settings,
        )

    def judged(self, facts: BrokerFacts, now_ms: int, *, estimate_ms: int | None = None) -> Verdict:
        """Judge the read of all topics, some from their start, others from their checkpoint.

        `estimate_ms`: how long the read may take; None when not known.
        """
        times = facts.times(
            now_ms, self.settings, started_ms=self.started_ms, estimate_ms=estimate_ms
        )
        verdicts = {
            topic: _judged(self.record, step, facts, times) for topic, step in self.steps.items()
        }
        return together(verdicts, times.allowance_ms)


def plan_advance(
    kafka: KafkaConnection,
    store: CheckpointStore,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
) -> Advance:
    """Choose a checkpoint for each topic and judge; needs no Spark, reads no record.

    Raises:
        ConfigurationError: a table is not part of the frontier.
        CheckpointError: a checkpoint cannot be read.
        UnavailableLogError: the brokers do not answer.
    """
    settings = settings or ReplaySettings()
    topics = {table: topic_of(record.frontier, table) for table in tables}
    facts = broker_facts(kafka, record.frontier, topics.values(), clock)
    times = facts.times(clock(), settings)
    steps = {
        topic: _step(kafka, store.manifest(topic), record, topic, facts=facts, times=times)
        for topic in topics.values()
    }
    plan = Advance(
        record=record,
        topics=topics,
        steps=steps,
        states=facts.states,
        verdict=Verdict(VerdictKind.EXACT, None, ()),
        started_ms=facts.asked_ms,
        settings=settings,
    )
    estimate_ms = settings.estimate_ms(plan.records_at_most)
    return replace(plan, verdict=plan.judged(facts, clock(), estimate_ms=estimate_ms))


def _step(
    kafka: KafkaConnection,
    manifest: Manifest,
    record: FrontierRecord,
    topic: str,
    *,
    facts: BrokerFacts,
    times: limits.VerdictTimes,
) -> TopicStep:
    """Go on from the newest checkpoint that leads to the frontier, else from the start."""
    why, is_lost = "", False
    newest_first = sorted(
        manifest.checkpoints,
        key=lambda checkpoint: (checkpoint.frontier.epoch, checkpoint.frontier.lsn, checkpoint.at),
        reverse=True,
    )
    for checkpoint in newest_first:
        after_checkpoint = (
            None if is_lost else _after_checkpoint(kafka, checkpoint, facts.states.get(topic))
        )
        is_lost = is_lost or (after_checkpoint is not None and bool(after_checkpoint.truncated))
        if _holds(checkpoint, record, is_whole=not is_lost):
            return TopicStep(
                topic=topic, manifest=manifest, checkpoint=checkpoint, needs_no_read=True
            )
        if is_lost and after_checkpoint is None:
            continue  # records that the log lost after a newer checkpoint are lost after this too
        verdict = judge_increment(
            {topic: checkpoint.base},
            record,
            facts.states,
            times,
            after_ends=facts.after_ends,
            after_bases={} if after_checkpoint is None else {topic: after_checkpoint},
        )
        if verdict.allows_read:
            return TopicStep(topic=topic, manifest=manifest, checkpoint=checkpoint)
        why = why or "; ".join(verdict.reasons)
    why = why or "it has no checkpoint yet"
    return TopicStep(topic=topic, manifest=manifest, checkpoint=None, why=why)


def _after_checkpoint(
    kafka: KafkaConnection, checkpoint: Checkpoint, state: TopicState | None
) -> AfterEnds | None:
    """Ask for the first records after a checkpoint's ends, if a leader has changed since."""
    epochs = checkpoint.frontier.leader_epochs.get(checkpoint.topic)
    if state is None or epochs in {None, state.leader_epochs}:
        return None
    return read_after_ends(kafka, checkpoint.frontier, {state.topic: state}).get(state.topic)


def _holds(checkpoint: Checkpoint, record: FrontierRecord, *, is_whole: bool) -> bool:
    """Return whether a checkpoint is the state at a frontier: no record is between the two.

    Equal ends prove that only if the log `is_whole`, so has lost no records since.
    """
    one, other, topic = checkpoint.frontier, record.frontier, checkpoint.topic
    return is_one_log(checkpoint.base, record, topic) and (
        one.lsn == other.lsn or (is_whole and one.ends.get(topic) == other.ends.get(topic))
    )


def _judged(
    record: FrontierRecord, step: TopicStep, facts: BrokerFacts, times: limits.VerdictTimes
) -> Verdict:
    topic, checkpoint = step.topic, step.checkpoint
    if step.needs_no_read:
        return Verdict(VerdictKind.EXACT, None, ("a checkpoint holds it",), times.allowance_ms)
    if checkpoint is None:
        verdict = judge(record, facts.states, (topic,), times, after_ends=facts.after_ends)
    else:
        # Whether the leaders have all records before the checkpoint was checked when it was chosen;
        # a leader that changes after that ends the read.
        bases = {topic: checkpoint.base}
        verdict = judge_increment(bases, record, facts.states, times, after_ends=facts.after_ends)
    return verdict.topics[topic]
