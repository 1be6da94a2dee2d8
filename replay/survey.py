"""A survey of topics, of our log or any other: settings, offsets, density, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.clock import clock_ms
from replay.base.config import ReplaySettings
from replay.broker.density import Density
from replay.broker.probe import read_after_ends, sample_density
from replay.broker.topic_state import AfterEnds, TopicState
from replay.broker.topics import cleanable_ends, inspect
from replay.verdict.declared_verdict import judge_declared
from replay.verdict.limits import VerdictTimes, lag_ms
from replay.verdict.verdict import Verdict, VerdictKind, judge, judge_foreign

SETTINGS = (
    "cleanup.policy",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "segment.ms",
    "segment.bytes",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
"""What decides which records stay, and whether what was acknowledged does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSurvey:
    """The state of one topic."""

    state: TopicState  # as the broker describes it
    # what is captured there, by the frontier; None when the frontier does not speak of it as a
    # table
    table: TableName | None
    ends: tuple[int, ...] | None  # per partition the frontier's end; None without one
    cleanable: tuple[int, ...]  # per partition the offset that the cleaner has not passed
    density: Density  # about how many records there are for each offset
    # whether a read that begins now is exact: of a captured topic to the frontier, of another one
    # to its present end
    verdict: Verdict

    @property
    def is_refused(self) -> bool:
        """Tell whether a captured table cannot be rebuilt exactly now."""
        return self.table is not None and not self.verdict.allows_read

    def undecodable(self, remedy: str) -> TopicSurvey:
        """Return the same of a topic of whose records the registry lacks schemas."""
        reasons = () if self.verdict.allows_read else self.verdict.reasons
        verdict = Verdict(
            VerdictKind.NOT_EXACT,
            None,
            (*reasons, "the schema registry does not have the schemas of its records"),
            remedies=(*self.verdict.remedies, remedy),
        )
        return replace(self, verdict=verdict)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        state = self.state
        return {
            "topic": state.topic,
            "table": None if self.table is None else str(self.table),
            "topic_id": state.topic_id,
            "cluster_id": state.cluster_id,
            "settings": {name: state.settings.get(name) for name in SETTINGS},
            "partitions": [
                {
                    "partition": number,
                    "start": state.log_starts[number],
                    "end": state.ends[number],
                    "frontier": None if self.ends is None else self.ends[number],
                    "cleanable_end": self.cleanable[number],
                    "leader_epoch": state.leader_epochs[number],
                    "density": Density((self.density.strata[number],)).ratio,
                }
                for number in range(state.partitions)
            ],
            "offsets": self.density.offsets,
            "records": self.density.records,
            "density": self.density.ratio,
            **self.verdict.to_json(),
        }

    def lines(self, *, common: frozenset[str] = frozenset()) -> list[str]:
        """Return the survey as lines for people."""
        state, density = self.state, self.density
        capture = "not captured" if self.table is None else f"table {self.table}"
        ratio = "" if density.ratio is None else f", {density.ratio:.2f} an offset"
        settings, verdict = self._general()
        return [
            f"{state.topic}: {capture}, {state.partitions} partitions, id {state.topic_id}",
            *([] if settings in common else [f"  {settings}"]),
            f"  starts {_list(state.log_starts)}, ends {_list(state.ends)}"
            + ("" if self.ends is None else f", frontier {_list(self.ends)}"),
            f"  about {density.records:,} records in {density.offsets:,} offsets{ratio}",
            *([] if verdict in common else [f"  {verdict}"]),
        ]

    def _general(self) -> tuple[str, str]:
        """Return settings and verdict, which are often the same for all topics."""
        settings = (f"{name}={self.state.settings.get(name)}" for name in SETTINGS[:5])
        return ", ".join(settings), str(self.verdict)


def lines_of(surveys: Sequence[TopicSurvey]) -> list[str]:
    """Describe topics for people; lines that are the same for all of them come once, first."""
    common: list[str] = []
    if len(surveys) > 1:
        first, *others = (topic._general() for topic in surveys)
        common = [line for line in first if all(line in other for other in others)]
    lines = [f"all {len(surveys)} topics: {line}" for line in common]
    for topic in surveys:
        lines += topic.lines(common=frozenset(common))
    return lines


def survey(
    kafka: KafkaConnection,
    topics: Sequence[str],
    record: FrontierRecord | None,
    *,
    settings: ReplaySettings | None = None,
    declared: Sequence[DeclaredLog] = (),
    others: Mapping[str, FrontierRecord] | None = None,
    steps: Steps = UNSEEN,
) -> list[TopicSurvey]:
    """Describe and judge each topic; one that does not exist is left out.

    `record`: the frontier that captured topics are judged at; None where there is none. `declared`:
    the logs of other programs that are declared: by what they are, more is known. `others`: topics
    of other captures, each with the frontier that it is judged at. `steps`: counts topics at each
    question to the brokers, and places where records are read.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    logs = {log.topic: log for log in declared}
    of_topic = {**dict.fromkeys(topics, record), **(others or {})}
    return list(_surveyed(kafka, topics, of_topic, settings or ReplaySettings(), logs, steps=steps))


def _surveyed(
    kafka: KafkaConnection,
    topics: Sequence[str],
    records: Mapping[str, FrontierRecord | None],
    settings: ReplaySettings,
    declared: Mapping[str, DeclaredLog],
    *,
    steps: Steps,
) -> Iterator[TopicSurvey]:
    started_ms = clock_ms()
    steps.more(3 * len(topics))
    steps.begin("settings and offsets")
    states = inspect(kafka, topics)
    steps.done(len(topics))
    densities = sample_density(
        kafka,
        {topic: (state.log_starts, state.ends) for topic, state in states.items()},
        steps=steps,
    )
    steps.begin("what the cleaner may have passed")
    lags_ms = {topic: lag_ms(state) for topic, state in states.items()}
    cleanable = cleanable_ends(kafka, states, lags_ms=lags_ms, now_ms=started_ms)
    steps.done(len(topics))
    steps.begin("records after frontiers")
    after_ends: dict[str, AfterEnds] = {}
    distinct = {id(record): record for record in records.values() if record is not None}
    for newest in distinct.values():
        own = {topic: state for topic, state in states.items() if records[topic] is newest}
        after_ends |= read_after_ends(kafka, newest.frontier, own)
    steps.done(len(topics))
    for topic, state in states.items():
        record = records[topic]
        table = None if record is None else record.frontier.tables.get(topic)
        times = VerdictTimes(
            started_ms=started_ms,
            asked_ms=started_ms,
            now_ms=clock_ms(),
            estimate_ms=settings.estimate_ms(densities[topic].records),
            allowance_ms=settings.clock_allowance_ms,
        )
        if topic in declared:
            verdict = judge_declared([declared[topic]], states, times)
        elif record is None or table is None:
            verdict = judge_foreign(state, times)
        else:
            verdict = judge(record, states, (topic,), times, after_ends=after_ends)
        yield TopicSurvey(
            state=state,
            table=table,
            ends=None if record is None else _known_ends(record, state),
            cleanable=cleanable[topic],
            density=densities[topic],
            verdict=verdict,
        )


def _known_ends(record: FrontierRecord, state: TopicState) -> tuple[int, ...] | None:
    ends = record.frontier.ends.get(state.topic)
    return ends if ends is not None and len(ends) == state.partitions else None


def _list(offsets: Sequence[int]) -> str:
    return " ".join(f"{offset:,}" for offset in offsets)
