"""Copies what the log has got since the last segment into a new one, exactly once.

The offsets of the last manifest say where to go on, so no record is taken twice or left out,
whatever ended the run before: its files count only once their manifest is written, which is last.

A segment goes on from the one before only if no record between the two can have been removed by
compaction. That is so while the state at the frontier of the one before is still exact, judged
behind the read: the cleaner then has used no record behind that frontier (docs/decisions/0222).
Otherwise the topic is copied from its start again: what became of its rows meanwhile is not known.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from operator import le

import pyarrow as pa
from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, LogMovedError, VerdictError
from changelog.contract.log.frontier import FrontierRecord
from changelog.kafka.scan import OffsetRange, scan
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.archive.manifest import (
    ArchivedFile,
    ArchivedSchemas,
    ArchivedTopic,
    ArchiveError,
    Segment,
)
from replay.archive.store import FRONTIERS, RECORDS, SEGMENTS, Archive
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.broker.topic_state import TopicState
from replay.broker.topics import inspect, read_frontier, read_frontiers
from replay.cut.cut import Cut, make_cut, recheck
from replay.decode.schemas import SchemaReader

BUFFER_BYTES = 64 << 20
"""Records in memory before they are written to files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySource:
    """The log that is archived."""

    kafka: KafkaConnection
    registry: RegistryConnection
    frontier_topic: str
    slot: str
    settings: ReplaySettings = field(default_factory=ReplaySettings)  # the caution of verdicts
    clock: Clock = clock_ms


_IN_NAMES = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Records that compaction may have taken before they were archived."""

    topic: str
    since: FrontierRecord  # the frontier up to which the archive is complete
    offsets: tuple[tuple[int, int], ...]  # per partition the range in which some may be missing
    why: str

    def __str__(self) -> str:
        """Return the gap as a sentence."""
        places = ", ".join(
            f"partition {partition} from {start} to {end}"
            for partition, (start, end) in enumerate(self.offsets)
            if start < end
        )
        return (
            f'topic "{self.topic}": behind LSN {self.since.frontier.lsn} compaction may have taken '
            f"records before they were archived (offsets of {places}): {self.why}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a run."""

    segment: Segment | None  # None where the archive had everything already
    gaps: tuple[Gap, ...] = ()
    # the topics that the log cannot give exactly, each with the reason
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Return the number of records that were copied."""
        topics = () if self.segment is None else self.segment.topics.values()
        return sum(file.records for topic in topics for file in topic.files)

    def require_whole(self) -> None:
        """Require that nothing is missing.

        Raises VerdictError: compaction was quicker, or a topic cannot be archived.
        """
        problems = [
            *map(str, self.gaps),
            *(f'topic "{topic}" is left out: {why}' for topic, why in self.left_out.items()),
        ]
        if problems:
            raise VerdictError(
                f"the archive is not complete: {'; '.join(problems)}",
                hint="raise min_compaction_lag_ms of [capture], or archive more often; what is "
                "archived serves for states at its frontiers outside of the gap",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The part of a topic to copy."""

    topic: str
    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    base: str = ""


def folder_of(topic_id: str) -> str:
    """Return a topic's id as a folder's name, in the letters in which Kafka itself writes it.

    >>> folder_of("/oFONDZ/QY+ZnZM1i4lG7g")
    '_oFONDZ_QY-ZnZM1i4lG7g'
    """
    return topic_id.translate(_IN_NAMES)


def copy_news(archive: Archive, source: CopySource, steps: Steps = UNSEEN) -> Copied:
    """Copy what came since the last segment, up to the newest frontier.

    Raises:
        ArchiveError: a manifest is missing, was altered, or cannot be read.
        ConfigurationError: the archive is of another slot.
        LockedError: another process archives to the same place.
        VerdictError: the log changed while it was read; nothing counts.
        UnavailableError: brokers, registry or storage do not answer.
    """
    segments = archive.segments()
    archive.remove_unnamed(segments)
    last = segments[-1] if segments else None
    record = read_frontier(source.kafka, source.frontier_topic, source.slot)
    if last is not None:
        _require_same_log(archive, last, record)
        if last.record == record:
            return Copied(segment=None, left_out=last.left_out)
    return _Run(archive, source, segments, record, steps).copy()


