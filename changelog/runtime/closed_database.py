"""DuckDB in memory and shut: the SQL of others runs in it, and reaches nothing but its tables.

DuckDB by itself reads and writes any file of the user's, speaks to the network, fetches extensions,
and takes variables of Python for tables. None of that is a view's or a query's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import duckdb

SHUT: Mapping[str, str] = MappingProxyType(
    {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "enable_external_access": "false",
    }
)
"""Settings, in the order in which they are made: behind the last nothing opens them again."""


def closed_database(
    settings: Mapping[str, str] | None = None, folders: Iterable[Path] = ()
) -> duckdb.DuckDBPyConnection:
    """Open a database in memory.

    What does not fit in memory goes to the `temp_directory` of the settings. Files in `folders` may
    be read and written all the same.
    """
    database = duckdb.connect(":memory:", config=dict(settings or {}))
    if listed := [str(folder) for folder in folders]:
        database.execute("SET allowed_directories = $1", [listed])
    shut(database)
    return database


def return_freed(database: duckdb.DuckDBPyConnection, memory_limit: str) -> None:
    """Have DuckDB return to the system what it has freed; else it keeps it until it works again.

    It does so whenever it is given a memory limit. `memory_limit`: the one that it has, in its own
    notation; what it tells of it is rounded.
    """
    # An error inside DuckDB has ended it then, which is for whoever asks it next.
    with suppress(duckdb.Error):
        database.execute(f"SET memory_limit = '{memory_limit}'")


def shut(database: duckdb.DuckDBPyConnection) -> None:
    """Shut a database that is open, and keep it silent.

    Afterwards it takes no other place for what does not fit.
    """
    if database.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        # It goes to stdout, where results go. In Jupyter DuckDB may refuse any such setting.
        database.execute("SET enable_progress_bar = false")
    for name, value in SHUT.items():
        database.execute(f"SET {name} = {value}")
