"""The rows of one generation in PostgreSQL, through a cursor of a read-only transaction.

The server sends each value in an unambiguous form: timestamps as microseconds and dates as days
since 1970, floats and decimals as their digits, byte strings in hexadecimal, arrays as JSON of
these. Documents are read by the strict readers of documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import extensions, sql

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.postgres.connection import opened
from changelog.postgres.watched import watched
from views.base.address import Address
from views.verify.values.jsonform import reader
from views.verify.values.types import Type, arrow_type

_OPTIONS = (
    "-c timezone=UTC -c statement_timeout=0 -c standard_conforming_strings=on "
    "-c extra_float_digits=3 -c intervalstyle=postgres -c bytea_output=hex"
)
_SESSION = {"connect_timeout": 10, "options": _OPTIONS, "client_encoding": "UTF8"}
# Without an answer for so long the connection counts as lost.
_SILENT_S = 60.0
# Rows of the first page, whose size decides how many the next has.
_SAMPLE = 200
_PAGE_BYTES = 8 << 20
_MOST_ROWS = 20_000
_NESTED = {"array", "struct", "map"}
_DATE_END, _MOMENT_END = 2**31 - 1, 2**63 - 1

_DATE = (
    "CASE {v} WHEN date 'infinity' THEN "
    f"{_DATE_END} WHEN date '-infinity' THEN -{_DATE_END} ELSE {{v}} - date '1970-01-01' END"
)
_MOMENT = (
    "CASE {v} WHEN {t} 'infinity' THEN "
    f"{_MOMENT_END} WHEN {{t}} '-infinity' THEN -{_MOMENT_END} "
    "ELSE (extract(epoch FROM {v}) * 1000000)::bigint END"
)
_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "decimal": "numeric",
}
_LONG_NAMES = {
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}


def postgres_tables(address: Address, columns: Sequence[tuple[str, Type]]) -> Iterator[pa.Table]:
    """Return the rows of a generation's table."""
    url, table = address.location["url"], address.location["table"]
    names = json.loads(address.location.get("columns", "{}"))
    place = sql.Identifier(*table.split("."))
    try:
        settings = {**extensions.parse_dsn(url), **_SESSION}
        with (
            closing(opened(**settings)) as link,
            watched(link, settings, _SILENT_S),
        ):
            link.set_session(isolation_level="REPEATABLE READ", readonly=True)
            chosen = {*json.loads(address.location.get("types", "[]"))}
            expected = {names.get(name, name): _own_type(kind) for name, kind in columns}
            _check_columns(link, table, {**expected, **dict.fromkeys(chosen & {*expected})})
            values = [_value(sql.Identifier(names.get(name, name)), kind) for name, kind in columns]
            query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(values), place)
            for page in _pages(link, query):
                yield _page_table(page, columns, table)
    except psycopg2.Error as error:
        raise SinkError(
            f"{table} at {_shown(url)} cannot be read: {_clean(url, str(error))}",
            hint="check that the server runs and that its address is right",
        ) from error


def _check_columns(
    link: extensions.connection, table: str, expected: Mapping[str, str | None]
) -> None:
    """Check the names of the columns, and their types where these are not the user's choice."""
    with link.cursor() as cursor:
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [table],
        )
        actual = dict(cursor.fetchall())
    if sorted(actual) != sorted(expected):
        raise SinkError(
            f"{table} has the columns {', '.join(actual)}; the view has {', '.join(expected)}"
        )
    for name, kind in expected.items():
        if kind is not None and actual[name] != kind:
            raise SinkError(
                f'{table}: column "{name}" has the type {actual[name]}, and was written as {kind}',
                hint="something else has changed it; rebuild the view",
            )


def _own_type(kind: Type) -> str | None:
    """Return PostgreSQL's name of a column's type, or None if it is not known."""
    if _is_document(kind):
        return "jsonb"
    if kind.name == "array":
        element = _own_type(kind.fields[0][1])
        return None if element is None else f"{element}[]"
    if kind.name == "decimal":
        return f"numeric({kind.precision},{kind.scale})"
    return {**_TYPES, **_LONG_NAMES}.get(kind.name)


