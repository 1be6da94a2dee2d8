"""One column of a batch: where each field's text lies in a shared buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one column, n rows; starts never go back and fields do not overlap.

    Attributes:
        buffer: holds the text of all of them.
        start: first byte of each field; for a null the place where it would be.
        size: bytes of each field; 0 for a null.
        null: which are null.
    """

    buffer: Bytes
    start: Places
    size: Places
    null: Mask

    def __len__(self) -> int:
        return len(self.start)

    def texts(self) -> list[bytes | None]:
        """Give the fields as Python values."""
        raw = self.buffer.data
        ends = self.start + self.size
        return [
            None if null else bytes(raw[start:end])
            for start, end, null in zip(
                self.start.tolist(), ends.tolist(), self.null.tolist(), strict=True
            )
        ]

    def text(self, row: int) -> bytes:
        """Give one field that is not null."""
        start = int(self.start[row])
        return bytes(self.buffer.data[start : start + int(self.size[row])])

    def chosen(self, rows: Mask) -> Fields:
        """Give the fields of some rows."""
        return Fields(self.buffer, self.start[rows], self.size[rows], self.null[rows])

    def without(self, rows: Mask) -> Fields:
        """Give the fields with some more nulls."""
        if not rows.any():
            return self
        return Fields(self.buffer, self.start, self.size, self.null | rows)

    def byte_at(self, place: int) -> Bytes:
        """Give one byte of each field, counted from its start, or from its end when negative.

        What a field is too short for is some byte of another: look at `size` as well.
        """
        at = self.start + (place if place >= 0 else self.size + place)
        return self.buffer.take(at, mode="clip")

    def strings(self, cut: int = 0) -> pa.StringArray:
        """Give the fields as Arrow's strings, without their last `cut` bytes; nulls stay null.

        Raises:
            ValueError: the buffer is larger than Arrow's 32-bit places.
        """
        if self.buffer.size > MOST_BYTES:
            raise ValueError("a batch of rows holds more than 2 GiB")
        spans = np.empty((len(self), 2), dtype=np.int32)
        spans[:, 0] = self.start
        spans[:, 1] = self.start + np.maximum(self.size - cut, 0)
        gaps = pa.Array.from_buffers(
            pa.string(),
            2 * len(self) - 1,
            [None, pa.py_buffer(spans), pa.py_buffer(self.buffer)],
        )
        return gaps.take(self._numbers())

    def _numbers(self) -> pa.Int32Array:
        # Not `pa.array(…, mask=…)`, which imports pandas: half a second for its first caller.
        numbers = np.arange(0, 2 * len(self), 2, dtype=np.int32)
        valid = np.packbits(~self.null, bitorder="little") if self.null.any() else None
        return pa.Array.from_buffers(
            pa.int32(),
            len(self),
            [None if valid is None else pa.py_buffer(valid), pa.py_buffer(numbers)],
        )
