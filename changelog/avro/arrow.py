"""Raw values of Avro as arrays of Arrow, in the types that Spark decodes them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from changelog.contract.rows.types import ColumnType, Kind

_BYTES = 16
_NO_DECIMAL = bytes(_BYTES)
_PLAIN = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.UUID: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
_STORED = {
    Kind.DATE: pa.int32(),
    Kind.TIMESTAMP: pa.int64(),
    Kind.TIMESTAMPTZ: pa.int64(),
}
"""What is on the log where that is another type."""


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the type of a column's values, as Spark names it."""
    if kind.kind is Kind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    if kind.element is not None:
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    return _PLAIN[kind.kind]


def array_maker(kind: ColumnType) -> Callable[[Sequence[Any]], pa.Array]:
    """Return the function that makes an Arrow array of a type's raw values.

    It raises TypeError on an escape, which is a text: the value has no place in the type.
    """
    if kind.kind is Kind.DECIMAL:
        return lambda values: _decimals(kind, values)
    if kind.element is not None:
        return lambda values: _lists(kind, kind.element, values)  # type: ignore[arg-type]
    arrow_kind = _PLAIN[kind.kind]
    stored = _STORED.get(kind.kind)
    if stored is None:
        return lambda values: pa.array(values, arrow_kind)
    return lambda values: pa.array(values, stored).view(arrow_kind)


def _decimals(kind: ColumnType, values: Sequence[bytes | None]) -> pa.Array:
    body = b"".join([_NO_DECIMAL if value is None else _widened(value) for value in values])
    there = pa.array([value is not None for value in values], pa.bool_())
    decimal = pa.decimal128(kind.precision, kind.scale)
    return pa.Array.from_buffers(decimal, len(values), [there.buffers()[1], pa.py_buffer(body)])


def _widened(raw: bytes) -> bytes:
    if type(raw) is not bytes:
        raise TypeError("the value has no place in its type")
    return int.from_bytes(raw, "big", signed=True).to_bytes(_BYTES, "little", signed=True)


def _lists(kind: ColumnType, element: ColumnType, values: Sequence[list[Any] | None]) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        raise TypeError("the value has no place in its type")
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    flat = array_maker(element)([item for value in values for item in value or ()])
    gone = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), flat, type=arrow_type(kind), mask=gone
    )
