"""Records of a range, and the last ones of each key."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import pyarrow as pa


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
