"""Typed DuckDB tables of the states: survivors decoded, column by column, into Arrow.

A value that has no exact place in its column (NaN in a numeric(p, s), an array of several
dimensions) is an error that names the row's place, never a null.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from changelog.contract.errors import LogError
from changelog.contract.relation import TableName
from changelog.contract.schema import LoggedColumn
from changelog.contract.types import ColumnType, Kind
from views.verify.crew import done_by_helpers, helpers
from views.verify.decode import Decoder, Survivor
from views.verify.job import Job, Work
from views.verify.read import place
from views.verify.scratch import fill, first_row, row_count
from views.verify.types import arrow_type, duckdb_type, logged_type, quoted

BATCH_ROWS = 20_000
MANY_ROWS = 200_000
"""From so many on helpers decode."""
_DECIMAL_BYTES = 16
_NO_DECIMAL = bytes(_DECIMAL_BYTES)
PARTITION_COLUMN = "__partition"
OFFSET_COLUMN = "__offset"


@dataclass(frozen=True, slots=True)
class State:
    """A table's state in DuckDB.

    Attributes:
        table: which.
        topic: where its records lie.
        base: name of the DuckDB table; it has each row's partition and offset beside the columns.
        columns: the captured columns.
        key: names of the primary key's columns.
    """

    table: TableName
    topic: str
    base: str
    columns: tuple[LoggedColumn, ...]
    key: tuple[str, ...]


def newest_schema_id(database: duckdb.DuckDBPyConnection, raw: str) -> int | None:
    """Give the schema id of the newest value among the records, None when there is no value."""
    found = first_row(
        database,
        f"SELECT value[1:5] FROM {quoted(raw)} WHERE value IS NOT NULL "
        "ORDER BY epoch DESC, commit_lsn DESC, sequence DESC LIMIT 1",
    )
    return None if found is None else int.from_bytes(found[0][1:5], "big")


def survivor_batches(
    database: duckdb.DuckDBPyConnection, survivors: str
) -> Iterator[list[Survivor]]:
    """Give the surviving records in batches."""
    with database.cursor() as cursor:
        cursor.execute(f"SELECT part, off, value FROM {quoted(survivors)}")
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield batch


def load_state(
    database: duckdb.DuckDBPyConnection,
    state: State,
    decoder: Decoder,
    survivors: str,
) -> None:
    """Decode the survivors into the table `state.base`.

    Raises:
        CorruptRecordError: a record does not decode.
        LogError: a value has no exact place in its column.
    """
    create_base(database, state)
    batches = survivor_batches(database, survivors)
    if decoder.travels and helpers() > 1 and row_count(database, survivors) >= MANY_ROWS:
        raw = pickle.dumps(decoder)
        jobs: Iterator[Job] = ((_decode, (state, raw, batch)) for batch in batches)
        tables = done_by_helpers(jobs, decoder.set_apart)
    else:
        tables = (_decoded(state, decoder, batch) for batch in batches)
    fill(database, state.base, tables)


def _decode(state: State, raw: bytes, batch: Sequence[Survivor]) -> Work:
    """Decode some survivors, in a helper."""
    decoder = _unpickled(raw)
    yield _decoded(state, decoder, batch)
    return decoder.set_apart


@lru_cache(maxsize=1)
def _unpickled(raw: bytes) -> Decoder:
    """Keep a decoder from job to job, with the schemas that it has asked for."""
    decoder: Decoder = pickle.loads(raw)  # noqa: S301 - of our own parent
    return decoder


def _decoded(state: State, decoder: Decoder, batch: Sequence[Survivor]) -> pa.Table:
    places, columns = decoder.decode(batch)
    arrays: dict[str, pa.Array] = {}
    for column, values in zip(state.columns, columns, strict=True):
        _check_escapes(state, column, values, places)
        arrays[column.column] = to_arrow(column.type, values)
    arrays[PARTITION_COLUMN] = pa.array([each[0] for each in places], pa.int32())
    arrays[OFFSET_COLUMN] = pa.array([each[1] for each in places], pa.int64())
    return pa.table(arrays)


def create_base(database: duckdb.DuckDBPyConnection, state: State) -> None:
    """Make the empty table of a state."""
    columns = [
        *(f"{quoted(c.column)} {duckdb_type(logged_type(c.type))}" for c in state.columns),
        f"{PARTITION_COLUMN} INTEGER",
        f"{OFFSET_COLUMN} BIGINT",
    ]
    database.execute(f"CREATE OR REPLACE TABLE {quoted(state.base)} ({', '.join(columns)})")


def create_view(database: duckdb.DuckDBPyConnection, state: State) -> None:
    """Give the state the name under which a view's query speaks of it."""
    schema, table = quoted(state.table.schema), quoted(state.table.table)
    names = ", ".join(quoted(column.column) for column in state.columns)
    database.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    database.execute(f"CREATE VIEW {schema}.{table} AS SELECT {names} FROM {quoted(state.base)}")


def _check_escapes(
    state: State, column: LoggedColumn, values: list[Any], places: Sequence[tuple[int, int]]
) -> None:
    if not column.type.has_escape:
        return
    for value, (partition, offset) in zip(values, places, strict=True):
        if isinstance(value, str):
            raise LogError(
                f'table "{state.table}", column "{column.column}" ({column.type.name}) holds '
                f"{value!r}, which has no exact form in its type "
                f"({place(state.topic, partition, offset)})",
                hint="exclude the column, or correct the value at the source",
            )


def to_arrow(kind: ColumnType, values: list[Any]) -> pa.Array:
    """Give the bare Avro values of a column as an Arrow array of its type."""
    if kind.kind is Kind.ARRAY:
        return _array_arrow(kind, values)
    if kind.kind is Kind.DECIMAL:
        return _decimal_arrow(kind, values)
    if kind.kind is Kind.DATE:
        # DuckDB's own infinities are the ends but one of the range; -2^31 would end it.
        return _within(values, -(2**31), pa.int32()).view(pa.date32())
    if kind.kind in {Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
        return _within(values, -(2**63), pa.int64()).view(pa.timestamp("us"))
    return pa.array(values, arrow_type(logged_type(kind)))


def _within(values: list[Any], lowest: int, storage: pa.DataType) -> pa.Array:
    if lowest in values:
        values = [lowest + 1 if value == lowest else value for value in values]
    return pa.array(values, storage)


def _decimal_arrow(kind: ColumnType, values: list[Any]) -> pa.Array:
    """Build the array from the unscaled integers: no Decimal per value."""
    body = b"".join([_NO_DECIMAL if value is None else _widened(value) for value in values])
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        pa.decimal128(kind.precision, kind.scale),
        len(values),
        [valid.buffers()[1], pa.py_buffer(body)],
    )


def _widened(raw: bytes) -> bytes:
    number = int.from_bytes(raw, "big", signed=True)
    return number.to_bytes(_DECIMAL_BYTES, "little", signed=True)


def _array_arrow(kind: ColumnType, values: list[Any]) -> pa.Array:
    assert kind.element is not None  # noqa: S101 - an array has an element
    flat = [item for value in values if value is not None for item in value]
    offsets, place_ = [], 0
    for value in values:
        offsets.append(place_)
        place_ += 0 if value is None else len(value)
    offsets.append(place_)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        to_arrow(kind.element, flat),
        mask=pa.array([value is None for value in values], pa.bool_()),
    )
