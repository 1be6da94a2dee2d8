"""Bulk loads: batches of records, and rows for COPY of Avro, JSON and CSV."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from changelog.contract.rows.codec import FRAME_BYTES
from changelog.native.compiled.library import branches, ffi, headers, lib, pointer
from changelog.native.loads import (
    MOST_GROUPS,
    Alike,
    AvroField,
    AvroRows,
    BatchRecord,
    CopyCell,
    CsvColumn,
    Groups,
    JsonColumn,
)
from changelog.native.records import NO_MEMORY

if TYPE_CHECKING:
    from changelog.native import protocols

_SIZE = 8
_VALUE = int(lib.BATCH_VALUE)


class Batch:
    """Records, kept until they are cleared."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.raw: Any = ffi.gc(ffi.new("batch *"), lib.batch_free)  # the library's `batch`
        self.topics = tuple(topics)  # by the number of a slice

    def __len__(self) -> int:
        return int(self.raw.count)

    @property
    def size_bytes(self) -> int:
        return int(lib.batch_size(self.raw))

    def clear(self) -> None:
        lib.batch_clear(self.raw)

    def add(self, record: BatchRecord) -> None:
        raw_headers, _alive = headers(record.headers)
        key, value = record.key, record.value
        if not lib.batch_add(
            self.raw, self.topics.index(record.topic), record.partition, record.offset,
            record.timestamp_ms, pointer(key), len(key or b""), pointer(value), len(value or b""),
            raw_headers, len(record.headers),
        ):  # fmt: skip
            raise MemoryError(NO_MEMORY)

    def all(self) -> BatchRange:
        return BatchRange(self, 0, len(self))


class BatchRange(Sequence[BatchRecord]):
    """Successive records of a batch; valid until the batch is cleared.

    Attributes:
        batch: the batch that has them.
        first: the place of the first record.
    """

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        self.batch, self.first, self._count = batch, first, end - first

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> BatchRange: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | BatchRange:
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
        raw, n = self.batch.raw, self.first + place
        return _bytes(raw.values, raw.value_ends, n) if raw.is_there[n] & _VALUE else None

    def column(self, name: str) -> Any:  # noqa: ANN401 - a buffer of numbers of 64 bits
        raw = self.batch.raw
        column = {
            "partition": raw.partitions,
            "offset": raw.offsets,
            "timestamp_ms": raw.timestamps,
        }[name]
        return ffi.buffer(column + self.first, _SIZE * self._count) if self._count else b""

    def groups(self, *, by_value: bool, by_key: bool) -> Groups:
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


class _Output:
    """The output of a call of the library, in memory that is reused."""

    def __init__(self) -> None:
        self._texts = ffi.gc(ffi.new("texts *"), lib.texts_free)

    def cleared(self) -> Any:  # noqa: ANN401 - of cffi's
        """Return the memory, empty."""
        lib.texts_clear(self._texts)
        return self._texts

    def taken(self, count: int) -> tuple[int, bytes]:
        """Return the number of rows that a call has written, and their bytes.

        Raises MemoryError: there was not enough memory.
        """
        if count == lib.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        if count <= 0:
            return 0, b""
        size = self._texts.ends[0]
        return count, bytes(ffi.buffer(self._texts.bytes, size)) if size else b""


