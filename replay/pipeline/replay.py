"""The pipeline: cut -> read -> fold -> decode -> state, and the check afterwards.

Nothing is read until an action runs on a state's frame. The verdict of the cut says whether the
read can be exact. `Replay.recheck` after the read says whether it was: topics, settings and leaders
are unchanged, and the deadline has not passed. `Replay.watched` checks the same during the read and
cancels a read that can no longer be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame, Observation, SparkSession

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from replay.base.clock import Clock, clock_ms
from replay.base.config import OnBadRecord
from replay.base.record_place import TopicRange, cut_of
from replay.cut.cut import Cut, recheck
from replay.decode.bag import Bag, changes
from replay.decode.decode import Decoded, decoded
from replay.decode.schemas import TopicSchemas
from replay.result.metrics import StateObservations
from replay.result.state import ReplayedState, StateRows, States, TableMetrics
from replay.scan.fold import survivors
from replay.scan.java_source import JavaSource
from replay.scan.scan import Scan
from replay.verdict.verdict import Verdict
from replay.verdict.watch import LOOK_S, ReadWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(States):
    """The states of some tables at one frontier.

    Attributes:
        cut: what is read.
        states: the state of each table.
    """

    _spark: SparkSession = field(repr=False)
    _observations: Mapping[TableName, StateObservations] = field(repr=False)
    _exact_for_ms: Callable[[], int] = field(repr=False)
    _clock: Clock = field(repr=False)
    _metrics_known: dict[TableName, TableMetrics | None] = field(default_factory=dict, repr=False)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict before the read."""
        return self.cut.verdict

    @property
    def reads_log(self) -> bool:
        """Return True: nothing was read before the first action."""
        return True

    def metrics(self) -> dict[TableName, TableMetrics | None]:
        """Return the counts of the first action on each state, or None if they are not known."""
        return {
            table: self._metrics_known[table] if table in self._metrics_known else observation.get()
            for table, observation in self._observations.items()
        }

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Keep the counts of a block; a block that fails has none."""
        try:
            yield
        except BaseException:
            self._note(is_whole=False)
            raise
        self._note(is_whole=True)

    def _note(self, *, is_whole: bool) -> None:
        for table, observation in self._observations.items():
            if table not in self._metrics_known and (seen := observation.get()) is not None:
                self._metrics_known[table] = seen if is_whole else None

    def beside(self, other: Replay, cut: Cut) -> Replay:
        """Return the states of both replays under a joint cut; each is checked by its own cut."""
        return replace(
            self,
            cut=cut,
            states={**self.states, **other.states},
            _observations={**self._observations, **other._observations},
            _metrics_known={},
            _exact_for_ms=lambda: min(self._exact_for_ms(), other._exact_for_ms()),
        )

    def recheck(self) -> None:
        """Check after the scan, and before its result is used, that it was exact.

        Raises VerdictError: a topic or its settings changed, a leader moved, or the deadline
        passed; UnavailableLogError: the brokers do not answer.
        """
        self._exact_for_ms()

    def watched(self, *, look_s: float = LOOK_S) -> ReadWatch:
        """Return a watch that rechecks while a block reads, and cancels an inexact read.

        Raises VerdictError: at the end of the block, if a recheck failed.
        """
        return watching(
            self._spark, self.verdict, self._exact_for_ms, clock=self._clock, look_s=look_s
        )


def watching(
    spark: SparkSession,
    verdict: Verdict,
    exact_for_ms: Callable[[], int],
    *,
    clock: Clock = clock_ms,
    look_s: float = LOOK_S,
) -> ReadWatch:
    """Return a watch that rechecks a read under way, and cancels Spark's jobs if it is not exact.

    `verdict`: on the read, before it began. `exact_for_ms`: returns for how many milliseconds the
    read stays exact; raises VerdictError if it is not. `look_s`: the longest time between two
    checks, in seconds.
    """
    first_s = LOOK_S
    if verdict.deadline_ms is not None:
        first_s = max(0.0, (verdict.deadline_ms - verdict.allowance_ms - clock()) / 1000)

    def check() -> float:
        return exact_for_ms() / 1000

    def cancel() -> None:
        spark.interruptAll()

    return ReadWatch(check, cancel, first_s=first_s, look_s=look_s)


def open_replay(
    spark: SparkSession,
    kafka: KafkaConnection,
    cut: Cut,
    schemas: Mapping[TableName, TopicSchemas],
    *,
    clock: Clock = clock_ms,
) -> Replay:
    """Open the states of a cut; reads no record yet.

    `cut`: the frontier and topics to read. `schemas`: of the wanted tables, looked up after the
    frontier was read: see `schemas_of`.

    Raises VerdictError: the log cannot give the exact state any more.
    """
    cut.verdict.require()
    scan = Scan(spark=spark, kafka=kafka, settings=cut.settings)
    facts_of: dict[TableName, TableFacts] = {}
    for table, topic_schemas in schemas.items():
        observations = StateObservations(Observation(), Observation())
        keyed = cut.record.frontier.scope_of(topic_schemas.topic).keyed
        read = _decoded if keyed else _bag
        facts_of[table] = TableFacts(
            key=topic_schemas.logged(topic_schemas.reader_id).key,
            pin=topic_schemas.pin,
            survivors=read(cut, scan, topic_schemas, observations),
            observations=observations,
        )
    return opened(
        spark, cut, facts_of, exact_for_ms=partial(recheck, cut, kafka, clock), clock=clock
    )


class DecodedSurvivors(Protocol):
    """The last record of each key of a topic, decoded."""

    def rows(self) -> StateRows:
        """Return the rows; a record that cannot be read ends the task."""

    def sound_rows(self) -> StateRows:
        """Return the rows of the records that can be read."""

    def quarantined(self) -> DataFrame:
        """Return the unreadable records: `topic, partition, offset, key, value, reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The facts about a table that are known before its state is opened."""

    key: tuple[str, ...]  # names of the primary key's columns; empty without a key
    pin: SchemaPin  # the schema versions by which the table is read
    survivors: DecodedSurvivors  # the decoded rows, and the records that cannot be read
    observations: StateObservations  # counts of the scan


def opened(
    spark: SparkSession,
    cut: Cut,
    facts_of: Mapping[TableName, TableFacts],
    *,
    exact_for_ms: Callable[[], int],
    clock: Clock,
) -> Replay:
    """Return the states of a cut, of our log or of another program's.

    `exact_for_ms`: returns for how many milliseconds the read stays exact; raises VerdictError if
    it is not.
    """
    fails = cut.settings.on_bad_record is OnBadRecord.FAIL
    states = {
        table: ReplayedState(
            table,
            facts.key,
            facts.survivors.rows() if fails else facts.survivors.sound_rows(),
            cut.record.frontier,
            facts.pin,
            None if fails else facts.survivors.quarantined(),
        )
        for table, facts in facts_of.items()
    }
    return Replay(
        cut=cut,
        states=states,
        _spark=spark,
        _observations={table: facts.observations for table, facts in facts_of.items()},
        _exact_for_ms=exact_for_ms,
        _clock=clock,
    )


def _decoded(
    cut: Cut, scan: Scan, schemas: TopicSchemas, observations: StateObservations
) -> Decoded:
    frontier, topic = cut.record.frontier, schemas.topic
    topic_range = TopicRange(
        topic=topic,
        starts=cut.start_offsets(topic),
        ends=frontier.ends[topic],
        key_schema_id=schemas.key_id,
        keeps_faults=cut.settings.on_bad_record is OnBadRecord.QUARANTINE,
    )
    last = scan.last_records(
        topic_range,
        since=frontier.since.get(topic),
        before=cut_of(frontier),
        has_grown=topic in frontier.grown,
        seen=observations.records,
    )
    return decoded(observations.of_survivors(survivors(last)), schemas)


def _bag(cut: Cut, scan: Scan, schemas: TopicSchemas, observations: StateObservations) -> Bag:
    """Return the rows of a table without a primary key, computed from all its records."""
    frontier, topic = cut.record.frontier, schemas.topic
    raw = JavaSource(scan.spark, scan.kafka).raw(
        TopicRange(
            topic=topic,
            starts=cut.start_offsets(topic),
            ends=frontier.ends[topic],
            key_schema_id=None,
        )
    )
    since, before = frontier.since.get(topic), cut_of(frontier)
    rows = changes(observations.of_records(raw), topic, since=since, before=before)
    return Bag(rows, schemas, observations)
