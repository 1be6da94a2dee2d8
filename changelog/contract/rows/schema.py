"""The Avro schemas of a relation's key and value, and how to read them back.

Each field carries the column's own name (`column`) and PostgreSQL's type (`pg_type`) as
attributes, since an Avro name is narrower than a column name; of a type of users its sort
(`pg_sort`), of an enum its labels in their order (`pg_labels`), and of a text the collation that
sorts it otherwise than by code points (`pg_collation`, and `pg_deterministic` where it is not), and
whose letters change case otherwise than by the simple rules of Unicode (`pg_ctype`). The key's
fields have none of these, since a key's schema is pinned. The record carries the table
(`relation`), its primary key (`key`), the columns that PostgreSQL computes and the log lacks
(`generated`, if there are any), and a value's the database's own `pg_collation` and `pg_ctype`.
Readers that do not know the attributes skip them, as the Avro specification asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.types import ColumnType, Kind, Locale

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")
_SIMPLE: dict[Kind, Any] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "local-timestamp-micros"},
    Kind.TIMESTAMPTZ: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.UUID: {"type": "string", "logicalType": "uuid"},
}


def avro_name(name: str) -> str:
    """Return the nearest name that Avro allows: `[A-Za-z_][A-Za-z0-9_]*`."""
    safe = _NOT_IN_NAME.sub("_", name)
    return safe if safe and not safe[0].isdigit() else f"_{safe}"


def field_names(columns: Iterable[str]) -> list[str]:
    """Return each column its field name; two that would share one are told apart by a number."""
    taken: set[str] = set()
    names = []
    for column in columns:
        base = name = avro_name(column)
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def _plain(kind: ColumnType) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    if kind.kind is Kind.DECIMAL:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None  # noqa: S101 - array_type always sets it
        return {"type": "array", "items": ["null", _plain(kind.element)]}
    return _SIMPLE[kind.kind]


def branches(kind: ColumnType, *, nullable: bool, null_second: bool = False) -> list[Any]:
    """Return the union of a column: null first, then the type, then the escape.

    A default belongs to the first branch, so of a column with one the type comes before null.
    """
    null = ["null"] if nullable else []
    both = [_plain(kind), *null] if null_second else [*null, _plain(kind)]
    return [*both, *(["string"] if kind.has_escape else [])]


def _comparison(kind: ColumnType) -> dict[str, Any]:
    """Return the attributes of a column's type that tell how its values compare."""
    own = kind.element or kind
    marks: dict[str, Any] = {"pg_sort": own.sort} if own.sort else {}
    if own.labels:
        marks["pg_labels"] = list(own.labels)
    marks |= _marks(own.locale)
    if own.collation and not own.deterministic:
        marks["pg_deterministic"] = False
    return marks


def _marks(locale: Locale) -> dict[str, str]:
    marks = {"pg_collation": locale.collation, "pg_ctype": locale.ctype}
    return {name: text for name, text in marks.items() if text}


def _locale(raw: Mapping[str, Any]) -> Locale:
    return Locale(raw.get("pg_collation", ""), raw.get("pg_ctype", ""))


def _field(name: str, column: Column, *, nullable: bool) -> dict[str, Any]:
    union = branches(column.type, nullable=nullable, null_second=column.has_default)
    field: dict[str, Any] = {"name": name, "type": union if len(union) > 1 else union[0]}
    if nullable:
        field["default"] = None if column.default is None else json.loads(column.default)
    return {**field, "column": column.name, "pg_type": column.type.name}


def _record(
    relation: Relation, suffix: str, fields: list[dict[str, Any]], more: Mapping[str, Any]
) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": avro_name(relation.name.table) + suffix,
            "namespace": f"changelog.{avro_name(relation.name.schema)}",
            "relation": list(relation.name),
            "key": list(relation.key),
            **more,
            "fields": fields,
        },
        ensure_ascii=False,
    )


def key_schema(relation: Relation) -> str:
    """Return the Avro schema of a relation's key: the primary key in its own order."""
    names = field_names(relation.key)
    pairs = zip(names, relation.key_columns, strict=True)
    return _record(relation, "_key", [_field(n, c, nullable=False) for n, c in pairs], {})


