"""Rows in Avro to columns: `decode.c`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from changelog.native.base.row_fields import FieldKind, RowColumn, RowField
from changelog.native.compiled.library import ffi, lib

_ARROW = {
    FieldKind.BOOLEAN: pa.uint8(),
    FieldKind.INT: pa.int32(),
    FieldKind.LONG: pa.int64(),
    FieldKind.FLOAT: pa.float32(),
    FieldKind.DOUBLE: pa.float64(),
    FieldKind.DECIMAL: pa.binary(16),
    FieldKind.STRING: pa.string(),
    FieldKind.BYTES: pa.binary(),
}
_WITH_ENDS = {FieldKind.STRING, FieldKind.BYTES}


class RowDecoder:
    """Decodes rows of one writer's schema."""

    def __init__(self, frame: bytes, fields: Sequence[RowField]) -> None:
        """Take the frame of 5 bytes that each row begins with, and its fields."""
        self._frame, self._fields = frame, tuple(fields)
        self._raw = ffi.new(
            "decode_field[]",
            [
                (
                    field.kind,
                    0 if field.element is None else field.element,
                    bool(field.branches),
                    field.branches.index("value") if field.branches else 0,
                    *(field.branches.index(n) if n in field.branches else -1 for n in _OTHERS),
                )
                for field in self._fields
            ],
        )

    def decode(self, rows: pa.BinaryArray) -> list[RowColumn] | None:
        """Return the columns of rows, or None if a row is not exactly as the fields declare."""
        if not len(rows) or rows.null_count:
            return None
        _, ends, body = rows.buffers()
        count = len(self._fields)
        memory = ffi.new("decoded[]", count)
        # A pointer: of an array with an owner of its own cffi does not know the length.
        decoded = ffi.gc(ffi.cast("decoded *", memory), lambda _: _free(memory, count))
        done = lib.decode_rows(
            self._raw,
            count,
            ffi.from_buffer(self._frame),
            ffi.cast("uint8_t *", body.address),
            ffi.cast("int32_t *", ends.address) + rows.offset,
            len(rows),
            decoded,
        )
        if done != len(rows):
            return None
        return [_column(decoded, n, field) for n, field in enumerate(self._fields)]


_OTHERS = ("null", "text")


def _free(of: Any, count: int) -> None:  # noqa: ANN401 - a pointer of cffi's
    for number in range(count):
        lib.decoded_free(of + number)


def _column(decoded: Any, number: int, field: RowField) -> RowColumn:  # noqa: ANN401
    of = decoded[number]
    texts = _array(decoded, of.text, FieldKind.STRING) if "text" in field.branches else None
    if field.element is None:
        return RowColumn(_array(decoded, of.own, field.kind), texts)
    items = _array(decoded, of.items, field.element)
    rows = int(of.own.count)
    buffers = [
        _buffer(decoded, of.own.is_there, rows // 8 + 1),
        _buffer(decoded, of.own.ends, 4 * rows + 4),
    ]
    lists = pa.Array.from_buffers(pa.list_(items.type), rows, buffers, children=[items])
    return RowColumn(lists, texts)


def _array(owner: Any, of: Any, kind: FieldKind) -> pa.Array:  # noqa: ANN401
    count = int(of.count)
    if not count:
        return pa.array([], _ARROW[kind])
    buffers = [_buffer(owner, of.is_there, count // 8 + 1)]
    if kind in _WITH_ENDS:
        buffers.append(_buffer(owner, of.ends, 4 * count + 4))
    buffers.append(_buffer(owner, of.data, int(of.size)))
    return pa.Array.from_buffers(_ARROW[kind], count, buffers)


def _buffer(owner: Any, pointer: Any, size: int) -> pa.Buffer:  # noqa: ANN401
    if not size:
        return pa.py_buffer(b"")
    return pa.foreign_buffer(int(ffi.cast("uintptr_t", pointer)), size, owner)
