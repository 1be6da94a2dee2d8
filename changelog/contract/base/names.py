"""Names that PostgreSQL takes as they are: it cuts a longer one without a word."""

from __future__ import annotations

import re

from changelog.contract.base.errors import ConfigurationError

LONGEST = 63  # bytes of a name in PostgreSQL

SLOT_NAME = re.compile("[a-z0-9_]+")  # the letters of a slot's name


def check_length(name: str, subject: str) -> str:
    """Return a name that PostgreSQL takes whole; raises ConfigurationError if it is too long."""
    size = len(name.encode())
    if size > LONGEST:
        raise ConfigurationError(
            f'{subject}: the name "{name}" has {size} bytes',
            hint=f"PostgreSQL takes {LONGEST} at most; a letter outside of ASCII has several",
        )
    return name


def check_slot_name(name: str, subject: str) -> str:
    """Return a name that PostgreSQL takes for a slot.

    Raises ConfigurationError: it does not; says why.
    """
    if SLOT_NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f'{subject}: "{name}" cannot name a slot' if name else f"{subject} is empty",
            hint=f"1 to {LONGEST} lower-case letters, digits and underscores",
        )
    return check_length(name, subject)
