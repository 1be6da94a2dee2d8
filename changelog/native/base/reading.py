"""Results of reading from libpq."""

from __future__ import annotations

from enum import IntEnum


class Read(IntEnum):
    """The way in which a read ended; the numbers are the library's."""

    ALL = 0
    ENDED = 1
    FAILED = 2
    LOST = 3
    ODD = 4
    NO_MEMORY = 5
