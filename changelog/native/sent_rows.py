"""Hashes of the rows of Arrow's batches as PostgreSQL computes them: `sentrows.c`.

There is no way without C: who compares rows takes another digest then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from changelog.native.compiled.library import ffi, lib

if TYPE_CHECKING:
    import pyarrow as pa


class SentLayout(Enum):
    """The layout of a column in Arrow, and the OID of the type that PostgreSQL sends."""

    INT64 = (lib.SENT_INT64, 20)
    FLOAT4 = (lib.SENT_FLOAT4, 700)
    FLOAT8 = (lib.SENT_FLOAT8, 701)
    BOOL = (lib.SENT_BOOL, 16)  # bytes of 0 and 1
    DATE = (lib.SENT_DATE, 1082)
    TIMESTAMP = (lib.SENT_TIMESTAMP, 1114)
    NUMERIC = (lib.SENT_NUMERIC, 1700)
    TEXT = (lib.SENT_BYTES, 25)
    BYTEA = (lib.SENT_BYTES, 17)


class SentColumn(NamedTuple):
    """A column: its layout, and the scale of a decimal."""

    layout: SentLayout
    scale: int = 0


class SentRows:
    """Hashes rows of some columns."""

    def __init__(self, columns: Sequence[SentColumn]) -> None:
        self._columns = ffi.new("sent_column[]", len(columns))
        for raw, (layout, scale) in zip(self._columns, columns, strict=True):
            raw.kind, raw.oid = layout.value
            raw.scale = scale

    def hashes(self, arrays: Sequence[pa.Array]) -> Any:  # noqa: ANN401 - an array of cffi's
        """Return the hash of each row: 64 bits without a sign."""
        rows = len(arrays[0])
        for raw, array in zip(self._columns, arrays, strict=True):
            is_there, *others = array.buffers()
            raw.offset = array.offset
            raw.is_there = _pointer("uint8_t *", is_there)
            raw.data = _pointer("uint8_t *", others[-1])
            raw.ends = _pointer("int32_t *", others[0])
        hashes = ffi.new("uint64_t[]", rows)
        if not lib.sent_hashes(self._columns, len(self._columns), rows, hashes):
            raise MemoryError
        return hashes


class BucketSums:
    """Counts the rows of each bucket, and adds up their hashes modulo 2^64."""

    def __init__(self, most: int) -> None:
        """Start with no rows; buckets are numbers from -most to most."""
        self._most = most
        self._counts = ffi.new("int64_t[]", 2 * most + 1)
        self._totals = ffi.new("uint64_t[]", 2 * most + 1)

    def add(self, buckets: pa.Array, hashes: Any) -> None:  # noqa: ANN401 - an array of cffi's
        """Add rows: the bucket of each, without nulls, and its hash."""
        values = _pointer("int64_t *", buckets.buffers()[1]) + buckets.offset
        lib.sent_sums(values, hashes, len(buckets), self._most, self._counts, self._totals)

    def items(self) -> Iterator[tuple[int, int, int]]:
        """Yield bucket, rows and total of each bucket that has rows."""
        for place, count in enumerate(self._counts):
            if count:
                yield place - self._most, count, self._totals[place]


def _pointer(kind: str, buffer: pa.Buffer | None) -> Any:  # noqa: ANN401 - of cffi's
    return ffi.NULL if buffer is None else ffi.cast(kind, buffer.address)
