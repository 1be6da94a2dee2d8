"""What a load tells C of the columns that members of objects fill."""

from __future__ import annotations

from typing import NamedTuple


class JsonColumn(NamedTuple):
    """A column, and which values go to COPY's text as they are.

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
