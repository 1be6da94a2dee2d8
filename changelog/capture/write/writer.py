"""Changes of the stream to records on the topics.

After a crash the stream begins again at the last frontier, and some of what it sends is on the
log already. Positions grow within a partition and come out the same when a transaction is sent
again, so a record is skipped exactly when its partition holds that position or a later one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from changelog.capture.rows.shape import RowEncoder
from changelog.capture.rows.tables import CapturedTables
from changelog.capture.state.ledger import Ledger
from changelog.capture.write.fence import Recent
from changelog.contract.base.headers import Headers, Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.event import Event, EventEncoder, Stamp, events_of
from changelog.contract.log.partition import partition_of, partition_without_key
from changelog.contract.rows.change import (
    Change,
    RowChange,
    Tombstone,
    Truncate,
    Upsert,
    records_of,
)
from changelog.contract.rows.relation import UNCHANGED, Field, KeyRow, Relation, Row
from changelog.native import WrittenPlaces


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


_ALL = ((1 << 64) - 1, (1 << 64) - 1)

FetchRow = Callable[[Relation, KeyRow, Sequence[str], int], tuple[Sequence[Field] | None, Lsn]]
"""Reads columns of a row by its key as they are now, and the WAL position up to which they may be
newer than what a transaction, given by its number, has left."""

DeadKeys = Callable[[str, Position], Iterable[tuple[int, bytes]]]
"""Partition and key of each row of a topic that lives, though its record is before a position."""


@dataclass(frozen=True, slots=True)
class _StampedEvents:
    """The encoder of the events of one change, with their common stamp."""

    events: EventEncoder
    stamp: Stamp

    def encode(self, event: Event) -> bytes:
        return self.events.encode(event, self.stamp)


class RecordWriter:
    """Writes the records of one epoch."""

    def __init__(
        self,
        *,
        log: RecordSink,
        tables: CapturedTables,
        epoch: int,
        ledger: Ledger,
        partitions: Mapping[str, int],
        written: Mapping[str, Mapping[int, Position]],
        fetch: FetchRow,
        dead_keys: DeadKeys,
        hold_until: Callable[[Lsn], None],
    ) -> None:
        """Start after the records on the log.

        The ledger says what is alive, and is told of what is truncated. `written` has per topic and
        partition the last position behind the last frontier. `fetch` reads values that the stream
        left out, and `hold_until` is told the WAL position of each such read.
        """
        self._log = log
        self._tables = tables
        self._epoch = epoch
        self._ledger = ledger
        self._partitions = partitions
        self._written = {topic: dict(places) for topic, places in written.items() if places}
        places = [p for by_partition in self._written.values() for p in by_partition.values()]
        self._catch_up_until = max(places, default=None)
        self._written_in: dict[str, WrittenPlaces] = {}
        self._fetch = fetch
        self._dead_keys = dead_keys
        self._hold_until = hold_until
        self.recent = Recent()  # is told of the keys that are touched, as long as it wants to know

    def write(
        self, change: Change, commit_lsn: Lsn, sequence: int, ts_us: int, xid: int = 0
    ) -> int:
        """Write the records of one change; returns how many were not on the log yet.

        Raises EncodeError: a value has no exact form on the log; LogError: the broker refused an
        earlier record.
        """
        topic = self._tables.topics[change.relation.name]
        position = Position(self._epoch, commit_lsn, sequence)
        floor = self._ledger.since.get(topic)
        if floor is not None and position < floor:
            return 0
        if topic in self._ledger.settling and self.recent.sees_current:
            return 0
        codec = self._tables.codec(change.relation, position)
        events = self._tables.events(change.relation, position)
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
            if self._on_log(topic, key, position):
                self._hold_again(codec.relation, record, xid)
            else:
                value = self._value(codec, record, xid, stamped)
                if value is not None or isinstance(record, Tombstone):
                    headers = encode_headers(position, record.op, ts_us)
                    place = None if key is not None else self._place(topic, position)
                    self._log.produce(topic, key, value, headers, place)
                    count += 1
            position = Position(position.epoch, position.commit_lsn, position.sequence + 1)
        return count

    def all_alive(self, topic: str, first: Position) -> bool:
        """Tell whether every record of a topic from a position on is alive."""
        floor = self._ledger.since.get(topic)
        return floor is None or first >= floor

    def write_again(self, topic: str) -> None:
        """Forget the records of a topic after the last frontier: the stream brings them again."""
        self._written.pop(topic, None)
        self._written_in.pop(topic, None)

    def written(self, topic: str, first: Position) -> WrittenPlaces | None:
        """Return the last positions in a topic from one on; None if all of it is to be written."""
        if self._catch_up_until is not None and first > self._catch_up_until:
            self._catch_up_until = None
        if self._catch_up_until is None or topic not in self._written:
            return None
        if topic not in self._written_in:
            places = self._written[topic]
            lasts = (places.get(place) for place in range(self._partitions[topic]))
            self._written_in[topic] = WrittenPlaces([self._last_of_epoch(last) for last in lasts])
        return self._written_in[topic]

    def _last_of_epoch(self, last: Position | None) -> tuple[int, int]:
        """Return LSN and sequence up to which a partition holds all records of this epoch."""
        if last is None or last.epoch < self._epoch:
            return 0, 0
        return (last.commit_lsn, last.sequence) if last.epoch == self._epoch else _ALL

    def encoded(
        self, change: RowChange, position: Position, xid: int
    ) -> list[tuple[bytes, bytes | None, Op, int]]:
        """Return the records of a change without writing them: key, value, op, step in sequence.

        Raises EncodeError: a value has no exact form on the log.
        """
        codec = self._tables.codec(change.relation, position)
        records = []
        for step, record in enumerate(records_of(change)):
            value = self._value(codec, record, xid)
            if value is not None or isinstance(record, Tombstone):
                records.append((codec.encode_key(record.key), value, record.op, step))
        return records

    def _place(self, topic: str, position: Position) -> int:
        return partition_without_key(position, self._partitions[topic])

    def _on_log(self, topic: str, key: bytes | None, position: Position) -> bool:
        if self._catch_up_until is None:
            return False
        if position > self._catch_up_until:
            self._catch_up_until = None
            return False
        if key is None:
            place = self._place(topic, position)
        else:
            place = partition_of(key, self._partitions[topic])
        last = self._written.get(topic, {}).get(place)
        return last is not None and position <= last

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
            row = self._completed(codec.relation, record.key, row, xid)
            if row is None:
                return None
        if isinstance(record, Event):
            assert stamped is not None  # noqa: S101 - events come of it
            return stamped.encode(replace(record, after=row))
        assert row is not None  # noqa: S101 - only an event may lack it
        return codec.encode_value(row)

    def _hold_again(self, relation: Relation, record: Upsert | Tombstone | Event, xid: int) -> None:
        """Hold frontiers for a record that stands on the log, as the attempt that wrote it did.

        Nothing there says how new the values were that it fetched. They are no newer than what
        is read now; and where that is as the transaction has left it, so were they.
        """
        if isinstance(record, Tombstone):
            return
        row = record.after if isinstance(record, Event) else record.row
        if row is not None and UNCHANGED in row and record.key:
            self._completed(relation, record.key, row, xid)

    def _completed(self, relation: Relation, key: KeyRow, row: Row, xid: int) -> Row | None:
        """Fill in unchanged TOAST values, or return None if the row is gone.

        The values are read as they are now, which may be later than this change. A later change
        of them is then later in the stream as well, so the log is exact again once the stream
        has passed the WAL position of the read; no frontier is written before. A row that is
        gone has its delete ahead in the stream, so this version needs no record.
        """
        missing = [index for index, field in enumerate(row) if field is UNCHANGED]
        names = [relation.columns[index].name for index in missing]
        values, lsn = self._fetch(relation, key, names, xid)
        self._hold_until(lsn)
        if values is None:
            return None
        completed = list(row)
        for index, value in zip(missing, values, strict=True):
            completed[index] = value
        return completed

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
        self._ledger.truncated(topic, position)
        if not relation.key:
            if self._on_log(topic, None, position):
                return 0
            headers = encode_headers(position, Op.TRUNCATE, ts_us)
            gone = Event((), None, None, Op.TRUNCATE)
            value = None if stamped is None else stamped.encode(gone)
            self._log.produce(topic, None, value, headers, self._place(topic, position))
            return 1
        return write_tombstones(
            self._log, self._dead_keys, topic, position, op=Op.TRUNCATE, ts_us=ts_us
        )


def write_tombstones(
    log: RecordSink, dead_keys: DeadKeys, topic: str, since: Position, *, op: Op, ts_us: int
) -> int:
    """Write a tombstone for each key that lives only before `since`; returns their number."""
    headers = encode_headers(since, op, ts_us)
    count = 0
    for partition, key in dead_keys(topic, since):
        log.produce(topic, key, None, headers, partition)
        count += 1
    return count
