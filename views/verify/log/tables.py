"""Typed DuckDB tables of the states: survivors decoded, column by column, into Arrow.

A value that its column's type cannot hold (NaN in a numeric(p, s), an array of several dimensions)
is kept as text in a second column. Queries see a column with such values through an expression that
fails on them and names the record's place, never as a null. DuckDB evaluates it only for the
columns that a view reads, so a value in another column fails nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from changelog.contract.base.errors import LogError
from changelog.contract.rows.choices import advice
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from views.verify.log.columns import (
    SAMPLED,
    ByColumn,
    ColumnReader,
    is_by_column,
    require_alike,
)
from views.verify.log.decode import AvroDecoder, Decoder, Survivor, survivors_of
from views.verify.processes.pool import Crew, helpers, in_threads
from views.verify.processes.scratch import fill, first_row
from views.verify.records.survivors import Survivors
from views.verify.values.faults import Quarantine
from views.verify.values.names import folded, reading_name
from views.verify.values.types import arrow_type, duckdb_type, literal, logged_type, quoted

MANY_ROWS = 500_000
"""From so many records on, helper processes decode."""
_DECIMAL_BYTES = 16
_NO_DECIMAL = bytes(_DECIMAL_BYTES)
PARTITION_COLUMN = "__partition"
OFFSET_COLUMN = "__offset"
KEY_COLUMN = "__key"
_ESCAPE = "__escape_"
"""Name, before a number, of a column with the texts of values that the type cannot hold."""
_SHOWN = 5
INEXACT = "which has no exact form in its type"
"""Marks DuckDB's error about a value that its column's type cannot hold."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's state in DuckDB."""

    table: TableName  # its name
    topic: str  # of its records
    base: str  # name of the relation in DuckDB; it also has partition and offset of rows
    columns: tuple[LoggedColumn, ...]  # the captured columns
    key: tuple[str, ...]  # names of the primary key's columns
    # names of the columns with a value that their type cannot hold; null in `base`
    inexact: frozenset[str] = frozenset()
    # whether `base` also has the bytes of each row's key; only if rows are read by column
    is_keyed: bool = False
    # columns that queries see in another form: `null` or `text`
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def seen(self) -> tuple[LoggedColumn, ...]:
        """Return the columns with the types that queries see."""
        texts = {name for name, choice in self.choices if choice == "text"}
        return tuple(
            replace(column, type=replace(column.type, kind=Kind.STRING, precision=0, scale=0))
            if column.column in texts
            else column
            for column in self.columns
        )

    def selected(self) -> str:
        """Return the select list over `base`; the query fails on a value without an exact form."""
        return ", ".join(
            f"{self._exact(number)} AS {quoted(folded(column.column))}"
            for number, column in enumerate(self.columns)
        )

    def as_seen(self, database: duckdb.DuckDBPyConnection) -> str:
        """Return the name of a relation with the columns as queries see them, under own names."""
        if not self.choices:
            return self.base
        columns = ", ".join(
            f"{self._exact(number)} AS {quoted(column.column)}"
            for number, column in enumerate(self.columns)
        )
        name = f"{self.base}_seen"
        database.execute(
            f"CREATE OR REPLACE VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(self.base)}"
        )
        return name

    def require_exact(self, database: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> None:
        """Require that some columns have no value that their type cannot hold.

        Raises LogError: one has; names the record's place.
        """
        with exact_values():
            for number, column in enumerate(self.columns):
                if column.column in self.inexact and column.column in columns:
                    query = f"SELECT count({self._exact(number)}) FROM {quoted(self.base)}"
                    database.execute(query).fetchall()

    def stored(self, column: str) -> list[str]:
        """Return the columns of `base` that store a column."""
        number = [column.column for column in self.columns].index(column)
        has_escape = self.columns[number].type.has_escape
        return [column, f"{_ESCAPE}{number}"] if has_escape else [column]

    def _exact(self, number: int) -> str:
        column, escape = self.columns[number], f"{_ESCAPE}{number}"
        if (choice := dict(self.choices).get(column.column)) is not None:
            return _other_form(column, escape, as_text=choice == "text")
        if column.column not in self.inexact:
            return quoted(column.column)
        head = f'table "{self.table}", column "{column.column}" ({column.type.name}) holds '
        parts = [literal(head), escape, literal(f', {INEXACT} (topic "{self.topic}", partition ')]
        message = " || ".join([*parts, PARTITION_COLUMN, "', offset '", OFFSET_COLUMN, "')'"])
        return (
            f"CASE WHEN {escape} IS NOT NULL THEN error({message}) ELSE {quoted(column.column)} END"
        )


def _other_form(column: LoggedColumn, escape: str, *, as_text: bool) -> str:
    """Return the SQL of a column that queries see as text, or with nulls for infinite values.

    DuckDB writes years before 1 with brackets round BC, and timestamps without their zone; the
    result is PostgreSQL's text.
    """
    value, kind = quoted(column.column), column.type.kind
    if column.type.has_escape:
        return f"coalesce({escape}, CAST({value} AS VARCHAR))" if as_text else value
    if not as_text:
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    text = f"replace(CAST({value} AS VARCHAR), ' (BC)', '')"
    zone = "+00" if kind is Kind.TIMESTAMPTZ else ""
    return (
        f"CASE WHEN isfinite({value}) THEN {text} || '{zone}' "
        f"|| CASE WHEN year({value}) < 1 THEN ' BC' ELSE '' END "
        f"ELSE CAST({value} AS VARCHAR) END"
    )


@contextmanager
def exact_values() -> Iterator[None]:
    """Turn DuckDB's error about a value without an exact form into an error for users."""
    try:
        yield
    except duckdb.InvalidInputException as error:
        text = str(error).partition(": ")[2]
        if INEXACT not in text:
            raise
        hint = (
            "say under [rebuild.values] of changelog.toml what views get of it, leave the column "
            "out of the view, or correct the value at the source"
        )
        raise LogError(text, hint=hint) from error


def load_state(
    database: duckdb.DuckDBPyConnection,
    state: TableState,
    decoder: Decoder,
    survivors: Survivors,
    *,
    is_large: bool = False,
) -> TableState:
    """Decode the survivors into the table `state.base`; return the state with its inexact columns.

    Raises CorruptRecordError: a record does not decode.
    """
    create_base(database, state)
    if not is_by_column(decoder) and decoder.travels and helpers() > 1 and is_large:
        tables = _by_helpers(state, decoder, survivors)
    else:
        tables = decoded_tables(state, decoder, survivors)
    fill(database, state.base, tables)
    return replace(state, inexact=inexact_columns(database, state))


def decoded_tables(
    state: TableState, decoder: Decoder, survivors: Survivors, threads: int | None = None
) -> Iterator[pa.Table]:
    """Decode survivors in this process; see `load_state`.

    `state`: the form of the table. `survivors`: the last records of its keys. `threads`: for rows
    that can be read by column; None for one per core.
    """
    if isinstance(decoder, AvroDecoder) and is_by_column(decoder):
        reader = ColumnReader(decoder, partial(_default_column, state))
        read = partial(_by_column, state, reader, decoder)
        yield from chain.from_iterable(in_threads(read, survivors.batches(), threads))
    else:
        for batch in survivors.batches():
            yield _decoded(state, decoder, survivors_of(batch))


def empty_table(state: TableState) -> pa.Table:
    """Return a table of a state without a row."""
    return _table(
        state,
        [_column(column, []) for column in state.columns],
        pa.array([], pa.int32()),
        pa.array([], pa.int64()),
    )


def _by_helpers(state: TableState, decoder: Decoder, survivors: Survivors) -> Iterator[pa.Table]:
    raw = pickle.dumps(decoder)
    jobs = ((_decode, state, raw, survivors_of(batch)) for batch in survivors.batches())
    with closing(Crew()) as crew:
        for table, quarantine in in_threads(crew.ask, jobs):
            yield table
            if decoder.quarantine is not None and quarantine is not None:
                decoder.quarantine.merge(quarantine)


def _decode(
    state: TableState, raw: bytes, batch: Sequence[Survivor]
) -> tuple[pa.Table, Quarantine | None]:
    """Decode some survivors, in a helper."""
    decoder = _unpickled(raw)
    return _decoded(state, decoder, batch), decoder.quarantine


def _keyed(state: TableState, rows: pa.Table, batch: pa.Table) -> pa.Table:
    """Return the rows of a batch, with the bytes of their keys where the state has them."""
    return rows.append_column(KEY_COLUMN, batch["key"]) if state.is_keyed else rows


@lru_cache(maxsize=1)
def _unpickled(raw: bytes) -> Decoder:
    """Unpickle a decoder once for all jobs, so that it asks for each schema once."""
    decoder: Decoder = pickle.loads(raw)  # noqa: S301 - of our own parent
    return decoder


def _decoded(state: TableState, decoder: Decoder, batch: Sequence[Survivor]) -> pa.Table:
    places, columns = decoder.decode(batch)
    arrays = [
        _column(column, values) for column, values in zip(state.columns, columns, strict=True)
    ]
    parts = pa.array([place[0] for place in places], pa.int32())
    return _table(state, arrays, parts, pa.array([place[1] for place in places], pa.int64()))


def _column(column: LoggedColumn, values: list[Any]) -> ByColumn:
    """Return bare values as a column, and the texts of values that its type cannot hold."""
    if not column.type.has_escape:
        return to_arrow(column.type, values), None
    exact = [None if isinstance(value, str) else value for value in values]
    texts = [value if isinstance(value, str) else None for value in values]
    return to_arrow(column.type, exact), pa.array(texts, pa.string())


def _default_column(state: TableState, number: int, default: Any, rows: int) -> ByColumn:  # noqa: ANN401
    return _column(state.columns[number], [default] * rows)


def _table(
    state: TableState, columns: Sequence[ByColumn], parts: pa.Array, offsets: pa.Array
) -> pa.Table:
    arrays: dict[str, pa.Array] = {}
    for number, (column, (values, texts)) in enumerate(zip(state.columns, columns, strict=True)):
        if texts is not None:
            arrays[f"{_ESCAPE}{number}"] = texts
        arrays[column.column] = values
    return pa.table({**arrays, PARTITION_COLUMN: parts, OFFSET_COLUMN: offsets})


def _by_column(
    state: TableState, reader: ColumnReader, decoder: Decoder, batch: pa.Table
) -> list[pa.Table]:
    """Read survivors by column; row by row if that is not possible, and a sample both ways."""
    by_schema = reader.read(batch)
    if by_schema is None:
        return [_keyed(state, _decoded(state, decoder, survivors_of(batch)), batch)]
    tables = []
    for rows, columns in by_schema:
        read = _table(state, columns, *(rows[n].combine_chunks() for n in ("part", "off")))
        tables.append(_keyed(state, read, rows))
        sample = pa.array(np.flatnonzero(rows["off"].to_numpy() % SAMPLED == 0))
        if len(sample):
            reference = _decoded(state, decoder, survivors_of(rows.take(sample)))
            require_alike(state.topic, read.take(sample), reference)
    return tables


def create_base(database: duckdb.DuckDBPyConnection, state: TableState) -> None:
    """Create the empty table of a state."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in base_columns(state))
    database.execute(f"CREATE OR REPLACE TABLE {quoted(state.base)} ({columns})")


def base_columns(state: TableState) -> list[tuple[str, str]]:
    """Return the columns of the table of a state, with DuckDB's names of their types."""
    columns = []
    for number, column in enumerate(state.columns):
        if column.type.has_escape:
            columns.append((f"{_ESCAPE}{number}", "VARCHAR"))
        columns.append((column.column, duckdb_type(logged_type(column.type))))
    columns += [(PARTITION_COLUMN, "INTEGER"), (OFFSET_COLUMN, "BIGINT")]
    return [*columns, (KEY_COLUMN, "BLOB")] if state.is_keyed else columns


def create_view(
    database: duckdb.DuckDBPyConnection, state: TableState, *, with_places: bool = False
) -> None:
    """Create a view of the state, under the name that queries use for the table."""
    names = state.selected()
    if with_places:
        names += f", {PARTITION_COLUMN}, {OFFSET_COLUMN}"
    name = quoted(reading_name(state.table))
    database.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {names} FROM {quoted(state.base)}")


def inexact_in(state: TableState, rows: pa.Table) -> frozenset[str]:
    """Return the columns with a value in some decoded rows that their type cannot hold."""
    return frozenset(
        column.column
        for number, column in enumerate(state.columns)
        if (name := f"{_ESCAPE}{number}") in rows.column_names
        and rows[name].null_count < rows.num_rows
    )


def inexact_columns(database: duckdb.DuckDBPyConnection, state: TableState) -> frozenset[str]:
    """Return the columns with a value that their type cannot hold."""
    suspects = {n: c.column for n, c in enumerate(state.columns) if c.type.has_escape}
    if not suspects:
        return frozenset()
    counts = ", ".join(f"count({_ESCAPE}{number})" for number in suspects)
    inexact_counts = first_row(database, f"SELECT {counts} FROM {quoted(state.base)}") or ()
    return frozenset(
        name for name, count in zip(suspects.values(), inexact_counts, strict=True) if count
    )


def infinite(
    database: duckdb.DuckDBPyConnection, state: TableState, read: Collection[str]
) -> Iterator[str]:
    """Yield a note for each column with infinite dates or timestamps: how many, where, what to do.

    `read`: the columns to look at, by their folded names.
    """
    key = ", ".join(quoted(name) for name in state.key) or f"{PARTITION_COLUMN}, {OFFSET_COLUMN}"
    for column in state.seen:
        if column.type.kind not in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
            continue
        if column.column in dict(state.choices) or folded(column.column) not in read:
            continue
        name = quoted(column.column)
        rows = database.execute(
            f"SELECT count(*) OVER (), {key} FROM {quoted(state.base)} WHERE NOT isfinite({name}) "
            f"ORDER BY {key} LIMIT {_SHOWN}"
        ).fetchall()
        if rows:
            keys = ", ".join(f"({', '.join(map(str, row[1:]))})" for row in rows)
            more = ", …" if rows[0][0] > _SHOWN else ""
            yield (
                f"{state.table}.{column.column} is infinite in {rows[0][0]:,} rows: {keys}{more}"
                f" ({advice(state.table, column)})"
            )


def to_arrow(kind: ColumnType, values: list[Any]) -> pa.Array:
    """Return the bare Avro values of a column as an Arrow array of its type."""
    if kind.kind is Kind.ARRAY:
        return _array_arrow(kind, values)
    if kind.kind is Kind.DECIMAL:
        return _decimal_arrow(kind, values)
    if kind.kind is Kind.DATE:
        # DuckDB's `-infinity` is one above the lowest number, which it does not accept.
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
