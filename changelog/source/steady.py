"""Statements beside which tables vanish: PostgreSQL looks a name up first and locks it then.

Between the two somebody may drop, rename or move the table. The statement fails, though what it was
to do can be done; so it is tried again, a few times, by who knows how to list anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg2
from psycopg2 import errorcodes

from changelog.contract.errors import SourceError

T = TypeVar("T")

ATTEMPTS = 10
_PAUSE_S = 0.02

_VANISHED = {
    errorcodes.UNDEFINED_TABLE,
    errorcodes.UNDEFINED_OBJECT,
    errorcodes.INVALID_SCHEMA_NAME,
    errorcodes.DEADLOCK_DETECTED,
    errorcodes.INTERNAL_ERROR,  # "cache lookup failed", "tuple concurrently deleted"
}


def has_vanished(error: SourceError) -> bool:
    """Tell whether an error may come of a table that vanished during the statement."""
    cause = error.__cause__
    return isinstance(cause, psycopg2.Error) and cause.pgcode in _VANISHED


def steadily(look: Callable[[], T]) -> T:
    """Return the result of `look`, tried again while something vanishes beside it.

    Raises:
        SourceError: as `look`; after the last attempt also for what vanished.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return look()
        except SourceError as error:
            if not has_vanished(error):
                raise
        time.sleep(_PAUSE_S)
    return look()
