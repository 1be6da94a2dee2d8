"""The last record of each key of a range, in a dictionary.

Records come in the order of their offsets. The highest position wins, of equal ones the highest
offset. Where the keys no longer fit into memory they go to a file in buckets, and each bucket is
folded by itself at the end.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa

from changelog.contract.base.position import POSITION_BYTES
from changelog.contract.log.partition import partition_of
from changelog.native.base.folded import FoldColumns, FoldRecord, Strange, StrangePlaceError
from changelog.native.base.records import Texts

_LAST = b"\xff" * POSITION_BYTES
"""The position of a record without one: past all others. What it would have done to its key is
not known, so that it decides about it."""
_BUCKETS = 128
_ENTRY_BYTES = 500  # of a key beside its bytes: five objects and a place in the dictionary
_STORED = struct.Struct("=qqqB")  # offset, sizes of key and value, fault
_FAULTS = (None, Strange.KEY, Strange.POSITION)


class _KeptRecord(NamedTuple):
    """A record that is kept."""

    key: bytes | None
    value: bytes | None
    position: bytes
    offset: int
    fault: Strange | None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class Fold:
    """Folds the records of one range."""

    def __init__(
        self,
        *,
        prefix: bytes,
        since: bytes,
        before: bytes,
        keeps_faults: bool,
        most_bytes: int,
        partition: int,
        homes: int | None,
        by_offset: bool = False,
    ) -> None:
        """Begin without a record.

        Args:
            prefix: what every key begins with.
            since: records before this position are dead; empty when none are.
            before: the first position that does not count.
            keeps_faults: whether a record without a place is kept with its fault.
            most_bytes: of the memory for keys and their last records.
            partition: of the range.
            homes: the partitions of the topic, where each key has to lie in the one that its
                hash names; None where keys may lie in others too.
            by_offset: whether the last record of a key decides, whatever its position.
        """
        self._prefix, self._since, self._before = prefix, since, before
        self._keeps_faults, self._most_bytes = keeps_faults, most_bytes
        self._by_offset = by_offset
        self._partition, self._homes = partition, homes
        self._kept: dict[bytes | int, _KeptRecord] = {}  # by the offset where there is no key
        self._held_bytes = 0
        self._file, self._file_end = -1, 0
        self._chunks: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]
        self.records = 0
        self.tombstones = 0

    @property
    def keys_held(self) -> int:
        """Return the number of keys held in memory."""
        return len(self._kept)

    @property
    def is_full(self) -> bool:
        """Tell whether more is held than should be."""
        return self._held_bytes > self._most_bytes

    def add(self, records: Sequence[FoldRecord]) -> None:
        """Add records in the order of their offsets.

        Raises:
            StrangePlaceError: one has no place, and faults are not kept.
        """
        for record in records:
            self._add(record)

    def _add(self, record: FoldRecord) -> None:
        key, value, position, offset = record
        self.records += 1
        self.tombstones += value is None
        if self._by_offset:
            self._keep(_KeptRecord(key, value, _LAST, offset, None))
            return
        if position is not None and len(position) != POSITION_BYTES:
            position = None
        if position is not None and position >= self._before:
            return
        has_key = key is not None and key.startswith(self._prefix)
        if position is not None and has_key:
            self._keep(_KeptRecord(key, value, position, offset, None))
            return
        fault = Strange.POSITION if has_key else Strange.KEY
        if not self._keeps_faults:
            raise StrangePlaceError(offset, fault, 0)
        self._keep(_KeptRecord(key, value, _LAST, offset, fault))

    def _keep(self, record: _KeptRecord) -> None:
        name = record.offset if record.key is None else record.key
        older = self._kept.get(name)
        if older is None:
            self._held_bytes += _ENTRY_BYTES + record.size
        elif older.position > record.position:
            return
        else:
            self._held_bytes += record.size - older.size
        self._kept[name] = record

    def _forget(self) -> None:
        self._kept.clear()
        self._held_bytes = 0

    def spill(self, file: int) -> None:
        """Write the records held to a file that the caller keeps open, and forget them.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = file
        buckets: list[list[_KeptRecord]] = [[] for _ in range(_BUCKETS)]
        for name, record in self._kept.items():
            buckets[hash(name) % _BUCKETS].append(record)
        for chunks, bucket in zip(self._chunks, buckets, strict=True):
            stored = b"".join(map(_stored, bucket))
            self._write(stored)
            chunks.append((self._file_end, len(stored)))
            self._file_end += len(stored)
        self._forget()

    def _write(self, stored: bytes) -> None:
        view, at = memoryview(stored), self._file_end
        try:
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise _file_error(error.errno) from error

    def _read(self, at: int, size: int) -> bytes:
        content = b""
        try:
            while len(content) < size:
                some = os.pread(self._file, size - len(content), at + len(content))
                if not some:
                    raise _file_error(0)
                content += some
        except OSError as error:
            raise _file_error(error.errno) from error
        return content

    def drain(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        """Return the last record of each key in no order; nothing is added then.

        Those before `since` are left out, and tombstones there. What was spilled once has to be
        spilled whole before.

        Args:
            rows: at a time.
            most_bytes: at a time, of keys and values, unless one row has more.

        Raises:
            StrangePlaceError: a key does not belong to this partition.
            OSError: the file cannot be read.
        """
        if self._file < 0:
            yield from self._parts(rows, most_bytes)
            return
        for chunks in self._chunks:
            self._forget()
            for at, size in chunks:
                for record in _unpacked(self._read(at, size)):
                    self._keep(record)
            yield from self._parts(rows, most_bytes)

    def _parts(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        part: list[_KeptRecord] = []
        size = 0
        for record in self._kept.values():
            if record.position < self._since:
                continue
            if record.position == self._since and record.value is None:
                continue
            if part and (len(part) == rows or size + record.size > most_bytes):
                yield _columns(part)
                part, size = [], 0
            self._see_home(record)
            part.append(record)
            size += record.size
        if part:
            yield _columns(part)

    def _see_home(self, record: _KeptRecord) -> None:
        if self._homes and record.fault is None and record.key is not None:
            home = partition_of(record.key, self._homes)
            if home != self._partition:
                raise StrangePlaceError(record.offset, Strange.STRAY, home)

    def close(self) -> None:
        """Free the memory."""
        self._forget()


def text_hashes(seed: int, of: Texts) -> bytes:
    """Return a hash of 64 bits for each text, concatenated."""
    ends, content = of
    key = seed.to_bytes(8)
    return b"".join(
        blake2b(content[ends[n] : ends[n + 1]], digest_size=8, key=key).digest()
        for n in range(len(ends) - 1)
    )


def _file_error(number: int | None) -> OSError:
    reason = os.strerror(number or 0)
    return OSError(number, f"{reason}: in the task's file of buckets")


def _stored(record: _KeptRecord) -> bytes:
    sizes = (-1 if text is None else len(text) for text in (record.key, record.value))
    head = _STORED.pack(record.offset, *sizes, _FAULTS.index(record.fault))
    return head + record.position + (record.key or b"") + (record.value or b"")


def _unpacked(stored: bytes) -> Iterator[_KeptRecord]:
    at = 0
    while at < len(stored):
        offset, key_size, value_size, fault = _STORED.unpack_from(stored, at)
        position_at = at + _STORED.size
        key_at = position_at + POSITION_BYTES
        value_at = key_at + max(0, key_size)
        at = value_at + max(0, value_size)
        yield _KeptRecord(
            None if key_size < 0 else stored[key_at:value_at],
            None if value_size < 0 else stored[value_at:at],
            stored[position_at:key_at],
            offset,
            _FAULTS[fault],
        )


def _columns(part: Sequence[_KeptRecord]) -> FoldColumns:
    faults = [record.fault for record in part]
    return FoldColumns(
        keys=pa.array([record.key for record in part], pa.binary()),
        positions=pa.array([record.position for record in part], pa.binary()),
        offsets=pa.array([record.offset for record in part], pa.int64()),
        values=pa.array([record.value for record in part], pa.binary()),
        faults=faults if any(faults) else None,
    )
