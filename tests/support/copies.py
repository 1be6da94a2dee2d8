"""A table of PostgreSQL with every type that can be compared, and copies of it of each kind."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import psycopg2
import pyarrow as pa
from deltalake import write_deltalake
from psycopg2.extensions import parse_dsn
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

COLUMNS = {
    "id": ("bigint PRIMARY KEY", "BIGINT"),
    "n": ("numeric(20,4)", "DECIMAL(20,4)"),
    "big": ("numeric", "VARCHAR"),
    "f": ("double precision", "DOUBLE"),
    "r": ("real", "FLOAT"),
    "t": ("text", "VARCHAR"),
    "v": ("varchar(40)", "VARCHAR"),
    "c": ("char(5)", "VARCHAR"),
    "b": ("boolean", "BOOLEAN"),
    "y": ("bytea", "BLOB"),
    "u": ("uuid", "UUID"),
    "d": ("date", "DATE"),
    "ti": ("time", "TIME"),
    "ts": ("timestamp", "TIMESTAMP"),
    "tz": ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
    "j": ("jsonb", "VARCHAR"),
    "ia": ("int[]", "INTEGER[]"),
    "ta": ("text[]", "VARCHAR[]"),
}
"""The columns: their types at the source and in DuckDB."""

Values = dict[str, Any]


def _single(number: float) -> float:
    """Return the float of four bytes that is nearest."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def every_row() -> list[Values]:
    """Return rows with hostile values, in the order of their ids."""
    texts = [
        "plain",
        "",
        " a ",
        "é",
        "e\u0301",
        'q"uo\\te',
        "a,b(c)\n\t\r\v\f",
        "\u2028🙂",
        "NULL",
        None,
    ]
    numbers = ["0", "-0.0001", "1234567890123456.7890", "1.5000", "99.9", "10", None]
    bigs = [f"0.{1:030}", "-12345678901234567890123456789012345678.5", "100", "NaN", "0.10", None]
    floats = [0.0, -0.0, 0.1, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 1e15, None]
    moments = [
        datetime(1, 1, 1),  # noqa: DTZ001
        datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        datetime(2024, 2, 29, 12, 0, 0, 100000),  # noqa: DTZ001
        datetime(9999, 12, 31, 23, 59, 59, 1),  # noqa: DTZ001
        None,
    ]
    documents = [
        '{"a": 1, "bb": [1.50, null, "é"]}', "{}", "[]", '"text"', "null", "1e2",
        '{"k": "quote \\" \\\\ \\n", "n": -0.5}', None,
    ]  # fmt: skip
    rows: list[Values] = []
    for place in range(60):
        moment = moments[place % len(moments)]
        number, big = numbers[place % len(numbers)], bigs[place % len(bigs)]
        value = floats[place % len(floats)]
        text = texts[place % len(texts)]
        rows.append(
            {
                "id": place * 1021 - 30,
                "n": None if number is None else Decimal(number),
                "big": big,
                "f": value,
                "r": None if value is None else _single(min(value, 3e38)),
                "t": text,
                "v": texts[(place + 3) % len(texts)],
                "c": None if text is None else f"{place % 7}",
                "b": [True, False, None][place % 3],
                "y": [b"", b"\x00\xff\\x", b"abc", None][place % 4],
                "u": None if place % 5 == 0 else UUID(int=place << 64 | 0xABCDEF),
                "d": None if moment is None else moment.date(),
                "ti": [time(0), time(23, 59, 59, 999999), time(1, 2, 3, 40), None][place % 4],
                "ts": moment,
                "tz": None if moment is None else moment.replace(tzinfo=UTC),
                "j": documents[place % len(documents)],
                "ia": [[1, None, -3], [], None, [2147483647]][place % 4],
                "ta": [['a,"b', None, "", "\\é\n"], [], None, ["{}"]][place % 4],
            }
        )
    return rows


