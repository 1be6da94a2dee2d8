"""Numbers to Avro's bytes, a column at a time; see "Binary Encoding" of its specification."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from changelog.batch.fields import Bytes, Mask, Places

_GROUP = 7  # bits of a number in each byte of its variable-length form
_MOST_GROUPS = 10
_BYTE = 8
_LONG_BYTES = 8


def tables_of_longs(values: Places) -> tuple[Bytes, Places]:
    """Give Avro's zig-zag variable-length form: a row of bytes for each value, and its length."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    size = np.ones(values.shape, dtype=np.int64)
    largest = int(zigzag.max(initial=0))
    for group in range(1, _MOST_GROUPS):
        if largest >> (_GROUP * group) == 0:
            break
        size += zigzag >> np.uint64(_GROUP * group) != 0
    width = int(size.max(initial=1))
    table = np.empty((len(values), width), dtype=np.uint8)
    for group in range(width):
        table[:, group] = (zigzag >> np.uint64(_GROUP * group)) & np.uint64(0x7F) | np.uint64(0x80)
    table[np.arange(len(values)), size - 1] &= 0x7F
    return table, size


def tables_of_decimals(values: Places) -> tuple[Bytes, Places]:
    """Give Avro's decimal: the length, then the shortest big-endian two's complement."""
    magnitude = np.where(values < 0, ~values, values)
    length = np.ones(values.shape, dtype=np.int64)
    for count in range(1, _LONG_BYTES):
        length += magnitude >> (_BYTE * count - 1) != 0
    width = int(length.max(initial=1))
    table = np.empty((len(values), 1 + width), dtype=np.uint8)
    table[:, 0] = 2 * length  # at most 8, so one byte of zig-zag
    for place in range(width):
        shift = np.maximum(length - 1 - place, 0) * _BYTE
        table[:, 1 + place] = (values >> shift) & 0xFF
    return table, 1 + length


def tables_of_fixed(values: NDArray[np.generic]) -> tuple[Bytes, Places]:
    """Give float or double: the value's bytes, lowest first."""
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    table = little.view(np.uint8).reshape(len(values), values.dtype.itemsize)
    return table, np.full(len(values), values.dtype.itemsize, dtype=np.int64)


def with_branch(table: Bytes, size: Places, branch: int, null: Mask) -> tuple[Bytes, Places]:
    """Put a union's branch before each value, and the null branch alone for a null."""
    wider = np.empty((table.shape[0], 1 + table.shape[1]), dtype=np.uint8)
    wider[:, 0] = np.where(null, 0, 2 * branch)
    wider[:, 1:] = table
    return wider, np.where(null, 1, 1 + size)
