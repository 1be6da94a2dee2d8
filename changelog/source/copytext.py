"""The text format of COPY, row by row. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from changelog.contract.relation import Field

BATCH_BYTES = 8 << 20
"""Rows can be large: a batch ends here too."""

OnLines = Callable[[list[bytes]], None]
"""Takes the next rows, each a line without its line feed; what it raises ends the COPY."""

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NULL = b"\\N"


def parse_row(line: bytes) -> tuple[Field, ...]:
    """Split a line without its line feed into values."""
    fields = line.split(b"\t")
    if b"\\" not in line:
        return tuple(fields)
    return tuple([None if f == _NULL else _unescape(f) if b"\\" in f else f for f in fields])


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[1]), field)


class CopyTarget:
    """What psycopg2 writes a COPY to: hands on lines in batches and keeps no more than one.

    psycopg2 writes each message of the server as it comes, which today is a row; rows that
    are split or joined are put right all the same.
    """

    def __init__(self, on_lines: OnLines, batch_rows: int, batch_bytes: int = BATCH_BYTES) -> None:
        self.rows = 0
        self._batch_bytes = batch_bytes
        self._on_lines = on_lines
        self._batch_rows = batch_rows
        self._batch: list[bytes] = []
        self._bytes = 0
        self._tail = b""

    def write(self, received: bytes) -> int:
        """Take what has come."""
        size = len(received)
        if self._tail or received.find(b"\n") != size - 1:
            *lines, self._tail = (self._tail + received).split(b"\n")
            self._batch += lines
        else:
            self._batch.append(received[:-1])
        self._bytes += size
        if len(self._batch) >= self._batch_rows or self._bytes >= self._batch_bytes:
            self._hand_on()
        return size

    def finish(self) -> None:
        """Hand on the last batch."""
        self._hand_on()

    def _hand_on(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._bytes = self._batch, [], 0
        self.rows += len(batch)
        self._on_lines(batch)
