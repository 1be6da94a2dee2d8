"""Read the rows that a sink serves, as its readers would, into one DuckDB table.

The table has the view's columns and two more: `__fault`, the reason why a row is not in the form
that its sink promises, and `__id`, the row's document id or cache key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from changelog.contract.base.errors import SinkError
from changelog.runtime.process.memory import return_freed
from views.base.address import Address
from views.verify.processes.scratch import fill, first_row, insert, row_count
from views.verify.served.cache import cache_tables
from views.verify.served.delta import conformed, delta_batches
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN, DocumentForm
from views.verify.served.iceberg import iceberg_tables
from views.verify.served.postgres import postgres_tables
from views.verify.served.search import search_tables
from views.verify.served.topic import topic_tables
from views.verify.values.types import Type, duckdb_type, quoted


def read_served(
    database: duckdb.DuckDBPyConnection,
    table: str,
    address: Address,
    columns: Sequence[tuple[str, Type]],
    key: Sequence[str],
) -> int:
    """Read all rows that a generation serves into a new table.

    Returns:
        The number of rows.

    Raises SinkError: the address cannot be read, or has other columns than the view.
    """
    _create_table(database, table, columns)
    rows = fill(database, table, _batches(address, columns, key))
    return_freed()
    return _without_copies(database, table, rows) if address.sink == "cache" else rows


def take_sent(
    database: duckdb.DuckDBPyConnection,
    table: str,
    rows: pa.Table,
    columns: Sequence[tuple[str, Type]],
) -> int:
    """Load rows that are about to be sent to a sink into a new table, as if they were served.

    Returns:
        The number of rows.

    Raises SinkError: they have other columns than the view.
    """
    _create_table(database, table, columns)
    insert(database, table, conformed("what is sent", rows, columns))
    return int(rows.num_rows)


def _create_table(
    database: duckdb.DuckDBPyConnection, table: str, columns: Sequence[tuple[str, Type]]
) -> None:
    definitions = [
        *(f"{quoted(name)} {duckdb_type(kind)}" for name, kind in columns),
        f"{FAULT_COLUMN} VARCHAR",
        f"{ID_COLUMN} VARCHAR",
    ]
    database.execute(f"CREATE OR REPLACE TABLE {quoted(table)} ({', '.join(definitions)})")


def _without_copies(database: duckdb.DuckDBPyConnection, table: str, rows: int) -> int:
    """Remove the copies of rows that a cache's SCAN returned twice; returns the number left."""
    name = quoted(table)
    distinct = first_row(database, f"SELECT count(DISTINCT {ID_COLUMN}) FROM {name}")
    if distinct == (rows,):
        return rows
    database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT DISTINCT * FROM {name}")
    return row_count(database, table)


def _batches(
    address: Address, columns: Sequence[tuple[str, Type]], key: Sequence[str]
) -> Iterator[pa.Table]:
    match address.sink:
        case "delta":
            yield from delta_batches(address.location["path"], columns)
        case "memory":
            yield from DocumentForm(columns, key).tables(_line_documents(address))
        case "search":
            yield from search_tables(address, DocumentForm(columns, key))
        case "cache":
            yield from cache_tables(address, DocumentForm(columns, key))
        case "postgres":
            yield from postgres_tables(address, columns)
        case "iceberg":
            yield from iceberg_tables(address, columns)
        case "topic":
            yield from topic_tables(address, DocumentForm(columns, key))
        case _:
            raise SinkError(f'what sink "{address.sink}" serves cannot be read for verification')


def _line_documents(address: Address) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the row of each line."""
    path = Path(address.location["path"])
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                yield entry["id"], entry["row"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{path} cannot be read: {error!r}") from error
