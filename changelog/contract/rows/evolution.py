"""Versions of a table's value schema: which one a position has, and what reads wrong (pure).

A version that follows another one bears the position of its first row (`from`). So the version of
a row is the last one that began at or before it, also when the stream is read once more after a
crash; a table that goes back to an older form gets a version of its own; and the newest version
is the one that the table has now. A version under which all rows are written anew bears `fresh`:
those before it count no more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.harmless_schema import full_name
from changelog.contract.rows.schema import LoggedSchema, foreign_schema
from changelog.contract.rows.types import ColumnType, Kind

_FROM, _FRESH = "from", "fresh"
END = Position(2**32 - 1, Lsn(2**64 - 1), 2**64 - 1)
"""Behind all rows."""

_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_WIDENINGS = {(Kind.INT, Kind.LONG), (Kind.FLOAT, Kind.DOUBLE)}


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a value schema, as it is registered."""

    text: str  # the schema
    id: int = 0  # of the schema in the registry
    # position of its first row; None for the first version, or one of others
    since: Position | None = None
    fresh: bool = False  # whether all rows were written anew under it

    @classmethod
    def of(cls, text: str, schema_id: int) -> SchemaVersion:
        """Read the marks of a registered schema; raises CorruptRecordError if they are not ours."""
        try:
            raw = json.loads(text)
            since = raw.get(_FROM)
            place = None if since is None else Position.parse(since)
            return cls(text, schema_id, place, bool(raw.get(_FRESH)))
        except (ValueError, AttributeError, TypeError) as error:
            raise foreign_schema(error) from error

    def is_like(self, schema: str) -> bool:
        """Return whether a schema without marks is this one, however a registry formats it."""
        return _bare(self.text) == _bare(schema)


def marked(schema: str, since: Position, *, fresh: bool) -> str:
    """Return a schema with the marks of a version that follows another."""
    fields = {name: part for name, part in json.loads(schema).items() if name != _FRESH}
    marks = {_FROM: str(since), **({_FRESH: True} if fresh else {})}
    return json.dumps({**fields, **marks}, ensure_ascii=False)


def alive(versions: Sequence[SchemaVersion]) -> list[SchemaVersion]:
    """Return the versions that rows of the table may have, the oldest first."""
    starts = [number for number, version in enumerate(versions) if version.fresh]
    return list(versions[starts[-1] if starts else 0 :])


def version_at(versions: Sequence[SchemaVersion], position: Position) -> SchemaVersion:
    """Return the version of a row at a position; the first one for a row before all versions."""
    latest = versions[0]
    for version in versions[1:]:
        begun = version.since is None or version.since <= position
        if begun and (
            latest.since is None or version.since is None or latest.since <= version.since
        ):
            latest = version
    return latest


def obstacles(writer: LoggedSchema, reader: LoggedSchema) -> list[str]:
    """Return the columns whose old values cannot be read exactly as the reader's type.

    Avro's own rules are not enough: they resolve bytes to bytes whatever the decimal scale, and
    text to bytes. A column that only one side has is no obstacle.
    """
    old = {column.field: column for column in writer.columns}
    return [
        f'column "{new.column}" was {was.type.name}, is {new.type.name}'
        for new in reader.columns
        if (was := old.get(new.field)) is not None
        and not (was.column == new.column and type_fits(was.type, new.type))
    ]


def type_fits(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether every value of a type reads exactly as one of another."""
    if (old.kind, new.kind) in _WIDENINGS:
        return True
    if old.kind is not new.kind:
        return False
    if old.kind is Kind.DECIMAL:
        return old.scale == new.scale and old.precision <= new.precision
    if old.element is not None and new.element is not None:
        return type_fits(old.element, new.element)
    return True


def _bare(schema: str) -> str:
    fields = json.loads(schema)
    for mark in (_FROM, _FRESH):
        fields.pop(mark, None)
    # Compared as text, since for Python `1 == True == 1.0`.
    return json.dumps(_in_full(fields, ""), sort_keys=True)


def _in_full(raw: Any, space: str) -> Any:  # noqa: ANN401 - JSON
    """Return a type with the full names of all types in it, and no namespaces.

    A registry may leave out a namespace that the type around it has, and shorten what refers to it
    (https://avro.apache.org/docs/1.12.0/specification/#names).
    """
    full_type = raw
    match raw:
        case str():
            full_type = raw if raw in _PRIMITIVE else full_name(raw, space)
        case list():
            full_type = [_in_full(branch, space) for branch in raw]
        case {"type": "record" | "enum" | "fixed", "name": name}:
            full = full_name(name, raw.get("namespace", space))
            inside = full.rpartition(".")[0]
            full_type = {key: value for key, value in raw.items() if key != "namespace"}
            full_type["name"] = full
            if "fields" in raw:
                full_type["fields"] = [
                    {**field, "type": _in_full(field["type"], inside)} for field in raw["fields"]
                ]
        case {"type": "array", "items": items}:
            full_type = {**raw, "items": _in_full(items, space)}
        case {"type": "map", "values": values}:
            full_type = {**raw, "values": _in_full(values, space)}
        case {"type": kind}:
            full_type = {**raw, "type": _in_full(kind, space)}
        case _:
            raise foreign_schema(ValueError("no type"))
    return full_type
