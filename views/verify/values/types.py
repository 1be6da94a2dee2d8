"""Types of columns: parsed from Spark's names or taken from the log, converted to DuckDB and Arrow.

Timestamps with and without a zone are both DuckDB's TIMESTAMP: a view's session runs in UTC, so
the two have the same microseconds, and no function of DuckDB can introduce another zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.types import ColumnType, Kind


@dataclass(frozen=True, slots=True)
class Type:
    """A column's type."""

    name: str  # Spark's simple name: `int`, `decimal`, `array`, `struct`, `map`, …
    precision: int = 0  # of a decimal
    scale: int = 0  # of a decimal
    # names and types of a struct's fields; one unnamed of an array's element, two of a map's key
    # and value
    fields: tuple[tuple[str, Type], ...] = ()

    @property
    def is_float(self) -> bool:
        """Tell whether it is a float, whose computed values are compared with a tolerance."""
        return self.name in {"float", "double"}

    @property
    def holds_float(self) -> bool:
        """Tell whether it is a float, or has one inside."""
        return self.is_float or any(field.holds_float for _, field in self.fields)


_DUCKDB = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
}
_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
}
_LOGGED = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "binary",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
    Kind.UUID: "string",
}
_SIMPLE = re.compile(r"[a-z_]+(?:\(\s*\d+\s*(?:,\s*\d+\s*)?\))?")
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def quoted(name: str) -> str:
    """Quote an identifier for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def logged_type(column: ColumnType) -> Type:
    """Return the type of a column of the log."""
    if column.kind is Kind.DECIMAL:
        return Type("decimal", column.precision, column.scale)
    if column.kind is Kind.ARRAY:
        assert column.element is not None  # noqa: S101 - an array has an element
        return Type("array", fields=(("", logged_type(column.element)),))
    return Type(_LOGGED[column.kind])


def duckdb_type(kind: Type) -> str:
    """Return DuckDB's name of a type."""
    inner = [duckdb_type(field) for _, field in kind.fields]
    match kind.name:
        case "decimal":
            return f"DECIMAL({kind.precision},{kind.scale})"
        case "array":
            return f"{inner[0]}[]"
        case "map":
            return f"MAP({inner[0]}, {inner[1]})"
        case "struct":
            named = zip(kind.fields, inner, strict=True)
            return "STRUCT(" + ", ".join(f"{quoted(n)} {text}" for (n, _), text in named) + ")"
        case _:
            return _DUCKDB[kind.name]


def arrow_type(kind: Type) -> pa.DataType:
    """Return Arrow's form of a type."""
    inner = [arrow_type(field) for _, field in kind.fields]
    match kind.name:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "array":
            return pa.list_(inner[0])
        case "map":
            return pa.map_(inner[0], inner[1])
        case "struct":
            named = zip(kind.fields, inner, strict=True)
            return pa.struct([pa.field(name, arrow) for (name, _), arrow in named])
        case _:
            return _ARROW[kind.name]


def parse_type(text: str) -> Type:
    """Parse Spark's simple name of a type, like `struct<code:string,fare:decimal(10,2)>`.

    Raises ViewError: the type has no exact form here.
    """
    kind, rest = _parse_first(text.strip(), text)
    if rest.strip():
        raise _unknown(text)
    return kind


def _unknown(text: str) -> ViewError:
    return ViewError(
        f"type {text!r} cannot be verified", hint="cast the column in the view to another type"
    )


def _parse_first(text: str, whole: str) -> tuple[Type, str]:
    """Parse the type at the beginning of a text; returns it and the rest of the text."""
    for name in ("array", "struct", "map"):
        if text.startswith(f"{name}<"):
            return _parse_nested(name, text[len(name) + 1 :], whole)
    match = _SIMPLE.match(text)
    if match is None:
        raise _unknown(whole)
    base, _, arguments = match[0].partition("(")
    base = _ALIASES.get(base, base)
    if base in {"varchar", "char"}:
        base = "string"
    rest = text[match.end() :]
    if base == "decimal":
        numbers = [int(number) for number in arguments.rstrip(")").split(",") if number.strip()]
        precision, scale = (*numbers, 10, 0)[:2] if len(numbers) != 1 else (numbers[0], 0)
        return Type("decimal", precision, scale), rest
    if base not in _DUCKDB:
        raise _unknown(whole)
    return Type(base), rest


def _parse_nested(name: str, text: str, whole: str) -> tuple[Type, str]:
    fields: list[tuple[str, Type]] = []
    while not text.startswith(">"):
        field = ""
        if name == "struct":
            field, text = _field_name(text, whole)
        kind, text = _parse_first(text.lstrip(), whole)
        fields.append((field, kind))
        text = text.lstrip()
        if text.startswith(","):
            text = text[1:].lstrip()
        elif not text.startswith(">"):
            raise _unknown(whole)
    expected = {"array": 1, "map": 2}.get(name, len(fields))
    if len(fields) != expected:
        raise _unknown(whole)
    return Type(name, fields=tuple(fields)), text[1:]


def _field_name(text: str, whole: str) -> tuple[str, str]:
    if text.startswith("`"):
        match = re.match(r"`((?:[^`]|``)*)`\s*:", text)
        if match is None:
            raise _unknown(whole)
        return match[1].replace("``", "`"), text[match.end() :]
    name, colon, rest = text.partition(":")
    if not colon:
        raise _unknown(whole)
    return name.strip(), rest
