"""SQL with which PostgreSQL writes canonical texts of its values. Pure.

The value of an expression has the canonical text as a member of a row: `ROW(…)::text` calls the
types' own output functions, quotes and joins, which is as fast as COPY.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2 import sql

from changelog.compare.forms import CompareForm, Native, TypeFamily
from changelog.compare.texts import RAW

_TRIM_SCALE_VERSION = 130_000
_FLOATS = {TypeFamily.REAL: "float4", TypeFamily.DOUBLE: "float8"}
_RANGES = {
    TypeFamily.REAL: ("7.0064923216240854e-46", "3.4028235677973366e38"),
    TypeFamily.DOUBLE: ("2.4703282292062328e-324", "1.7976931348623158079e308"),
}
"""Between which magnitudes a numeric has a nearest float: PostgreSQL refuses to cast the others."""
_LAST_DAY = "294276-12-31"
"""The last day of which there are timestamps; dates go further."""
_TEXTS = {TypeFamily.TEXT, TypeFamily.PADDED, TypeFamily.PLAIN}
_ONE_NAN = "CASE WHEN ({{0}})::{0} = 'NaN' THEN 'NaN' ELSE ({{0}})::{0} END"
"""Some operations give a NaN with other bits."""
_SENT = {
    TypeFamily.INTEGER: "({0})::bigint",
    TypeFamily.NUMERIC: "trim_scale({0})",
    TypeFamily.REAL: _ONE_NAN.format("float4"),
    TypeFamily.DOUBLE: _ONE_NAN.format("float8"),
    TypeFamily.TEXT: "({0})::text",
    TypeFamily.PADDED: "rtrim(({0})::text, ' ')",
    TypeFamily.BOOLEAN: "({0})::boolean",
    TypeFamily.BYTES: "({0})::bytea",
    TypeFamily.UUID: "({0})::uuid",
    TypeFamily.JSON: "({0})::jsonb",
    TypeFamily.DATE: "({0})::date",
    TypeFamily.TIME: "({0})::time",
    TypeFamily.TIMESTAMP: "({0})::timestamp",
}
_MARKED = {*_FLOATS, TypeFamily.BYTES}
# `jsonb` refuses some documents that `json` holds: they stay texts, which are compared by value.
_JSON = (
    "CASE WHEN ({0})::text ~ '\\\\u|[eE][+-]?[0-9]{{4}}' THEN ({0})::text"
    " ELSE ({0})::jsonb::text END"
)
_NUMERIC = (
    "CASE WHEN strpos(({0})::text, '.') > 0"
    " THEN rtrim(rtrim(({0})::text, '0'), '.') ELSE ({0})::text END"
)


def expression(
    form: CompareForm, native: Native, column: sql.Composable, version: int
) -> sql.Composable:
    """Return the SQL of a column's canonical value; null stays null."""
    if form.is_list and native.is_list:
        return _list(form.kind, native, column, version)
    if form == CompareForm(TypeFamily.JSON) and native.is_list:
        return sql.SQL("array_to_json({})::jsonb").format(column)
    if native.is_list or form.is_list:
        return column
    return sql.SQL(_plain(form.kind, native, version)).format(column)


def _plain(kind: TypeFamily, native: Native, version: int) -> str:  # noqa: PLR0911 - one per family
    if native.kind in _TEXTS and kind is TypeFamily.UUID:
        return "lower(({0})::text)"
    if native.kind in _TEXTS and kind not in _TEXTS:
        return f"'{RAW}' || ({{0}})::text" if kind in _MARKED else "({0})::text"
    match kind:
        case TypeFamily.TEXT if native.kind not in _TEXTS:
            return f"({_plain(native.kind, native, version)})::text"
        case TypeFamily.NUMERIC if native.kind is TypeFamily.NUMERIC:
            return "trim_scale({0})" if version >= _TRIM_SCALE_VERSION else _NUMERIC
        case TypeFamily.REAL | TypeFamily.DOUBLE if native.kind is TypeFamily.NUMERIC:
            least, most = _RANGES[kind]
            return (
                f"CASE WHEN {{0}} = 0 OR abs({{0}}) > {least} AND abs({{0}}) < {most}"
                " OR ({0})::text IN ('NaN', 'Infinity', '-Infinity')"
                f" THEN {_bits(kind)} ELSE '{RAW}' || ({{0}})::text END"
            )
        case TypeFamily.REAL | TypeFamily.DOUBLE:
            return _bits(kind)
        case TypeFamily.PADDED:
            return "rtrim(({0})::text, ' ')"
        case TypeFamily.BYTES:
            return "encode({0}, 'hex')"
        case TypeFamily.JSON if native.name == "json":
            return _JSON
        case TypeFamily.TIMESTAMP if native.zoned:
            return "({0}) AT TIME ZONE 'UTC'"
        case TypeFamily.TIMESTAMP if native.kind is TypeFamily.DATE:
            return (
                f"CASE WHEN ({{0}}) > '{_LAST_DAY}' AND ({{0}}) < 'infinity' THEN ({{0}})::text"
                " ELSE ({0})::timestamp::text END"
            )
        case _:
            return "{0}"


def _bits(kind: TypeFamily) -> str:
    name = _FLOATS[kind]
    return f"encode({name}send({_ONE_NAN.format(name)}), 'hex')"


def _list(kind: TypeFamily, native: Native, column: sql.Composable, version: int) -> sql.Composable:
    item = sql.Identifier("item")
    element = sql.SQL(_plain(kind, native, version)).format(item)
    # `unnest` in a FROM clause would split composite elements into their columns.
    return sql.SQL(
        "CASE WHEN {0} IS NOT DISTINCT FROM NULL THEN NULL "
        "WHEN array_ndims({0}) > 1 THEN ({0})::text "
        "ELSE array_to_json(ARRAY(SELECT {1} FROM (SELECT unnest({0}) AS item) AS u))::text END"
    ).format(column, text_of(element, item))


def sent(
    column: sql.Composable, form: CompareForm, native: Native, version: int, *, as_text: bool
) -> sql.Composable:
    """Return the SQL of a value whose bytes, as PostgreSQL sends them, are the same for both sides.

    `native`: the column's type on this side. What has the same type on both is sent as it is, which
    is quicker than its text; its type is one of PostgreSQL's own, since the bytes of a record have
    the types' numbers.
    """
    if as_text:
        return text_of(expression(form, native, column, version), column)
    plain = _plain(form.kind, native, version) if native.zoned else _SENT[form.kind]
    return sql.SQL(plain).format(column)


def text_of(value: sql.Composable, column: sql.Composable) -> sql.Composable:
    """Return the SQL of a value's text by its type's output function, unlike a cast to text."""
    return sql.SQL("CASE WHEN {1} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(
        value, column
    )


def row(members: Sequence[sql.Composable]) -> sql.Composable:
    """Return the SQL of the canonical text of a row."""
    return sql.SQL("ROW({})::text").format(sql.SQL(", ").join(members))
