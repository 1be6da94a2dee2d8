"""Values of bulk loads: records in batches, their groups, and cells of COPY."""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import NamedTuple

MOST_GROUPS = 64


class BatchRecord(NamedTuple):
    """A record and its place on its topic."""

    topic: str  # it is of
    partition: int  # likewise
    offset: int  # its place there
    timestamp_ms: int  # milliseconds since 1970; -1 for none
    key: bytes | None  # None for none
    value: bytes | None  # None is a tombstone
    # in their order; none where they were not asked for
    headers: tuple[tuple[str, bytes | None], ...]


class Slice(NamedTuple):
    """Offsets of a partition that are to be read."""

    topic: str  # of the partition
    partition: int  # its number
    next: int  # the first offset, then that behind the last record that was read
    end: int | None  # the first offset that is not wanted; None where that is not known


class BatchLimits(NamedTuple):
    """The limits of one read of a batch."""

    records: int  # the most that it holds
    bytes: int  # of keys, values and headers, about the most
    # where an end is not known, it is the first record with this time; None: none is
    before_ms: int | None = None
    with_headers: bool = False  # whether headers are kept


class BatchNews(NamedTuple):
    """The result of one read of a batch."""

    added: int  # records
    open: int  # slices whose end is not reached
    error: int = 0  # the code of the client's first error; 0 for none
    topic: str = ""  # where that was
    partition: int = 0  # likewise
    message: str = ""  # its words


class Alike(NamedTuple):
    """Records with one frame, the first bytes of their values and keys."""

    value: bytes  # the frame of the values; empty where records were not told apart by it
    key: bytes  # likewise of the keys
    rows: array[int]  # their places
    is_other: bool = False  # whether they are all those for which there was no group left


class Groups(NamedTuple):
    """Records by their frames."""

    gone: array[int]  # places of the records without a value
    alike: tuple[Alike, ...]  # the others, in the order of the first of each group


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
    cell: int | None = None  # the place of the cell that it fills; None for none
    element: AvroKind | None = None  # kind of an array's elements


class CopyCell(NamedTuple):
    """A cell of each row; null where neither a field nor numbers fill it."""

    form: CellForm  # how it is written
    scale: int = 0  # digits behind the point of a decimal
    element: CellForm | None = None  # form of an array's elements
    oid: int = 0  # of their type
    numbers: int | None = None  # which of the columns of numbers fills it, where no field does


class AvroRows(NamedTuple):
    """Keys or values of one schema."""

    frame: bytes  # the 5 bytes that each begins with
    fields: tuple[AvroField, ...]  # of the schema, in their order


WHOLE_KEY, WHOLE_VALUE = -1, -2
"""In place of the number of a field."""


class JsonColumn(NamedTuple):
    """A column that a member of objects fills, and which values go to COPY's text as they are."""

    name: str  # of the member that fills it
    texts: bool = False  # whether it takes what a text says
    numbers: bool = False  # whether it takes a number's digits
    truths: bool = False  # whether it takes `true` and `false`
    nested: bool = False  # whether it takes objects and lists, without blanks
    # the most digits behind the point; None where none are rounded away
    fraction: int | None = None
    is_moment: bool = False  # whether that is a fraction of a second


class CsvColumn(NamedTuple):
    """A column that a field of CSV, a whole key or a whole value fills."""

    field: int  # number of the field that fills it, from 0; or the whole of a part
    # the most digits behind the point; None where none are rounded away
    fraction: int | None = None
    is_moment: bool = False  # whether that is a fraction of a second
