"""A DuckDB database for one verification: in memory to a limit, then on disk; gone afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from changelog.runtime.closed_database import closed_database
from changelog.runtime.process.scratch import ScratchFolder
from views.verify.values.types import quoted

MEMORY_LIMIT = "500MB"
"""DuckDB's; with it the whole verifier stays below a gigabyte."""
_INSERT_BYTES = 32 << 20
_INEXACT_OPTIMIZER = "top_n_window_elimination"
"""Turns `row_number() = 1` into `arg_max` of a struct, in which DuckDB 2.0 takes -0.0 for 0.0."""


def first_row(
    database: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> tuple[Any, ...] | None:
    """Return the first row of a short result.

    All rows are fetched: a result that is not, as after `fetchone`, blocks its connection.
    """
    rows = database.execute(sql, list(parameters)).fetchall()
    return rows[0] if rows else None


def answers(database: duckdb.DuckDBPyConnection) -> bool:
    """Tell whether a database can still be used: an internal error of DuckDB ends it.

    It does not disturb another thread that is using the connection.
    """
    try:
        with closing(database.cursor()) as cursor:
            cursor.execute("SELECT 1").fetchall()
    except (duckdb.FatalException, duckdb.InternalException):
        return False
    return True


def row_count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    """Count the rows of a table."""
    row = first_row(database, f"SELECT count(*) FROM {quoted(table)}")
    return int(row[0]) if row else 0


def fill(database: duckdb.DuckDBPyConnection, table: str, batches: Iterable[pa.Table]) -> int:
    """Write batches into a table; columns go by name, and one left out is null.

    A thread writes batches while the next ones are made: DuckDB works without Python's lock. They
    are committed as they come: an open transaction would keep a second copy of its rows.

    Returns:
        The number of rows.
    """
    count = 0
    with closing(database.cursor()) as writer, ThreadPoolExecutor(1) as pool:
        pending: Future[None] | None = None
        for some in together(batches, _INSERT_BYTES):
            if pending is not None:
                pending.result()
            pending = pool.submit(insert, writer, table, some)
            count += some.num_rows
        if pending is not None:
            pending.result()
    return count


def together(
    batches: Iterable[pa.Table], least_bytes: int, least_rows: int | None = None
) -> Iterator[pa.Table]:
    """Combine small batches, without a copy, up to a least size in bytes or rows."""
    small: list[pa.Table] = []
    size = rows = 0
    for batch in batches:
        small.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= least_bytes or (least_rows is not None and rows >= least_rows):
            yield pa.concat_tables(small, promote_options="default")
            small, size, rows = [], 0, 0
    if small:
        yield pa.concat_tables(small, promote_options="default")


@contextmanager
def lent(database: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """Lend rows to a database, which reads them where they are."""
    database.register(name, table)
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # an error inside DuckDB has ended the database
            database.unregister(name)


def insert(database: duckdb.DuckDBPyConnection, table: str, batch: pa.Table) -> None:
    """Write one batch into a table; columns go by name."""
    with lent(database, "batch", batch):
        database.execute(f"INSERT INTO {quoted(table)} BY NAME FROM batch")


def table_of_rows(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Return rows, at least one, as a table of a schema."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def make_table(database: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema) -> None:
    """Create an empty table of a schema, or replace the one that is there."""
    with lent(database, "batch", schema.empty_table()):
        database.execute(f"CREATE OR REPLACE TABLE {quoted(table)} AS FROM batch")


@contextmanager
def scratch(
    work_directory: Path | None, memory_limit: str, folders: Sequence[Path] = ()
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database that spills to `work_directory` beyond its memory limit.

    None is the system's temporary folder. A database on disk would spend time on compressing rows
    that are read once or twice. Files can be read and written below `folders` only.
    """
    with ScratchFolder("verify", work_directory) as folder:
        database = closed_database(
            {
                "memory_limit": memory_limit,
                "temp_directory": str(Path(folder) / "spill"),
                "preserve_insertion_order": "false",
            },
            folders,
        )
        database.execute(f"SET disabled_optimizers = '{_INEXACT_OPTIMIZER}'")
        try:
            yield database
        finally:
            database.close()
