"""The table that a load writes: its columns and keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DIGITS = re.compile(r"\((?P<first>\d+)(?:,(?P<second>-?\d+))?\)")
_MOMENTS = {"timestamp", "timestamptz", "time", "timetz", "interval"}
_MICROS = 6


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column that can be written."""

    name: str
    type: str  # as `format_type` writes it, such as `numeric(10,2)`
    base: str  # name of the type, of a domain that of its base type: `numeric`, of an array `_int4`
    oid: int  # of that type
    element: tuple[str, int] | None = None  # name and oid of an array's element type, else None
    is_enum: bool = False
    is_not_null: bool = False
    # the base type without a length, such as `numeric`: a cast to it cuts nothing off
    unlimited: str = ""

    @property
    def most_fraction(self) -> int | None:
        """Return the most digits after the point that the column keeps, or None if all."""
        digits = _DIGITS.search(self.type)
        if self.base in _MOMENTS:
            return int(digits["first"]) if digits else _MICROS
        if self.base == "numeric" and digits:
            return int(digits["second"] or 0)
        return None


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table that is loaded."""

    name: str  # quoted, with its schema if one was given
    columns: Mapping[str, TableColumn]  # the writable columns by name
    key: tuple[str, ...] = ()  # columns of the primary key, in its order; empty without one
    unique: tuple[frozenset[str], ...] = ()  # the columns of each unique index
