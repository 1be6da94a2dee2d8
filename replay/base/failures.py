"""Translate failures inside Spark's tasks into our own errors.

A check in a task raises with Spark's `raise_error`, or in Python; its text travels inside Spark's
own exception, between two marks. `translated()` wraps every action and turns that exception into
the error that names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.errors import (
    ChangelogError,
    UnavailableError,
)
from changelog.contract.base.secret import redacted
from replay.base.task_faults import TaskFault, error_of, lost, marked, marks, silent

_LOST = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRangeException")
_GONE = (
    "[RETRIES_EXCEEDED]",
    "[INVALID_HANDLE.SESSION_",
    "[OPERATION_CANCELED]",
    "StatusCode.UNAVAILABLE",
)
"""Errors of Spark's client where the server is unreachable, is stopping, or has restarted and so
lost the session."""
_SILENT = ("TimeoutException", "DisconnectException", "No resolvable bootstrap urls")


def fail(fault: TaskFault, *parts: str | Column) -> Column:
    """Return the expression that ends the task; `parts` are texts and columns of text."""
    before, behind = marks(fault)
    return F.raise_error(joined(before, *parts, behind))


def joined(*parts: str | Column) -> Column:
    """Return texts and columns of text as one text; a null in it is `null`."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else _as_column(part) for part in parts))


def _as_column(part: Column) -> Column:
    return F.coalesce(part.cast("string"), F.lit("null"))


def translate(error: BaseException) -> ChangelogError | None:
    """Return our own error for a failed action, or None if it is not about the log."""
    if isinstance(error, ChangelogError):
        return error
    text = _whole_text(error)
    if (fault := marked(text)) is not None:
        return error_of(*fault)
    if any(word in text for word in _LOST):
        return lost()
    if "kafka" in text and any(word in text for word in _SILENT):
        return silent()
    if any(word in text for word in _GONE):
        return UnavailableError(
            "the Spark Connect server went away or cancelled the work",
            hint="run it again when it is back",
        )
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Turn a failed action's exception into ours; an error that is not about the log passes.

    Raises:
        CorruptRecordError: a record cannot be decoded; names topic, partition and offset.
        LogError: a surviving row holds a value that has no place in its column's type.
        VerdictError: records vanished under the scan.
        UnavailableLogError: the brokers stopped answering.
        UnavailableError: the server that runs Spark did.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # a source's own exceptions come bare
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


def _whole_text(error: BaseException) -> str:
    texts = []
    current: BaseException | None = error
    while current is not None:
        texts.append(str(current))
        # What a server sends of its own exception's causes.
        texts.append(getattr(current, "getStackTrace", str)() or "")
        current = current.__cause__ or current.__context__
    return redacted("\n".join(texts))