def value_schema(relation: Relation) -> str:
    """Return the Avro schema of a relation's value: the whole row, nullable outside the key."""
    names = field_names(column.name for column in relation.columns)
    pairs = zip(names, relation.columns, strict=True)
    fields = [
        {**_field(n, c, nullable=c.name not in relation.key), **_comparison(c.type)}
        for n, c in pairs
    ]
    more: dict[str, Any] = {"generated": list(relation.generated)} if relation.generated else {}
    # A column that was added just now does not have it yet.
    database = next(filter(None, (_marks(c.type.database) for c in relation.columns)), {})
    return _record(relation, "", fields, more | database)


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column as a schema on the log describes it."""

    field: str  # its Avro name
    column: str  # its name in PostgreSQL
    type: ColumnType  # its type; `type.has_escape` tells that the union has a text branch
    nullable: bool  # whether null is a branch
    default: str | None = None  # what records without it stand for, as `Column.default`


@dataclass(frozen=True, slots=True)
class LoggedSchema:
    """A schema of ours, read back from the registry."""

    table: TableName  # whose rows it describes
    key: tuple[str, ...]  # names of the primary key's columns, in the key's own order
    columns: tuple[LoggedColumn, ...]  # of the record
    # names of the columns that were generated, so that the log lacks their values
    generated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaPin:
    """The schema versions by which a topic is read, so that another reader can use the same."""

    key: int | None  # the schema id of the keys, None where they are documents
    # the schema id of the version that rows are read as; of documents its number among the
    # versions, from 0
    value: int
    # columns, and what views get of those of their values that have no form: `null` or `text`; in
    # the columns' order
    choices: tuple[tuple[str, str], ...] = ()


def nulls_of(text: str) -> bytes:
    """Return the Avro body of a row whose columns are all null, under a schema of ours.

    Of a column that cannot be null no such body exists: then it is empty.
    """
    body = b""
    for field in json.loads(text)["fields"]:
        union = field["type"]
        if not isinstance(union, list) or "null" not in union:
            return b""
        body += bytes([2 * union.index("null")])  # the branch's number, in zigzag
    return body


def _read_plain(raw: Any, pg_type: str) -> ColumnType:  # noqa: ANN401 - an Avro schema is JSON
    if isinstance(raw, dict):
        if raw["type"] == "array":
            item, *_ = [branch for branch in raw["items"] if branch != "null"]
            element = _read_plain(item, pg_type.removesuffix("[]"))
            return ColumnType(pg_type, Kind.ARRAY, element=element)
        if raw.get("logicalType") == "decimal":
            return ColumnType(pg_type, Kind.DECIMAL, raw["precision"], raw["scale"])
    kinds = {json.dumps(shape, sort_keys=True): kind for kind, shape in _SIMPLE.items()}
    return ColumnType(pg_type, kinds[json.dumps(raw, sort_keys=True)])


def _compared(kind: ColumnType, raw: Mapping[str, Any], database: Locale) -> ColumnType:
    """Return a type with what a field tells of how its values compare."""
    if kind.element is not None:
        element = _compared(kind.element, raw, database)
        return replace(kind, element=element, database=database)
    return replace(
        kind,
        sort=raw.get("pg_sort", ""),
        labels=tuple(raw.get("pg_labels", ())),
        locale=_locale(raw),
        deterministic=raw.get("pg_deterministic", True),
        database=database,
    )


def _read_field(raw: dict[str, Any], database: Locale) -> LoggedColumn:
    union = raw["type"] if isinstance(raw["type"], list) else [raw["type"]]
    plain, *_ = [branch for branch in union if branch != "null"]
    read = _compared(_read_plain(plain, raw["pg_type"]), raw, database)
    default = raw.get("default")
    text = None if default is None else json.dumps(default)
    return LoggedColumn(raw["name"], raw["column"], read, "null" in union, text)


def foreign_schema(error: Exception) -> CorruptRecordError:
    """Return the error for a schema that is not one of ours."""
    return CorruptRecordError(
        f"a schema of the registry is not one that capture writes: {error!r}",
        hint="check that no other program registers schemas under this subject",
    )


def read_schema(text: str) -> LoggedSchema:
    """Read a key or value schema that `key_schema` or `value_schema` made.

    Raises CorruptRecordError: the schema is not one of ours.
    """
    try:
        raw = json.loads(text)
        columns = tuple(_read_field(field, _locale(raw)) for field in raw["fields"])
        generated = tuple(raw.get("generated", ()))
        return LoggedSchema(TableName(*raw["relation"]), tuple(raw["key"]), columns, generated)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise foreign_schema(error) from error
