"""Values of bulk loads: records in batches, their groups, and cells of COPY."""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import NamedTuple

MOST_GROUPS = 64
"""Groups of one batch; the records of all further frames share the last."""


class BatchRecord(NamedTuple):
    """A record and its place on its topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int  # milliseconds since 1970; -1 if there is none
    key: bytes | None  # None if there is none
    value: bytes | None  # None for a tombstone
    # in their order; empty if they were not asked for
    headers: tuple[tuple[str, bytes | None], ...]


class Slice(NamedTuple):
    """The offsets of a partition to read."""

    topic: str  # of the partition
    partition: int  # its number
    next: int  # the first offset to read; advances behind each record that was read
    end: int | None  # the first offset not to read; None if it is not known yet


class BatchLimits(NamedTuple):
    """The limits of one read of a batch."""

    records: int  # most records
    bytes: int  # about the most bytes of keys, values and headers
    # an unknown end is the first record with this time or a later one; None for no such end
    before_ms: int | None = None
    with_headers: bool = False  # whether headers are kept


class BatchNews(NamedTuple):
    """The result of one read of a batch."""

    added: int  # number of records
    open: int  # number of slices that were not read to their ends
    error: int = 0  # the code of the client's first error; 0 for none
    topic: str = ""  # of that error
    partition: int = 0  # of that error
    message: str = ""  # its text


class Alike(NamedTuple):
    """Records with one frame, the first bytes of their values and keys."""

    value: bytes  # the frame of the values; empty if they were not grouped by it
    key: bytes  # the frame of the keys; empty if they were not grouped by it
    rows: array[int]  # places of the records
    is_other: bool = False  # whether this is the group for all further frames


class Groups(NamedTuple):
    """Records by their frames."""

    gone: array[int]  # places of the records without a value
    alike: tuple[Alike, ...]  # the records with one, in the order of each group's first record


class AvroKind(IntEnum):
    """The encoding of an Avro field; the numbers are the library's."""

    BOOLEAN = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    STRING = 6
    BYTES = 7
    ARRAY = 8
    """Of elements that may be null."""


class CellForm(IntEnum):
    """The encoding of a cell; the numbers are the library's."""

    BOOL = 0
    INT2 = 1
    INT4 = 2
    INT8 = 3
    FLOAT4 = 4
    FLOAT8 = 5
    NUMERIC = 6
    TEXT = 7
    """A text, or bytes."""
    JSONB = 8
    UUID = 9
    DATE = 10
    MICROS = 11
    """A moment, from microseconds since 1970."""
    MILLIS = 12
    ARRAY = 13


class AvroField(NamedTuple):
    """A field of the writer's schema."""

    kind: AvroKind  # of its values
    # of its union, in their order: `value`, `null`, `text`; empty for none
    branches: tuple[str, ...] = ()
    cell: int | None = None  # the number of the cell that it fills; None if it fills none
    element: AvroKind | None = None  # kind of an array's elements


class CopyCell(NamedTuple):
    """A cell of each row; null where neither a field nor numbers fill it."""

    form: CellForm  # its encoding
    scale: int = 0  # digits behind the point of a decimal
    element: CellForm | None = None  # form of an array's elements
    oid: int = 0  # of their type
    numbers: int | None = (
        None  # the number of the column of numbers that fills it, if no field does
    )


class AvroRows(NamedTuple):
    """Keys or values of one schema."""

    frame: bytes  # the 5 bytes that each begins with
    fields: tuple[AvroField, ...]  # of the schema, in their order


WHOLE_KEY, WHOLE_VALUE = -1, -2
"""In place of the number of a field: the whole key or value fills the column."""


class JsonColumn(NamedTuple):
    """A column that a member of objects fills, and the values that COPY's text has unchanged."""

    name: str  # of the member that fills it
    texts: bool = False  # whether the content of a text is taken
    numbers: bool = False  # whether a number's digits are taken
    truths: bool = False  # whether `true` and `false` are taken
    nested: bool = False  # whether objects and lists are taken, without blanks
    # most digits behind the point that PostgreSQL does not round; None without a limit
    fraction: int | None = None
    is_moment: bool = False  # whether they are of a fraction of a second


class CsvColumn(NamedTuple):
    """A column that a field of CSV, a whole key or a whole value fills."""

    field: int  # number of the field that fills it, from 0; or `WHOLE_KEY`, `WHOLE_VALUE`
    # most digits behind the point that PostgreSQL does not round; None without a limit
    fraction: int | None = None
    is_moment: bool = False  # whether they are of a fraction of a second
