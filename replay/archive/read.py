"""States of tables from an archive: the frontier for a moment, its files, and a replay of them.

Needs no broker and no registry. Each task reads one file, checks that it is the one that was
written, and folds it; records are decoded as those of the log are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession

from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.base.headers import POSITION
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.native.choice import warn_if_slow
from changelog.native.records import FoldRecord
from changelog.runtime.stores import environ_of
from replay.archive.manifest import ArchivedFile, ArchiveError, Segment
from replay.archive.store import Archive
from replay.base.clock import clock_ms
from replay.base.config import ReplaySettings
from replay.base.record_place import FAULT, RECORD, TopicRange, cut_of
from replay.base.task_faults import MarkedError, TaskFault
from replay.broker.topic_state import TopicState
from replay.cut.asof import AsOf, chosen
from replay.cut.cut import Cut, topic_of
from replay.cut.past import refused
from replay.decode.bag import Bag, changes
from replay.decode.decode import decoded
from replay.decode.schemas import TopicSchemas, check_columns
from replay.pipeline.replay import DecodedSurvivors, Replay, TableFacts, opened
from replay.result.metrics import StateObservations, counted_by_tasks
from replay.scan.fold import last_of_each_key, survivors
from replay.scan.last_records import FoldRules, LastRecords
from replay.scan.task import SPARK_SCHEMA, folded
from replay.verdict.verdict import Verdict, VerdictKind

_LASTING_MS = 1 << 40  # what an archive has cannot become inexact
_ADDED = 5_000  # records that are added to a fold at a time
_RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_RAW_SCHEMA = (
    "key binary, value binary, partition int, offset bigint, "
    "headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedState:
    """The part of an archive that gives the state of one topic at a frontier."""

    topic_id: str
    starts: tuple[int, ...]  # per partition the first offset that is archived
    files: tuple[ArchivedFile, ...]
    base: FrontierRecord  # the frontier from which on every record is archived
    schemas: TopicSchemas


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedCut:
    """A frontier whose states an archive gives."""

    archive: Archive
    cut: Cut  # the frontier and its topics, by table
    topics: Mapping[str, ArchivedState]  # by name
    others: Mapping[str, TopicSchemas] = field(default_factory=dict)
    """The schemas of all topics at the frontier."""

    def schemas_of(self, topics: Mapping[TableName, str]) -> dict[TableName, TopicSchemas]:
        """Return the schemas of some tables' topics.

        Raises LogError: one has columns that Spark cannot tell apart.
        """
        schemas = {table: self.others[topic] for table, topic in topics.items()}
        for topic_schemas in schemas.values():
            scope = self.cut.record.frontier.scope_of(topic_schemas.topic)
            check_columns(topic_schemas, keyed=scope.keyed)
        return schemas


def segments_of(archive: Archive) -> list[Segment]:
    """Return the segments of an archive, the oldest first.

    Raises ArchiveError: there is no archive, or a manifest was altered.
    """
    segments = archive.segments()
    if not segments:
        raise ArchiveError(
            f"there is no archive at {archive.root}",
            hint="`changelog archive` makes one; `archive` of [rebuild] says where it is",
        )
    return segments


def find_archived(
    archive: Archive,
    segments: Sequence[Segment],
    as_of: AsOf | None,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    option: str = "--as-of",
) -> ArchivedCut:
    """Return the frontier for a moment, with the files that give the states of tables at it.

    `segments`: all of the archive, from `segments_of`. `as_of`: None for the newest frontier.
    `option`: how the reader of a message would ask for another moment.

    Raises:
        ArchiveError: the frontiers of a segment were altered.
        ConfigurationError: a table is not part of the frontier.
        VerdictError: the archive cannot give the state there; the hint names the nearest.
    """
    number, record = _chosen(archive, segments, as_of, tables, option)
    topics = {table: topic_of(record.frontier, table) for table in tables}
    states: dict[str, ArchivedState] = {}
    for topic in topics.values():
        state = _state(segments[: number + 1], record, topic)
        if isinstance(state, str):
            moment = as_of or AsOf("latest", lsn=record.frontier.lsn)
            near = _nearest(segments, record, list(topics.values()))
            raise refused(moment, f"archive: {state}", near, option)
        states[topic] = state
    return ArchivedCut(
        archive=archive,
        cut=_cut(record, topics, states, settings or ReplaySettings(), _erased(archive)),
        topics=states,
        others={
            topic: schemas
            for topic in record.frontier.tables
            if (schemas := _schemas(segments, record.frontier, topic)) is not None
        },
    )


def _chosen(
    archive: Archive,
    segments: Sequence[Segment],
    as_of: AsOf | None,
    tables: Sequence[TableName],
    option: str,
) -> tuple[int, FrontierRecord]:
    """Return the number of the segment with the frontier of a moment, from 0 on, and that one."""
    last = len(segments) - 1
    if as_of is None:
        return last, segments[last].record
    epoch = segments[last].frontier.epoch
    place = max(
        (n for n, segment in enumerate(segments) if as_of.reaches(segment.frontier, epoch)),
        default=-1,
    )
    if place < 0:
        why = f"the archive begins at LSN {segments[0].frontier.lsn}"
        raise refused(as_of, why, [segments[0].frontier], option)
    if as_of.is_exactly(segments[place].frontier, epoch):
        return place, segments[place].record
    if place == last:
        why = f"the archive goes up to LSN {segments[last].frontier.lsn}"
        raise refused(as_of, why, [segments[last].frontier], option)
    following = segments[place + 1]
    records = [segments[place].record, *archive.frontiers(following)]
    topics = [record.frontier.topic_of(table) or "" for record in records[:1] for table in tables]
    record = chosen(records, as_of, topics, is_next=lambda _: following.is_dense)
    if record is None:
        why = "frontiers between two segments of the archive were removed before it was made"
        near = [segments[place].frontier, following.frontier]
        raise refused(as_of, why, near, option)
    return (place if record == segments[place].record else place + 1), record


def _state(segments: Sequence[Segment], record: FrontierRecord, topic: str) -> ArchivedState | str:
    """Return the files of a topic from its base on to a frontier of the last segment.

    Or the reason why they do not give its state.
    """
    frontier, last = record.frontier, segments[-1]
    topic_id, ends = frontier.topic_ids.get(topic, ""), frontier.ends.get(topic, ())
    newest_first: list[ArchivedFile] = []
    for segment in reversed(segments):
        part = segment.topics.get(topic)
        if part is None or part.topic_id != topic_id:
            why = segment.left_out.get(topic, "it was another topic then")
            return f'topic "{topic}" is not in the segment of LSN {segment.frontier.lsn}: {why}'
        newest_first += (
            file
            for file in reversed(part.files)
            if file.partition < len(ends) and file.start < ends[file.partition]
        )
        if not part.base:
            continue
        if segment is last and record != last.record:
            return (
                f'topic "{topic}" was copied from its start for LSN {last.frontier.lsn}, so what '
                f"it held before that is not known: {part.base}"
            )
        schemas = _schemas([*segments], frontier, topic)
        if schemas is None:
            return f'topic "{topic}" has no schemas'
        return ArchivedState(
            topic_id=topic_id,
            starts=(*part.starts, *[0] * len(ends))[: len(ends)],
            files=tuple(reversed(newest_first)),
            base=segment.record,
            schemas=schemas,
        )
    return f'topic "{topic}" has no base'


def _schemas(segments: Sequence[Segment], frontier: Frontier, topic: str) -> TopicSchemas | None:
    """Return the newest schemas of a topic that are archived."""
    topic_id = frontier.topic_ids.get(topic)
    for segment in reversed(segments):
        part = segment.topics.get(topic)
        if part is not None and part.topic_id == topic_id and part.schemas is not None:
            own, form = part.schemas, frontier.scope_of(topic).form
            return TopicSchemas(topic, own.key_id, own.writers, own.reader_id, form, own.key)
    return None


def _nearest(
    segments: Sequence[Segment], record: FrontierRecord, topics: Sequence[str]
) -> list[Frontier]:
    """Return the last segment's frontier before another at which all topics are, and the next."""

    def nearest(numbers: Iterable[int]) -> list[Frontier]:
        good = (
            segments[n].frontier
            for n in numbers
            if all(
                isinstance(_state(segments[: n + 1], segments[n].record, topic), ArchivedState)
                for topic in topics
            )
        )
        return [frontier for frontier in [next(good, None)] if frontier is not None]

    own = record.frontier
    before = [n for n, segment in enumerate(segments) if segment.frontier.is_before(own)]
    after = [n for n, segment in enumerate(segments) if own.is_before(segment.frontier)]
    return [*nearest(reversed(before)), *nearest(after)]


