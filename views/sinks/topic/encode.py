"""Encodes Arrow's columns as Avro, a column at a time.

Numpy computes the bytes of each column, and Arrow joins the columns row by row. A nullable value is
a union of null and the type, which begins with the number of the branch. A list or a map is one
block.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_NULL, _NOT_NULL, _END = (pa.scalar(byte, _BINARY) for byte in (b"\0", b"\2", b"\0"))
_GROUP, _GROUPS = 7, 10
"""Bits of a byte of a varint, and its most bytes."""
Numbers = npt.NDArray[Any]


def values(columns: Sequence[pa.Array], frame: bytes) -> pa.Array:
    """Return the bytes of rows: a frame and each column, which may have nulls."""
    return _joined(pa.scalar(frame, _BINARY), *map(_optional, columns))


def keys(columns: Sequence[pa.Array], frame: bytes) -> pa.Array:
    """Return the bytes of keys: a frame and each column, none of which has a null."""
    return _joined(pa.scalar(frame, _BINARY), *map(_body, columns))


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _optional(array: pa.Array) -> pa.Array:
    if not array.null_count:
        return _joined(_NOT_NULL, _body(array))
    return pc.if_else(array.is_valid(), _joined(_NOT_NULL, _body(array)), _NULL)


def _body(array: pa.Array) -> pa.Array:  # noqa: PLR0911 - one for each type
    """Return the bytes of each value; of a null any bytes."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return _fixed(_numbers(array, False).astype("u1"))
    if pa.types.is_integer(kind):
        return _varints(_numbers(array, 0))
    if pa.types.is_floating(kind):
        return _fixed(_numbers(array, 0.0).astype(f"<f{kind.bit_width // 8}"))
    if pa.types.is_date32(kind):
        return _varints(_numbers(array.view(pa.int32()), 0))
    if pa.types.is_timestamp(kind):
        moments = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        return _varints(_numbers(moments, 0))
    if pa.types.is_decimal(kind):
        return _decimals(array.cast(pa.decimal128(kind.precision, kind.scale)))
    if pa.types.is_map(kind):
        return _blocks(array, _entries(array))
    if pa.types.is_list(kind):
        return _blocks(array, _optional(_within(array, array.values)))
    if pa.types.is_struct(kind):
        return _joined(*map(_optional, array.flatten()))
    return _texts(array.cast(pa.string()) if _is_text(kind) else array.cast(_BINARY))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(array: pa.Array) -> pa.Array:
    raw = array.cast(_BINARY)
    return _joined(_varints(_numbers(pc.binary_length(raw), 0)), raw.fill_null(b""))


def _entries(array: pa.MapArray) -> pa.Array:
    return _joined(_texts(_within(array, array.keys)), _optional(_within(array, array.items)))


def _within(array: pa.Array, inner: pa.Array) -> pa.Array:
    """Return the inner values that belong to the rows of a list."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return inner.slice(first, last - first)


def _blocks(array: pa.Array, entries: pa.Array) -> pa.Array:
    """Return the bytes of lists: the number of encoded entries, the entries, and an end."""
    ends = array.offsets.to_numpy() - array.offsets[0].as_py()
    counts = np.diff(ends)
    if not len(entries):
        return pa.array([b"\0"] * len(array), _BINARY)
    _, offsets, content = entries.buffers()
    places = np.frombuffer(offsets, np.int32)[entries.offset :][: len(entries) + 1]
    inner = pa.Array.from_buffers(
        _BINARY, len(array), [None, pa.py_buffer(places[ends].astype(np.int32)), content]
    )
    whole = _joined(_varints(counts), inner, _END)
    return pc.if_else(pa.array(counts > 0), whole, _END)


def _decimals(array: pa.Array) -> pa.Array:
    size = ((10**array.type.precision - 1).bit_length() + 8) // 8
    filled = array.fill_null(Decimal(0)) if array.null_count else array
    raw = np.frombuffer(filled.buffers()[1], "u1").reshape(-1, 16)
    rows = raw[filled.offset : filled.offset + len(filled)]
    out = np.empty((len(filled), size + 1), "u1")
    out[:, 0] = 2 * size
    out[:, 1:] = rows[:, size - 1 :: -1] if size else rows[:, :0]
    return _cut(out.reshape(-1), np.arange(len(out) + 1, dtype=np.int64) * (size + 1))


def _numbers(array: pa.Array, null: object) -> Numbers:
    numbers: Numbers = array.fill_null(null).to_numpy(zero_copy_only=False)
    return numbers


def _fixed(numbers: Numbers) -> pa.Array:
    ends = np.arange(len(numbers) + 1, dtype=np.int64) * numbers.itemsize
    return _cut(np.ascontiguousarray(numbers).view("u1"), ends)


def _varints(numbers: Numbers) -> pa.Array:
    """Return integers as zigzag varints: groups of seven bits, the sign in the lowest bit."""
    signed = numbers.astype(np.int64)
    unsigned = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.ones(len(unsigned), np.int64)
    for group in range(1, _GROUPS):
        lengths += unsigned >= np.uint64(1 << (_GROUP * group))
    ends = np.concatenate(([0], np.cumsum(lengths)))
    out = np.empty(int(ends[-1]), "u1")
    for group in range(int(lengths.max(initial=0))):
        has = lengths > group
        bits = (unsigned[has] >> np.uint64(_GROUP * group)) & np.uint64(0x7F)
        more = np.where(lengths[has] > group + 1, np.uint64(0x80), np.uint64(0))
        out[ends[:-1][has] + group] = (bits | more).astype("u1")
    return _cut(out, ends)


def _cut(content: Numbers, ends: Numbers) -> pa.Array:
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(_BINARY, len(ends) - 1, buffers)
