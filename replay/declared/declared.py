"""Logs of other programs through the same fold: freeze -> read -> interpret -> fold -> rows.

The records are read in Python workers (`replay.declared.interpret`): a record's value may name
another key than its own, so each has to be decoded before the fold. From there on it is Spark's
work: choose the last statement of each key, and only then ask whether it deletes the row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.avro.arrow import arrow_type
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.declared import (
    Beginning,
    DeclaredLog,
    From,
    Order,
)
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.schema import LoggedColumn, SchemaPin
from changelog.contract.rows.types import ColumnType, Kind, spark_type
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.base.failures import fail
from replay.base.record_place import TopicRange
from replay.base.task_faults import TaskFault
from replay.broker.topic_state import TopicState, changes
from replay.broker.topics import cleanable_ends, inspect, stable_ends
from replay.cut.cut import BrokerFacts, Cut, estimated
from replay.declared.interpret import Interpreter, Statement, columns_of
from replay.declared.key_changes import carried
from replay.declared.left_out import LeftOutColumns
from replay.decode.schemas import AVRO, PROTOBUF, SchemaReader
from replay.pipeline.replay import Replay, TableFacts, opened
from replay.result.metrics import StateObservations
from replay.result.state import StateRows
from replay.scan.java_source import JavaSource, place
from replay.verdict.declared_verdict import judge_declared, lost_meanwhile
from replay.verdict.watch import LOOK_S

if TYPE_CHECKING:
    from changelog.contract.rows.relation import TableName

NO_FRONTIER = -1
"""The offset of a cut that was not read from a frontier topic."""

# The LSN of a statement at fault, so that it sorts behind every other of its key.
_HIGHEST_LSN = 2**63 - 1
# Until the next check, where no deadline says when.
_CHECK_AGAIN_MS = int(LOOK_S * 1000)
# The columns of a statement before its row; `_DDL` is the same for Spark.
_COLUMNS = (
    ("key", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("step", pa.int32()),
    ("lsn", pa.int64()),
    ("is_tombstone", pa.bool_()),
    ("fault", pa.string()),
    ("missing", pa.list_(pa.int32())),
    ("begins", pa.bool_()),
    ("raw_key", pa.binary()),
    ("raw_value", pa.binary()),
)
_DDL = (
    "key string, partition int, offset bigint, step int, lsn bigint, is_tombstone boolean, "
    "fault string, missing array<int>, begins boolean, raw_key binary, raw_value binary"
)


def make_declared_cut(
    kafka: KafkaConnection,
    logs: Sequence[DeclaredLog],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
    sample: bool = False,
    steps: Steps = UNSEEN,
) -> Cut:
    """Freeze the present ends of the logs, and judge a read up to them.

    A log ends at its first open transaction, which may still be aborted.

    With `sample` a few records are read, for a better estimate of how many there are. `steps`
    counts the topics that were looked at.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    settings = settings or ReplaySettings()
    started_ms = clock()
    topics = {log.table: log.topic for log in logs}
    steps.more(len(topics))
    steps.begin("how topics stand")
    facts = BrokerFacts(states=inspect(kafka, topics.values()), after_ends={}, asked_ms=started_ms)
    states = facts.states
    frontier = Frontier(
        slot="",
        epoch=0,
        lsn=Lsn(0),
        ts_us=time.time_ns() // 1000,
        cluster_id=next((state.cluster_id for state in states.values()), ""),
        tables={topic: table for table, topic in topics.items()},
        topic_ids={topic: state.topic_id for topic, state in states.items()},
        ends=stable_ends(kafka, states),
        alive_from=_alive_from(kafka, logs, states),
    )
    steps.done(len(topics))
    densities, estimate_ms = estimated(
        kafka, frontier, states, settings, sample=sample, steps=steps
    )
    times = facts.times(clock(), settings, estimate_ms=estimate_ms)
    return Cut(
        record=FrontierRecord(frontier, NO_FRONTIER, started_ms),
        topics=topics,
        states=states,
        verdict=judge_declared(logs, states, times),
        started_ms=started_ms,
        settings=settings,
        densities=densities,
    )


