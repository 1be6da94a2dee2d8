"""One text for each value, written the same way from the log and by PostgreSQL itself.

The source writes it in SQL, on the server; the log's side writes it here from bare Avro values. Two
values are equal exactly if their texts are: floats are written as their bits (NaN as the word:
PostgreSQL keeps its sign and never shows it), dates and timestamps as numbers of days or
microseconds, bytes in hex, arrays as JSON of such texts. A value in the text branch of its union is
PostgreSQL's own text on both sides.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

from psycopg2 import sql

from changelog.contract.rows.types import ColumnType, Kind

_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")
_DATE_ENDS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
_TIMESTAMP_ENDS = {2**63 - 1: "infinity", -(2**63): "-infinity"}
Writer = Callable[[Any], str]

_EXPRESSIONS = {
    Kind.BOOLEAN: "({0})::text",
    Kind.INT: "({0})::text",
    Kind.LONG: "({0})::text",
    Kind.FLOAT: "CASE WHEN {0} = 'NaN' THEN 'NaN' ELSE encode(float4send({0}), 'hex') END",
    Kind.DOUBLE: "CASE WHEN {0} = 'NaN' THEN 'NaN' ELSE encode(float8send({0}), 'hex') END",
    Kind.DECIMAL: "({0})::text",
    # `format` calls the type's output function; a cast to text would strip bpchar's blanks.
    Kind.STRING: "format('%%s', {0})",
    Kind.UUID: "({0})::text",
    Kind.BYTES: "encode({0}, 'hex')",
    Kind.DATE: "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text ELSE ({0})::text END",
    Kind.TIMESTAMP: "CASE WHEN isfinite({0}) "
    "THEN (extract(epoch FROM {0}) * 1000000)::bigint::text ELSE ({0})::text END",
    Kind.TIMESTAMPTZ: "CASE WHEN isfinite({0}) "
    "THEN (extract(epoch FROM {0}) * 1000000)::bigint::text ELSE ({0})::text END",
}
# The condition that Avro's type cannot hold an element, so that the log has the array as text.
_AS_TEXT_TOO = {
    Kind.TIMESTAMP: "OR EXISTS (SELECT FROM unnest({0}) AS item WHERE isfinite(item) "
    "AND item >= timestamp '294247-01-10 04:00:54.775807') ",
    Kind.TIMESTAMPTZ: "OR EXISTS (SELECT FROM unnest({0}) AS item WHERE isfinite(item) "
    "AND item >= timestamptz '294247-01-10 04:00:54.775807+00') ",
}


def source_expression(column: str, kind: ColumnType) -> sql.Composable:
    """Return the SQL by which PostgreSQL writes a column; null stays null."""
    name = sql.Identifier(column)
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None  # noqa: S101 - an array has an element
        item = sql.SQL(_expression(kind.element)).format(sql.Identifier("item"))
        # `unnest` in a FROM clause would part composite elements into their columns.
        return sql.SQL(
            "CASE WHEN {0} IS NOT DISTINCT FROM NULL THEN NULL "
            "WHEN array_ndims({0}) > 1 OR coalesce(array_lower({0}, 1), 1) <> 1 "
            + _AS_TEXT_TOO.get(kind.element.kind, "")
            + "THEN ({0})::text "
            "ELSE array_to_json(ARRAY(SELECT CASE WHEN item IS DISTINCT FROM NULL THEN {1} END "
            "FROM (SELECT unnest({0}) AS item) AS u))::text END"
        ).format(name, item)
    expression = _expression(kind)
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN " + expression + " END").format(name)


def _expression(kind: ColumnType) -> str:
    return _EXPRESSIONS[kind.kind].replace("%%", "%")


def writer(kind: ColumnType) -> Writer:  # noqa: PLR0911 - one for each kind
    """Return the function that writes a bare Avro value, not null, of a type."""
    match kind.kind:
        case Kind.BOOLEAN:
            return lambda value: "true" if value else "false"
        case Kind.INT | Kind.LONG:
            return str
        case Kind.FLOAT:
            return lambda value: "NaN" if math.isnan(value) else _FLOAT.pack(value).hex()
        case Kind.DOUBLE:
            return lambda value: "NaN" if math.isnan(value) else _DOUBLE.pack(value).hex()
        case Kind.DECIMAL:
            return lambda value: value if isinstance(value, str) else _decimal(value, kind.scale)
        case Kind.BYTES:
            return lambda value: str(value.hex())
        case Kind.DATE:
            return lambda value: _DATE_ENDS.get(value) or str(value)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return lambda value: _TIMESTAMP_ENDS.get(value) or str(value)
        case Kind.ARRAY:
            return _array_writer(kind)
        case _:
            return str


def _array_writer(kind: ColumnType) -> Writer:
    assert kind.element is not None  # noqa: S101 - an array has an element
    element = writer(kind.element)

    def write(value: Any) -> str:  # noqa: ANN401 - a list, or the escape's text
        if isinstance(value, str):
            return value
        items = [None if item is None else element(item) for item in value]
        return json.dumps(items, ensure_ascii=False, separators=(",", ":"))

    return write


def _decimal(raw: bytes, scale: int) -> str:
    unscaled = int.from_bytes(raw, "big", signed=True)
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
