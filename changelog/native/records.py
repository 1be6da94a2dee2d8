"""Records, rows of the stream and results of reading, the same in C and in Python."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

NO_MEMORY = "a batch of rows does not fit the memory"

ROW_OPS = b"cudr"
"""Letters of the operations that are counted: created, updated, deleted, read."""

PLAIN_LETTERS = frozenset(b"IUDBC")
"""Letters of the messages that are read in bulk: rows, begins and commits."""

PARTITION_UA = -1
"""librdkafka's own mark for "let the partitioner choose"."""


TextColumn = tuple[memoryview, memoryview]
"""A column of byte strings: the starts of all and the end of the last, in 32 bits; all bytes."""


class Record(NamedTuple):
    """A record to produce."""

    key: bytes | None  # framed, or None for a table without one
    value: bytes | None  # framed; None is a tombstone
    lsn: int  # of the commit
    sequence: int  # its place in the transaction
    ts_us: int  # of the commit, microseconds since 1970
    op: bytes  # the letter of its header


class Read(IntEnum):
    """The way in which a read ended; the numbers are the library's."""

    ALL = 0
    ENDED = 1
    FAILED = 2
    LOST = 3
    ODD = 4
    NO_MEMORY = 5


POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has begun; times in microseconds since 1970."""

    commit_lsn: int
    ts_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class RelationSpan:
    """A relation with rows in a run: the numbers of its first and its last row."""

    oid: int
    first: int
    last: int


class Row(NamedTuple):
    """A row of the stream."""

    message: int  # the number of its message
    next: int  # the number of the next row of its relation, or -1
    lsn: int  # of the commit
    sequence: int  # its place in the transaction
    ts_us: int  # of the commit, microseconds since 1970
    xid: int  # of the transaction


class Mask(Enum):
    """The replacement for a value; the numbers are the library's."""

    NONE = 0
    HASH = 1
    CONSTANT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of a row to write, when some are dropped or masked."""

    width: int  # the number of columns of the row
    places: tuple[int, ...]  # the columns to write, in their order
    masks: tuple[Mask, ...]  # of each of these
    hash_key: bytes = b""  # of the hashes, HMAC-SHA-256 in hexadecimal
    constant: bytes = b""  # the replacement for values with the mask CONSTANT


class Strange(Enum):
    """The fault in a record, or the place of its key."""

    KEY = "key"
    POSITION = "position"
    STRAY = "stray"


class StrangePlaceError(Exception):
    """A record that cannot be folded, or is in the wrong partition.

    Attributes:
        offset: of the record.
        what: its fault.
        home: the partition that a stray key belongs to.
    """

    def __init__(self, offset: int, fault: Strange, home: int) -> None:
        super().__init__(offset, fault, home)
        self.offset, self.what, self.home = offset, fault, home


class FoldRecord(NamedTuple):
    """A record of a range."""

    key: bytes | None  # None where it has none
    value: bytes | None  # None for a tombstone
    position: bytes | None  # the header; None where it has none
    offset: int  # in the partition


class FoldColumns(NamedTuple):
    """Last records of some keys, by column."""

    keys: pa.BinaryArray  # null for a record that has none
    positions: pa.BinaryArray  # in bytes
    offsets: pa.Int64Array  # in their partition
    values: pa.BinaryArray  # null for a tombstone
    faults: list[Strange | None] | None  # the fault of each; None if no record has one


class News(NamedTuple):
    """The result of one read of a range."""

    added: int  # number of records added to the fold
    is_over: bool = False  # whether a record at or behind the end has come
    # the partition's end, if the broker has reported it
    ends_at: int | None = None
    error: int = 0  # the client's code; 0 for none
    message: str = ""  # the client's text
    is_fatal: bool = False  # whether the client cannot go on
