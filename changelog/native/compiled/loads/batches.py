"""Records in contiguous memory, without an object for each: `batch.c`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

from changelog.contract.rows.codec import FRAME_BYTES
from changelog.native.base.batches import MOST_GROUPS, Alike, BatchRecord, Groups
from changelog.native.base.records import NO_MEMORY
from changelog.native.compiled.library import ffi, lib

_SIZE = 8
_VALUE = int(lib.BATCH_VALUE)


class Batch:
    """Records, kept until they are cleared.

    Attributes:
        raw: the library's `batch`.
        topics: by the number of a slice.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        """Begin without a record.

        Args:
            topics: of the slices that are read, in their order.
        """
        self.raw: Any = ffi.gc(ffi.new("batch *"), lib.batch_free)
        self.topics = tuple(topics)

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self.raw.count)

    @property
    def size_bytes(self) -> int:
        """Return the size of keys, values and headers in bytes."""
        return int(lib.batch_size(self.raw))

    def clear(self) -> None:
        """Empty the batch; its ranges must not be used any more."""
        lib.batch_clear(self.raw)

    def add(self, record: BatchRecord) -> None:
        """Add a record.

        Raises:
            MemoryError: there is none left.
        """
        alive = [ffi.new("char[]", name.encode()) for name, _ in record.headers]
        raw_headers = ffi.new("header[]", len(alive))
        for to, name, (_, content) in zip(raw_headers, alive, record.headers, strict=True):
            to.name, to.bytes, to.size = name, _pointer(content), len(content or b"")
        key, value = record.key, record.value
        if not lib.batch_add(
            self.raw, self.topics.index(record.topic), record.partition, record.offset,
            record.timestamp_ms, _pointer(key), len(key or b""), _pointer(value), len(value or b""),
            raw_headers, len(alive),
        ):  # fmt: skip
            raise MemoryError(NO_MEMORY)

    def all(self) -> BatchRange:
        """Return the records."""
        return BatchRange(self, 0, len(self))


def _pointer(raw: bytes | None) -> Any:  # noqa: ANN401 - of cffi's
    return ffi.NULL if raw is None else ffi.from_buffer("uint8_t[]", raw)


class BatchRange(Sequence[BatchRecord]):
    """Some records of a batch that follow on each other; to be used until that is cleared.

    Attributes:
        batch: whose records they are.
        first: the place of the first of them.
    """

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        """Refer to the records `[first, end)` of a batch."""
        self.batch, self.first, self._count = batch, first, end - first

    def __len__(self) -> int:
        """Return the number of records."""
        return self._count

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> BatchRange: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | BatchRange:
        """Return a record, or a range of them."""
        if isinstance(place, slice):
            first, end, _ = place.indices(self._count)
            return BatchRange(self.batch, self.first + first, self.first + max(first, end))
        if not 0 <= place < self._count:
            raise IndexError(place)
        raw, number = self.batch.raw, self.first + place
        there = raw.is_there[number]
        return BatchRecord(
            self.batch.topics[raw.slots[number]],
            raw.partitions[number],
            raw.offsets[number],
            raw.timestamps[number],
            _bytes(raw.keys, raw.key_ends, number) if there & lib.BATCH_KEY else None,
            _bytes(raw.values, raw.value_ends, number) if there & lib.BATCH_VALUE else None,
            tuple(_headers(_bytes(raw.headers, raw.header_ends, number))),
        )

    def value(self, place: int) -> bytes | None:
        """Return the value of a record, without the rest of it."""
        raw, n = self.batch.raw, self.first + place
        return _bytes(raw.values, raw.value_ends, n) if raw.is_there[n] & _VALUE else None

    def column(self, name: str) -> Any:  # noqa: ANN401 - a buffer of numbers of 64 bits
        """Return the numbers of a column: `partition`, `offset` or `timestamp_ms`."""
        raw = self.batch.raw
        column = {
            "partition": raw.partitions,
            "offset": raw.offsets,
            "timestamp_ms": raw.timestamps,
        }[name]
        return ffi.buffer(column + self.first, _SIZE * self._count) if self._count else b""

    def groups(self, *, by_value: bool, by_key: bool) -> Groups:
        """Return the records by the frames of their values, keys or both.

        Raises:
            MemoryError: there is none left.
        """
        order = array("q", bytes(_SIZE * self._count))
        gone = ffi.new("int64_t *")
        raw_groups = ffi.new("batch_group[]", MOST_GROUPS)
        count = lib.batch_sort(
            self.batch.raw, self.first, self.first + self._count, by_value, by_key,
            ffi.from_buffer("int64_t[]", order), gone, raw_groups, MOST_GROUPS,
        )  # fmt: skip
        if count == lib.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        return Groups(
            order[: gone[0]], tuple(self._alike(raw_groups[0:count], order, by_value, by_key))
        )

    def _alike(
        self, raw_groups: Iterable[Any], order: array[int], by_value: bool, by_key: bool
    ) -> Iterable[Alike]:
        raw, at = self.batch.raw, self._count - sum(group.count for group in raw_groups)
        for group in raw_groups:
            n, count = group.shown, group.count
            value = _bytes(raw.values, raw.value_ends, n) if by_value else b""
            key = _bytes(raw.keys, raw.key_ends, n) if by_key else b""
            yield Alike(
                value[:FRAME_BYTES],
                key[:FRAME_BYTES],
                order[at : at + count],
                bool(group.is_other),
            )
            at += count


def _bytes(raw: Any, ends: Any, place: int) -> bytes:  # noqa: ANN401 - of cffi's
    size = ends[place + 1] - ends[place]
    return bytes(ffi.buffer(raw + ends[place], size)) if size else b""


def _headers(raw: bytes) -> Iterable[tuple[str, bytes | None]]:
    at = 0
    while at < len(raw):
        name_size, size = memoryview(raw[at : at + 2 * _SIZE]).cast("q")
        at += 2 * _SIZE
        name = raw[at : at + name_size].decode("utf-8", "replace")
        at += name_size
        yield name, None if size < 0 else raw[at : at + size]
        at += max(0, size)
