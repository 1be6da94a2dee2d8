"""Which partition each of many records lies in; `changelog.contract.partition`, in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from changelog.contract.partition import MULTIPLIER, SEED

_M = np.uint32(MULTIPLIER)


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int64]:
    """Give the partition of each key among `partitions`, as `partition_of` does of one."""
    found = np.empty(len(keys), dtype=np.int64)
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        raw = b"".join([keys[place] for place in places.tolist()])
        rows = np.frombuffer(raw, dtype=np.uint8).reshape(len(places), int(length))
        found[places] = (_murmur2(rows) & np.uint32(0x7FFFFFFF)) % partitions
    return found


def _murmur2(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Hash rows of bytes, all of one length; numbers of 32 bits wrap as Java's do."""
    count, length = rows.shape
    whole = length & ~3
    value = np.full(count, SEED ^ length, dtype=np.uint32)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    for column in range(whole // 4):
        word = words[:, column] * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        value = (value * _M) ^ word
    if whole < length:
        tail = np.zeros((count, 4), dtype=np.uint8)
        tail[:, : length - whole] = rows[:, whole:]
        value = (value ^ tail.view("<u4")[:, 0]) * _M
    value = (value ^ (value >> np.uint32(13))) * _M
    return value ^ (value >> np.uint32(15))
