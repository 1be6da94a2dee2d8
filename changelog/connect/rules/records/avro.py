"""Avro schemas for sinks: the columns' names and SQL types, and Debezium's types.

Debezium's converters say by names that Avro does not know whether a number means days, microseconds
or a numeric of any scale. They are translated to Avro's logical types before values are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from changelog.avro.jsonforms import BITS, DIGITS

RENAMED: Mapping[str, tuple[str, str]] = {
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Time": ("int", "time-millis"),
    "io.debezium.time.MicroTime": ("long", "time-micros"),
    "io.debezium.time.Timestamp": ("long", "local-timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "local-timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("long", "local-timestamp-nanos"),
    "io.debezium.data.VariableScaleDecimal": ("record", DIGITS),
    "io.debezium.data.Bits": ("bytes", BITS),
}
_NAMED: Mapping[str, str] = {
    "io.debezium.time.ZonedTimestamp": "timestamp with time zone",
    "io.debezium.time.ZonedTime": "time with time zone",
    "io.debezium.time.Interval": "interval",
    "io.debezium.data.Json": "jsonb",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.Xml": "xml",
}
_LOGICAL: Mapping[str, str] = {
    "date": "date",
    "time-millis": "time without time zone",
    "time-micros": "time without time zone",
    "timestamp-millis": "timestamp with time zone",
    "timestamp-micros": "timestamp with time zone",
    "timestamp-nanos": "timestamp with time zone",
    "local-timestamp-millis": "timestamp without time zone",
    "local-timestamp-micros": "timestamp without time zone",
    "local-timestamp-nanos": "timestamp without time zone",
    "uuid": "uuid",
    DIGITS: "numeric",
    BITS: "bit varying",
}
_SIMPLE: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "enum": "text",
    "bytes": "bytea",
    "fixed": "bytea",
    "record": "jsonb",
    "map": "jsonb",
}
_SMALL = {"int8", "int16"}
_MOST_DIGITS = 1000
_PG_TYPE = re.compile(r"[\w .\"]{1,200}(?:\(\d+(?:,-?\d+)?\))?[\w ]{0,40}(?:\[\])*")
_ROW_FIELDS = ("after", "before")


def prepared(raw: Any) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    """Return a schema with the columns' original names, and logical types for Debezium's types."""
    match raw:
        case list():
            return [prepared(branch) for branch in raw]
        case dict():
            schema = {name: value for name, value in raw.items() if name != "default"}
            schema |= {name: prepared(raw[name]) for name in ("items", "values") if name in raw}
            if isinstance(raw.get("type"), dict | list):
                schema["type"] = prepared(raw["type"])
            if "fields" in raw:
                schema["fields"] = [_field(field) for field in raw["fields"]]
            return schema | _meaning(raw)
        case _:
            return raw


def _field(raw: Mapping[str, Any]) -> dict[str, Any]:
    field = {name: value for name, value in raw.items() if name != "default"}
    return {**field, "name": raw.get("column", raw["name"]), "type": prepared(raw["type"])}


def _meaning(raw: Mapping[str, Any]) -> dict[str, Any]:
    plain, logical = RENAMED.get(str(raw.get("connect.name")), ("", ""))
    if plain != raw.get("type") or not plain:
        return {}
    length = (raw.get("connect.parameters") or {}).get("length", 1)
    return {"logicalType": logical, **({"length": length} if logical == BITS else {})}


def columns_of(raw: Any) -> dict[str, str]:  # noqa: ANN401 - an Avro schema is JSON
    """Return the SQL type of each column of a row, or of the row in an envelope.

    Schemas of our own log have PostgreSQL's type; types of users become text if the target does not
    have them.

    >>> columns_of({"type": "record", "name": "t", "fields": [{"name": "a", "type": "int"}]})
    {'a': 'integer'}
    """
    named: dict[str, Any] = {}
    _collect(raw, named)
    row = _row_of(_resolved(raw, named), named)
    fields = row.get("fields", ()) if isinstance(row, dict) else ()
    return {
        field.get("column", field["name"]): _type_of_field(field, named)
        for field in fields
        if not field["name"].startswith("__")
    }


def _collect(raw: Any, named: dict[str, Any]) -> None:  # noqa: ANN401
    if isinstance(raw, list):
        for branch in raw:
            _collect(branch, named)
    elif isinstance(raw, dict):
        if "name" in raw and raw.get("type") in {"record", "enum", "fixed"}:
            space = f"{raw['namespace']}." if raw.get("namespace") else ""
            named |= {raw["name"]: raw, space + raw["name"]: raw}
        for inner in (raw.get("type"), raw.get("items"), raw.get("values")):
            _collect(inner, named)
        for field in raw.get("fields", ()):
            _collect(field["type"], named)


def _row_of(raw: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if not isinstance(raw, dict):
        return raw
    fields = {field["name"]: field["type"] for field in raw.get("fields", ())}
    if "op" in fields:
        for name in _ROW_FIELDS:
            if name in fields:
                return _resolved(fields[name], named)
    return raw


def _resolved(raw: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the first type of a union that is not null, with names replaced by their types."""
    if isinstance(raw, list):
        raw = next((branch for branch in raw if branch != "null"), "null")
    if isinstance(raw, dict) and isinstance(raw.get("type"), dict | list):
        return _resolved(raw["type"], named)
    return named.get(raw, raw) if isinstance(raw, str) else raw


def _type_of_field(field: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    pg_type = field.get("pg_type")
    if isinstance(pg_type, str) and _PG_TYPE.fullmatch(pg_type):
        return pg_type
    return _sql_type(field["type"], named)


def _sql_type(raw: Any, named: Mapping[str, Any]) -> str:  # noqa: ANN401
    plain_type = _resolved(raw, named)
    if not isinstance(plain_type, dict):
        return _SIMPLE.get(plain_type, "text")
    with_logical = {**plain_type, **_meaning(plain_type)}
    plain, logical = str(plain_type["type"]), with_logical.get("logicalType")
    if plain == "array":
        return f"{_sql_type(plain_type['items'], named)}[]"
    if plain_type.get("connect.type") in _SMALL:
        return "smallint"
    if logical == "decimal":
        digits, scale = int(plain_type.get("precision", 0)), int(plain_type.get("scale", 0))
        return f"numeric({digits},{scale})" if 0 < digits <= _MOST_DIGITS else "numeric"
    return (
        _NAMED.get(str(plain_type.get("connect.name")))
        or _LOGICAL.get(str(logical))
        or _SIMPLE.get(plain, "text")
    )


Schema = Callable[[int], tuple[str, str]]  # returns the kind and text of the schema with an id
