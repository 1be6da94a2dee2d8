"""SQL by which PostgreSQL writes canonical texts of its values. Pure.

An expression gives a value whose text, as a member of a row, is the canonical one: `ROW(…)::text`
then calls the types' own output functions, quotes and joins, which is as quick as COPY.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2 import sql

from changelog.compare.forms import Form, Kind, Native
from changelog.compare.texts import RAW

_TRIM_SCALE_VERSION = 130_000
_FLOATS = {Kind.REAL: "float4", Kind.DOUBLE: "float8"}
_TEXTS = {Kind.TEXT, Kind.PADDED, Kind.PLAIN}
_MARKED = {*_FLOATS, Kind.BYTES}
# `json` keeps what `jsonb` refuses: these stay texts, and are compared by value afterwards.
_JSON = (
    "CASE WHEN ({0})::text ~ '\\\\u|[eE][+-]?[0-9]{{4}}' THEN ({0})::text"
    " ELSE ({0})::jsonb::text END"
)
_NUMERIC = (
    "CASE WHEN strpos(({0})::text, '.') > 0"
    " THEN rtrim(rtrim(({0})::text, '0'), '.') ELSE ({0})::text END"
)


def expression(form: Form, native: Native, column: sql.Composable, version: int) -> sql.Composable:
    """Return the SQL of a column's canonical value; null stays null."""
    if form.is_list and native.is_list:
        return _list(form.kind, native, column, version)
    if native.is_list or form.is_list:
        return column
    return sql.SQL(_plain(form.kind, native.kind, native, version)).format(column)


def _plain(kind: Kind, own: Kind, native: Native, version: int) -> str:  # noqa: PLR0911 - the table
    if own in _TEXTS and kind is Kind.UUID:
        return "lower(({0})::text)"
    if own in _TEXTS and kind not in _TEXTS:
        return f"'{RAW}' || ({{0}})::text" if kind in _MARKED else "({0})::text"
    match kind:
        case Kind.TEXT if own not in _TEXTS:
            return f"({_plain(own, own, native, version)})::text"
        case Kind.NUMERIC if own is Kind.NUMERIC:
            return "trim_scale({0})" if version >= _TRIM_SCALE_VERSION else _NUMERIC
        case Kind.REAL | Kind.DOUBLE:
            name = _FLOATS[kind]
            return f"encode({name}send(({{0}})::{name}), 'hex')"
        case Kind.PADDED:
            return "rtrim(({0})::text, ' ')"
        case Kind.BYTES:
            return "encode({0}, 'hex')"
        case Kind.JSON if native.name == "json":
            return _JSON
        case Kind.TIMESTAMP if native.zoned:
            return "({0}) AT TIME ZONE 'UTC'"
        case Kind.TIMESTAMP if own is Kind.DATE:
            return "({0})::timestamp"
        case _:
            return "{0}"


def _list(kind: Kind, native: Native, column: sql.Composable, version: int) -> sql.Composable:
    item = sql.Identifier("item")
    element = sql.SQL(_plain(kind, native.kind, native, version)).format(item)
    # `unnest` in a FROM clause would part composite elements into their columns.
    return sql.SQL(
        "CASE WHEN {0} IS NOT DISTINCT FROM NULL THEN NULL "
        "WHEN array_ndims({0}) > 1 THEN ({0})::text "
        "ELSE array_to_json(ARRAY(SELECT {1} FROM (SELECT unnest({0}) AS item) AS u))::text END"
    ).format(column, text_of(element, item))


def text_of(value: sql.Composable, column: sql.Composable) -> sql.Composable:
    """Return the SQL of a value's text as its type writes it, a cast to text does not."""
    return sql.SQL("CASE WHEN {1} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(
        value, column
    )


def row(members: Sequence[sql.Composable]) -> sql.Composable:
    """Return the SQL of the canonical text of a row."""
    return sql.SQL("ROW({})::text").format(sql.SQL(", ").join(members))
