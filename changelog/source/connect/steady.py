"""Statements while tables vanish: PostgreSQL looks a name up first and locks it then.

Between the two somebody may drop, rename or move the table, or make what the statement makes. It
fails, though what it was to do can be done, or is done; so it is tried again, a few times, by who
knows how to list anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg2
from psycopg2 import errorcodes

from changelog.contract.base.errors import SourceError

T = TypeVar("T")

ATTEMPTS = 30
_PAUSE_S = 0.02

_VANISHED = {
    errorcodes.UNDEFINED_TABLE,
    errorcodes.UNDEFINED_OBJECT,
    errorcodes.INVALID_SCHEMA_NAME,
    errorcodes.DEADLOCK_DETECTED,
    errorcodes.INTERNAL_ERROR,  # "cache lookup failed", "tuple concurrently deleted"
}
_MADE = {errorcodes.UNIQUE_VIOLATION, errorcodes.DUPLICATE_OBJECT}


def has_vanished(error: SourceError) -> bool:
    """Tell whether a table that vanished during the statement may be the cause of an error."""
    return _code(error) in _VANISHED


def steadily(look: Callable[[], T]) -> T:
    """Return the result of `look`, tried again while tables vanish or appear meanwhile.

    Raises SourceError: as `look`; after the last attempt also for what vanished.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return look()
        except SourceError as error:
            if _code(error) not in _VANISHED | _MADE:
                raise
        time.sleep(_PAUSE_S)
    return look()


def _code(error: SourceError) -> str | None:
    cause = error.__cause__
    return cause.pgcode if isinstance(cause, psycopg2.Error) else None
