"""Fields of a row in Avro, and the columns decoded from them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa


class FieldKind(IntEnum):
    """The Avro type of a field without its logical type; the numbers are the library's."""

    BOOLEAN = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    """Of at most 16 bytes."""
    STRING = 6
    BYTES = 7
    ARRAY = 8
    """Of nullable elements."""


class RowField(NamedTuple):
    """A field of the writer's schema.

    Attributes:
        kind: of its values.
        element: of an array.
        branches: of its union, in their order: `value`, `null`, `text`; empty for none.
    """

    kind: FieldKind
    element: FieldKind | None = None
    branches: tuple[str, ...] = ()


class RowColumn(NamedTuple):
    """The values of a field.

    Attributes:
        values: bare; a decimal as 16 bytes from the lowest.
        texts: of the values that took the text's branch, where there is one.
    """

    values: pa.Array
    texts: pa.Array | None