def _pages(link: extensions.connection, query: sql.Composed) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows in pages of about the same size in bytes, estimated from the previous page."""
    with link.cursor(name="served") as cursor:
        cursor.execute(query)
        size = _SAMPLE
        while page := cursor.fetchmany(size):
            yield page
            page_bytes = sum(
                len(value) if isinstance(value, str) else 8 for row in page for value in row
            )
            size = max(1, min(_MOST_ROWS, _PAGE_BYTES * len(page) // max(page_bytes, 1)))


def _value(name: sql.Identifier, kind: Type) -> sql.Composable:
    """Return the SQL expression that reads a column in the form that the verifier compares."""
    if _is_document(kind):
        return sql.SQL("{}::jsonb::text").format(name)
    if kind.name == "array":
        element = kind.fields[0][1]
        item = _scalar("e", element)
        return sql.SQL(
            "CASE WHEN {0} IS NOT NULL THEN (SELECT coalesce(json_agg("
            + item
            + " ORDER BY n), '[]'::json)::text FROM unnest({0}::"
            + _TYPES[element.name]
            + "[]) WITH ORDINALITY u (e, n)) END"
        ).format(name)
    return sql.SQL(_scalar(f"{{0}}::{_TYPES[kind.name]}", kind)).format(name)


def _scalar(value: str, kind: Type) -> str:
    """Return an expression with the unambiguous form of a value, a text or a number."""
    match kind.name:
        case "float" | "double" | "decimal":
            return f"({value})::text"
        case "binary":
            return f"encode({value}, 'hex')"
        case "date":
            return _DATE.format(v=f"({value})")
        case "timestamp" | "timestamp_ntz":
            return _MOMENT.format(v=f"({value})", t=_TYPES[kind.name])
        case _:
            return value


def _is_document(kind: Type) -> bool:
    if kind.name == "array":
        return kind.fields[0][1].name in _NESTED
    return kind.name in _NESTED


def _page_table(
    page: list[tuple[Any, ...]], columns: Sequence[tuple[str, Type]], table: str
) -> pa.Table:
    arrays = {}
    for (name, kind), values in zip(columns, zip(*page, strict=True), strict=True):
        try:
            arrays[name] = _arrow_array(values, kind)
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise SinkError(f'{table}, column "{name}": {error}') from error
    return pa.table(arrays)


def _arrow_array(values: Sequence[Any], kind: Type) -> pa.Array:
    if _is_document(kind):
        read = reader(kind)
        documents = (None if text is None else read(json.loads(text)) for text in values)
        return pa.array(list(documents), arrow_type(kind))
    if kind.name == "array":
        element = kind.fields[0][1]
        lists = [None if v is None else json.loads(v) for v in values]
        flat = _arrow_array([item for some in lists if some for item in some], element)
        ends = [0]
        for some in lists:
            ends.append(ends[-1] + len(some or ()))
        mask = pa.array([some is None for some in lists])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, mask=mask)
    return _plain_array(values, kind)


def _plain_array(values: Sequence[Any], kind: Type) -> pa.Array:
    match kind.name:
        case "float" | "double" | "decimal":
            return pa.array(values, pa.string()).cast(arrow_type(kind))
        case "binary":
            raw = [None if value is None else bytes.fromhex(value) for value in values]
            return pa.array(raw, pa.binary())
        case "date":
            return pa.array(values, pa.int32()).view(arrow_type(kind))
        case "timestamp" | "timestamp_ntz":
            return pa.array(values, pa.int64()).view(arrow_type(kind))
        case _:
            return pa.array(values, arrow_type(kind))


def _shown(url: str) -> str:
    parsed = extensions.parse_dsn(url)
    return f"{parsed.get('host', 'localhost')}:{parsed.get('port', '5432')}"


def _clean(url: str, text: str) -> str:
    cleaned = redacted(" ".join(text.split()))
    password = extensions.parse_dsn(url).get("password")
    return cleaned.replace(password, "***") if password else cleaned
