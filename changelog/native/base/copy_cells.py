"""Cells of COPY, and their sources: Avro fields, members, CSV fields, texts."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


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
