"""Avro schemas of writers: their fields, and the cells of binary COPY that they fill. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from changelog.contract.base.errors import CorruptRecordError
from changelog.load.rules.table import TableColumn
from changelog.native.loads import AvroKind, CellForm

_KINDS = {
    "boolean": AvroKind.BOOLEAN,
    "int": AvroKind.INT,
    "long": AvroKind.LONG,
    "float": AvroKind.FLOAT,
    "double": AvroKind.DOUBLE,
    "string": AvroKind.STRING,
    "bytes": AvroKind.BYTES,
}
_TYPES = {
    ("int", "date"): "date",
    ("long", "timestamp-micros"): "timestamptz",
    ("long", "timestamp-millis"): "timestamptz",
    ("long", "local-timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp",
    ("int", "time-millis"): "time",
    ("long", "time-micros"): "time",
    ("string", "uuid"): "uuid",
    ("boolean", ""): "boolean",
    ("int", ""): "integer",
    ("long", ""): "bigint",
    ("float", ""): "real",
    ("double", ""): "double precision",
    ("string", ""): "text",
    ("bytes", ""): "bytea",
}
_FORMS: dict[tuple[AvroKind, str, str], CellForm] = {
    (AvroKind.BOOLEAN, "", "bool"): CellForm.BOOL,
    (AvroKind.INT, "date", "date"): CellForm.DATE,
    (AvroKind.LONG, "timestamp-micros", "timestamptz"): CellForm.MICROS,
    (AvroKind.LONG, "timestamp-millis", "timestamptz"): CellForm.MILLIS,
    (AvroKind.LONG, "local-timestamp-micros", "timestamp"): CellForm.MICROS,
    (AvroKind.LONG, "local-timestamp-millis", "timestamp"): CellForm.MILLIS,
    (AvroKind.FLOAT, "", "float4"): CellForm.FLOAT4,
    (AvroKind.DOUBLE, "", "float8"): CellForm.FLOAT8,
    (AvroKind.BYTES, "", "bytea"): CellForm.TEXT,
    (AvroKind.DECIMAL, "decimal", "numeric"): CellForm.NUMERIC,
    **{
        (kind, "", base): form
        for kind in (AvroKind.INT, AvroKind.LONG)
        for base, form in (
            ("int2", CellForm.INT2),
            ("int4", CellForm.INT4),
            ("int8", CellForm.INT8),
        )
    },
    **{
        (AvroKind.STRING, logical, base): form
        for logical in ("", "uuid")
        for base, form in (
            ("text", CellForm.TEXT),
            ("varchar", CellForm.TEXT),
            ("bpchar", CellForm.TEXT),
            ("json", CellForm.TEXT),
            ("xml", CellForm.TEXT),
            ("jsonb", CellForm.JSONB),
            ("uuid", CellForm.UUID),
        )
    },
}
_MOST_SCALE = 38  # the largest scale of a decimal that C can write


class Fit(Enum):
    """The way to write a field that has no binary form for its column."""

    CAST = "cast"  # as text, which PostgreSQL casts
    NONE = "none"  # one by one, not in C


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a record's schema."""

    name: str  # the Avro name
    column: str  # the column's name, which in our log may differ from the Avro name
    # the branches of its union, `value`, `null` or `text`; empty without a union
    branches: tuple[str, ...] = ()
    kind: AvroKind | None = None  # type of its values; None if C does not know it
    logical: str = ""  # name of the logical type
    scale: int = 0  # of a decimal
    precision: int = 0  # of a decimal
    element: tuple[AvroKind, str] | None = None  # kind and logical type of an array's elements
    pg_type: str = ""  # PostgreSQL's type, in schemas of our log
    has_default: bool = False
    default: Any = None  # its default, as JSON

    @property
    def is_nullable(self) -> bool:
        """Return whether a value may be null."""
        return "null" in self.branches


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a record."""

    fields: tuple[SchemaField, ...]  # in their order
    key: tuple[str, ...] = ()  # columns of the key, in schemas of our log; empty in others

    @property
    def by_name(self) -> Mapping[str, SchemaField]:
        """Return the fields by their Avro names and by their columns' names."""
        return {field.name: field for field in self.fields} | {
            field.column: field for field in self.fields
        }


