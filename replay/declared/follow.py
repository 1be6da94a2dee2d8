"""A declared log for a process that keeps its rows: all at a cut, then what came since. No Spark.

A whole read finds the last statement of each key among all records. After that, as long as the
topic stays the same, the records behind the cut are enough, if none of them is missed: all
statements of a key are in one partition, so a later one decides, also in a log that is ordered by
the source's position, as long as that grows. Where this is not certain, a VerdictError ends the
rounds, and the caller reads the whole log again, which finds out whether anything is wrong.
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
"""Most offsets that one read takes in this process; Spark reads longer logs."""


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

    `kafka`: the brokers; a connection that is kept reuses its consumer. `registry`: has the schemas
    of an Avro log, which are read once, here.

    Attributes:
        schemas: the schemas that decode the values.

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
        # The partition of every key seen, deleted ones too: a key that comes back in another
        # partition has no newest record.
        self._homes: dict[bytes, int] = {}
        self._reached = ReachedPositions() if log.order is Order.LSN else None

    @property
    def schemas(self) -> TopicSchemas:
        """Return the schema under which values are decoded."""
        return self._encoder.schemas

    def begin(self, cut: Cut) -> Iterator[FetchedRecord]:
        """Return the record of each live key at a cut.

        The records are valid only once the iterator has ended: the last checks come after the last
        record.

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
            last = self._fold(part, _no_value, self._reached)
            self._homes |= self._new_homes(last, part.partition, len(ends))
            yield from (record for record in last.records() if record[1] is not None)
        recheck_declared([self._log], cut, self._kafka, self._clock)
        self._held_cut = _HeldCut(cut, cut.states[topic], ends)

    def advance(self, cut: Cut, held_value: HeldValue) -> list[FetchedRecord]:
        """Return the last statement of each key that was named since the previous cut.

        One without a value says that there is no such row, whether there was one or not. After an
        error the previous cut still holds.

        `held_value`: returns the rows at the previous cut.

        Raises VerdictError: the statements are not certain; UnavailableLogError: the brokers do not
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
        """Return the partition of each new key; empty if the topic has one partition only."""
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


def _no_value(_key: bytes) -> None:
    """Return None: before the first record no key has a row."""


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
