"""Takes out most superseded records before Spark's fold, which sorts what it is given.

A task holds what it has read, in Arrow's columns, and from time to time keeps each key's newest
record alone. A record goes only when a newer one of its key stays, so that the fold behind it
gives the same whatever was taken out here, how often and how much. What is held is bounded: a
task that could hold no more gives away what it has and begins anew, and one that finds little to
take out lets the rest pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import cloudpickle
from pyspark.sql import DataFrame

COLUMNS = ("key", "value", "partition", "offset", "position")
_DDL = "key binary, value binary, partition int, offset bigint, position binary"
_POSITION = np.dtype([("epoch", ">u4"), ("lsn", ">u8"), ("sequence", ">u8")])

FIRST_BYTES = 32 << 20
"""A task looks for superseded records when it holds so much for the first time."""

GROWTH = 3
"""After that it looks whenever it holds so many times what was left."""

LEAST_GAIN = 0.2
"""A task that cannot take out such a part of what it holds, full as it is, gives up."""


def thin(
    batches: Iterable[pa.RecordBatch], *, most_bytes: int, first_bytes: int = FIRST_BYTES
) -> Iterator[pa.RecordBatch]:
    """Give what one task reads with fewer records; their order does not matter.

    Args:
        batches: with `COLUMNS`; the position of each record has its 20 bytes.
        most_bytes: that the task holds, in Arrow's buffers.
        first_bytes: at which it looks first.
    """
    held: list[pa.RecordBatch] = []
    held_bytes, limit = 0, min(first_bytes, most_bytes)
    source = iter(batches)
    for batch in source:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes < limit:
            continue
        before, held = held_bytes, newest(held)
        held_bytes = sum(each.nbytes for each in held)
        limit = min(most_bytes, max(first_bytes, GROWTH * held_bytes))
        if GROWTH * held_bytes > 2 * most_bytes:
            is_vain = held_bytes > (1 - LEAST_GAIN) * before
            yield from held
            held, held_bytes = [], 0
            if is_vain:
                break
    yield from newest(held)
    yield from source


def thinned(records: DataFrame, *, most_bytes: int) -> DataFrame:
    """Give the records of a topic without most of the superseded ones."""

    def of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return thin(batches, most_bytes=most_bytes)

    # Executors need pyarrow, but not this package: what they run travels to them.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    return records.select(*COLUMNS).mapInArrow(of_task, _DDL)


def newest(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Keep the record of each key that is last by position, then by offset and partition."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return []
    keys = pa.chunked_array([batch.column("key") for batch in filled]).combine_chunks()
    codes = keys.dictionary_encode()
    number = np.frombuffer(codes.indices.buffers()[1], dtype=np.int32)[: len(keys)]
    last = np.empty(len(codes.dictionary), dtype=np.int64)
    order = _order(filled)
    # Of several assignments to one place the last one stays.
    if order is None:
        last[number] = np.arange(len(keys))
    else:
        last[number[order]] = order
    kept = np.zeros(len(keys), dtype=bool)
    kept[last] = True
    made, start = [], 0
    for batch in filled:
        mask = kept[start : start + batch.num_rows]
        made.append(batch if mask.all() else batch.filter(pa.array(mask)))
        start += batch.num_rows
    return made


def _order(batches: list[pa.RecordBatch]) -> NDArray[np.int64] | None:
    """Give the order of the records; None when they stand in it, as they mostly do."""
    positions = np.concatenate([_positions(batch.column("position")) for batch in batches])
    offsets = np.concatenate([batch.column("offset").to_numpy() for batch in batches])
    parts = [positions["epoch"], positions["lsn"], positions["sequence"], offsets]
    behind = np.zeros(max(0, len(offsets) - 1), dtype=bool)
    equal = np.ones_like(behind)
    for part in (each.astype(np.uint64) for each in parts):
        behind |= equal & (part[1:] < part[:-1])
        equal &= part[1:] == part[:-1]
    if not (behind | equal).any():
        return None
    partitions = np.concatenate([batch.column("partition").to_numpy() for batch in batches])
    return np.lexsort((partitions, *reversed(parts)))


def _positions(column: pa.BinaryArray) -> NDArray[np.void]:
    """Read positions, which the reader has checked: each has its 20 bytes."""
    _, places, data = column.buffers()
    start = np.frombuffer(places, dtype=np.int32)[column.offset]
    size = _POSITION.itemsize * len(column)
    return np.frombuffer(data, dtype=np.uint8)[start : start + size].view(_POSITION)