def _erased(archive: Archive) -> dict[str, str]:
    """Return of each topic of which keys were erased the words that say so."""
    return {
        erasure.topic: f", but for keys that were erased, last on {erasure.at:%Y-%m-%d}"
        for erasure in archive.erasures()
    }


def _cut(
    record: FrontierRecord,
    topics: Mapping[TableName, str],
    states: Mapping[str, ArchivedState],
    settings: ReplaySettings,
    erased: Mapping[str, str],
) -> Cut:
    frontier = record.frontier
    whole = "the archive has every record from LSN"
    verdicts = {
        topic: Verdict(
            VerdictKind.EXACT,
            None,
            (f"{whole} {state.base.frontier.lsn} on{erased.get(topic, '')}",),
        )
        for topic, state in states.items()
    }
    reasons = tuple(dict.fromkeys(why for verdict in verdicts.values() for why in verdict.reasons))
    return Cut(
        record=record,
        topics=topics,
        states={
            topic: TopicState(
                topic=topic,
                topic_id=state.topic_id,
                cluster_id=frontier.cluster_id,
                settings={},
                log_starts=state.starts,
                ends=frontier.ends[topic],
                leader_epochs=frontier.leader_epochs.get(topic, ()),
            )
            for topic, state in states.items()
        },
        verdict=Verdict(VerdictKind.EXACT, None, reasons, topics=verdicts),
        started_ms=clock_ms(),
        settings=settings,
    )


