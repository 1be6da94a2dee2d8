"""An error inside DuckDB that ends a database: nothing in it can be used any more."""

from __future__ import annotations

import duckdb
import pyarrow as pa


def end(database: duckdb.DuckDBPyConnection) -> None:
    """End a database by a moment that is below its own minus infinity."""
    lowest = pa.array([-(2**63)], pa.int64()).view(pa.timestamp("us"))
    database.register("lowest", pa.table({"moment": lowest}))
    database.execute("SELECT CAST(moment AS VARCHAR) FROM lowest").fetchall()
    raise AssertionError("DuckDB has a text for it now: end the database in another way")
