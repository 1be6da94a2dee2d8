"""Loads a generation from Spark's executors: one connection and one COPY per task.

Spark may run a task twice, and may take the result of either. So each attempt writes all of its
rows in one transaction, which also adds its name and transaction id to `attempts`, and returns its
name as its result. After all tasks have ended, the rows of attempts whose result Spark did not take
are deleted by their transaction (`xmin`), before the table has readers. A late attempt finds that
the generation is no longer open, and writes nothing.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import sql
from pyspark.sql import DataFrame

from changelog.contract.base.errors import SinkError
from views.sinks.load import RESULT, reported, require_success
from views.sinks.postgres import encode
from views.sinks.postgres.column_types import ColumnForm, sent
from views.sinks.postgres.registry import OPEN, SCHEMA, place
from views.sinks.postgres.server import PostgresClient
from views.sinks.rendering import check_session
from views.sinks.unique import null_in_key

_AT_ONCE_BYTES = 8 << 20
"""Bytes of rows that are encoded at once."""


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """Writes rows by COPY; sent to executors."""

    server: PostgresClient  # the server
    relation: str  # the generation's table in our schema
    forms: tuple[ColumnForm, ...]  # its columns
    batch_rows: int  # the most rows that are turned into COPY's format at once
    key: tuple[str, ...]  # those columns of the view that are never null

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[str | None, int]:
        """Write all rows in one transaction; return the attempt's name and their number."""
        full = (self._with_keys(batch) for batch in batches if batch.num_rows)
        first = next(full, None)
        if first is None:
            return None, 0
        stream = Stream(tuples(self.forms, chain([first], full), self.batch_rows, self.key))
        with self.server.connection(self.relation) as connection:
            connection.autocommit = False
            cursor: Any = connection.cursor()
            # The commit of the seal waits for all earlier WAL, and its count shows rows that a
            # crash lost.
            cursor.execute("SET LOCAL synchronous_commit = off")
            cursor.execute("SELECT pg_current_xact_id()::text")
            writer = cursor.fetchone()[0]
            try:
                cursor.copy_expert(self._statement().as_string(connection), stream, 1 << 18)
            except psycopg2.Error:
                if stream.failure is not None:
                    raise stream.failure from None
                raise
            if cursor.rowcount != stream.rows:
                raise SinkError(f"{stream.rows} rows were sent and {cursor.rowcount} arrived")
            attempt = str(uuid.uuid4())
            self._note(cursor, attempt, writer, stream.rows)
            connection.commit()
        return attempt, stream.rows

    def _with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch after checking its keys.

        Raises SinkError: a row has a null in its key.
        """
        for form, array in zip(self.forms, batch.columns, strict=True):
            if form.name in self.key and array.null_count:
                raise null_in_key(self.key)
        return batch

    def _statement(self) -> sql.Composed:
        names = sql.SQL(", ").join(sql.Identifier(form.target) for form in self.forms)
        return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
            place(self.relation), names
        )

    def _note(self, cursor: Any, attempt: str, writer: str, rows: int) -> None:  # noqa: ANN401
        cursor.execute(
            f"SELECT 1 FROM {SCHEMA}.generations WHERE relation = %s AND state = %s FOR SHARE",
            [self.relation, OPEN],
        )
        if cursor.fetchone() is None:
            raise SinkError(f"{self.relation} is not open for writing any more")
        cursor.execute(
            f"INSERT INTO {SCHEMA}.attempts VALUES (%s, %s, %s::xid8, %s)",
            [self.relation, attempt, writer, rows],
        )


def load(rows: DataFrame, writer: CopyWriter) -> dict[str, int]:
    """Write every row; return the attempts that count, each with its number of rows.

    Raises SinkError: a task could not write; the first reason is given.
    """
    check_session(rows.sparkSession)
    results = (
        sent(rows, writer.forms).mapInArrow(_task(writer), f"{RESULT}, attempt string").collect()
    )
    for result in results:
        require_success(result)
    return {result.attempt: result.written for result in results if result.attempt is not None}


def remove_others(cursor: Any, relation: str, counted: Sequence[str]) -> None:  # noqa: ANN401
    """Remove the rows of attempts whose result Spark did not take."""
    cursor.execute(
        f"SELECT writer::text FROM {SCHEMA}.attempts WHERE relation = %s "
        "AND attempt <> ALL (%s::uuid[])",
        [relation, list(counted)],
    )
    for (writer,) in cursor.fetchall():
        query = sql.SQL("DELETE FROM {} WHERE xmin = %s::xid8::xid").format(place(relation))
        cursor.execute(query, [writer])


def _task(
    writer: CopyWriter,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = None

        def written() -> int:
            nonlocal attempt
            attempt, rows = writer.write(batches)
            return rows

        report = reported(written)
        yield report.append_column("attempt", pa.array([attempt], pa.string()))

    return run


def tuples(
    forms: Sequence[ColumnForm],
    batches: Iterable[pa.RecordBatch],
    batch_rows: int,
    key: Sequence[str] = (),
) -> Iterator[tuple[int, memoryview]]:
    """Yield rows in COPY's format in portions: their number, and their bytes.

    An error names a row by the columns of `key`.

    Raises SinkError: a value has no exact form in PostgreSQL.
    """
    for batch in batches:
        share = batch.num_rows * _AT_ONCE_BYTES // max(batch.nbytes, 1)
        step = max(1, min(batch_rows, share))
        for begin in range(0, batch.num_rows, step):
            some = batch.slice(begin, step)
            columns = zip(forms, some.columns, strict=True)
            named = partial(_row, forms, some, key)
            yield some.num_rows, encode.rows([form.fields(array, named) for form, array in columns])


def _row(forms: Sequence[ColumnForm], batch: pa.RecordBatch, key: Sequence[str], place: int) -> str:
    """Return the words that name a row by its key; empty without a key."""
    parts = [
        f"{form.name} = {array[place].cast(pa.string()).as_py()}"
        for form, array in zip(forms, batch.columns, strict=True)
        if form.name in key and _has_text(array.type)
    ]
    return f" (in the row of {', '.join(parts)})" if parts else ""


def _has_text(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind))


class Stream(io.RawIOBase):
    """The stream from which psycopg2 reads a COPY; it counts the rows and keeps an error."""

    def __init__(self, tuples: Iterator[tuple[int, memoryview]]) -> None:
        super().__init__()
        self._tuples = tuples
        self._remaining = memoryview(encode.HEADER)
        self._ended = False
        self.rows = 0
        self.failure: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`; empty at the end."""
        while not self._remaining and not self._ended:
            try:
                portion = next(self._tuples, None)
            except BaseException as error:
                self.failure = error
                raise
            if portion is None:
                self._ended, self._remaining = True, memoryview(encode.TRAILER)
            else:
                rows, self._remaining = portion
                self.rows += rows
        out, self._remaining = self._remaining[:size], self._remaining[size:]
        return bytes(out)
