"""Tables of Arrow in other libraries, with every value exact.

pandas' own types have no nulls for whole numbers and would round them, so frames keep Arrow's.
DuckDB stores infinite dates and timestamps as other numbers than PostgreSQL, and Python has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

_INFINITY, _BEFORE_ALL = "infinity", "-infinity"
_MOST_CHARACTERS = 60


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table in pandas; columns have Arrow's types."""
    import pandas as pd  # noqa: PLC0415 - only who asks for it waits for it

    return table.to_pandas(types_mapper=pd.ArrowDtype)


def duckdb_relation(
    table: pa.Table, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyRelation:
    """Return a table as a relation of a connection; without one, of a new database in memory."""
    import duckdb  # noqa: PLC0415 - only who asks for it waits for it

    columns = [pa.chunked_array([_for_duckdb(c) for c in column.chunks], column.type)
               for column in table.columns]  # fmt: skip
    converted = pa.Table.from_arrays(columns, schema=table.schema)
    return (connection or duckdb.connect()).from_arrow(converted)


def _for_duckdb(values: pa.Array) -> pa.Array:
    """Move the lowest date or timestamp up by one: that number is DuckDB's `-infinity`."""
    kind = values.type
    if pa.types.is_list(kind):
        # `values` and not `flatten`: offsets count from the array's whole child.
        items = _for_duckdb(values.values)
        return pa.Array.from_buffers(
            kind, len(values), values.buffers()[:2], offset=values.offset, children=[items]
        )
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return values
    stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    numbers = values.view(stored)
    lowest = -(2 ** (stored.bit_width - 1))
    is_lowest = pc.equal(numbers, pa.scalar(lowest, stored))
    return pc.if_else(is_lowest, pa.scalar(lowest + 1, stored), numbers).view(kind)


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return Python's values; a date or timestamp that Python cannot hold becomes a text."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_python_value(value) for value in column]


def _python_value(value: pa.Scalar) -> Any:  # noqa: ANN401 - any type
    if not value.is_valid:
        return None
    if pa.types.is_list(value.type):
        return [_python_value(item) for item in value.values]
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return _text_of(value)


def _text_of(value: pa.Scalar) -> str:
    """Return PostgreSQL's word for an infinite date or moment; Arrow's text of any other."""
    number = value.value
    bits = 32 if pa.types.is_date32(value.type) else 64
    if number == 2 ** (bits - 1) - 1:
        return _INFINITY
    if number == -(2 ** (bits - 1)):
        return _BEFORE_ALL
    return str(value.cast(pa.string()).as_py())


def texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return short texts of a row's values, for people."""
    return {name: _short(value) for name, value in row.items()}


def _short(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
