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
    """A column that can be written.

    Attributes:
        name: of the column.
        type: as `format_type` has it, such as `numeric(10,2)`.
        base: name of the type below domains, such as `numeric`; of an array `_int4`.
        oid: of that type.
        element: `(name, oid)` of an array's elements; None of another type.
        is_enum: whether its values are labels.
        is_not_null: whether it has to be there.
        unlimited: the type below domains without its limits, such as `numeric`; a cast to it cuts
            nothing off.
    """

    name: str
    type: str
    base: str
    oid: int
    element: tuple[str, int] | None = None
    is_enum: bool = False
    is_not_null: bool = False
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
class Table:
    """A table.

    Attributes:
        name: quoted, with its schema.
        columns: by name, those that are written.
        key: columns of the primary key, in its order; empty without one.
        unique: sets of columns of which no two rows are alike.
    """

    name: str
    columns: Mapping[str, TableColumn]
    key: tuple[str, ...] = ()
    unique: tuple[frozenset[str], ...] = ()
