"""A DuckDB database for one verification: on disk, bounded in memory, gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb


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
