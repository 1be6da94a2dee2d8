"""A DuckDB database for one verification: on disk, bounded in memory, gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from views.verify.types import quoted


def first_row(
    database: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> tuple[Any, ...] | None:
    """Give the first row of a short result.

    All of it is fetched: a result that is not, as after `fetchone`, blocks its connection.
    """
    rows = database.execute(sql, list(parameters)).fetchall()
    return rows[0] if rows else None


def row_count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    """Count the rows of a table."""
    row = first_row(database, f"SELECT count(*) FROM {quoted(table)}")
    return int(row[0]) if row else 0


@contextmanager
def scratch(work_directory: Path | None, memory_limit: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database below `work_directory` (None: the system's place) and remove it after."""
    with tempfile.TemporaryDirectory(
        prefix="changelog-verify-", dir=work_directory, ignore_cleanup_errors=True
    ) as folder:
        database = duckdb.connect(
            str(Path(folder) / "verify.duckdb"),
            config={
                "memory_limit": memory_limit,
                "temp_directory": str(Path(folder) / "spill"),
                "preserve_insertion_order": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        try:
            yield database
        finally:
            database.close()
