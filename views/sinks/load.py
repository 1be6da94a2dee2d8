"""Send rendered rows to a server from Spark's executors, in batches bounded by bytes.

What runs on an executor is a `BatchWriter`, a small picklable value; it holds no session, no
DataFrame and no open connection. It travels inside a pickled function: neither the text of a plan
nor Spark's settings show its fields, and so no password.

A task that fails at the sink returns the reason as its result instead of throwing. So the driver
raises one clean line, and counts come from tasks that ended, each counted once even when Spark
ran one twice. Writing a row again is harmless: an entry is replaced by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from views.sinks.base import UnavailableSinkError
from views.sinks.rendering import DOCUMENT, ID, rendered

Entry = tuple[str, str]
"""An id and its JSON document."""

MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_BATCH_ENTRIES = 5_000
RESULT = "written bigint, error string, unavailable boolean"


class BatchWriter(Protocol):
    """What an executor needs to write batches."""

    def connected(self) -> AbstractContextManager[Callable[[Sequence[Entry]], None]]:
        """Return the function that writes one batch; it raises SinkError."""
        ...


def load(
    rows: DataFrame,
    key: Sequence[str],
    writer: BatchWriter,
    form: Callable[[StructType], Column] | None = None,
) -> int:
    """Write every row and give their number.

    Args:
        rows: the rows.
        key: the columns of their key.
        writer: writes batches on executors.
        form: renders a row, by default as a JSON document.

    Raises:
        SinkError: a task could not write; the first reason is given.
    """
    return counted(
        rendered(rows, key, form).mapInArrow(_task(writer, tuple(key)), RESULT).collect()
    )


def counted(results: Iterable[Row]) -> int:
    """Return how many rows tasks have written, by what `reported` says of each.

    Raises:
        SinkError: one could not write; the first reason is given.
    """
    written = 0
    for result in results:
        if result.error is not None:
            kind = UnavailableSinkError if result.unavailable else SinkError
            facts, _, hint = result.error.partition(" | hint: ")
            raise kind(facts, hint=hint)
        written += result.written
    return written


def reported(write: Callable[[], int]) -> pa.RecordBatch:
    """Return what a task says of its work, by `RESULT`: how many rows it wrote, or why not."""
    written, error, unavailable = 0, None, False
    try:
        written = write()
    except SinkError as failure:
        error, unavailable = str(failure), isinstance(failure, UnavailableSinkError)
    columns = {"written": [written], "error": [error], "unavailable": [unavailable]}
    types = [("written", pa.int64()), ("error", pa.string()), ("unavailable", pa.bool_())]
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema(types))


def _task(
    writer: BatchWriter, key: tuple[str, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def written() -> int:
            count = 0
            with writer.connected() as write:
                for entries in in_batches(_entries(batches, key)):
                    write(entries)
                    count += len(entries)
            return count

        yield reported(written)

    return run


def _entries(batches: Iterable[pa.RecordBatch], key: tuple[str, ...]) -> Iterator[Entry]:
    for batch in batches:
        ids, documents = batch.column(ID).to_pylist(), batch.column(DOCUMENT).to_pylist()
        for entry in zip(ids, documents, strict=True):
            if entry[0] is None:
                raise SinkError(
                    f"a row has a null in its key ({', '.join(key)})",
                    hint="leave such rows out, or take columns that are never null as the key",
                )
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
        # Characters, not bytes: at most four times less, and counting bytes would encode twice.
        length = len(entry[0]) + len(entry[1])
        if batch and (size + length > max_bytes or len(batch) >= max_entries):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def no_value(name: str) -> SinkError:
    """Return the error of a row that an entry cannot tell from no row."""
    return SinkError(
        f'the row "{name}" has no value, which the sink cannot tell from no row',
        hint="leave such rows out of the view, or give them a value",
    )
