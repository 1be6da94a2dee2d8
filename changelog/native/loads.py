"""Values of bulk loads: records in batches, their groups, and cells of COPY."""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import NamedTuple

MOST_GROUPS = 64


class BatchRecord(NamedTuple):
    """A record and its place on its topic.

    Attributes:
        topic: it is of.
        partition: likewise.
        offset: its place there.
        timestamp_ms: milliseconds since 1970; -1 for none.
        key: None for none.
        value: None is a tombstone.
        headers: in their order; none where they were not asked for.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Slice(NamedTuple):
    """Offsets of a partition that are to be read.

    Attributes:
        topic: of the partition.
        partition: its number.
        next: the first offset, then that behind the last record that was read.
        end: the first offset that is not wanted; None where that is not known.
    """

    topic: str
    partition: int
    next: int
    end: int | None


class Limits(NamedTuple):
    """The limits of one read of a batch.

    Attributes:
        records: the most that it holds.
        bytes: of keys, values and headers, about the most.
        before_ms: where an end is not known, it is the first record with this time; None: none is.
        with_headers: whether headers are kept.
    """

    records: int
    bytes: int
    before_ms: int | None = None
    with_headers: bool = False


class BatchNews(NamedTuple):
    """The result of one read of a batch.

    Attributes:
        added: records.
        open: slices whose end is not reached.
        error: the code of the client's first error; 0 for none.
        topic: where that was.
        partition: likewise.
        message: its words.
    """

    added: int
    open: int
    error: int = 0
    topic: str = ""
    partition: int = 0
    message: str = ""


class Alike(NamedTuple):
    """Records with one frame, the first bytes of their values and keys.

    Attributes:
        value: the frame of the values; empty where records were not told apart by it.
        key: likewise of the keys.
        rows: their places.
        is_other: whether they are all those for which there was no group left.
    """

    value: bytes
    key: bytes
    rows: array[int]
    is_other: bool = False


class Groups(NamedTuple):
    """Records by their frames.

    Attributes:
        gone: places of the records without a value.
        alike: the others, in the order of the first of each group.
    """

    gone: array[int]
    alike: tuple[Alike, ...]


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
    """Bytes too."""
    JSONB = 8
    UUID = 9
    DATE = 10
    MICROS = 11
    """A moment, from microseconds since 1970."""
    MILLIS = 12
    ARRAY = 13


class AvroField(NamedTuple):
    """A field of the writer's schema.

    Attributes:
        kind: of its values.
        branches: of its union, in their order: `value`, `null`, `text`; empty for none.
        cell: the place of the cell that it fills; None for none.
        element: kind of an array's elements.
    """

    kind: AvroKind
    branches: tuple[str, ...] = ()
    cell: int | None = None
    element: AvroKind | None = None


class CopyCell(NamedTuple):
    """A cell of each row; null where neither a field nor numbers fill it.

    Attributes:
        form: how it is written.
        scale: digits behind the point of a decimal.
        element: form of an array's elements.
        oid: of their type.
        numbers: which of the columns of numbers fills it, where no field does.
    """

    form: CellForm
    scale: int = 0
    element: CellForm | None = None
    oid: int = 0
    numbers: int | None = None


class AvroRows(NamedTuple):
    """Keys or values of one schema.

    Attributes:
        frame: the 5 bytes that each begins with.
        fields: of the schema, in their order.
    """

    frame: bytes
    fields: tuple[AvroField, ...]


WHOLE_KEY, WHOLE_VALUE = -1, -2
"""In place of the number of a field."""


class JsonColumn(NamedTuple):
    """A column that a member of objects fills, and which values go to COPY's text as they are.

    Attributes:
        name: of the member that fills it.
        texts: whether it takes what a text says.
        numbers: whether it takes a number's digits.
        truths: whether it takes `true` and `false`.
        nested: whether it takes objects and lists, without blanks.
        fraction: the most digits behind the point; None where none are rounded away.
        is_moment: whether that is a fraction of a second.
    """

    name: str
    texts: bool = False
    numbers: bool = False
    truths: bool = False
    nested: bool = False
    fraction: int | None = None
    is_moment: bool = False


class CsvColumn(NamedTuple):
    """A column that a field of CSV, a whole key or a whole value fills.

    Attributes:
        field: number of the field that fills it, from 0; or the whole of a part.
        fraction: the most digits behind the point; None where none are rounded away.
        is_moment: whether that is a fraction of a second.
    """

    field: int
    fraction: int | None = None
    is_moment: bool = False