def read_schema(text: str) -> Schema | None:
    """Parse the schema of a record; None if it is the schema of another type.

    Raises CorruptRecordError: it is not a schema.
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("type") != "record":
            return None
        fields = tuple(_field(field) for field in raw["fields"])
        key = raw.get("key", ()) if "relation" in raw else ()
        return Schema(fields, tuple(key))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecordError(f"a schema of the registry is not Avro: {error!r}") from error


def _field(raw: Mapping[str, Any]) -> SchemaField:
    union = raw["type"] if isinstance(raw["type"], list) else None
    types = [branch for branch in union or [raw["type"]] if branch != "null"]
    # Our log writes a value that its Avro type cannot represent as a text.
    has_text = len(types) == 2 and types[1] == "string"  # noqa: PLR2004 - type and text
    branches = tuple(
        "null" if branch == "null" else "value" if branch is types[0] else "text"
        for branch in union or ()
    )
    named: dict[str, Any] = {
        "name": raw["name"],
        "column": raw.get("column", raw["name"]),
        "branches": branches,
        "pg_type": raw.get("pg_type", ""),
        "has_default": "default" in raw,
        "default": raw.get("default"),
    }
    if len(types) != 1 and not (has_text and "pg_type" in raw):
        return SchemaField(**named)
    return SchemaField(**named, **_type(types[0]))


def _type(raw: Any) -> dict[str, Any]:  # noqa: ANN401 - an Avro schema is JSON
    """Return the attributes of `SchemaField` that describe a type, by name."""
    if isinstance(raw, str):
        return {"kind": _KINDS.get(raw)}
    if not isinstance(raw, Mapping):
        return {}
    plain, logical = raw["type"], raw.get("logicalType", "")
    if isinstance(plain, Mapping):
        return _type(plain)
    if plain == "array":
        return _array_type(raw["items"])
    if plain == "bytes" and logical == "decimal":
        digits = {"scale": raw.get("scale", 0), "precision": raw["precision"]}
        is_short = digits["precision"] <= _MOST_SCALE and 0 <= digits["scale"] <= _MOST_SCALE
        return {"kind": AvroKind.DECIMAL if is_short else None, "logical": logical, **digits}
    meaning = logical if (plain, logical) in _TYPES else ""
    return {"kind": _KINDS.get(plain), "logical": meaning}


def _array_type(items: Any) -> dict[str, Any]:  # noqa: ANN401 - an Avro schema is JSON
    if not isinstance(items, list) or len(items) != 2 or items[0] != "null":  # noqa: PLR2004
        return {}
    inner = _type(items[1])
    if inner.get("kind") in {None, AvroKind.ARRAY, AvroKind.DECIMAL}:
        return {}
    return {"kind": AvroKind.ARRAY, "element": (inner["kind"], inner.get("logical", ""))}


def form_of(field: SchemaField, column: TableColumn) -> tuple[CellForm, CellForm | None] | Fit:
    """Return the cell's form, and that of an array's elements, for a field's values in a column."""
    if field.kind is None:
        return Fit.NONE
    if field.element is not None:
        if column.element is None:
            return Fit.NONE
        element_form = _FORMS.get((*field.element, column.element[0]))
        return Fit.NONE if element_form is None else (CellForm.ARRAY, element_form)
    is_same = bool(field.pg_type) and field.pg_type == column.type
    most = column.most_fraction
    if most is not None and not is_same and not _keeps(field, column, most):
        return Fit.NONE
    is_label = column.is_enum and field.kind is AvroKind.STRING
    form = CellForm.TEXT if is_label else _FORMS.get((field.kind, field.logical, column.base))
    if form is not None:
        return form, None
    return Fit.CAST if field.kind is AvroKind.STRING else Fit.NONE


def _keeps(field: SchemaField, column: TableColumn, most: int) -> bool:
    """Return whether a column keeps all digits of a field's values."""
    if field.kind is AvroKind.DECIMAL:
        return column.base == "numeric" and field.scale <= most
    micros, millis = field.logical.endswith("-micros"), field.logical.endswith("-millis")
    return (micros and most >= 6) or (millis and most >= 3)  # noqa: PLR2004 - digits


def type_of(field: SchemaField) -> str:
    """Return the PostgreSQL type of a column that is created for a field.

    The server may not know a type that our log names; the caller checks that.
    """
    if field.pg_type:
        return field.pg_type
    if field.kind is AvroKind.DECIMAL or field.logical == "decimal":
        return f"numeric({field.precision},{field.scale})"
    if field.element is not None:
        kind, logical = field.element
        return f"{_TYPES[kind.name.lower(), logical]}[]"
    if field.kind is None:
        return "jsonb"
    return _TYPES[field.kind.name.lower(), field.logical]
