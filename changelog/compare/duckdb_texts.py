"""SQL with which DuckDB writes canonical texts of values, as PostgreSQL writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from changelog.compare.forms import CompareForm, Native, TypeFamily
from changelog.compare.texts import RAW

JSON_FUNCTION = "canonical_json"
"""Name of the SQL function that writes JSON: a function of this process, registered in DuckDB."""

DOCUMENT_JSON_FUNCTION = "document_json"
"""Name of the SQL function that writes the JSON that a field of a document has; see `texts`."""
DOCUMENT_LIST_FUNCTION = "document_list"
"""Name of the SQL function that returns the texts of a document's array; see `texts`."""

_INTEGERS = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
}
BIGINTS = _INTEGERS - {"HUGEINT", "UHUGEINT", "UBIGINT"}
"""Integer types whose values all fit in a BIGINT."""
_KINDS = {
    **dict.fromkeys(_INTEGERS, TypeFamily.INTEGER),
    "FLOAT": TypeFamily.REAL,
    "DOUBLE": TypeFamily.DOUBLE,
    "VARCHAR": TypeFamily.TEXT,
    "JSON": TypeFamily.JSON,
    "BLOB": TypeFamily.BYTES,
    "UUID": TypeFamily.UUID,
    "BOOLEAN": TypeFamily.BOOLEAN,
    '"NULL"': TypeFamily.EMPTY,
    "DATE": TypeFamily.DATE,
    "TIME": TypeFamily.TIME,
    **dict.fromkeys(
        (
            *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
            *("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"),
        ),
        TypeFamily.TIMESTAMP,
    ),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TEXTS = {TypeFamily.TEXT, TypeFamily.PADDED, TypeFamily.PLAIN}
_FLOATS = {TypeFamily.REAL: "FLOAT", TypeFamily.DOUBLE: "DOUBLE"}
_MARKED = {*_FLOATS, TypeFamily.BYTES}
_QUOTED = {*_TEXTS, TypeFamily.BYTES, TypeFamily.JSON, TypeFamily.TIMESTAMP, TypeFamily.DATE}
_DATED = {TypeFamily.TIMESTAMP, TypeFamily.DATE}
_NAN = {TypeFamily.REAL: "7fc00000", TypeFamily.DOUBLE: "7ff8000000000000"}
_NUMBER = "'[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?'"
_MOMENT = (
    "'[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
    "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?'"
)
_ERA = (
    "(CASE WHEN contains(CAST({0} AS VARCHAR), ' (BC)')"
    " THEN replace(CAST({0} AS VARCHAR), ' (BC)', '') || ' BC' ELSE CAST({0} AS VARCHAR) END)"
)
"""DuckDB has the era between day and time, PostgreSQL at the end."""


def native_of(name: str) -> Native:
    """Return the description of a DuckDB type by its name.

    >>> native = native_of("DECIMAL(10,2)[]")
    >>> native.kind, native.is_list
    (<Kind.NUMERIC: 'numeric'>, True)
    """
    element = name.removesuffix("[]")
    if name.startswith(("STRUCT(", "MAP(")) or element.endswith("]"):
        return Native(name, TypeFamily.JSON)
    kind = TypeFamily.NUMERIC if _DECIMAL.fullmatch(element) else _KINDS.get(element)
    if element.startswith("ENUM(") and element.endswith(")"):
        kind = TypeFamily.TEXT
    if kind is None:
        return Native(name, TypeFamily.OPAQUE)
    zoned = element in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"}
    return Native(name, kind, is_list=element != name, zoned=zoned, cast=element)


def expression(form: CompareForm, native: Native, column: str) -> str:
    """Return the SQL of a column's canonical text; null stays null."""
    if native.kind is TypeFamily.EMPTY and not native.is_list:
        return "CAST(NULL AS VARCHAR)"
    if form == CompareForm(TypeFamily.JSON) and native.is_list:
        return f"{JSON_FUNCTION}(CAST(to_json({column}) AS VARCHAR))"
    if form.is_list and native.is_list:
        element = _plain(form.kind, native, "item")
        return f"CAST(to_json(list_transform({column}, lambda item: {element})) AS VARCHAR)"
    if form.is_list and native.is_document:
        items = f"{DOCUMENT_LIST_FUNCTION}({column})"
        element = _plain(form.kind, native, "item")
        listed = f"CAST(to_json(list_transform({items}, lambda item: {element})) AS VARCHAR)"
        return f"coalesce({listed}, {column})"  # an array of several dimensions is a text
    if form.kind is TypeFamily.JSON and native.is_document:
        return f"{DOCUMENT_JSON_FUNCTION}({column})"
    return _plain(form.kind, native, column)


def _plain(kind: TypeFamily, native: Native, column: str) -> str:  # noqa: PLR0911 - one per family
    text = f"CAST({column} AS VARCHAR)"
    if native.kind in _TEXTS and kind not in _TEXTS:
        return _from_text(kind, text)
    match kind:
        case TypeFamily.TEXT | TypeFamily.PLAIN if native.kind not in _TEXTS:
            return _plain(native.kind, native, column)
        case TypeFamily.NUMERIC if native.kind is TypeFamily.NUMERIC:
            return _decimal(native, text)
        case TypeFamily.REAL | TypeFamily.DOUBLE:
            value = column if native.kind in _FLOATS else text
            return _float(kind, f"CAST({value} AS {_FLOATS[kind]})")
        case TypeFamily.PADDED:
            return f"rtrim({text}, ' ')"
        case TypeFamily.BYTES:
            return f"lower(hex({column}))"
        case TypeFamily.BOOLEAN:
            return f"CASE WHEN {column} THEN 't' WHEN NOT {column} THEN 'f' END"
        case TypeFamily.JSON:
            is_text = native.cast == "JSON"
            return f"{JSON_FUNCTION}({text if is_text else f'CAST(to_json({column}) AS VARCHAR)'})"
        case TypeFamily.DATE:
            return _ERA.format(column)
        case TypeFamily.TIMESTAMP:
            return _timestamp(native, column)
        case _:
            return text


def sent(family: TypeFamily, native: Native, column: str) -> str:
    """Return the SQL of a value in the layout of Arrow from which its bytes are hashed."""
    match family:
        case TypeFamily.BOOLEAN:
            return f"CAST({column} AS UTINYINT)"
        case TypeFamily.TIMESTAMP:
            return f"CAST({column} AS TIMESTAMP{' WITH TIME ZONE' if native.zoned else ''})"
        case TypeFamily.NUMERIC | TypeFamily.BYTES:
            return column
        case _:
            return f"CAST({column} AS {_ARROW_TYPES[family]})"


_ARROW_TYPES = {
    TypeFamily.INTEGER: "BIGINT",
    TypeFamily.REAL: "FLOAT",
    TypeFamily.DOUBLE: "DOUBLE",
    TypeFamily.TEXT: "VARCHAR",
    TypeFamily.DATE: "DATE",
}


def scale_of(native: Native) -> int:
    """Return the digits after the point of a decimal type; 0 for another type."""
    decimal = _DECIMAL.fullmatch(native.cast)
    return int(decimal[2]) if decimal else 0


def _decimal(native: Native, text: str) -> str:
    """Return the SQL of a decimal's canonical text, from that of DuckDB's text."""
    decimal = _DECIMAL.fullmatch(native.cast)
    if decimal is None or decimal[2] == "0":
        return text
    if decimal[1] == decimal[2]:  # DuckDB then writes no digit before the point
        text = (
            f"CASE WHEN starts_with({text}, '.') THEN '0' || {text}"
            f" WHEN starts_with({text}, '-.') THEN '-0' || substr({text}, 2) ELSE {text} END"
        )
    trimmed = f"rtrim(rtrim({text}, '0'), '.')"
    return f"CASE WHEN suffix({text}, '0') THEN {trimmed} ELSE {text} END"


def _from_text(kind: TypeFamily, text: str) -> str:  # noqa: PLR0911 - one per family
    """Return the SQL of the canonical text of a value that the copy stores as text."""
    match kind:
        case TypeFamily.NUMERIC | TypeFamily.INTEGER:
            trimmed = f"rtrim(rtrim({text}, '0'), '.')"
            plain = f"regexp_full_match({text}, '-?(0|[1-9][0-9]*)[.][0-9]+')"
            return f"CASE WHEN {plain} THEN {trimmed} ELSE {text} END"
        case TypeFamily.REAL | TypeFamily.DOUBLE:
            bits = _float(kind, f"TRY_CAST({text} AS {_FLOATS[kind]})")
            is_number = f"regexp_full_match({text}, {_NUMBER})"
            return f"CASE WHEN {is_number} THEN {bits} ELSE '{RAW}' || {text} END"
        case TypeFamily.BYTES:
            return f"'{RAW}' || {text}"
        case TypeFamily.UUID:
            return f"lower({text})"
        case TypeFamily.BOOLEAN:
            words = f"lower({text})"
            return (
                f"CASE WHEN {words} IN ('t', 'true') THEN 't'"
                f" WHEN {words} IN ('f', 'false') THEN 'f' ELSE {text} END"
            )
        case TypeFamily.JSON:
            return f"{JSON_FUNCTION}({text})"
        case TypeFamily.TIMESTAMP:
            moment = _ERA.format(f"TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE 'UTC'")
            is_moment = f"regexp_full_match({text}, {_MOMENT})"
            return f"CASE WHEN {is_moment} THEN coalesce({moment}, {text}) ELSE {text} END"
        case _:
            return text


def _float(kind: TypeFamily, value: str) -> str:
    bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
    return f"CASE WHEN isnan({value}) THEN '{_NAN[kind]}' ELSE {bits} END"


def _timestamp(native: Native, column: str) -> str:
    moment = f"CAST({column} AS TIMESTAMP{' WITH TIME ZONE' if native.zoned else ''})"
    # AT TIME ZONE, which infinity takes, is slow.
    utc = (
        f"CASE WHEN isfinite({moment}) THEN make_timestamp(epoch_us({moment}))"
        f" ELSE {moment} AT TIME ZONE 'UTC' END"
    )
    micros = _ERA.format(utc if native.zoned else moment)
    if native.cast.endswith("_NS"):
        # PostgreSQL has microseconds: further digits are kept, so that they show as a difference.
        return (
            f"CASE WHEN isfinite({moment}) AND epoch_ns({column}) % 1000 <> 0"
            f" THEN CAST({column} AS VARCHAR) ELSE {micros} END"
        )
    return micros


def member(form: CompareForm, native: Native, canonical: str) -> str:
    """Return the SQL of a canonical text as a member of a row's text, quoted where necessary."""
    if native.kind in _DATED and not form.is_list:
        # A moment or a date BC has a blank, and nothing to double.
        return (
            f"CASE WHEN {canonical} IS NULL THEN '' WHEN contains({canonical}, ' ')"
            f" THEN concat('\"', {canonical}, '\"') ELSE {canonical} END"
        )
    if form.is_list or form.kind in _QUOTED or native.kind in _TEXTS:
        # Most texts with a blank have nothing to double: the cheap questions come first.
        doubled = f"replace(replace({canonical}, '\\', '\\\\'), '\"', '\"\"')"
        has_any = f"contains({canonical}, '\\') OR contains({canonical}, '\"')"
        quoted = f"'\"' || CASE WHEN {has_any} THEN {doubled} ELSE {canonical} END || '\"'"
        special = f"regexp_matches({canonical}, '[\\x09-\\x0d \"\\\\(),]')"
        needs = f"{canonical} = '' OR contains({canonical}, ' ') OR {special}"
        return (
            f"CASE WHEN {canonical} IS NULL THEN '' WHEN {needs} THEN {quoted} ELSE {canonical} END"
        )
    return f"coalesce({canonical}, '')"


def row(members: Sequence[str]) -> str:
    """Return the SQL of a row's canonical text, from the SQL of its members."""
    return "concat('(', " + ", ',', ".join(members) + ", ')')"


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