class Source:
    """The table `every` of PostgreSQL."""

    def __init__(self, dsn: str, name: str = "every") -> None:
        self.dsn, self.name = dsn, name
        listed = ", ".join(f"{column} {kind}" for column, (kind, _) in COLUMNS.items())
        self.execute(f"CREATE TABLE {name} ({listed})")

    def execute(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(self.dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall() if cursor.description else []

    def fill(self, rows: list[Values]) -> None:
        self.execute(f"TRUNCATE {self.name}")
        casts = ", ".join(f"%s::{kind.split(' PRIMARY')[0]}" for kind, _ in COLUMNS.values())
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            for row in rows:
                values = [_adapted(row[name]) for name in COLUMNS]
                cursor.execute(f"INSERT INTO {self.name} VALUES ({casts})", values)
            connection.commit()


def _adapted(value: Any) -> Any:
    return str(value) if isinstance(value, UUID | float) else value


class PostgresCopy(Source):
    """A table of PostgreSQL, without a primary key, so that a key may be there twice."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, "copy")
        self.execute("ALTER TABLE copy DROP CONSTRAINT copy_pkey")
        name = parse_dsn(dsn)["dbname"]
        self.target = f"postgres:{dsn} dbname={name}/copy"


class DuckdbCopy:
    """A table of a DuckDB file."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.folder = folder
        self.target = f"duckdb:{folder}/copy.duckdb/copy"

    def fill(self, rows: list[Values]) -> None:
        with closing(duckdb.connect(str(self.folder / "copy.duckdb"))) as database:
            self.into(database, rows)

    @staticmethod
    def into(database: duckdb.DuckDBPyConnection, rows: list[Values]) -> None:
        listed = ", ".join(f"{column} {kind}" for column, (_, kind) in COLUMNS.items())
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE OR REPLACE TABLE copy ({listed})")
        marks = ", ".join("?" for _ in COLUMNS)
        for row in rows:
            database.execute(f"INSERT INTO copy VALUES ({marks})", [row[name] for name in COLUMNS])


class ParquetCopy(DuckdbCopy):
    """Files of Parquet."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self.target = f"parquet:{folder}/part-*.parquet"

    def fill(self, rows: list[Values]) -> None:
        with closing(duckdb.connect()) as database:
            self.into(database, rows)
            for part in range(2):
                file = self.folder / f"part-{part}.parquet"
                database.execute(
                    f"COPY (SELECT * FROM copy WHERE id % 2 = {part} OR id % 2 = {-part})"
                    f" TO '{file}' (FORMAT parquet)"
                )


class DeltaCopy(DuckdbCopy):
    """A Delta table with two partitions; Delta has no time of day, so that is text there."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self.target = f"delta:{folder}/copy"

    def fill(self, rows: list[Values]) -> None:
        with closing(duckdb.connect()) as database:
            self.into(database, rows)
            table = database.sql(
                "SELECT * REPLACE (CAST(ti AS VARCHAR) AS ti), id % 2 AS part FROM copy"
            ).to_arrow_table()
        write_deltalake(f"{self.folder}/copy", table, mode="overwrite", partition_by=["part"])


def iceberg_catalogue(folder: Path) -> SqlCatalog:
    """Open a catalogue of Iceberg, a file in a folder."""
    catalogue = SqlCatalog("here", uri=f"sqlite:///{folder}/catalogue.db", warehouse=str(folder))
    catalogue.create_namespace_if_not_exists("shop")
    return catalogue


class IcebergCopy(DuckdbCopy):
    """A table of Iceberg, by the folder in which its catalogue keeps it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self.target = f"iceberg:{folder}/shop/copy"

    def fill(self, rows: list[Values]) -> None:
        with closing(duckdb.connect()) as database:
            self.into(database, rows)
            table = database.sql("SELECT * FROM copy").to_arrow_table()
        zoned = pa.field("tz", pa.timestamp("us", "UTC"))
        table = table.cast(table.schema.set(table.schema.get_field_index("tz"), zoned))
        with iceberg_catalogue(self.folder) as catalogue:
            try:
                catalogue.load_table("shop.copy").overwrite(table)
            except NoSuchTableError:
                catalogue.create_table("shop.copy", table.schema).append(table)


Copy = PostgresCopy | DuckdbCopy
KINDS: dict[str, Callable[[str, Path], Copy]] = {
    "postgres": PostgresCopy,
    "parquet": ParquetCopy,
    "duckdb": DuckdbCopy,
    "delta": DeltaCopy,
    "iceberg": IcebergCopy,
}
