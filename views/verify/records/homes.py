"""Check whether each key is in the partition that its hash names, and so in no other (pure).

Kafka's murmur2 over a column of keys at once, by code of the verifier's own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_WORD = 4
_SIGN = np.uint32(0x7FFFFFFF)


def homes_of(keys: pa.BinaryArray, partitions: int) -> np.ndarray:
    """Return the partition of each key; no key may be null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    raw = keys.buffers()[2]
    data = np.frombuffer(raw if raw is not None else b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hashes(sliding_window_view(data, length)[offsets[rows]], len(rows))
    return (hashes & _SIGN) % np.uint32(partitions)


def _hashes(keys: np.ndarray, count: int) -> np.ndarray:
    """Hash keys of one length, a row of bytes each."""
    length = keys.shape[1]
    whole = length - length % _WORD
    hashes = np.full(count, _SEED ^ np.uint32(length))
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        mixed = word * _MULTIPLIER
        mixed ^= mixed >> np.uint32(24)
        hashes = (hashes * _MULTIPLIER) ^ (mixed * _MULTIPLIER)
    if whole < length:
        for place in range(length - whole):
            hashes ^= keys[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
        hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    return hashes ^ (hashes >> np.uint32(15))


def first_astray(table: pa.Table, partitions: int) -> tuple[int, int] | None:
    """Return partition and offset of a record whose key belongs to another partition, if any.

    Args:
        table: records with the columns `part`, `off` and `key`.
        partitions: of the topic.
    """
    parts, offsets = table["part"].to_numpy(), table["off"].to_numpy()
    done = 0
    for chunk in table["key"].chunks:
        there = slice(done, done + len(chunk))
        rows = np.flatnonzero(homes_of(chunk, partitions) != parts[there])
        if len(rows):
            return int(parts[there][rows[0]]), int(offsets[there][rows[0]])
        done += len(chunk)
    return None
