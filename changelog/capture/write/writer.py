"""Changes of the stream to records on the topics, except records that are on the log already."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from changelog.capture.rows.shape import RowEncoder
from changelog.capture.rows.tables import CapturedTables
from changelog.capture.state.ledger import Ledger
from changelog.capture.write.fence import Recent
from changelog.capture.write.toast import Toast
from changelog.capture.write.written import Written
from changelog.contract.base.headers import Headers, Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.event import Event, EventEncoder, Stamp, events_of
from changelog.contract.rows.change import (
    Change,
    RowChange,
    Tombstone,
    Truncate,
    Upsert,
    records_of,
)
from changelog.contract.rows.relation import UNCHANGED, Relation
from changelog.sink.dead_keys import DeadKeys

_NOT_AT_ALL = 2**63 - 1


class RecordSink(Protocol):
    """Receiver of the records: the producer."""

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None = None,
    ) -> None:
        """Queue one record; blocks while the queue is full."""


class FindDeadKeys(Protocol):
    """Looks for the rows that live though their records are before a position."""

    def __call__(self, topic: str, since: Position, *, starts: Sequence[int]) -> DeadKeys:
        """Return the rows; each partition is read from its offset in `starts` on."""


@dataclass(frozen=True, slots=True)
class _StampedEvents:
    """The encoder of the events of one change, with their common stamp."""

    events: EventEncoder
    stamp: Stamp

    def encode(self, event: Event) -> bytes:
        return self.events.encode(event, self.stamp)


@dataclass(slots=True, kw_only=True)
class RecordWriter:
    """Writes the records of one epoch."""

    log: RecordSink
    tables: CapturedTables
    epoch: int
    ledger: Ledger  # says what is alive, and is told of what is truncated
    written: Written
    toast: Toast
    dead_keys: FindDeadKeys
    # is told of the keys that are touched, as long as it wants to know
    recent: Recent = field(default_factory=Recent)
    # by topic and partition the offset before which a TRUNCATE has given each row its tombstone
    _truncated: dict[str, dict[int, int]] = field(default_factory=dict)

    def write(
        self, change: Change, commit_lsn: Lsn, sequence: int, ts_us: int, xid: int = 0
    ) -> int:
        """Write the records of one change; returns how many were not on the log yet.

        Raises EncodeError: a value has no exact form on the log; LogError: the broker refused an
        earlier record.
        """
        topic = self.tables.topics[change.relation.name]
        position = Position(self.epoch, commit_lsn, sequence)
        floor = self.ledger.since.get(topic)
        if floor is not None and position < floor:
            return 0
        if topic in self.ledger.settling and self.recent.sees_current:
            return 0
        codec = self.tables.codec(change.relation, position)
        events = self.tables.events(change.relation, position)
        stamped = None
        if events is not None:
            seen_us = time.time_ns() // 1000
            stamped = _StampedEvents(
                events, Stamp(lsn=commit_lsn, ts_us=ts_us, xid=xid, seen_us=seen_us)
            )
        if isinstance(change, Truncate):
            return self._truncate(change.relation, topic, position, ts_us, stamped)
        count = 0
        for record in records_of(change) if stamped is None else events_of(change):
            key = codec.encode_key(record.key) if record.key else None
            if self.recent.noting and key is not None:
                self.recent.touch(topic, key)
            if self.written.has(topic, key, position):
                self.toast.hold_again(codec.relation, record, xid)
            else:
                value = self._value(codec, record, xid, stamped)
                if value is not None or isinstance(record, Tombstone):
                    headers = encode_headers(position, record.op, ts_us)
                    place = None if key is not None else self.written.partition(topic, position)
                    self.log.produce(topic, key, value, headers, place)
                    count += 1
            position = Position(position.epoch, position.commit_lsn, position.sequence + 1)
        return count

    def all_alive(self, topic: str, first: Position) -> bool:
        """Tell whether every record of a topic from a position on is alive."""
        floor = self.ledger.since.get(topic)
        return floor is None or first >= floor

    def encoded(
        self, change: RowChange, position: Position, xid: int
    ) -> list[tuple[bytes, bytes | None, Op, int]]:
        """Return the records of a change without writing them: key, value, op, step in sequence.

        Raises EncodeError: a value has no exact form on the log.
        """
        codec = self.tables.codec(change.relation, position)
        records = []
        for step, record in enumerate(records_of(change)):
            value = self._value(codec, record, xid)
            if value is not None or isinstance(record, Tombstone):
                records.append((codec.encode_key(record.key), value, record.op, step))
        return records

    def _value(
        self,
        codec: RowEncoder,
        record: Upsert | Tombstone | Event,
        xid: int,
        stamped: _StampedEvents | None = None,
    ) -> bytes | None:
        if isinstance(record, Tombstone):
            return None
        row = record.after if isinstance(record, Event) else record.row
        if row is not None and UNCHANGED in row and record.key:
            row = self.toast.completed(codec.relation, record.key, row, xid)
            if row is None:
                return None
        if isinstance(record, Event):
            assert stamped is not None  # noqa: S101 - events come of it
            return stamped.encode(replace(record, after=row))
        assert row is not None  # noqa: S101 - only an event may lack it
        return codec.encode_value(row)

    def _truncate(
        self,
        relation: Relation,
        topic: str,
        position: Position,
        ts_us: int,
        stamped: _StampedEvents | None,
    ) -> int:
        """Write that every row is dead: `since` for our readers, tombstones for others.

        Run again after a crash it finds only the keys that still lack their tombstone. Of a table
        without a key, one record without a row says it to all.
        """
        self.ledger.truncated(topic, position)
        if not relation.key:
            if self.written.has(topic, None, position):
                return 0
            headers = encode_headers(position, Op.TRUNCATE, ts_us)
            gone = Event((), None, None, Op.TRUNCATE)
            value = None if stamped is None else stamped.encode(gone)
            self.log.produce(topic, None, value, headers, self.written.partition(topic, position))
            return 1
        # A partition with a later record has all tombstones of this position.
        lasts = {
            partition: self.written.last(topic, partition)
            for partition in range(self.written.partitions[topic])
        }
        later = {partition for partition, last in lasts.items() if last and last > position}
        offsets = self._truncated.setdefault(topic, {})
        starts = [_NOT_AT_ALL if n in later else offsets.get(n, 0) for n in lasts]
        dead = self.dead_keys(topic, position, starts=starts)
        count = write_tombstones(self.log, dead, topic, position, op=Op.TRUNCATE, ts_us=ts_us)
        offsets |= {n: end for n, end in enumerate(dead.ends) if n not in later}
        return count


def write_tombstones(
    log: RecordSink, dead: DeadKeys, topic: str, since: Position, *, op: Op, ts_us: int
) -> int:
    """Write the tombstones of rows that are dead at `since`; returns their number."""
    headers = encode_headers(since, op, ts_us)
    count = 0
    for partition, key in dead.keys:
        log.produce(topic, key, None, headers, partition)
        count += 1
    return count
