"""Kept rows in DuckDB: a base in its own file, and layers of the keys touched since.

A base has one row for each key. A layer has one for each key that was touched: the row, or a mark
that it is gone. The newest layer that has a key decides about it, and the base about keys that are
in no layer. Keys are compared by their bytes on the log, so two are equal exactly if they are to
the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import pyarrow as pa

from views.verify.log.tables import KEY_COLUMN, TableState
from views.verify.processes.scratch import lent, row_count
from views.verify.records.survivors import Survivors
from views.verify.values.types import literal, quoted

GONE_COLUMN = "__gone"
_GROUP_BYTES = "32MiB"
"""Most bytes of rows that a thread holds while it writes."""
OWN_COLUMNS = frozenset({KEY_COLUMN, GONE_COLUMN})


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """The survivors that are rows; collects the keys of all, deleted ones included."""

    survivors: Survivors
    keys: list[pa.ChunkedArray] = field(default_factory=list)

    def batches(self) -> Iterator[pa.Table]:
        """Return the records that are rows."""
        for batch in self.survivors.batches():
            self.keys.append(batch["key"])
            yield batch.filter(batch["value"].is_valid())

    def taken(self) -> list[pa.ChunkedArray]:
        """Return the keys collected since the last call."""
        keys = self.keys[:]
        self.keys.clear()
        return keys


def mark_gone(
    database: duckdb.DuckDBPyConnection, state: TableState, keys: Sequence[pa.ChunkedArray]
) -> None:
    """Turn a table of the rows of some keys into a layer: mark the keys whose rows are gone.

    `keys`: all that were touched; those without a row are gone.
    """
    base = quoted(state.base)
    database.execute(f"ALTER TABLE {base} ADD COLUMN {GONE_COLUMN} BOOLEAN DEFAULT false")
    chunks = [chunk for array in keys for chunk in array.chunks]
    keyed = pa.table({KEY_COLUMN: pa.chunked_array(chunks, pa.binary())})
    with lent(database, "touched", keyed):
        database.execute(
            f"INSERT INTO {base} BY NAME SELECT t.{KEY_COLUMN}, true AS {GONE_COLUMN} "
            f"FROM touched AS t ANTI JOIN {base} AS b ON t.{KEY_COLUMN} = b.{KEY_COLUMN}"
        )


def joined(
    database: duckdb.DuckDBPyConnection,
    state: TableState,
    base: Path,
    layers: Sequence[Path],
) -> tuple[TableState, str]:
    """Return the state of a base with older layers and a new one applied to it.

    `state`: has the new layer. `layers`: files of the older ones, oldest first.

    Returns:
        The state, and the table of all rows that were touched since the base.
    """
    names = _column_names(database, state)
    whole, touched = f"{state.base}_whole", state.base
    if layers:
        touched = f"{state.base}_touched"
        database.execute(f"CREATE OR REPLACE TABLE {quoted(touched)} AS FROM {quoted(state.base)}")
    for path in reversed(layers):
        database.execute(
            f"INSERT INTO {quoted(touched)} BY NAME SELECT f.* FROM {_file(path)} AS f "
            f"ANTI JOIN {quoted(touched)} AS t ON f.{KEY_COLUMN} = t.{KEY_COLUMN}"
        )
    database.execute(
        f"CREATE OR REPLACE VIEW {quoted(whole)} AS "
        f"SELECT {names} FROM {_file(base)} AS b "
        f"ANTI JOIN {quoted(touched)} AS t ON b.{KEY_COLUMN} = t.{KEY_COLUMN} "
        f"UNION ALL SELECT {names} FROM {quoted(touched)} WHERE NOT {GONE_COLUMN}"
    )
    return replace(state, base=whole), touched


def write_rows(database: duckdb.DuckDBPyConnection, table: str, path: Path) -> int:
    """Write a table into a file; returns the number of its rows."""
    how = f"FORMAT parquet, ROW_GROUP_SIZE_BYTES '{_GROUP_BYTES}'"
    database.execute(f"COPY {quoted(table)} TO {literal(str(path))} ({how})")
    return row_count(database, table)


def _column_names(database: duckdb.DuckDBPyConnection, state: TableState) -> str:
    described = database.execute(f"DESCRIBE {quoted(state.base)}").fetchall()
    return ", ".join(quoted(str(row[0])) for row in described if row[0] != GONE_COLUMN)


def _file(path: Path) -> str:
    return f"read_parquet({literal(str(path))}, hive_partitioning = false)"
