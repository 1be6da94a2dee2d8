"""The choice between C and Python: Python if there is no library, or the user says so.

The environment variable CHANGELOG_NATIVE is `auto` (C if there is a library), `c` or `python`. The
choice is made once in a process, when the first module of this folder is imported: choosing at each
call would cost as much as C saves.
"""

from __future__ import annotations

import logging
import os
from functools import cache

from changelog.contract.base.errors import ConfigurationError

log = logging.getLogger("changelog.native")

VARIABLE = "CHANGELOG_NATIVE"
_WAYS = ("auto", "c", "python")


def why_python(way: str) -> str:
    """Return the reason why Python is used, or an empty text if C is.

    Raises ConfigurationError: C is required and not available, or `way` is not one of the three.
    """
    if way not in _WAYS:
        raise ConfigurationError(
            f'{VARIABLE} is "{way}"', hint=f"it may be one of {', '.join(_WAYS)}"
        )
    if way == "python":
        return f"{VARIABLE} is python"
    try:
        import changelog.native.compiled.library  # noqa: F401, PLC0415 - to see whether it can be
    except ConfigurationError as error:
        if way == "c":
            raise
        return str(error.args[0])
    return ""


WHY_PYTHON = why_python(os.environ.get(VARIABLE) or "auto")
IS_COMPILED = not WHY_PYTHON


@cache
def warn_if_slow() -> None:
    """Log, once in a process, that the slower code in Python is used, and why."""
    if not IS_COMPILED:
        log.warning("rows are encoded and folded in Python, several times slower: %s", WHY_PYTHON)
