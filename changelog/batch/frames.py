"""A batch of pgoutput messages as arrays: what kind each is, and where the fields of rows lie.

The same protocol as `changelog.source.pgoutput`, without an object for each message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from changelog.batch.fields import Bytes, Fields, Mask, Places
from changelog.contract.errors import ProtocolError

_PADDING = bytes(16)  # a length may be looked up where there is none
_TEXT, _NULL, _TOAST = ord("t"), ord("n"), ord("u")
INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")
BEGIN, COMMIT = ord("B"), ord("C")
NEW, OLD, KEY = ord("N"), ord("O"), ord("K")
_OID_AT, _TUPLE_KIND_AT, _TUPLE_AT = 1, 5, 6


class Frames:
    """A batch of messages.

    Attributes:
        buffer: all of them, one behind the other.
        start: where each begins.
        end: where each ends.
        kind: the letter of each.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        size = np.fromiter(map(len, payloads), dtype=np.int64, count=len(payloads))
        self.end: Places = np.cumsum(size)
        self.start: Places = self.end - size
        self.buffer: Bytes = np.frombuffer(b"".join(payloads) + _PADDING, dtype=np.uint8)
        self.kind: Bytes = self.buffer[self.start]

    def u16(self, at: Places) -> Places:
        """Read big-endian numbers of 2 bytes."""
        return self._numbers(at, ">u2")

    def u32(self, at: Places) -> Places:
        """Read big-endian numbers of 4 bytes."""
        return self._numbers(at, ">u4")

    def u64(self, at: Places) -> Places:
        """Read big-endian numbers of 8 bytes that are less than 2**63."""
        return self._numbers(at, ">u8")

    def _numbers(self, at: Places, layout: str) -> Places:
        kind = np.dtype(layout)
        count = len(self.buffer) - kind.itemsize + 1
        every: NDArray[np.generic] = np.ndarray(
            shape=(count,), dtype=kind, buffer=self.buffer, strides=(1,)
        )
        return every[at].astype(np.int64)

    def oids(self, rows: Places) -> Places:
        """Give the relation of row messages."""
        return self.u32(self.start[rows] + _OID_AT)

    def tuple_kinds(self, rows: Places) -> Bytes:
        """Give the letter before the first tuple of row messages."""
        return self.buffer.take(self.start[rows] + _TUPLE_KIND_AT, mode="clip")

    def tuples(self, rows: Places, width: int) -> tuple[list[Fields], Places, Mask]:
        """Read the first tuple of some row messages.

        Returns:
            The fields of each column, where each tuple ends, and which rows hold a TOAST value
            that the stream left out (its field is given as a null).

        Raises:
            ProtocolError: a tuple has another number of columns, an unknown kind of value, or
                is cut off.
        """
        place = self.start[rows] + _TUPLE_AT
        limit = self.end[rows]
        if (place + 2 > limit).any() or (self.u16(place) != width).any():
            raise ProtocolError(f"a row has other than {width} values, or is cut off")
        place = place + 2
        columns = []
        toasted = np.zeros(len(rows), dtype=bool)
        for _ in range(width):
            if (place >= limit).any():
                raise ProtocolError("a row is cut off")
            kind = self.buffer[place]
            text = kind == _TEXT
            left_out = kind == _TOAST
            null = (kind == _NULL) | left_out
            if not (text | null).all():
                raise ProtocolError("a row has a value of an unknown kind")
            toasted |= left_out
            size = np.where(text, self.u32(place + 1), 0)
            start = place + np.where(text, 5, 1)
            place = start + size
            if (place > limit).any():
                raise ProtocolError("a column value is cut off")
            columns.append(Fields(self.buffer, start, size, null))
        return columns, place, toasted
