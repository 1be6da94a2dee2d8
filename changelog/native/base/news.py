"""The result of one read of a range."""

from __future__ import annotations

from typing import NamedTuple


class News(NamedTuple):
    """The result of one read of a range.

    Attributes:
        added: records that went into the fold.
        is_over: a record at or behind the end has come.
        ends_at: where the broker says that the partition ends; None when it says nothing.
        error: the client's code; 0 for none.
        message: what it means.
        is_fatal: the client cannot go on.
    """

    added: int
    is_over: bool = False
    ends_at: int | None = None
    error: int = 0
    message: str = ""
    is_fatal: bool = False
