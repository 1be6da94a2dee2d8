"""Send rendered rows to a server from Spark's executors, in batches bounded by bytes.

Executors run a `BatchWriter`, a small picklable value without a session, a DataFrame or an open
connection. It is sent inside a pickled function, so neither the text of a plan nor Spark's settings
show its fields, such as a password.

A task that fails at the sink returns the reason as its result and does not raise it. So the driver
raises one clear line, and the counts are those of completed tasks, each counted once even if Spark
ran it twice. Writing a row again is harmless: it replaces the same entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from views.sinks.base import RefusedRow, UnavailableSinkError
from views.sinks.rendering import DOCUMENT, ID, rendered
from views.sinks.unique import null_in_key

Entry = tuple[str, str]
"""An id and its JSON document."""

Refusal = tuple[str, str, str]
"""The id and the document of an entry that a server refuses, and why."""

_REASON = 300
"""Characters of a server's reason that are kept."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_BATCH_ENTRIES = 5_000
RESULT = "written bigint, error string, unavailable boolean, refused string"
"""The columns of a task's report."""


class BatchWriter(Protocol):
    """Writes batches of entries; sent to executors."""

    def connected(self) -> AbstractContextManager[Callable[[Sequence[Entry]], Sequence[Refusal]]]:
        """Return the function that writes one batch and returns the refused entries.

        The function raises SinkError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of tasks that write rows."""

    rows: int  # how many were written
    refused: tuple[RefusedRow, ...]  # the rows that were left out


def load(
    rows: DataFrame,
    key: Sequence[str],
    writer: BatchWriter,
    form: Callable[[StructType], Column] | None = None,
) -> Loaded:
    """Write every row.

    Raises SinkError: a task could not write; the first reason is given.
    """
    results = rendered(rows, key, form).mapInArrow(_task(writer, tuple(key)), RESULT).collect()
    written = counted(results)
    # Spark takes one result of a task that it ran twice, so no refusal is counted twice.
    refusals = (refusal for result in results for refusal in json.loads(result.refused or "[]"))
    return Loaded(written, tuple(RefusedRow(*refusal) for refusal in refusals))


def counted(results: Iterable[Row]) -> int:
    """Return the number of rows that tasks have written, from their reports.

    Raises SinkError: one could not write; the first reason is given.
    """
    written = 0
    for result in results:
        require_success(result)
        written += result.written
    return written


def require_success(result: Row) -> None:
    """Raise the error in a task's report.

    Raises SinkError: the task could not write; the report has the reason.
    """
    if result.error is not None:
        kind = UnavailableSinkError if result.unavailable else SinkError
        facts, _, hint = result.error.partition(" | hint: ")
        raise kind(facts, hint=hint)


def reported(write: Callable[[], int], refused: Sequence[RefusedRow] = ()) -> pa.RecordBatch:
    """Return a task's report, as `RESULT`: the number of rows written, or the error.

    `refused`: the rows that were left out; complete once `write` has returned.
    """
    written, error, unavailable = 0, None, False
    try:
        written = write()
    except SinkError as failure:
        error, unavailable = str(failure), isinstance(failure, UnavailableSinkError)
    columns = {
        "written": [written],
        "error": [error],
        "unavailable": [unavailable],
        "refused": [json.dumps([astuple(row) for row in refused]) if refused else None],
    }
    types = [
        ("written", pa.int64()),
        ("error", pa.string()),
        ("unavailable", pa.bool_()),
        ("refused", pa.string()),
    ]
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema(types))


def _task(
    writer: BatchWriter, key: tuple[str, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refused: list[RefusedRow] = []

        def written() -> int:
            count = 0
            with writer.connected() as write:
                for entries in in_batches(_entries(batches, key)):
                    refused.extend(refused_of(refusal, key) for refusal in write(entries))
                    count += len(entries)
            return count - len(refused)

        yield reported(written, refused)

    return run


def _entries(batches: Iterable[pa.RecordBatch], key: tuple[str, ...]) -> Iterator[Entry]:
    for batch in batches:
        ids, documents = batch.column(ID).to_pylist(), batch.column(DOCUMENT).to_pylist()
        for entry in zip(ids, documents, strict=True):
            if entry[0] is None:
                raise null_in_key(key)
            if entry[1] is None:
                raise no_value(entry[0])
            yield entry


def in_batches(
    entries: Iterable[Entry],
    *,
    max_bytes: int = MAX_BATCH_BYTES,
    max_entries: int = MAX_BATCH_ENTRIES,
) -> Iterator[list[Entry]]:
    """Cut entries into batches; an entry above the bound is a batch of its own."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        # Characters, not bytes: up to four times fewer, but counting bytes would encode twice.
        length = len(entry[0]) + len(entry[1])
        if batch and (size + length > max_bytes or len(batch) >= max_entries):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def refused_of(refusal: Refusal, key: Sequence[str]) -> RefusedRow:
    """Return the description of an entry that a server refuses.

    `key`: the columns of the key.
    """
    name, text, reason = refusal
    row = json.loads(text)
    key_text = json.dumps({name: row[name] for name in key}, ensure_ascii=False)
    return RefusedRow(name, key_text, reason[:_REASON])


def too_many(place: str, most: int, refused: Sequence[Refusal | RefusedRow]) -> SinkError:
    """Return the error for more refused rows than may be left out."""
    last = refused[-1]
    name, reason = (last.id, last.reason) if isinstance(last, RefusedRow) else (last[0], last[2])
    return SinkError(
        f'{place} refuses more than {most} rows, such as "{name}": {reason}',
        hint="mend the view or its options; rebuild.most_refused_rows says how many may be",
    )


def no_value(name: str) -> SinkError:
    """Return the error for a row without a value, which a sink would take for a missing row."""
    return SinkError(
        f'the row "{name}" has no value, so the sink cannot tell it from a missing row',
        hint="leave such rows out of the view, or give them a value",
    )
