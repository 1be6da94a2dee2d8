"""Rows in Avro to PostgreSQL's binary COPY: `copyrows.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from changelog.native.base.copy_cells import AvroField, AvroRows, CopyCell
from changelog.native.base.records import NO_MEMORY
from changelog.native.compiled.library import ffi, lib
from changelog.native.compiled.loads.batches import BatchRange


class RowCopier:
    """Writes rows whose keys and values have one schema each."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Take the schemas, None where nothing is read of them, and the cells of a row."""
        self._values, self._keys = (
            None if rows is None else _Side(rows) for rows in (values, keys)
        )
        self._cells = tuple(cells)
        self._out = ffi.gc(ffi.new("texts *"), lib.texts_free)

    def copied(
        self, records: BatchRange, numbers: Sequence[Any], chosen: array[int] | None = None
    ) -> bytes | None:
        """Return the tuples of records, or None if one is not exactly as the fields declare.

        Args:
            records: among which they are.
            numbers: columns of numbers of 64 bits that cells name, one for each of the records.
            chosen: the places of those that are wanted; None: they all are.
        """
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
        lib.texts_clear(self._out)
        done = lib.copy_rows(*sides, cells, len(self._cells), raw_chosen, rows, self._out)
        if done == lib.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        if done != rows:
            return None
        size = self._out.ends[0]
        return bytes(ffi.buffer(self._out.bytes, size)) if size else b""


_NOTHING = ffi.new("uint8_t[]", 1)


class _Side:
    """Keys or values, as C takes them."""

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
    branches = [of.branches.index(n) if n in of.branches else -1 for n in ("value", "null", "text")]
    return (
        of.kind,
        0 if of.element is None else of.element,
        bool(of.branches),
        max(0, branches[0]),
        *branches[1:],
        -1 if of.cell is None else of.cell,
    )


def _cell(of: CopyCell, numbers: Sequence[Any]) -> tuple[Any, ...]:
    return (
        of.form,
        0 if of.element is None else of.element,
        of.oid,
        of.scale,
        ffi.NULL if of.numbers is None else numbers[of.numbers],
    )
