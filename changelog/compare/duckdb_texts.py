"""SQL by which DuckDB writes canonical texts of values, as PostgreSQL writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from changelog.compare.forms import Form, Kind, Native
from changelog.compare.texts import RAW

JSON_FUNCTION = "canonical_json"
"""Name of the function by which DuckDB writes JSON: this process's own."""

_INTEGERS = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
}
BIGINTS = _INTEGERS - {"HUGEINT", "UHUGEINT", "UBIGINT"}
"""Types of whole numbers that a BIGINT can hold."""
_KINDS = {
    **dict.fromkeys(_INTEGERS, Kind.INTEGER),
    "FLOAT": Kind.REAL,
    "DOUBLE": Kind.DOUBLE,
    "VARCHAR": Kind.TEXT,
    "JSON": Kind.JSON,
    "BLOB": Kind.BYTES,
    "UUID": Kind.UUID,
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
    "TIME": Kind.TIME,
    **dict.fromkeys(
        (
            *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
            *("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"),
        ),
        Kind.TIMESTAMP,
    ),
}
_DECIMAL = re.compile(r"DECIMAL\(\d+,(\d+)\)")
_TEXTS = {Kind.TEXT, Kind.PADDED, Kind.PLAIN}
_FLOATS = {Kind.REAL: "FLOAT", Kind.DOUBLE: "DOUBLE"}
_MARKED = {*_FLOATS, Kind.BYTES}
_QUOTED = {*_TEXTS, Kind.BYTES, Kind.JSON, Kind.TIMESTAMP, Kind.DATE}
_NAN = {Kind.REAL: "7fc00000", Kind.DOUBLE: "7ff8000000000000"}
_NUMBER = "'[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?'"
_MOMENT = (
    "'[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
    "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?'"
)
_ERA = "replace(CAST({} AS VARCHAR), ' (BC)', ' BC')"


def native_of(name: str) -> Native:
    """Return a type of DuckDB's.

    >>> native = native_of("DECIMAL(10,2)[]")
    >>> native.kind, native.is_list
    (<Kind.NUMERIC: 'numeric'>, True)
    """
    element = name.removesuffix("[]")
    if name.startswith(("STRUCT(", "MAP(")):
        return Native(name, Kind.JSON)
    kind = Kind.NUMERIC if _DECIMAL.fullmatch(element) else _KINDS.get(element)
    if element.startswith("ENUM(") and element.endswith(")"):
        kind = Kind.TEXT
    if kind is None:
        return Native(name, Kind.OPAQUE)
    zoned = element in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"}
    return Native(name, kind, is_list=element != name, zoned=zoned, cast=element)


def expression(form: Form, native: Native, column: str) -> str:
    """Return the SQL of a column's canonical text; null stays null."""
    if form.is_list and native.is_list:
        element = _plain(form.kind, native, "item")
        return f"CAST(to_json(list_transform({column}, lambda item: {element})) AS VARCHAR)"
    return _plain(form.kind, native, column)


def _plain(kind: Kind, native: Native, column: str) -> str:  # noqa: PLR0911 - the table
    own, text = native.kind, f"CAST({column} AS VARCHAR)"
    if own in _TEXTS and kind not in _TEXTS:
        return _of_text(kind, text)
    match kind:
        case Kind.TEXT | Kind.PLAIN if own not in _TEXTS:
            return _plain(own, native, column)
        case Kind.NUMERIC if own is Kind.NUMERIC:
            scale = _DECIMAL.fullmatch(native.cast)
            is_whole = scale is not None and scale[1] == "0"
            return text if is_whole else f"rtrim(rtrim({text}, '0'), '.')"
        case Kind.REAL | Kind.DOUBLE:
            value = column if own in _FLOATS else text
            return _float(kind, f"CAST({value} AS {_FLOATS[kind]})")
        case Kind.PADDED:
            return f"rtrim({text}, ' ')"
        case Kind.BYTES:
            return f"lower(hex({column}))"
        case Kind.BOOLEAN:
            return f"CASE WHEN {column} THEN 't' WHEN NOT {column} THEN 'f' END"
        case Kind.JSON:
            is_text = native.cast == "JSON"
            return f"{JSON_FUNCTION}({text if is_text else f'CAST(to_json({column}) AS VARCHAR)'})"
        case Kind.DATE:
            return _ERA.format(column)
        case Kind.TIMESTAMP:
            return _timestamp(native, column)
        case _:
            return text


def _of_text(kind: Kind, text: str) -> str:  # noqa: PLR0911 - the table
    match kind:
        case Kind.NUMERIC | Kind.INTEGER:
            trimmed = f"rtrim(rtrim({text}, '0'), '.')"
            plain = f"regexp_full_match({text}, '-?(0|[1-9][0-9]*)[.][0-9]+')"
            return f"CASE WHEN {plain} THEN {trimmed} ELSE {text} END"
        case Kind.REAL | Kind.DOUBLE:
            bits = _float(kind, f"TRY_CAST({text} AS {_FLOATS[kind]})")
            is_number = f"regexp_full_match({text}, {_NUMBER})"
            return f"CASE WHEN {is_number} THEN {bits} ELSE '{RAW}' || {text} END"
        case Kind.BYTES:
            return f"'{RAW}' || {text}"
        case Kind.UUID:
            return f"lower({text})"
        case Kind.BOOLEAN:
            words = f"lower({text})"
            return (
                f"CASE WHEN {words} IN ('t', 'true') THEN 't'"
                f" WHEN {words} IN ('f', 'false') THEN 'f' ELSE {text} END"
            )
        case Kind.JSON:
            return f"{JSON_FUNCTION}({text})"
        case Kind.TIMESTAMP:
            moment = _ERA.format(f"TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE 'UTC'")
            is_moment = f"regexp_full_match({text}, {_MOMENT})"
            return f"CASE WHEN {is_moment} THEN coalesce({moment}, {text}) ELSE {text} END"
        case _:
            return text


def _float(kind: Kind, value: str) -> str:
    bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
    return f"CASE WHEN isnan({value}) THEN '{_NAN[kind]}' ELSE {bits} END"


def _timestamp(native: Native, column: str) -> str:
    moment = f"CAST({column} AS TIMESTAMP{' WITH TIME ZONE' if native.zoned else ''})"
    micros = _ERA.format(f"{moment} AT TIME ZONE 'UTC'" if native.zoned else moment)
    if native.cast.endswith("_NS"):
        # Digits that PostgreSQL has not are a difference, and not rounded.
        return (
            f"CASE WHEN isfinite({moment}) AND epoch_ns({column}) % 1000 <> 0"
            f" THEN CAST({column} AS VARCHAR) ELSE {micros} END"
        )
    return micros


def member(form: Form, native: Native, canonical: str) -> str:
    """Return the SQL of a canonical text as a member of a row's text: quoted where need be."""
    if form.is_list or form.kind in _QUOTED or native.kind in _TEXTS:
        quoted = f"'\"' || replace(replace({canonical}, '\\', '\\\\'), '\"', '\"\"') || '\"'"
        needs = f"{canonical} = '' OR regexp_matches({canonical}, '[\\x09-\\x0d \"\\\\(),]')"
        return (
            f"CASE WHEN {canonical} IS NULL THEN '' WHEN {needs} THEN {quoted} ELSE {canonical} END"
        )
    return f"coalesce({canonical}, '')"


def row(members: Sequence[str]) -> str:
    """Return the SQL of the canonical text of a row, from its members' SQL."""
    return "'(' || " + " || ',' || ".join(members) + " || ')'"


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'
