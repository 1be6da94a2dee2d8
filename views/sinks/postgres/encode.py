"""Encodes Arrow's batches in PostgreSQL's binary COPY format, a column at a time.

A tuple is the number of its fields and then each field: four bytes with its length, or -1 for
null, and its bytes, all big-endian. Numpy computes an array of such fields for each column, and
Arrow joins the columns row by row: the buffer of the result is the stream.

| Arrow | PostgreSQL |
|---|---|
| decimal128(p, s) | numeric: all digits in groups of four; the server removes leading zeros |
| date32 | date, days since 2000; the ends of the range are `infinity` and `-infinity` |
| timestamp[us] | timestamp and timestamptz, microseconds since 2000, the same |
| list of one of these | an array of one dimension |
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER = struct.pack(">h", -1)

_BINARY = pa.binary()
_NULL = pa.scalar(struct.pack(">i", -1), _BINARY)
_EMPTY = pa.scalar(b"", _BINARY)
_EPOCH_DAYS = 10_957
_EPOCH_MICROS = 946_684_800_000_000
_DATE_ENDS = (-(2**31), 2**31 - 1)
_MOMENT_ENDS = (-(2**63), 2**63 - 1)
_FIRST_DAY, _LAST_DAY = -2_451_545, 2_145_031_948
"""The range of PostgreSQL's dates, in days since 2000."""
_FIRST_MOMENT = -211_813_488_000_000_000
"""PostgreSQL's first timestamp in microseconds since 2000; its last is after all of Spark's."""
_GROUP = 4
"""Digits of a group of a numeric."""
_WORD_DIGITS = 18
"""Most digits of decimals that are computed as integers of 64 bits."""

Column = Callable[[pa.Array], pa.Array]
"""Encodes a column as fields, binary and without nulls; raises ValueError."""


class RangeError(ValueError):
    """A date or timestamp is out of PostgreSQL's range; `place` is its index in the array."""

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.place = place


def rows(columns: list[pa.Array]) -> memoryview:
    """Return the bytes of tuples from the fields of their columns, at least one."""
    head = pa.scalar(struct.pack(">h", len(columns)), _BINARY)
    joined = pc.binary_join_element_wise(head, *columns, _EMPTY)
    _, offsets, content = joined.buffers()
    ends = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]


def boolean(array: pa.Array) -> pa.Array:
    """Return the fields of booleans."""
    return _fixed(array, _numbers(array, False).astype(np.uint8), "u1")


def integer(size: int) -> Column:
    """Return the encoder of integers of this size in bytes."""
    return lambda array: _fixed(array, _numbers(array, 0), f">i{size}")


def real(size: int) -> Column:
    """Return the encoder of floats of this size in bytes, which keeps every bit."""
    return lambda array: _fixed(array, _numbers(array, 0.0), f">f{size}")


def date(array: pa.Array) -> pa.Array:
    """Return the fields of dates."""
    since = _numbers(array.view(pa.int32()), 0).astype(np.int64)
    low, high = _DATE_ENDS
    end = (since == low) | (since == high)
    moved = np.where(end, since, since - _EPOCH_DAYS)
    _check_range(array, ~end & ((moved < _FIRST_DAY) | (moved > _LAST_DAY)), "date", 5_874_897)
    return _fixed(array, moved, ">i4")


def moment(array: pa.Array) -> pa.Array:
    """Return the fields of timestamps with and without a zone."""
    since = _numbers(array.view(pa.int64()), 0)
    low, high = _MOMENT_ENDS
    end = (since == low) | (since == high)
    _check_range(array, ~end & (since < _FIRST_MOMENT + _EPOCH_MICROS), "timestamp", 294_276)
    return _fixed(array, np.where(end, since, since - np.where(end, 0, _EPOCH_MICROS)), ">i8")


def _check_range(array: pa.Array, outside: np.ndarray[Any, Any], kind: str, last_year: int) -> None:
    """Refuse a date or timestamp that PostgreSQL would refuse later without naming its column."""
    if not outside.any():
        return
    place = int(outside.argmax())
    number = array.view(pa.int32() if kind == "date" else pa.int64())[place].as_py()
    day = np.datetime64(number, "D") if kind == "date" else np.datetime64(number, "us")
    year = int(day.astype("datetime64[Y]").astype(np.int64)) + 1970
    shown = f"{1 - year} BC" if year < 1 else str(year)
    raise RangeError(
        f"a {kind} of the year {shown}, where PostgreSQL has the years from 4714 BC to {last_year}",
        place,
    )


def text(array: pa.Array) -> pa.Array:
    """Return the fields of texts."""
    content = array.cast(_BINARY)
    if pc.any(pc.match_substring(content, "\0")).as_py():
        raise ValueError("a text with a NUL character (U+0000), which PostgreSQL cannot hold")
    return _sized(content)


def bytea(array: pa.Array) -> pa.Array:
    """Return the fields of byte strings."""
    return _sized(array.cast(_BINARY))


def jsonb(array: pa.Array) -> pa.Array:
    """Return the fields of JSON documents, which are texts."""
    return _sized(array.cast(_BINARY), b"\1")


