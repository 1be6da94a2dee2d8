"""A declared log for a process that holds its rows: all at a cut, then what came since. No Spark.

A whole read finds the last statement of each key among all records. Who has done that once, and
whose topic is still the same, needs only the records behind the cut, if it gets each of them: the
statements of a key stand in one partition, so that a later one decides, also where the source's
position does, as long as that grows. Whatever is not sure of that ends it with a VerdictError, and
the whole read says then what the matter is, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import DeclaredLog, Order
from changelog.kafka.scan import OffsetRange, scan
from replay.base.clock import Clock, clock_ms
from replay.base.record_place import FetchedRecord
from replay.base.task_faults import lost
from replay.broker.topic_state import TopicState, changes
from replay.broker.topics import inspect
from replay.cut.cut import BrokerFacts, Cut
from replay.declared.declared import recheck_declared, source_of
from replay.declared.encoded import DeclaredRowEncoder
from replay.declared.folded import HeldValue, LastStatements, ReachedPositions
from replay.declared.interpret import Interpreter
from replay.declared.left_out import LeftOutColumns
from replay.decode.schemas import SchemaReader, TopicSchemas
from replay.scan.range import PartitionRange
from replay.verdict.declared_verdict import lost_between

MOST_RECORDS = 5_000_000
"""Offsets of one read: what has more is for Spark."""


@dataclass(frozen=True, slots=True)
class _HeldCut:
    """The offsets and topic state at the cut whose rows this process has."""

    cut: Cut  # as it was frozen
    state: TopicState  # how the topic stood then
    ends: tuple[int, ...]  # the first offsets that were not read


class FollowedLog:
    """A declared log whose rows a follower has, and the records appended since.

    A record's key is the canonical text of its key's values, and its value the row under a schema
    that no registry has.

    `kafka`: the brokers; a kept connection keeps the client that reads. `registry`: has the schemas
    of an Avro log, which are read here once.

    Attributes:
        schemas: under which values are decoded.

    Raises:
        VerdictError: rounds of this log cannot go on here.
        ConfigurationError: a column of the key is not there.
        CorruptRecordError: a schema is not of the declared form, or has a type without exact form.
        LogError: the registry has no schemas of the topic.
        UnavailableLogError: the registry does not answer.
    """

    def __init__(
        self,
        log: DeclaredLog,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        *,
        clock: Clock = clock_ms,
    ) -> None:
        with closing(SchemaReader(registry, kafka)) as schemas:
            source = source_of(log, schemas)
        self._log, self._kafka, self._clock = log, kafka, clock
        self._reader = Interpreter(log, source.columns, source.keys, source.values)
        self._encoder = DeclaredRowEncoder(log, source.columns)
        self._fillable = frozenset(LeftOutColumns(log, source.columns).places)
        self._held_cut: _HeldCut | None = None
        # Also of the dead: a key that comes back in another partition has no newest record.
        self._homes: dict[bytes, int] = {}
        self._reached = ReachedPositions() if log.order is Order.LSN else None

    @property
    def schemas(self) -> TopicSchemas:
        """Return the schema under which values are decoded."""
        return self._encoder.schemas

    def begin(self, cut: Cut) -> Iterator[FetchedRecord]:
        """Return the record of each live key at a cut.

        Nothing of it counts before the last one came: what makes the read doubtful may show only
        then.

        Raises VerdictError: the log cannot give the rows, or not without a look at all of it;
        UnavailableLogError: the brokers do not answer.
        """
        self._held_cut = None
        self._homes = {}
        self._reached = None if self._reached is None else ReachedPositions()
        cut.verdict.require()
        topic, ends = self._log.topic, cut.record.frontier.ends[self._log.topic]
        ranges = _ranges(topic, cut.start_offsets(topic), ends)
        for part in ranges:
            # A key has one partition, so all of them may be noted in one place.
            last = self._fold(part, _nothing, self._reached)
            self._homes |= self._new_homes(last, part.partition, len(ends))
            yield from (record for record in last.records() if record[1] is not None)
        recheck_declared([self._log], cut, self._kafka, self._clock)
        self._held_cut = _HeldCut(cut, cut.states[topic], ends)

    def advance(self, cut: Cut, held_value: HeldValue) -> list[FetchedRecord]:
        """Return the last statement of each key that was named since the cut that is held.

        One without a value says that there is no such row, whether there was one or not. Behind an
        error the cut that is held stays.

        `held_value`: gives the rows at the cut that is held.

        Raises VerdictError: they are not known for sure; UnavailableLogError: the brokers do not
        answer.
        """
        before, topic = self._held_cut, self._log.topic
        if before is None:
            raise VerdictError(f'topic "{topic}": no rows are held')
        cut.verdict.require()
        state, ends = cut.states[topic], cut.record.frontier.ends[topic]
        _check_same({topic: before.state}, {topic: state})
        if any(new < old for old, new in zip(before.ends, ends, strict=True)):
            raise VerdictError(f'topic "{topic}" ends before what is held')
        ranges = [
            part for part in _ranges(topic, before.ends, ends, state) if part.start < part.end
        ]
        records: list[FetchedRecord] = []
        homes: dict[bytes, int] = {}
        reached = None if self._reached is None else ReachedPositions(self._reached)
        has_gaps = False
        for part in ranges:
            last = self._fold(part, held_value, reached)
            has_gaps = has_gaps or last.count < part.end - part.start
            homes |= self._new_homes(last, part.partition, len(ends), homes)
            records += last.records()
        if ranges:
            self._check_whole(before, cut, has_gaps=has_gaps)
        self._held_cut = _HeldCut(cut, state, ends)
        self._homes |= homes
        if self._reached is not None and reached is not None:
            self._reached.take(reached)
        return records

    def _fold(
        self, part: PartitionRange, held_value: HeldValue, reached: ReachedPositions | None
    ) -> LastStatements:
        last = LastStatements(
            part.partition,
            self._reader,
            self._encoder,
            self._fillable,
            held_value=held_value,
            reached=reached,
        )
        place = OffsetRange(self._log.topic, *part)
        for record in scan(self._kafka, [place], lost=lost):
            last.add(record.key(), record.value(), record.offset() or 0)
        return last

    def _new_homes(
        self,
        last: LastStatements,
        partition: int,
        partitions: int,
        more: dict[bytes, int] | None = None,
    ) -> dict[bytes, int]:
        """Return the keys of a partition that were not known before; none of an only one."""
        if partitions == 1:
            return {}
        new = {}
        for name in last.keys:
            home = self._homes.get(name, more.get(name) if more else None)
            if home is None:
                new[name] = partition
            elif home != partition:
                raise VerdictError(
                    f'topic "{self._log.topic}": the key {name.decode()} stands in partitions '
                    f"{home} and {partition}, and nothing says which of its records is newer"
                )
        return new

    def _check_whole(self, before: _HeldCut, cut: Cut, *, has_gaps: bool) -> None:
        """Check, after the read, that no record between two cuts was missed."""
        topic = self._log.topic
        now = inspect(self._kafka, [topic])
        _check_same({topic: cut.states[topic]}, now)
        facts = BrokerFacts(states=now, after_ends={}, asked_ms=before.cut.started_ms)
        times = facts.times(self._clock(), cut.settings)
        why = lost_between(before.state, before.ends, has_gaps=has_gaps, times=times)
        if why is not None:
            raise VerdictError(f'topic "{topic}": {why}')


def _nothing(_key: bytes) -> None:
    """Return no row: before the first record there is none."""


def _ranges(
    topic: str, starts: Sequence[int], ends: Sequence[int], state: TopicState | None = None
) -> list[PartitionRange]:
    """Return the range to read of each partition."""
    if sum(max(0, end - start) for start, end in zip(starts, ends, strict=True)) > MOST_RECORDS:
        raise VerdictError(f'topic "{topic}" has more than {MOST_RECORDS} records to read')
    if state and any(at > start for at, start in zip(state.log_starts, starts, strict=True)):
        raise VerdictError(f'topic "{topic}": what came since what is held is gone')
    return [
        PartitionRange(partition, start, end)
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _check_same(before: dict[str, TopicState], after: dict[str, TopicState]) -> None:
    moved = changes(before, after)
    if moved:
        raise VerdictError("the log changed while its rows were held: " + "; ".join(moved))