def _require_same_log(archive: Archive, last: Segment, record: FrontierRecord) -> None:
    old, new = last.frontier, record.frontier
    if old.slot != new.slot:
        raise ConfigurationError(
            f'the archive at {archive.root} is of slot "{old.slot}", the log of "{new.slot}"',
            hint="choose another place: `archive` of [rebuild], or --archive",
        )
    if new.is_before(old):
        raise ArchiveError(
            f"the archive goes up to LSN {old.lsn} of epoch {old.epoch}, the log only to "
            f"{new.lsn} of epoch {new.epoch}",
            hint="look whether it is the log that was archived; if its frontiers were lost, "
            "archive it to another place",
        )


class _Run:
    """One run, and the names of its files."""

    def __init__(
        self,
        archive: Archive,
        source: CopySource,
        segments: Sequence[Segment],
        record: FrontierRecord,
        steps: Steps,
    ) -> None:
        self._archive, self._source, self._steps = archive, source, steps
        self._last = segments[-1] if segments else None
        self._before = self._last.sha256 if self._last else ""
        self._number = len(segments) + 1
        self._record = record
        # Of a topic without the rows or operations of its table nothing can be rebuilt.
        self._tables = {
            topic: table
            for topic, table in record.frontier.tables.items()
            if not [*record.frontier.scope_of(topic).obstacles()]
        }
        self._schemas = newest_schemas(segments)
        frontier = record.frontier
        self._folder = (
            f"{SEGMENTS}/{self._number:08d}-{frontier.epoch:010d}-{int(frontier.lsn):016X}-"
            f"{uuid.uuid4().hex[:8]}"
        )

    def copy(self) -> Copied:
        source, tables = self._source, self._tables
        self._steps.more(len(tables) + 1)
        self._steps.begin("how topics stand")
        cut = make_cut(
            source.kafka,
            self._record,
            list(tables.values()),
            settings=source.settings,
            clock=source.clock,
        )
        last_cut, why_not = self._at_last(cut)
        bags = self._bags(cut.states)
        ranges = [
            part
            for topic in tables
            if (part := self._range(topic, cut, last_cut, bags, why_not)) is not None
        ]
        self._steps.done()
        with closing(SchemaReader(source.registry, source.kafka)) as reader:
            topics = {part.topic: self._copied(part, reader) for part in ranges}
        state = inspect(source.kafka, [source.frontier_topic])[source.frontier_topic]
        frontiers, is_dense = self._frontiers(state)
        self._require_still_exact(cut, last_cut, bags, ranges)
        segment = Segment(
            number=self._number,
            before=self._before,
            at=datetime.now(UTC),
            record=self._record,
            frontiers=frontiers,
            frontier_topic_id=state.topic_id,
            is_dense=is_dense,
            topics=topics,
            left_out={
                topic: "; ".join(cut.verdict.topics[topic].reasons)
                for topic in tables
                if topic not in topics
            },
        )
        self._archive.commit(segment)
        gaps = tuple(self._gaps(ranges))
        return Copied(segment=segment, gaps=gaps, left_out=segment.left_out)

    def _same_topics(self, states: Mapping[str, TopicState]) -> dict[str, ArchivedTopic]:
        """Return the topics of the last segment that are still the same topics."""
        if self._last is None:
            return {}
        cluster = self._last.frontier.cluster_id
        return {
            topic: part
            for topic, part in self._last.topics.items()
            if topic in self._tables
            and topic in states
            and (states[topic].topic_id, states[topic].cluster_id) == (part.topic_id, cluster)
        }

    def _at_last(self, cut: Cut) -> tuple[Cut | None, dict[str, str]]:
        """Return the cut of the last segment's frontier, with the topics that are exact there.

        And for each other topic of that segment the reason why it is not.
        """
        if self._last is None:
            return None, {}
        old = self._last.frontier
        same = [
            topic
            for topic in self._same_topics(cut.states)
            if old.scope_of(topic).keyed and self._record.frontier.scope_of(topic).keyed
        ]
        why_not = dict.fromkeys(self._last.topics, "it is another topic now")
        if not same:
            return None, why_not
        last_cut = make_cut(
            self._source.kafka,
            self._last.record,
            [old.tables[topic] for topic in same],
            settings=self._source.settings,
            clock=self._source.clock,
        )
        verdicts = last_cut.verdict.topics
        why_not |= {topic: "; ".join(verdicts[topic].reasons) for topic in same}
        exact = [topic for topic in same if verdicts[topic].allows_read]
        return _only(last_cut, exact), why_not

    def _bags(self, states: Mapping[str, TopicState]) -> set[str]:
        """Return the topics without keys of which every record since the last segment is there.

        Only their retention removes records, from the start on.
        """
        return {
            topic
            for topic, part in self._same_topics(states).items()
            if not self._record.frontier.scope_of(topic).keyed
            and all(map(le, states[topic].log_starts, part.ends))
            and all(map(le, part.ends, self._record.frontier.ends[topic]))
        }

    def _range(
        self,
        topic: str,
        cut: Cut,
        last_cut: Cut | None,
        bags: set[str],
        why_not: Mapping[str, str],
    ) -> _Range | None:
        """Return the part of a topic to copy, or None if the log cannot give it."""
        frontier = self._record.frontier
        topic_id, ends = frontier.topic_ids.get(topic, ""), frontier.ends[topic]
        if self._last is not None and (
            topic in bags or (last_cut is not None and topic in last_cut.states)
        ):
            starts = _padded(self._last.topics[topic].ends, ends)
            return _Range(topic=topic, topic_id=topic_id, starts=starts, ends=ends)
        if not cut.verdict.topics[topic].allows_read:
            return None
        why = why_not.get(topic, "it was not archived before")
        starts = cut.start_offsets(topic)
        return _Range(topic=topic, topic_id=topic_id, starts=starts, ends=ends, base=why)

    def _copied(self, part: _Range, reader: SchemaReader) -> ArchivedTopic:
        """Write the records of a range to files."""
        self._steps.begin(part.topic)
        files = list(self._files(part))
        # Behind the records: every version that one of them names is there by now.
        scope = self._record.frontier.scope_of(part.topic)
        read = reader.of_table(part.topic, self._tables[part.topic], scope)
        schemas = ArchivedSchemas(
            key_id=read.key_id, key=read.key, writers=dict(read.writers), reader_id=read.reader_id
        )
        is_new = part.base or schemas != self._schemas.get(part.topic)
        self._steps.done()
        return ArchivedTopic(
            topic_id=part.topic_id,
            starts=part.starts,
            ends=part.ends,
            base=part.base,
            files=tuple(files),
            schemas=schemas if is_new else None,
        )

    def _files(self, part: _Range) -> Iterator[ArchivedFile]:
        ranges = [
            OffsetRange(part.topic, partition, start, end)
            for partition, (start, end) in enumerate(zip(part.starts, part.ends, strict=True))
        ]
        places, rows, size = list(part.starts), _Rows(len(ranges)), 0

        def written(partition: int, end: int) -> ArchivedFile:
            start, places[partition] = places[partition], end
            folder = f"{self._folder}/{part.topic}/{folder_of(part.topic_id)}"
            name = f"{folder}/{partition}-{start}-{end}.parquet"
            return self._archive.write(name, rows.taken(partition), (partition, start, end))

        for message in scan(self._source.kafka, ranges):
            size += rows.add(message)
            if size >= BUFFER_BYTES:
                for partition in rows.filled():
                    yield written(partition, rows.next_offset(partition))
                size = 0
        for partition in rows.filled():
            yield written(partition, part.ends[partition])

    def _frontiers(self, state: TopicState) -> tuple[ArchivedFile, bool]:
        """Write all frontiers since the last segment; returns the file, and whether none lacks.

        `state`: of the frontiers' topic.
        """
        source, last = self._source, self._last
        records, is_dense, start = [self._record], False, self._record.offset
        if last is not None and last.frontier_topic_id == state.topic_id:
            start = last.record.offset + 1
            records = [
                record
                for record in read_frontiers(source.kafka, source.frontier_topic, source.slot)
                if start <= record.offset < self._record.offset
            ]
            records.append(self._record)
            # One that is older may have made the cleaner remove those before it.
            lag_ms = int(state.settings.get("min.compaction.lag.ms") or 0)
            now_ms = source.clock() + source.settings.clock_allowance_ms
            is_dense = records[0].appended_ms + lag_ms > now_ms
        table = pa.table(
            {
                "offset": [record.offset for record in records],
                "appended_ms": [record.appended_ms for record in records],
                "frontier": [record.frontier.to_json() for record in records],
            },
            schema=FRONTIERS,
        )
        place = (0, start, self._record.offset + 1)
        return self._archive.write(f"{self._folder}/frontiers.parquet", table, place), is_dense

    def _require_still_exact(
        self, cut: Cut, last_cut: Cut | None, bags: set[str], ranges: Sequence[_Range]
    ) -> None:
        """Require, after the read, that nothing can have been removed before or during it.

        Raises VerdictError: it can; UnavailableLogError: the brokers do not answer.
        """
        kafka, clock = self._source.kafka, self._source.clock
        base_cut = _only(cut, [part.topic for part in ranges if part.base])
        for judged in (base_cut, last_cut):
            if judged is not None:
                recheck(judged, kafka, clock)
        if not bags <= self._bags(inspect(kafka, bags)):
            raise LogMovedError("the log changed while it was archived", hint="run it again")

    def _gaps(self, ranges: Sequence[_Range]) -> Iterator[Gap]:
        for part in ranges:
            last = None if self._last is None else self._last.topics.get(part.topic)
            if part.base and self._last is not None and last is not None:
                is_same = last.topic_id == part.topic_id
                starts = _padded(last.ends, part.ends) if is_same else part.starts
                yield Gap(
                    topic=part.topic,
                    since=self._last.record,
                    offsets=tuple(zip(starts, part.ends, strict=True)),
                    why=part.base,
                )