class RowCopier:
    """Writes rows whose keys and values have one schema each."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        self._values, self._keys = (
            None if rows is None else _Side(rows) for rows in (values, keys)
        )
        self._cells = tuple(cells)
        self._output = _Output()

    def copied(
        self,
        records: protocols.BatchRange,
        numbers: Sequence[Any],
        chosen: array[int] | None = None,
    ) -> bytes | None:
        rows = len(records) if chosen is None else len(chosen)
        columns = [ffi.from_buffer("int64_t[]", column) for column in numbers]
        cells = ffi.new("copy_cell[]", [_cell(cell, columns) for cell in self._cells])
        raw, first = records.batch.raw, records.first
        sides = [
            ffi.NULL if side is None else side.of(texts, ends, first)
            for side, texts, ends in (
                (self._values, raw.values, raw.value_ends),
                (self._keys, raw.keys, raw.key_ends),
            )
        ]
        raw_chosen = ffi.NULL if chosen is None else ffi.from_buffer("int64_t[]", chosen)
        out = self._output.cleared()
        count, content = self._output.taken(
            lib.copy_rows(*sides, cells, len(self._cells), raw_chosen, rows, out)
        )
        return content if count == rows else None


_NOTHING = ffi.new("uint8_t[]", 1)


class _Side:
    """Keys or values, in the form for C."""

    def __init__(self, rows: AvroRows) -> None:
        self._fields = ffi.new("avro_field[]", [_field(field) for field in rows.fields])
        self._frame = ffi.from_buffer(rows.frame)
        self._raw = ffi.new("avro_rows *")
        self._raw.fields, self._raw.count = self._fields, len(rows.fields)
        self._raw.frame = ffi.cast("uint8_t *", self._frame)

    def of(self, texts: Any, ends: Any, first: int) -> Any:  # noqa: ANN401 - of cffi's
        self._raw.bytes = _NOTHING if texts == ffi.NULL else texts
        self._raw.ends = ends + first if ends != ffi.NULL else ends
        return self._raw


def _field(of: AvroField) -> tuple[int, ...]:
    element, cell = (0 if of.element is None else of.element), (-1 if of.cell is None else of.cell)
    return (of.kind, element, *branches(of.branches), cell)


def _cell(of: CopyCell, numbers: Sequence[Any]) -> tuple[Any, ...]:
    return (
        of.form,
        0 if of.element is None else of.element,
        of.oid,
        of.scale,
        ffi.NULL if of.numbers is None else numbers[of.numbers],
    )


class JsonLines:
    """Writes lines of records whose values are objects."""

    def __init__(self, columns: Sequence[JsonColumn], *, all_known: bool, numbered: bool) -> None:
        self._names = [ffi.from_buffer("uint8_t[]", column.name.encode()) for column in columns]
        entries = [
            (name, len(name), _takes(column), -1 if column.fraction is None else column.fraction,
             column.is_moment)
            for name, column in zip(self._names, columns, strict=True)
        ]  # fmt: skip
        self._columns = ffi.new("json_column[]", entries)
        self._count, self._all_known, self._numbered = len(entries), all_known, numbered
        self._output = _Output()

    def lines(
        self, records: protocols.BatchRange, chosen: array[int], first: int
    ) -> tuple[int, bytes]:
        raw = records.batch.raw
        done = lib.json_lines(
            self._columns, self._count, self._all_known, self._numbered, raw.values,
            raw.value_ends + records.first, ffi.from_buffer("int64_t[]", chosen), first,
            len(chosen), self._output.cleared(),
        )  # fmt: skip
        return self._output.taken(done)


def _takes(of: JsonColumn) -> int:
    bits = {
        lib.TAKES_TEXT: of.texts,
        lib.TAKES_NUMBER: of.numbers,
        lib.TAKES_TRUTH: of.truths,
        lib.TAKES_NESTED: of.nested,
    }
    return sum(bit for bit, takes in bits.items() if takes)


class CsvLines:
    """Writes lines of records whose values are lines of CSV, or texts."""

    def __init__(
        self, columns: Sequence[CsvColumn], *, fields: int, delimiter: bytes, numbered: bool
    ) -> None:
        entries = [
            (column.field, -1 if column.fraction is None else column.fraction, column.is_moment)
            for column in columns
        ]
        self._columns = ffi.new("csv_column[]", entries)
        self._count, self._numbered = len(entries), numbered
        self._fields, self._delimiter = fields, delimiter[0]
        self._output = _Output()

    def lines(
        self, records: protocols.BatchRange, chosen: array[int], first: int
    ) -> tuple[int, bytes]:
        done = lib.csv_lines(
            self._columns, self._count, self._fields, self._delimiter, self._numbered,
            records.batch.raw, records.first, ffi.from_buffer("int64_t[]", chosen), first,
            len(chosen), self._output.cleared(),
        )  # fmt: skip
        return self._output.taken(done)