def _alive_from(
    kafka: KafkaConnection, logs: Sequence[DeclaredLog], states: Mapping[str, TopicState]
) -> dict[str, tuple[int, ...]]:
    """Return the start offsets of topics whose oldest records are gone.

    That records are missing from before the read is accepted; that they go during it is not.
    """
    starts_of = {}
    for log in logs:
        state = states.get(log.topic)
        if state is None or log.beginning is Beginning.START:
            continue
        starts = state.log_starts
        if isinstance(log.beginning, From):
            at = {log.topic: state}
            since = cleanable_ends(kafka, at, lags_ms={log.topic: 0}, now_ms=log.beginning.ms)
            starts = tuple(map(max, starts, since[log.topic]))
        starts_of[log.topic] = starts
    return starts_of


def recheck_declared(
    logs: Sequence[DeclaredLog], cut: Cut, kafka: KafkaConnection, clock: Clock = clock_ms
) -> int:
    """Check that no record of a scan that began with the cut can have been cleaned away up to now.

    Returns for how many milliseconds that will stay true.

    Raises VerdictError: one may have been, or a topic changed; UnavailableLogError: the brokers do
    not answer.
    """
    facts = BrokerFacts(states=inspect(kafka, cut.states), after_ends={}, asked_ms=cut.started_ms)
    reasons = list(changes(cut.states, facts.states))
    now_ms = clock()
    times = facts.times(now_ms, cut.settings)
    reasons = reasons or lost_meanwhile(logs, cut.states, facts.states, times)
    if reasons:
        raise VerdictError(
            "the log changed while it was read: " + "; ".join(reasons),
            hint="run it again; a compacted topic needs message.timestamp.type=LogAppendTime "
            "and a min.compaction.lag.ms that is longer than the rebuild",
        )
    if cut.verdict.deadline_ms is None or cut.verdict.is_late(now_ms):
        return _CHECK_AGAIN_MS
    return cut.verdict.deadline_ms - cut.settings.clock_allowance_ms - now_ms


def open_declared(
    spark: SparkSession,
    kafka: KafkaConnection,
    registry: RegistryConnection,
    cut: Cut,
    logs: Sequence[DeclaredLog],
    *,
    clock: Clock = clock_ms,
) -> Replay:
    """Open the states of declared logs at a cut; only records of key changes are read yet.

    Raises:
        VerdictError: the log cannot give the state.
        CorruptRecordError: a schema is not of the declared form, or has a type without exact form.
        LogError: the registry has no schemas of a topic.
        UnavailableLogError: the registry does not answer.
    """
    cut.verdict.require()
    reader = JavaSource(spark, kafka)
    facts_of: dict[TableName, TableFacts] = {}
    with closing(SchemaReader(registry, kafka)) as schemas:
        for log in logs:
            source = source_of(log, schemas)
            seen = StateObservations(Observation(), Observation())
            raw = reader.raw(
                TopicRange(
                    topic=log.topic,
                    starts=cut.start_offsets(log.topic),
                    ends=cut.record.frontier.ends[log.topic],
                    key_schema_id=None,
                )
            )
            left_out = LeftOutColumns(log, source.columns)
            groups = _grouped(source, _statements(source, seen.of_records(raw)), left_out)
            groups = left_out.followed(groups, _carried(source, raw, left_out))
            survivors = _folded(log, groups, left_out)
            facts_of[log.table] = TableFacts(
                key=log.key,
                pin=SchemaPin(None, source.reader_id),
                survivors=_LastStatements(source, seen.of_survivors(survivors)),
                observations=seen,
            )
    exact_for_ms = partial(recheck_declared, tuple(logs), cut, kafka, clock)
    return opened(spark, cut, facts_of, exact_for_ms=exact_for_ms, clock=clock)


