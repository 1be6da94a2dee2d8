"""The pipeline: freeze -> verdict -> read -> fold -> decode -> state, and the check afterwards.

Nothing is read until an action runs on a state's frame. The verdict before it says whether the
read can be exact; `Replay.recheck` after it says whether it was: nothing that the exactness rests
on has moved, and the deadline has not passed. `Replay.watched` asks the same while a read goes on
and ends one that cannot be exact any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pyspark.sql import Observation, SparkSession

from changelog.contract.connection import KafkaConnection, RegistryConnection
from changelog.contract.errors import ConfigurationError, VerdictError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.contract.relation import TableName
from changelog.contract.schema import SchemaPin
from replay.clock import Clock, clock_ms
from replay.config import OnBadRecord, ReplaySettings
from replay.decode import Decoded, decoded
from replay.density import Density
from replay.fold import cut_of, fold
from replay.metrics import StateObservations
from replay.offsets import inspect
from replay.probe import past_ends, sample_density
from replay.read import Reader, TopicRange
from replay.scan import cores_of, held_bytes, layers_of
from replay.schemas import SchemaReader, TopicSchemas
from replay.state import ReplayedState, TableMetrics
from replay.topic_state import TopicState, changes
from replay.verdict import Verdict, judge
from replay.watch import LOOK_S, Watch


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
        resumed: the frontier of a state that the read goes on from; None for one from the start.
        densities: about how many records each topic has up to the frontier, where it was sampled.
    """

    record: FrontierRecord
    topics: Mapping[TableName, str]
    states: Mapping[str, TopicState]
    verdict: Verdict
    started_ms: int
    settings: ReplaySettings
    resumed: FrontierRecord | None = None
    densities: Mapping[str, Density] = field(default_factory=dict)

    @property
    def records_at_most(self) -> int:
        """Give an upper bound of the records to read: a cleaned log has gaps."""
        return _records_at_most(self.record.frontier, self.states)

    def offsets(self, topic: str) -> int:
        """Give the offsets of a topic up to the frontier, gaps counted; 0 for one that is gone."""
        state = self.states.get(topic)
        return 0 if state is None else _records_at_most(self.record.frontier, {topic: state})


