"""Values of the verifier's own reader: columns of records and of rows, and results of reading."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("off", pa.int64()),
        ("epoch", pa.uint32()),
        ("commit_lsn", pa.uint64()),
        ("sequence", pa.uint64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("fault", pa.uint8()),
    ]
)
NO_EPOCH = 2**32 - 1
"""The epoch of a record without a position, so that it sorts after all others."""
NO_PLACE = (NO_EPOCH, 2**64 - 1, 2**64 - 1)


class RecordFault(IntEnum):
    """The fault in a record; the numbers are the library's."""

    SOUND = 0
    NO_KEY = 1
    OTHER_KEY = 2
    NO_PLACE = 3


class ReadOutcome(IntEnum):
    """The way in which a read ended; the numbers are the library's."""

    OK = 0
    SHORT = 1
    """A partition ended before its slice."""
    REFUSED = 2
    """The client gave an error."""
    DISORDER = 3
    """A record came again, or an older one after it."""
    NO_MEMORY = 4


class IntakeNews(NamedTuple):
    """The result of one read of an intake."""

    added: int  # number of records
    open: int  # number of slices that were not read to their ends
    outcome: ReadOutcome  # how the read ended
    partition: int = 0  # of the place of a bad outcome
    offset: int = 0  # of the place of a bad outcome
    error: int = 0  # the client's code
    message: str = ""  # the client's text


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
    """An array of nullable elements."""


class RowField(NamedTuple):
    """A field of the writer's schema."""

    kind: FieldKind  # of its values
    element: FieldKind | None = None  # of an array
    # of its union, in their order: `value`, `null`, `text`; empty for none
    branches: tuple[str, ...] = ()


class RowColumn(NamedTuple):
    """The values of a field."""

    values: pa.Array  # bare; a decimal as 16 bytes from the lowest
    texts: pa.Array | None  # of the values in the text branch; None if there is no such branch