def open_archived(
    spark: SparkSession, archived: ArchivedCut, schemas: Mapping[TableName, TopicSchemas]
) -> Replay:
    """Open the states of a cut of an archive; reads no record yet."""
    cut, frontier = archived.cut, archived.cut.record.frontier
    facts_of: dict[TableName, TableFacts] = {}
    warn_if_slow()
    for table, topic_schemas in schemas.items():
        observations = StateObservations(Observation(), Observation())
        read = _decoded if frontier.scope_of(topic_schemas.topic).keyed else _bag
        facts_of[table] = TableFacts(
            key=topic_schemas.logged(topic_schemas.reader_id).key,
            pin=topic_schemas.pin,
            survivors=read(spark, archived, topic_schemas, observations),
            observations=observations,
        )
    return opened(spark, cut, facts_of, exact_for_ms=lambda: _LASTING_MS, clock=clock_ms)


def _decoded(
    spark: SparkSession,
    archived: ArchivedCut,
    schemas: TopicSchemas,
    observations: StateObservations,
) -> DecodedSurvivors:
    frontier, topic = archived.cut.record.frontier, schemas.topic
    topic_range = TopicRange(
        topic=topic,
        starts=archived.topics[topic].starts,
        ends=frontier.ends[topic],
        key_schema_id=schemas.key_id,
    )
    rules = FoldRules.of(
        topic_range,
        since=frontier.since.get(topic),
        before=cut_of(frontier),
        most_bytes=archived.cut.settings.task_memory_mb << 20,
    )
    job = FileJob.of(archived, topic)
    by_files = _tasks(spark, job, partial(last_records, rules), SPARK_SCHEMA)
    records = counted_by_tasks(by_files, observations.records).drop(FAULT)
    last = last_of_each_key(records, RECORD[1:])  # a key is in several files
    return decoded(observations.of_survivors(survivors(last)), schemas)


