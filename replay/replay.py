"""The pipeline: freeze -> verdict -> read -> fold -> decode -> state, and the check afterwards.

Nothing is read until an action runs on a state's frame. The verdict before it says whether the
read can be exact; `Replay.recheck` after it says whether it was: nothing that the exactness rests
on has moved, and the deadline has not passed. Publish only in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation, SparkSession

from changelog.contract.connection import KafkaConnection, RegistryConnection
from changelog.contract.errors import ConfigurationError, VerdictError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.contract.relation import TableName
from replay.config import ReplaySettings
from replay.decode import decode
from replay.fold import cut_of, fold
from replay.metrics import StateObservations
from replay.offsets import inspect
from replay.read import Reader, TopicRange
from replay.schemas import SchemaReader, TopicSchemas
from replay.state import ReplayedState, TableMetrics
from replay.topic_state import TopicState, changes
from replay.verdict import Verdict, judge

Clock = Callable[[], int]


def clock_ms() -> int:
    """Give our clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What a replay is going to read, and whether it may; nothing of it is read yet.

    Attributes:
        record: the frontier.
        topics: the topic of each table.
        states: how each topic stood when the cut was made.
        verdict: whether a read that starts now is exact.
        started_ms: when the cut was made, by our clock.
        settings: how careful the verdict is.
    """

    record: FrontierRecord
    topics: Mapping[TableName, str]
    states: Mapping[str, TopicState]
    verdict: Verdict
    started_ms: int
    settings: ReplaySettings

    @property
    def records_at_most(self) -> int:
        """Give an upper bound of the records to read: a cleaned log has gaps."""
        return _records_at_most(self.record.frontier, self.states)


def freeze(
    kafka: KafkaConnection,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
) -> Cut:
    """Ask the broker how the topics of `tables` stand and judge; needs no Spark, reads no record.

    Raises:
        ConfigurationError: a table is not part of the frontier.
        UnavailableLogError: the brokers do not answer.
    """
    settings = settings or ReplaySettings()
    topics = {table: _topic(record.frontier, table) for table in tables}
    started_ms = clock()
    states = inspect(kafka, topics.values())
    verdict = judge(
        record,
        states,
        tuple(topics.values()),
        started_ms=started_ms,
        now_ms=clock(),
        estimate_ms=settings.estimate_ms(_records_at_most(record.frontier, states)),
        allowance_ms=settings.clock_allowance_ms,
    )
    return Cut(
        record=record,
        topics=topics,
        states=states,
        verdict=verdict,
        started_ms=started_ms,
        settings=settings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The states of some tables at one frontier.

    Attributes:
        cut: what is read.
        states: the state of each table.
    """

    cut: Cut
    states: Mapping[TableName, ReplayedState]
    _kafka: KafkaConnection = field(repr=False)
    _observations: Mapping[TableName, StateObservations] = field(repr=False)
    _clock: Clock = field(repr=False)

    @property
    def verdict(self) -> Verdict:
        """Give the verdict before the read."""
        return self.cut.verdict

    @property
    def frontier(self) -> Frontier:
        """Give the frontier that every state is true at."""
        return self.cut.record.frontier

    def metrics(self) -> dict[TableName, TableMetrics | None]:
        """Give what the first action on each state saw; None for one that no action has read."""
        return {table: each.get() for table, each in self._observations.items()}

    def recheck(self) -> None:
        """Check after the scan, and before its result is used, that it was exact.

        Raises:
            VerdictError: a topic or its settings changed, a leader moved, or the deadline passed.
            UnavailableLogError: the brokers do not answer.
        """
        cut = self.cut
        after = inspect(self._kafka, cut.states)
        moved = changes(cut.states, after)
        if moved:
            raise VerdictError(
                "the log changed while it was read: " + "; ".join(moved),
                hint="run it again",
            )
        now_ms = self._clock()
        again = judge(
            cut.record,
            after,
            tuple(cut.states),
            started_ms=cut.started_ms,
            now_ms=now_ms,
            estimate_ms=None,
            allowance_ms=cut.settings.clock_allowance_ms,
        )
        # Either bound suffices: the first may count from the start of the scan where no record
        # lay past the ends then, the second knows of partitions that nothing was added to since.
        if cut.verdict.is_late(now_ms):
            again.require()


def open_replay(
    spark: SparkSession,
    kafka: KafkaConnection,
    registry: RegistryConnection,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
) -> Replay:
    """Open the states of `tables` at a frontier; reads no record yet.

    Raises:
        ConfigurationError: a table is not part of the frontier.
        VerdictError: the log cannot give the exact state any more.
        SchemaConflictError: a topic's key has several schemas.
        UnavailableLogError: the brokers or the registry do not answer.
    """
    cut = freeze(kafka, record, tables, settings=settings, clock=clock)
    cut.verdict.require()
    reader = Reader(spark, kafka, cut.settings.reader_options)
    states: dict[TableName, ReplayedState] = {}
    observations: dict[TableName, StateObservations] = {}
    with closing(SchemaReader(registry)) as schemas:
        for table, topic in cut.topics.items():
            of_topic = schemas.of_topic(topic)
            observations[table] = StateObservations(Observation(), Observation())
            frame = _frame(cut, reader, of_topic, observations[table])
            states[table] = ReplayedState(
                table,
                of_topic.logged(of_topic.reader_id).key,
                frame,
                record.frontier,
                of_topic.reader_id,
            )
    return Replay(cut=cut, states=states, _kafka=kafka, _observations=observations, _clock=clock)


def _frame(
    cut: Cut, reader: Reader, schemas: TopicSchemas, observations: StateObservations
) -> DataFrame:
    frontier, topic = cut.record.frontier, schemas.topic
    records = reader.read(
        TopicRange(
            topic=topic,
            starts=cut.states[topic].log_starts,
            ends=frontier.ends[topic],
            key_schema_id=schemas.key_id,
        )
    )
    survivors = fold(
        observations.of_records(records),
        since=frontier.since.get(topic),
        before=cut_of(frontier),
    )
    return decode(observations.of_survivors(survivors), schemas)


def _topic(frontier: Frontier, table: TableName) -> str:
    topic = frontier.topic_of(table)
    if topic is None:
        known = ", ".join(sorted(str(each) for each in frontier.tables.values()))
        raise ConfigurationError(
            f'slot "{frontier.slot}": table "{table}" {frontier.why_absent(table)}',
            hint=f"captured are: {known or 'none'}",
        )
    return topic


def _records_at_most(frontier: Frontier, states: Mapping[str, TopicState]) -> int:
    return sum(
        max(0, end - start)
        for topic, state in states.items()
        for start, end in zip(state.log_starts, frontier.ends.get(topic, ()), strict=False)
    )
