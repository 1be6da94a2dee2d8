"""What goes wrong inside Spark's tasks, said in our own words.

A check in a task raises with Spark's `raise_error`; its text travels through Spark's own
exception, between two marks. `translated()` stands round every action and makes of it the error
that names topic, partition and offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.errors import (
    ChangelogError,
    CorruptRecordError,
    LogError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.secret import redacted

_MARKED = re.compile(r"<changelog:(\w+)>(.*?)</changelog>", re.DOTALL)
_LOST = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRangeException")
_SILENT = ("TimeoutException", "DisconnectException", "No resolvable bootstrap urls")


class Fault(Enum):
    """What a check in a task found."""

    CORRUPT = "corrupt"
    ESCAPE = "escape"


def fail(fault: Fault, *parts: str | Column) -> Column:
    """Give the expression that ends the task; `parts` are texts and columns of text."""
    texts = [F.lit(part) if isinstance(part, str) else _text(part) for part in parts]
    marks = (F.lit(f"<changelog:{fault.value}>"), F.lit("</changelog>"))
    return F.raise_error(F.concat(marks[0], *texts, marks[1]))


def _text(part: Column) -> Column:
    return F.coalesce(part.cast("string"), F.lit("null"))


def translate(error: BaseException) -> ChangelogError | None:
    """Say in our own words what a failed action means; None when it is not about the log."""
    if isinstance(error, ChangelogError):
        return error
    said = _said(error)
    if (marked := _MARKED.search(said)) is not None:
        if marked[1] == Fault.ESCAPE.value:
            return LogError(
                marked[2],
                hint="no column type here holds this value: leave the column out of the view, or "
                "cast it to text at the source",
            )
        return CorruptRecordError(
            marked[2], hint="capture did not write this record: find out who did"
        )
    if any(word in said for word in _LOST):
        return VerdictError(
            "records vanished from the log while they were read",
            hint="check who deletes records or topics, then run it again",
        )
    if "kafka" in said and any(word in said for word in _SILENT):
        return UnavailableLogError(
            "the Kafka brokers stopped answering while the log was read",
            hint="run it again when they are back",
        )
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Turn a failed action's exception into ours; what is not about the log passes.

    Raises:
        CorruptRecordError: a record cannot be decoded; names topic, partition and offset.
        LogError: a surviving row holds a value that has no place in its column's type.
        VerdictError: records vanished under the scan.
        UnavailableLogError: the brokers stopped answering.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # a source's own exceptions come bare
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _said(error: BaseException) -> str:
    said = []
    current: BaseException | None = error
    while current is not None:
        said.append(str(current))
        current = current.__cause__ or current.__context__
    return redacted("\n".join(said))
