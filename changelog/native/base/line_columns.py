"""What a load tells C of the columns of a line of COPY's text."""

from __future__ import annotations

from typing import NamedTuple

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
