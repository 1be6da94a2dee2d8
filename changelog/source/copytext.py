"""The text format of COPY, row by row. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from changelog.contract.relation import Field

OnRows = Callable[[list[tuple[Field, ...]]], None]
"""Takes the next rows; it may block, and what it raises ends the COPY."""

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
    """What psycopg2 writes a COPY to: hands on rows in batches and keeps no more than one.

    psycopg2 writes each message of the server as it comes, which today is a row; rows that
    are split or joined are put right all the same.
    """

    def __init__(self, on_rows: OnRows, batch_rows: int) -> None:
        self.rows = 0
        self._on_rows = on_rows
        self._batch_rows = batch_rows
        self._batch: list[tuple[Field, ...]] = []
        self._tail = b""

    def write(self, received: bytes) -> int:
        """Take what has come."""
        size = len(received)
        if self._tail or received.find(b"\n") != size - 1:
            *lines, self._tail = (self._tail + received).split(b"\n")
            self._batch += map(parse_row, lines)
        else:
            self._batch.append(parse_row(received[:-1]))
        if len(self._batch) >= self._batch_rows:
            self._hand_on()
        return size

    def finish(self) -> None:
        """Hand on the last batch."""
        if self._batch:
            self._hand_on()

    def _hand_on(self) -> None:
        batch, self._batch = self._batch, []
        self.rows += len(batch)
        self._on_rows(batch)
