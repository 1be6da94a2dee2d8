"""Faults found by Spark's tasks, as texts that reach the driver.

Whatever a task raises arrives as the text of Spark's own exception. What we mean stands in it
between two marks, with its kind; `replay.base.failures` finds it there.
"""

from __future__ import annotations

import re
from enum import Enum

from changelog.contract.base.errors import (
    CorruptRecordError,
    LogError,
    RefusedAccessError,
    UnavailableLogError,
    VerdictError,
)

HINT = " | hint: "
"""Stands between what a task says and what to do about it."""
_MARKED = re.compile(r"<changelog:(\w+)>(.*?)</changelog>", re.DOTALL)


class TaskFault(Enum):
    """The kind of fault that a task found."""

    CORRUPT = "corrupt"
    """A record that capture did not write, or that cannot be decoded."""
    ESCAPE = "escape"
    """A value that has no place in its column's type."""
    LOST = "lost"
    """Records that should be on the log are not."""
    SILENT = "silent"
    """The brokers do not answer."""
    REFUSED = "refused"
    """The brokers answer, and say no."""
    NOT_LET_IN = "barred"
    """The brokers do not let us in."""


class FormlessValueError(LogError):
    """A row has a value that its column's type cannot represent in Spark."""


class MarkedError(Exception):
    """A fault raised in a task of ours; its text is marked."""

    def __init__(self, fault: TaskFault, text: str) -> None:
        super().__init__(text.join(marks(fault)))


def of_brokers(error: LogError) -> MarkedError:
    """Return the exception that a task raises for an error of the brokers."""
    match error:
        case RefusedAccessError():
            fault = TaskFault.NOT_LET_IN
        case UnavailableLogError():
            fault = TaskFault.SILENT
        case _:
            fault = TaskFault.REFUSED
    return MarkedError(fault, str(error))


def _with_hint(kind: type[LogError], text: str) -> LogError:
    """Return an error of a text that may carry a hint."""
    message, _, hint = text.partition(HINT)
    return kind(message, hint=hint)


def marks(fault: TaskFault) -> tuple[str, str]:
    """Return the marks before and after the text of a fault."""
    return f"<changelog:{fault.value}>", "</changelog>"


def marked(text: str) -> tuple[TaskFault, str] | None:
    """Return the fault and its text in an exception's text, or None."""
    mark = _MARKED.search(text)
    return None if mark is None else (TaskFault(mark[1]), mark[2])


def error_of(fault: TaskFault, text: str) -> LogError:
    """Return the error for a fault."""
    match fault:
        case TaskFault.CORRUPT:
            return CorruptRecordError(
                text,
                hint="capture did not write this record: find out who did. Readers pass over it "
                "once its table is copied again: the next start of capture does, or "
                "`changelog resnapshot TABLE`",
            )
        case TaskFault.ESCAPE:
            return _with_hint(FormlessValueError, text)
        case TaskFault.LOST:
            return lost(text)
        case TaskFault.SILENT:
            return silent(text)
        case TaskFault.REFUSED:
            return _with_hint(LogError, text)
        case TaskFault.NOT_LET_IN:
            return _with_hint(RefusedAccessError, text)


def lost(text: str = "") -> VerdictError:
    """Return the error of records that are gone."""
    return VerdictError(
        "records vanished from the log while they were read" + _more(text),
        hint="check who deletes records or topics, then run it again",
    )


def silent(text: str = "") -> UnavailableLogError:
    """Return the error of brokers that do not answer."""
    message, _, hint = text.partition(HINT)
    return UnavailableLogError(
        "the Kafka brokers stopped answering while the log was read" + _more(message),
        hint=hint or "run it again when they are back",
    )


def _more(text: str) -> str:
    return f": {text}" if text else ""