def _only(cut: Cut, topics: Sequence[str]) -> Cut | None:
    """Return a cut of some of its topics, or None if there are none."""
    if not topics:
        return None
    return replace(
        cut,
        topics={table: topic for table, topic in cut.topics.items() if topic in topics},
        states={topic: cut.states[topic] for topic in topics},
    )


def _padded(starts: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    """Return the first offset of each partition, 0 in a new one."""
    return tuple(start for start, _ in zip_longest(starts, ends, fillvalue=0))


class _Rows:
    """Records in memory, by partition."""

    def __init__(self, partitions: int) -> None:
        self._rows: list[list[tuple[object, ...]]] = [[] for _ in range(partitions)]

    def add(self, message: Message) -> int:
        """Add a record; returns about how many bytes it takes."""
        partition, headers = message.partition() or 0, [*(message.headers() or ())]
        _, at_ms = message.timestamp()
        key, value = message.key(), message.value()
        self._rows[partition].append((message.offset(), at_ms, key, value, _bytes_of(headers)))
        return len(key or b"") + len(value or b"") + 200

    def filled(self) -> list[int]:
        """Return the partitions that have records."""
        return [partition for partition, rows in enumerate(self._rows) if rows]

    def next_offset(self, partition: int) -> int:
        """Return the first offset after the last record of a partition."""
        offset = self._rows[partition][-1][0]
        assert isinstance(offset, int)  # noqa: S101 - of a record that was read
        return offset + 1

    def taken(self, partition: int) -> pa.Table:
        """Take the records of a partition."""
        rows, self._rows[partition] = self._rows[partition], []
        columns = [[partition] * len(rows), *map(list, zip(*rows, strict=True))]
        return pa.table(dict(zip(RECORDS.names, columns, strict=True)), schema=RECORDS)


def _bytes_of(headers: Sequence[tuple[str, str | bytes | None]]) -> list[dict[str, object]]:
    return [
        {"key": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in headers
    ]


def newest_schemas(segments: Sequence[Segment]) -> dict[str, ArchivedSchemas]:
    """Return the schemas of each topic as they were when its last segment was made."""
    schemas: dict[str, ArchivedSchemas] = {}
    for segment in segments:
        for topic, part in segment.topics.items():
            if part.schemas is not None:
                schemas[topic] = part.schemas
    return schemas
