"""A record as Python values."""

from __future__ import annotations

from typing import NamedTuple

NO_MEMORY = "a batch of rows does not fit the memory"

ROW_OPS = b"cudr"
"""Letters of the operations that are counted: created, updated, deleted, read."""

PLAIN_LETTERS = frozenset(b"IUDBC")
"""Of messages that may be taken in bulk: rows, and where transactions begin and end."""

PARTITION_UA = -1
"""librdkafka's own mark for "let the partitioner choose"."""


Texts = tuple[memoryview, memoryview]
"""A column of byte strings: where each begins and the last one ends, in 32 bits; all bytes."""


class Record(NamedTuple):
    """A record that is to be produced.

    Attributes:
        key: framed, or None for a table without one.
        value: framed; None is a tombstone.
        lsn: of the commit.
        sequence: its place in the transaction.
        ts_us: of the commit, microseconds since 1970.
        op: the letter of its header.
    """

    key: bytes | None
    value: bytes | None
    lsn: int
    sequence: int
    ts_us: int
    op: bytes
