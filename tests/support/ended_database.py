"""An error inside DuckDB that ends a database: nothing in it can be used any more."""

from __future__ import annotations

import duckdb
import pyarrow as pa

_FAULTS = (
    (2**62, pa.time64("us")),
    (-(2**63), pa.timestamp("ms")),
    (-(2**63), pa.timestamp("s")),
)
"""Values of Arrow that are none of their types: a version of DuckDB that mends one has others."""


def end(database: duckdb.DuckDBPyConnection) -> None:
    """End a database by the text of a value that it takes over from Arrow unseen."""
    for value, kind in _FAULTS:
        database.register("odd", pa.table({"value": pa.array([value], pa.int64()).view(kind)}))
        database.execute("SELECT CAST(value AS VARCHAR) FROM odd").fetchall()
    raise AssertionError("DuckDB has a text for all of them now: end the database in another way")
