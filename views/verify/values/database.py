"""DuckDB databases in memory for a user's SQL: no extension, no file, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb


def closed_database(
    settings: dict[str, str] | None = None, folders: Sequence[Path] = ()
) -> duckdb.DuckDBPyConnection:
    """Open a database in memory whose SQL reaches nothing outside of it.

    A view's text passes a translation that knows its functions. Should one slip through, there is
    still no file to read, no file to write, and no extension to fetch (DuckDB, "Securing DuckDB").

    Args:
        settings: DuckDB's, by their names. Its `temp_directory` stays usable.
        folders: the only places where files may be read and written.
    """
    database = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            **(settings or {}),
        },
    )
    # In this order: nothing can be allowed any more once the outside is closed.
    database.execute("SET allowed_directories = ?", [[str(folder) for folder in folders]])
    database.execute("SET enable_external_access = false")
    return database