def _bag(
    spark: SparkSession,
    archived: ArchivedCut,
    schemas: TopicSchemas,
    observations: StateObservations,
) -> DecodedSurvivors:
    """Return the rows of a table without a primary key, computed from all its records."""
    frontier, topic = archived.cut.record.frontier, schemas.topic
    raw = _tasks(spark, FileJob.of(archived, topic), raw_records, _RAW_SCHEMA)
    since, before = frontier.since.get(topic), cut_of(frontier)
    rows = changes(observations.of_records(raw), topic, since=since, before=before)
    return Bag(rows, schemas, observations)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob:
    """The files that tasks read, one each."""

    topic: str
    root: str  # of the archive
    files: tuple[ArchivedFile, ...]
    begins: tuple[int, ...]  # per partition the first offset that counts
    ends: tuple[int, ...]  # per partition the first offset that does not count
    # what the environment says of the store, for tasks on other machines
    store: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, archived: ArchivedCut, topic: str) -> FileJob:
        """Return the job of a topic."""
        frontier, state = archived.cut.record.frontier, archived.topics[topic]
        return cls(
            topic=topic,
            root=archived.archive.root,
            files=state.files,
            begins=frontier.begins(topic, state.starts),
            ends=frontier.ends[topic],
            store=environ_of(archived.archive.root, os.environ),
        )

    def table(self, number: int) -> pa.Table:
        """Read the records of a file that count.

        Raises MarkedError: it is missing, was altered, or the store does not answer.
        """
        for name, text in self.store.items():
            os.environ.setdefault(name, text)
        file = self.files[number]
        try:
            table = Archive(self.root).table(file)
        except ArchiveError as error:
            raise MarkedError(TaskFault.CORRUPT, str(error)) from error
        except UnavailableError as error:
            raise MarkedError(TaskFault.SILENT, str(error)) from error
        begin, end = self.begins[file.partition], self.ends[file.partition]
        offsets = table["offset"]
        counts = pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, end))
        return table.filter(counts)


ReadFile = Callable[[FileJob, int], Iterator[pa.RecordBatch]]


def _tasks(spark: SparkSession, job: FileJob, read: ReadFile, schema: str) -> DataFrame:
    def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(job, number)

    count = len(job.files)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(task, schema)


def last_records(rules: FoldRules, job: FileJob, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key of a file."""
    table, partition = job.table(number), job.files[number].partition

    def read(last: LastRecords) -> None:
        for batch in table.to_batches(_ADDED):
            with last.adding() as fold:
                fold.add([_fold_record(row) for row in batch.to_pylist()])

    yield from folded(LastRecords(rules, partition=partition), read, job.topic, partition)


def _fold_record(row: Mapping[str, Any]) -> FoldRecord:
    position = next((h["value"] for h in row["headers"] or () if h["key"] == POSITION), None)
    return FoldRecord(row["key"], row["value"], position, row["offset"])


def raw_records(job: FileJob, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file."""
    yield from job.table(number).select(_RAW.names).cast(_RAW).to_batches(_ADDED)


def gives(archive: Archive, as_of: AsOf, tables: Sequence[TableName]) -> Frontier | None:
    """Return the frontier at which an archive gives an older state, or None if it does not."""
    try:
        segments = archive.segments()
        if not segments:
            return None
        return find_archived(archive, segments, as_of, tables).cut.record.frontier
    except ChangelogError:
        return None
