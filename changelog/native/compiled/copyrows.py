"""Rows in Avro to PostgreSQL's binary COPY: `copyrows.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from changelog.native.base.copy_cells import AvroField, AvroRows, CopyCell
from changelog.native.base.records import NO_MEMORY
from changelog.native.compiled.library import ffi, lib


class RowCopier:
    """Writes rows whose keys and values have one schema each."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Take the schemas, None where nothing is read of them, and the cells of a row."""
        self._values, self._keys = (
            None if each is None else _Side(each) for each in (values, keys)
        )
        self._cells = tuple(cells)
        self._out = ffi.gc(ffi.new("texts *"), lib.texts_free)

    def copied(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes],
        numbers: Sequence[array[int]],
        rows: int,
    ) -> bytes | None:
        """Return the tuples of rows; None where one is not exactly what the fields say.

        Args:
            values: of the rows, where something is read of them.
            keys: likewise.
            numbers: columns of numbers of 64 bits that cells name.
            rows: how many.
        """
        columns = [ffi.from_buffer("int64_t[]", each) for each in numbers]
        cells = ffi.new("copy_cell[]", [_cell(each, columns) for each in self._cells])
        held = [
            ffi.NULL if side is None else side.of(texts)
            for side, texts in ((self._values, values), (self._keys, keys))
        ]
        lib.texts_clear(self._out)
        done = lib.copy_rows(*held, cells, len(self._cells), rows, self._out)
        if done == lib.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        if done != rows:
            return None
        size = self._out.ends[0]
        return bytes(ffi.buffer(self._out.bytes, size)) if size else b""


class _Side:
    """Keys or values, as C takes them."""

    def __init__(self, rows: AvroRows) -> None:
        self._fields = ffi.new("avro_field[]", [_field(each) for each in rows.fields])
        self._frame = ffi.from_buffer(rows.frame)
        self._raw = ffi.new("avro_rows *")
        self._raw.fields, self._raw.count = self._fields, len(rows.fields)
        self._raw.frame = ffi.cast("uint8_t *", self._frame)
        self._held: Any = None

    def of(self, texts: Sequence[bytes]) -> Any:  # noqa: ANN401 - a pointer of cffi's
        content = b"".join(texts)
        ends = array("i", accumulate(map(len, texts), initial=0))
        self._held = content, ends
        self._raw.ends = ffi.cast("int32_t *", ffi.from_buffer(ends))
        self._raw.bytes = ffi.cast("uint8_t *", ffi.from_buffer(content))
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
