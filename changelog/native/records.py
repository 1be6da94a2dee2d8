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
"""Of messages that may be taken in bulk: rows, and where transactions begin and end."""

PARTITION_UA = -1
"""librdkafka's own mark for "let the partitioner choose"."""


TextColumn = tuple[memoryview, memoryview]
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
    """A relation of which a run has rows: the numbers of the first and of the last."""

    oid: int
    first: int
    last: int


class Row(NamedTuple):
    """A row of the stream.

    Attributes:
        message: the number of its message.
        next: the number of the next row of its relation, or -1.
        lsn: of the commit.
        sequence: its place in the transaction.
        ts_us: of the commit, microseconds since 1970.
        xid: of the transaction.
    """

    message: int
    next: int
    lsn: int
    sequence: int
    ts_us: int
    xid: int


class Mask(Enum):
    """The replacement for a value; the numbers are the library's."""

    NONE = 0
    HASH = 1
    CONSTANT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of a row to write, when some are dropped or masked.

    Attributes:
        width: how many the row has.
        places: which of them are written, in their order.
        masks: what is written of each.
        hash_key: of the hashes, HMAC-SHA-256 in hexadecimal.
        constant: what stands for every value that is not to be seen.
    """

    width: int
    places: tuple[int, ...]
    masks: tuple[Mask, ...]
    hash_key: bytes = b""
    constant: bytes = b""


class Strange(Enum):
    """The fault in a record, or the place of its key."""

    KEY = "key"
    POSITION = "position"
    STRAY = "stray"


class StrangePlaceError(Exception):
    """A record that has no place here.

    Attributes:
        offset: of the record.
        what: why.
        home: the partition that a stray key belongs to.
    """

    def __init__(self, offset: int, fault: Strange, home: int) -> None:
        super().__init__(offset, fault, home)
        self.offset, self.what, self.home = offset, fault, home


class FoldRecord(NamedTuple):
    """A record of a range.

    Attributes:
        key: None where it has none.
        value: None for a tombstone.
        position: the header; None where it has none.
        offset: in the partition.
    """

    key: bytes | None
    value: bytes | None
    position: bytes | None
    offset: int


class FoldColumns(NamedTuple):
    """Last records of some keys, by column.

    Attributes:
        keys: null for a record that has none.
        positions: in bytes.
        offsets: in their partition.
        values: null for a tombstone.
        faults: what is wrong with each; None where nothing is with any.
    """

    keys: pa.BinaryArray
    positions: pa.BinaryArray
    offsets: pa.Int64Array
    values: pa.BinaryArray
    faults: list[Strange | None] | None


class News(NamedTuple):
    """The result of one read of a range.

    Attributes:
        added: records that went into the fold.
        is_over: a record at or behind the end has come.
        ends_at: where the broker says that the partition ends; None when it says nothing.
        error: the client's code; 0 for none.
        message: what it means.
        is_fatal: the client cannot go on.
    """

    added: int
    is_over: bool = False
    ends_at: int | None = None
    error: int = 0
    message: str = ""
    is_fatal: bool = False