def numeric(precision: int, scale: int) -> Column:
    """Return the encoder of decimals of this precision and scale."""
    whole = -(-(precision - scale) // _GROUP)
    fraction = -(-scale // _GROUP)
    pad = fraction * _GROUP - scale
    # The fraction must fit too after it is filled up to whole groups.
    quick = precision <= _WORD_DIGITS and scale + pad <= _WORD_DIGITS
    groups = whole + fraction
    form = [("groups", ">i2"), ("weight", ">i2"), ("sign", ">u2"), ("scale", ">i2")]
    kind = np.dtype([*form, *((f"d{n}", ">i2") for n in range(groups))])

    def write(array: pa.Array) -> pa.Array:
        unscaled = _unscaled(array, quick=quick)
        size = np.abs(unscaled)
        out = np.empty(len(array), kind)
        out["groups"], out["weight"], out["scale"] = groups, whole - 1, scale
        out["sign"] = np.where((unscaled < 0).astype(bool), 0x4000, 0)
        above, below = size // 10**scale, size % 10**scale * 10**pad
        for number in range(whole):
            out[f"d{number}"] = above // 10_000 ** (whole - 1 - number) % 10_000
        for number in range(fraction):
            out[f"d{whole + number}"] = below // 10_000 ** (fraction - 1 - number) % 10_000
        return _fixed(array, out, kind)

    return write


def listed(oid: int, element: Column) -> Column:
    """Return the encoder of arrays whose elements have the type `oid`."""
    empty = pa.scalar(struct.pack(">iii", 0, 0, oid), _BINARY)
    head = np.dtype([(name, ">i4") for name in ("dims", "nulls", "oid", "n", "lb")])

    def write(array: pa.Array) -> pa.Array:
        lists = array.cast(pa.list_(array.type.value_type))
        lengths = _numbers(pc.list_value_length(lists), 0)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        try:
            elements = element(_whole(lists.flatten()))
        except RangeError as error:
            row = int(np.searchsorted(np.cumsum(lengths), error.place, side="right"))
            raise RangeError(str(error), row) from None
        fields = pa.ListArray.from_arrays(offsets, elements)
        values = np.empty(len(lists), head)
        values["dims"], values["nulls"], values["oid"], values["lb"] = 1, 1, oid, 1
        values["n"] = lengths
        heads = pc.if_else(pa.array(lengths == 0), empty, _bytes(values))
        content = pc.binary_join_element_wise(heads, pc.binary_join(fields, _EMPTY), _EMPTY)
        return _sized(pc.if_else(lists.is_valid(), content, pa.scalar(None, _BINARY)))

    return write


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _numbers(array: pa.Array, null: object) -> np.ndarray[Any, Any]:
    """Return the values of an array as numpy's, with a replacement for null."""
    filled = array.fill_null(null) if array.null_count else array
    numbers: np.ndarray[Any, Any] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _unscaled(array: pa.Array, *, quick: bool) -> np.ndarray[Any, Any]:
    """Return the digits of decimals as integers: of 64 bits if `quick`, or Python's."""
    filled = array.fill_null(Decimal(0)) if array.null_count else array
    content = filled.buffers()[1]
    if quick:
        words = np.frombuffer(content, "<i8").reshape(-1, 2)
        return words[filled.offset : filled.offset + len(filled), 0]
    raw, begin = content.to_pybytes(), filled.offset
    digits = [
        int.from_bytes(raw[16 * n : 16 * n + 16], "little", signed=True)
        for n in range(begin, begin + len(filled))
    ]
    return np.array(digits, dtype=object)


def _bytes(values: np.ndarray[Any, Any]) -> pa.Array:
    """Return the bytes of numpy's numbers or records."""
    ends = np.arange(len(values) + 1, dtype=np.int32) * values.dtype.itemsize
    raw = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(_BINARY, len(values), raw)


def _fixed(array: pa.Array, values: np.ndarray[Any, Any], kind: Any) -> pa.Array:  # noqa: ANN401
    """Return fields of a fixed length, with nulls where `array` has them."""
    form = np.dtype([("size", ">i4"), ("value", kind)])
    fields = np.empty(len(values), form)
    fields["size"], fields["value"] = form.itemsize - 4, values
    encoded = _bytes(fields)
    return pc.if_else(array.is_valid(), encoded, _NULL) if array.null_count else encoded


def _sized(content: pa.Array, before: bytes = b"") -> pa.Array:
    """Return byte strings as fields, each after the bytes `before`; nulls stay null."""
    lengths = _numbers(pc.binary_length(content), 0).astype(np.int64) + len(before)
    if content.null_count:
        lengths = np.where(_numbers(content.is_valid(), False), lengths, -1)
    heads = _bytes(lengths.astype(">i4"))
    parts = [heads, pa.scalar(before, _BINARY), content] if before else [heads, content]
    if before and content.null_count:
        marks = pc.if_else(content.is_valid(), pa.scalar(before, _BINARY), _EMPTY)
        parts = [heads, marks, content]
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement="")
