"""The last record of each key of a range, in bounded memory. Needs neither Spark nor Kafka.

The rules are those of `replay.fold`: the highest position wins, of equal ones the highest offset,
and nobody looks yet whether it is a tombstone. Records come in the order of their offsets, as they
stand in a partition. Where their keys no longer fit into memory they go to a file in buckets, and
each bucket is folded by itself at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, cast

from changelog.contract.headers import POSITION
from changelog.contract.position import POSITION_BYTES, Position
from replay.buckets import Buckets
from replay.placing import LAST, NO_POSITION, TopicRange, key_prefix, no_key

ENTRY_BYTES = 300
"""What Python needs for a key beside the bytes of its record, about."""


class Record(Protocol):
    """A record as confluent-kafka gives it."""

    def key(self) -> bytes | None:
        """Give the key."""

    def value(self) -> bytes | None:
        """Give the value; None makes it a tombstone."""

    def offset(self) -> int | None:
        """Give the offset, which a record that was read has."""

    def headers(self) -> Any:  # noqa: ANN401 - a list or a dict, says the client's stub
        """Give the headers, pairs in a list; None when there are none."""


class StrangeRecordError(Exception):
    """A record that has no place: its offset, and why."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset, self.why = offset, why


class Columns(NamedTuple):
    """Last records of some keys, by column.

    Attributes:
        keys: None for a record that has none.
        positions: in bytes.
        offsets: in their partition.
        values: None for a tombstone.
        faults: what is wrong with each, None where nothing is.
    """

    keys: Sequence[bytes | None]
    positions: Sequence[bytes]
    offsets: Sequence[int]
    values: Sequence[bytes | None]
    faults: Sequence[str | None]

    def within(self, most_bytes: int) -> Iterator[Columns]:
        """Give the same in parts, none of which holds more unless it is one record."""
        size = sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))
        if size <= most_bytes or len(self.keys) == 1:
            yield self
            return
        half = len(self.keys) // 2
        yield from self._some(slice(half)).within(most_bytes)
        yield from self._some(slice(half, None)).within(most_bytes)

    def _some(self, rows: slice) -> Columns:
        return Columns(
            self.keys[rows],
            self.positions[rows],
            self.offsets[rows],
            self.values[rows],
            self.faults[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which records count, and how many are held.

    Attributes:
        prefix: what every key begins with.
        no_key: what is wrong with one that does not.
        since: records before this position are dead.
        before: the first position that does not count.
        keeps_faults: whether a record without a place is kept with its fault.
        most_bytes: of the memory for the keys of one range and their last records.
    """

    prefix: bytes
    no_key: str
    since: bytes
    before: bytes
    keeps_faults: bool
    most_bytes: int

    @classmethod
    def of(
        cls, wanted: TopicRange, *, since: Position | None, before: Position, most_bytes: int
    ) -> Rules:
        """Give the rules for a range of a topic."""
        return cls(
            prefix=key_prefix(wanted.key_schema_id),
            no_key=no_key(wanted.key_schema_id),
            since=b"" if since is None else since.to_bytes(),
            before=before.to_bytes(),
            keeps_faults=wanted.keeps_faults,
            most_bytes=most_bytes,
        )


# What is held of a key: position, offset, value, and the fault where there is one. A plain tuple:
# one is made for nearly every record.
_Held = tuple[bytes, int, bytes | None] | tuple[bytes, int, bytes | None, str]
# Records without a key are each the last of themselves: their offset stands for a key.
_Name = bytes | tuple[int]
_WHY = 3
_NO_HEADERS = (("", None),)


class LastRecords:
    """Folds the records of one range.

    Attributes:
        records: how many were added.
        tombstones: how many of them had no value.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._last: dict[_Name, _Held] = {}
        self._room = rules.most_bytes
        self._buckets: Buckets | None = None
        self.records = 0
        self.tombstones = 0

    def add(self, batch: Sequence[Record]) -> None:
        """Add records, in the order of their offsets.

        Raises:
            StrangeRecordError: one has no place, and faults are not kept.
        """
        last, get = self._last, self._last.get
        before, prefix = self._rules.before, self._rules.prefix
        tombstones, room = 0, self._room
        for record in batch:
            value = record.value()
            if value is None:
                tombstones += 1
                size = 0
            else:
                size = len(value)
            name, position = (record.headers() or _NO_HEADERS)[0]
            if name != POSITION:  # which capture writes first
                position = dict(record.headers() or ()).get(POSITION)
            if position is None or len(position) != POSITION_BYTES:
                why = NO_POSITION
            elif position >= before:
                continue
            else:
                key = record.key()
                held = get(key)  # type: ignore[arg-type]
                if held is not None:
                    if held[0] <= position:
                        last[key] = (position, record.offset(), value)  # type: ignore[index, assignment]
                        old = held[2]
                        room -= size if old is None else size - len(old)
                    continue
                if key is not None and key.startswith(prefix):
                    last[key] = (position, record.offset(), value)  # type: ignore[assignment]
                    room -= ENTRY_BYTES + len(key) + size
                    continue
                why = self._rules.no_key
            room -= self._add_strange(record, why)
        self.records += len(batch)
        self.tombstones += tombstones
        self._room = room
        if room < 0:
            self._spill()

    def _add_strange(self, record: Record, why: str) -> int:
        """Keep a record without a place, or refuse it; gives the memory that it takes."""
        key, value, offset = record.key(), record.value(), record.offset() or 0
        if key is None or not key.startswith(self._rules.prefix):
            why = self._rules.no_key
        if not self._rules.keeps_faults:
            raise StrangeRecordError(offset, why)
        self._last[(offset,) if key is None else key] = (LAST, offset, value, why)
        return ENTRY_BYTES + len(key or b"") + len(value or b"")

    def _spill(self) -> None:
        if self._buckets is None:
            self._buckets = Buckets()
        self._buckets.put(self._last.items())
        self._last.clear()
        self._room = self._rules.most_bytes

    def drain(self, rows: int) -> Iterator[Columns]:
        """Give the last record of each key in no order, so many at a time; nothing is added then.

        Those before `since` are left out.
        """
        since = self._rules.since
        for found in self._folded():
            items = iter(found.items())
            while some := list(islice(items, rows)):
                if since:
                    some = [each for each in some if each[1][0] >= since]
                if some:
                    yield self._columns(some)

    def _columns(self, items: list[tuple[_Name, _Held]]) -> Columns:
        names, held = zip(*items, strict=True)
        positions, offsets, values, *_ = zip(*held, strict=not self._rules.keeps_faults)
        if not self._rules.keeps_faults:
            return Columns(names, positions, offsets, values, [None] * len(names))
        keys = [name if isinstance(name, bytes) else None for name in names]
        faults = [each[3] if len(each) > _WHY else None for each in held]
        return Columns(keys, positions, offsets, values, faults)

    def _folded(self) -> Iterator[dict[_Name, _Held]]:
        if self._buckets is None:
            yield self._last
            return
        self._spill()
        for items in self._buckets.each():
            found: dict[_Name, _Held] = {}
            for name, held in items:
                before = found.get(name)
                if before is None or before[0] <= held[0]:
                    found[name] = cast("_Held", held)
            yield found

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if self._buckets is not None:
            self._buckets.close()