def _statements(source: _LogSource, raw: DataFrame) -> DataFrame:
    """Return the statements of the records, one row each."""
    types = pa.struct([pa.field(c.column, arrow_type(c.type)) for c in source.columns])
    schema = pa.schema([*_COLUMNS, ("row", types)])

    def interpret(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = Interpreter(source.log, source.columns, source.keys, source.values)
        for batch in batches:
            yield _batch(batch, reader, source.columns, schema)

    ddl = ", ".join(f"{_quoted(c.column)}: {spark_type(c.type)}" for c in source.columns)
    records = raw.select("key", "value", "partition", "offset")
    return records.mapInArrow(interpret, f"{_DDL}, row struct<{ddl}>")


def _batch(
    batch: pa.RecordBatch,
    reader: Interpreter,
    columns: Sequence[LoggedColumn],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Interpret a batch of records; the result has a row for each statement."""
    rows: list[tuple[object, ...]] = []
    statements: list[Statement] = []
    for key, value, partition, offset in zip(
        *(batch.column(n).to_pylist() for n in range(4)), strict=True
    ):
        for step, statement in enumerate(reader.statements(key, value)):
            # Only a record that may be quarantined has to keep its bytes.
            raw = (key, value) if statement.fault is not None or statement.missing else (None, None)
            left_out = [*statement.missing], statement.begins
            facts = (
                statement.key,
                partition,
                offset,
                step,
                statement.lsn,
                statement.is_tombstone,
                statement.fault,
            )
            rows.append((*facts, *left_out, *raw))
            statements.append(statement)
    arrays = [pa.array([row[n] for row in rows], kind) for n, (_, kind) in enumerate(_COLUMNS)]
    fields = [
        pa.array([None if s.row is None else s.row[n] for s in statements], _storage(c.type)).cast(
            arrow_type(c.type)
        )
        for n, c in enumerate(columns)
    ]
    mask = pa.array([statement.row is None for statement in statements], pa.bool_())
    names = [column.column for column in columns]
    arrays.append(pa.StructArray.from_arrays(fields, names, mask=mask))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _carried(source: _LogSource, raw: DataFrame, left_out: LeftOutColumns) -> DataFrame | None:
    """Return the values of rows under their old keys that the records of the new keys lack."""
    log = source.log
    if not (left_out.places and log.key_changes) or log.shape.is_flat:
        return None
    types = {place: spark_type(source.columns[place].type) for place in left_out.places}
    order = ("lsn", "offset", "step") if log.order is Order.LSN else ("offset", "step")
    return carried(raw, partial(_statements, source), left_out.places, types, order)


def _grouped(source: _LogSource, statements: DataFrame, left_out: LeftOutColumns) -> DataFrame:
    """Return the aggregates of each key's statements.

    A statement at fault counts as the newest, since nobody knows what it said of its key. One
    without a key is a group of its own.
    """
    whole = F.struct("row", "fault", "missing", "partition", "offset", "raw_key", "raw_value")
    at_fault = F.col("fault").isNotNull()
    offset = F.struct("offset", "step")
    own = F.when(F.col("key").isNull(), F.struct("partition", "offset"))
    by_lsn = source.log.order is Order.LSN
    lsn = F.when(at_fault, F.lit(_HIGHEST_LSN)).otherwise(F.col("lsn")) if by_lsn else F.lit(0)
    is_event = ~F.col("is_tombstone") if by_lsn else F.lit(True)
    order = F.struct(at_fault.alias("at_fault"), lsn.alias("lsn"), "offset", "step")
    return statements.groupBy("key", own).agg(
        *left_out.aggregates(F.when(is_event, whole), F.when(is_event, order)),
        F.min("partition").alias("low"),
        F.max("partition").alias("high"),
        F.max(F.when(F.col("is_tombstone"), F.col("offset"))).alias("tombstone"),
        F.max_by(
            F.when(is_event, F.struct("offset", F.col("row").isNull().alias("is_gone"))),
            F.when(is_event, offset),
        ).alias("newest"),
    )


def _folded(log: DeclaredLog, groups: DataFrame, left_out: LeftOutColumns) -> DataFrame:
    """Return each key's last statement: `partition, offset, fault, raw_key, raw_value, row`."""
    last = F.when(_is_torn(log), _torn(log)).otherwise(left_out.last())
    checked = groups.withColumn("last", last)
    if log.order is Order.LSN:
        # A tombstone has no LSN. The delete before it has one; where that was cleaned away, so
        # was everything older, and the offset decides.
        newest = F.col("newest")
        decides = F.col("tombstone").isNotNull() & (
            newest.isNull()
            | ((F.col("tombstone") > newest.getField("offset")) & ~newest.getField("is_gone"))
        )
        checked = checked.where(~decides | F.col("last").getField("fault").isNotNull())
    last_statements = checked.select("last.*")
    return last_statements.where(F.col("row").isNotNull() | F.col("fault").isNotNull())


def _is_torn(log: DeclaredLog) -> Column:
    """Return whether a key is in two partitions, so that offsets do not give the order."""
    apart = F.col("low") != F.col("high")
    return apart if log.order is Order.OFFSET else apart & F.col("tombstone").isNotNull()


def _torn(log: DeclaredLog) -> Column:
    return fail(
        TaskFault.CORRUPT,
        f'topic "{log.topic}": the key ',
        F.col("key"),
        " stands in partitions ",
        F.col("low"),
        " and ",
        F.col("high"),
        ", and nothing says which of its records is newer",
    )


@dataclass(frozen=True, slots=True)
class _LastStatements:
    """The last statement of each key: `partition, offset, fault, raw_key, raw_value, row`."""

    source: _LogSource
    frame: DataFrame

    def rows(self) -> StateRows:
        """Return the rows; a statement at fault ends the task."""
        fault, row = F.col("fault"), F.col("row")
        corrupt = fail(TaskFault.CORRUPT, *place(self.source.log.topic), ": ", fault)
        checked = F.when(fault.isNotNull(), corrupt).otherwise(row)
        return StateRows(self.frame.select(checked.alias("row")), self._columns)

    def sound_rows(self) -> StateRows:
        """Return the rows of the statements without a fault."""
        return StateRows(self.frame.where(F.col("fault").isNull()).select("row"), self._columns)

    def quarantined(self) -> DataFrame:
        """Return the faulty records: `topic, partition, offset, key, value, reason`."""
        return self.frame.where(F.col("fault").isNotNull()).select(
            F.lit(self.source.log.topic).alias("topic"),
            "partition",
            "offset",
            F.col("raw_key").alias("key"),
            F.col("raw_value").alias("value"),
            F.col("fault").alias("reason"),
        )

    def _columns(self, frame: DataFrame) -> DataFrame:
        row = F.col("row")
        return frame.select(*(row.getField(c.column).alias(c.column) for c in self.source.columns))


def _storage(kind: ColumnType) -> pa.DataType:
    """Return Arrow's type of the bare values: days and microseconds are numbers."""
    if kind.element is not None:
        return pa.list_(_storage(kind.element))
    if kind.kind is Kind.DATE:
        return pa.int32()
    return pa.int64() if kind.kind in {Kind.TIMESTAMP, Kind.TIMESTAMPTZ} else arrow_type(kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class _LogSource:
    """A declared log, its columns and the schemas of its records."""

    log: DeclaredLog  # as declared
    columns: tuple[LoggedColumn, ...]  # of its rows
    keys: Mapping[int, str]  # schemas of keys by id, those of Protobuf compiled; empty in JSON
    values: Mapping[int, str]  # of values
    reader_id: int  # id of the newest schema of values; 0 in JSON


def source_of(log: DeclaredLog, schemas: SchemaReader) -> _LogSource:
    """Look up the present columns of a log, and the schemas of its records.

    Raises:
        ConfigurationError: a column of the key is not among them.
        CorruptRecordError: a schema is not of the declared form, or has a type without exact form.
        LogError: the registry has no schemas of the topic.
        UnavailableLogError: the registry does not answer.
    """
    columns, newest = log.columns, 0
    keys: dict[int, str] = {}
    values: dict[int, str] = {}
    if log.shape.is_registered:
        keys, values = schemas.versions_of(log.topic, AVRO if log.shape.is_avro else PROTOBUF)
        newest = list(values)[-1]
        columns = columns_of(values[newest], log.shape)
        if log.delete:
            columns = tuple(column for column in columns if column.column != log.delete)
    names = [column.column for column in columns]
    missing = [name for name in log.key if name not in names]
    if missing:
        raise ConfigurationError(
            f'log "{log.table}": its key names {", ".join(missing)}, and its columns are '
            f"{', '.join(names) or 'none'}",
            hint="correct `key` or `columns` of the log in changelog.toml",
        )
    twins = {name for name in names if [other.lower() for other in names].count(name.lower()) > 1}
    if twins:
        raise CorruptRecordError(
            f'log "{log.table}" has columns that Spark does not tell apart: {sorted(twins)}'
        )
    return _LogSource(log, columns, keys, values, newest)
