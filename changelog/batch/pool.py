"""Byte strings by number, and rows put together from them in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from changelog.batch.fields import MOST_BYTES, Bytes, Fields, Places

Numbers = NDArray[np.int32]


class Pool:
    """Collects byte strings; `joined` concatenates them row by row.

    Arrow's binary array holds its strings back to back. Here every second one is what lies between
    two that are wanted, so that fields can stay where they arrived.
    """

    def __init__(self) -> None:
        self._data: list[Bytes] = []
        self._spans: list[Numbers] = []
        self._bytes = 0
        self._count = 0

    def add(self, data: Bytes, start: Places, size: Places) -> Numbers:
        """Take strings of one buffer, in the buffer's order; gives their numbers.

        Raises:
            ValueError: together they are more than Arrow's 32-bit places can tell apart.
        """
        if self._bytes + data.size > MOST_BYTES:
            raise ValueError("a batch of rows holds more than 2 GiB")
        spans = np.empty((start.size, 2), dtype=np.int32)
        spans[:, 0] = start
        spans[:, 1] = start + size
        spans += self._bytes
        numbers = np.arange(self._count, self._count + 2 * start.size, 2, dtype=np.int32)
        self._data.append(data)
        self._spans.append(spans.ravel())
        self._bytes += data.size
        self._count += 2 * start.size
        return numbers

    def add_fields(self, columns: Sequence[Fields]) -> list[Numbers]:
        """Take the fields of some columns of one buffer, in the order in which rows hold them."""
        rows, width = len(columns[0]), len(columns)
        start = np.empty((rows, width), dtype=np.int64)
        size = np.empty((rows, width), dtype=np.int64)
        for place, fields in enumerate(columns):
            start[:, place], size[:, place] = fields.start, fields.size
        numbers = self.add(columns[0].buffer, start.ravel(), size.ravel()).reshape(rows, width)
        return [numbers[:, place] for place in range(width)]

    def add_table(self, table: Bytes, size: Places) -> Numbers:
        """Take the first `size` bytes of each row of a table of bytes."""
        rows, width = table.shape
        start = np.arange(0, rows * width, width, dtype=np.int64)
        return self.add(np.ascontiguousarray(table).ravel(), start, size)

    def add_all(self, strings: list[bytes]) -> Numbers:
        """Take some byte strings."""
        size = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
        start = np.cumsum(size) - size
        return self.add(np.frombuffer(b"".join(strings), dtype=np.uint8), start, size)

    def joined(self, columns: list[Numbers], rows: int) -> list[bytes]:
        """Give each row's strings, one of each column, as one; a single number stands for all."""
        wanted = np.empty((rows, len(columns)), dtype=np.int32)
        for place, numbers in enumerate(columns):
            wanted[:, place] = numbers
        end = np.array([self._bytes], dtype=np.int32)
        spans = np.concatenate([*self._spans, end])
        data = self._data[0] if len(self._data) == 1 else np.concatenate(self._data)
        pool = pa.Array.from_buffers(
            pa.binary(), len(spans) - 1, [None, pa.py_buffer(spans), pa.py_buffer(data)]
        )
        taken = pool.take(
            pa.Array.from_buffers(pa.int32(), wanted.size, [None, pa.py_buffer(wanted)])
        )
        _, offsets, content = taken.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[:: len(columns)][: rows + 1].tolist()
        raw = content.to_pybytes()
        return [raw[start:end] for start, end in pairwise(ends)]