def freeze(
    kafka: KafkaConnection,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
    resumed: FrontierRecord | None = None,
    sample: bool = False,
) -> Cut:
    """Ask the broker how the topics of `tables` stand and judge; needs no Spark.

    Args:
        kafka: the brokers.
        record: the frontier.
        tables: what is to be read.
        settings: how careful the verdict is.
        clock: ours.
        resumed: the frontier of a state that the read goes on from: judges whether what came
            after it brings that state to this frontier.
        sample: whether to read some records, for a better estimate of how many there are.

    Raises:
        ConfigurationError: a table is not part of the frontier.
        UnavailableLogError: the brokers do not answer.
    """
    settings = settings or ReplaySettings()
    topics = {table: _topic(record.frontier, table) for table in tables}
    started_ms = clock()
    states = inspect(kafka, topics.values())
    densities, estimate_ms = estimated(kafka, record.frontier, states, settings, sample=sample)
    verdict = judge(
        record,
        states,
        tuple(topics.values()),
        started_ms=started_ms,
        now_ms=clock(),
        estimate_ms=estimate_ms,
        allowance_ms=settings.clock_allowance_ms,
        past=past_ends(kafka, record.frontier, states),
        resumed=resumed,
    )
    return Cut(
        record=record,
        topics=topics,
        states=states,
        verdict=verdict,
        started_ms=started_ms,
        settings=settings,
        resumed=resumed,
        densities=densities,
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
    _spark: SparkSession = field(repr=False)
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

    @property
    def pins(self) -> dict[str, SchemaPin]:
        """Give by topic the versions of the schemas that the states are read by."""
        return {
            self.cut.topics[table]: state.pin
            for table, state in self.states.items()
            if state.pin is not None
        }

    def metrics(self) -> dict[TableName, TableMetrics | None]:
        """Give what the first action on each state saw; None for one that no action has read."""
        return {table: each.get() for table, each in self._observations.items()}

    def recheck(self) -> None:
        """Check after the scan, and before its result is used, that it was exact.

        Raises:
            VerdictError: a topic or its settings changed, a leader moved, or the deadline passed.
            UnavailableLogError: the brokers do not answer.
        """
        self._exact_for_ms()

    def _exact_for_ms(self) -> int:
        """Recheck; gives for how many milliseconds the read stays exact, as far as is known."""
        return recheck(self.cut, self._kafka, self._clock)

    def watched(self, *, look_s: float = LOOK_S) -> Watch:
        """Give what rechecks while a block reads, and ends its jobs when the read is not exact.

        Raises:
            VerdictError: when the block is left: what `recheck` has found meanwhile.
        """

        def check() -> float:
            return self._exact_for_ms() / 1000

        def cancel() -> None:
            self._spark.interruptAll()

        return Watch(check, cancel, first_s=self._left_s(), look_s=look_s)

    def _left_s(self) -> float:
        deadline_ms = self.verdict.deadline_ms
        if deadline_ms is None:
            return LOOK_S
        left_ms = deadline_ms - self.verdict.allowance_ms - self._clock()
        return max(0.0, left_ms / 1000)


def recheck(cut: Cut, kafka: KafkaConnection, clock: Clock = clock_ms) -> int:
    """Check that a read that began with the cut is exact up to now; raises as `Replay.recheck`.

    Gives for how many milliseconds it stays so, as far as is known now.
    """
    asked_ms = clock()
    after = inspect(kafka, cut.states)
    moved = changes(cut.states, after)
    if moved:
        raise VerdictError(
            "the log changed while it was read: " + "; ".join(moved),
            hint="run it again",
        )
    past = past_ends(kafka, cut.record.frontier, after)
    now_ms = clock()
    again = judge(
        cut.record,
        after,
        tuple(cut.states),
        started_ms=cut.started_ms,
        asked_ms=asked_ms,
        now_ms=now_ms,
        estimate_ms=None,
        allowance_ms=cut.settings.clock_allowance_ms,
        past=past,
        resumed=cut.resumed,
    )
    # Either bound suffices: the first may count from the start of the scan where no record
    # lay past the ends then, the second knows of partitions that nothing was added to since.
    if cut.verdict.is_late(now_ms):
        again.require()
    latest = max(cut.verdict.deadline_ms or 0, again.deadline_ms or 0)
    return latest - cut.settings.clock_allowance_ms - now_ms


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
    with closing(SchemaReader(registry, kafka)) as schemas:
        for table, topic in cut.topics.items():
            of_topic = schemas.of_table(topic, table, record.frontier.scope_of(topic).form)
            observations[table] = StateObservations(Observation(), Observation())
            found = _decoded(cut, reader, of_topic, observations[table])
            fails = cut.settings.on_bad_record is OnBadRecord.FAIL
            states[table] = ReplayedState(
                table,
                of_topic.logged(of_topic.reader_id).key,
                found.rows() if fails else found.sound_rows(),
                record.frontier,
                of_topic.pin,
                None if fails else found.set_apart(),
            )
    return Replay(
        cut=cut,
        states=states,
        _spark=spark,
        _kafka=kafka,
        _observations=observations,
        _clock=clock,
    )


def _decoded(
    cut: Cut, reader: Reader, schemas: TopicSchemas, observations: StateObservations
) -> Decoded:
    frontier, topic = cut.record.frontier, schemas.topic
    wanted = TopicRange(
        topic=topic,
        starts=cut.states[topic].log_starts,
        ends=frontier.ends[topic],
        key_schema_id=schemas.key_id,
        keeps_faults=cut.settings.on_bad_record is OnBadRecord.QUARANTINE,
    )
    records = reader.read(wanted, layers_of(reader.kafka, wanted, cores=cores_of(reader.spark)))
    survivors = fold(
        observations.of_records(records),
        since=frontier.since.get(topic),
        before=cut_of(frontier),
        held_bytes=held_bytes(cut.settings, wanted),
    )
    return decoded(observations.of_survivors(survivors), schemas)


def _topic(frontier: Frontier, table: TableName) -> str:
    topic = frontier.topic_of(table)
    if topic is None:
        known = ", ".join(sorted(str(each) for each in frontier.tables.values()))
        raise ConfigurationError(
            f'slot "{frontier.slot}": table "{table}" {frontier.why_absent(table)}',
            hint=f"captured are: {known or 'none'}",
        )
    return topic


def estimated(
    kafka: KafkaConnection,
    frontier: Frontier,
    states: Mapping[str, TopicState],
    settings: ReplaySettings,
    *,
    sample: bool,
) -> tuple[dict[str, Density], int]:
    """Give the densities of the topics, where they are sampled, and how long a read may take, ms.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    if not sample:
        return {}, settings.estimate_ms(_records_at_most(frontier, states))
    densities = sample_density(kafka, _ranges(frontier, states))
    records = sum(density.records for density in densities.values())
    return densities, settings.estimate_ms(records)


def _ranges(
    frontier: Frontier, states: Mapping[str, TopicState]
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Give what is to be read of the topics whose partitions the frontier knows."""
    return {
        topic: (state.log_starts, tuple(map(min, frontier.ends[topic], state.ends)))
        for topic, state in states.items()
        if len(frontier.ends.get(topic, ())) == state.partitions
    }


def _records_at_most(frontier: Frontier, states: Mapping[str, TopicState]) -> int:
    return sum(
        max(0, end - start)
        for topic, state in states.items()
        for start, end in zip(state.log_starts, frontier.ends.get(topic, ()), strict=False)
    )
