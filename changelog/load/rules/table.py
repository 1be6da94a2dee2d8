"""A table of PostgreSQL as a load sees it. Pure."""

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

    name: str  # of the column
    type: str  # as `format_type` has it, such as `numeric(10,2)`
    base: str  # name of the type below domains, such as `numeric`; of an array `_int4`
    oid: int  # of that type
    # `(name, oid)` of an array's elements; None of another type
    element: tuple[str, int] | None = None
    is_enum: bool = False  # whether its values are labels
    is_not_null: bool = False  # whether it has to be there
    # the type below domains without its limits, such as `numeric`; a cast to it cuts nothing off
    unlimited: str = ""

    @property
    def most_fraction(self) -> int | None:
        """Return the digits after the point that the column keeps, or None if it rounds nothing."""
        digits = _DIGITS.search(self.type)
        if self.base in _MOMENTS:
            return int(digits["first"]) if digits else _MICROS
        if self.base == "numeric" and digits:
            return int(digits["second"] or 0)
        return None


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table that is loaded, with the columns that are written."""

    name: str  # quoted, with its schema
    columns: Mapping[str, TableColumn]  # by name, those that are written
    key: tuple[str, ...] = ()  # columns of the primary key, in its order; empty without one
    unique: tuple[frozenset[str], ...] = ()  # sets of columns of which no two rows are alike
