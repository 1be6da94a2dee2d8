"""Logs of other programs, as a project declares them, and the columns that their rows have.

Four shapes are known, each in Avro (under a registry) or JSON, and rows in Protobuf too:

- Debezium's envelope: `before`, `after`, `op`, `source`; JSON with or without a schema beside it;
- flattened rows: the row itself, deletes by a marker column, by a tombstone, or by both;
- the c/u/d envelope: `before`, `after`, `op`, where an update may change the key.

The registry says what the columns of Avro and Protobuf are. JSON does not, so its columns are
declared: a member that is not declared is not read, one that is not there is null. What a type
cannot hold exactly is a fault of its record; `string` takes any value as the text that the source
gave.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import MAX_DECIMAL_PRECISION, ColumnType, Kind


class ValueShape(Enum):
    """The content of a value, and its encoding."""

    DEBEZIUM_AVRO = "debezium-avro"
    DEBEZIUM_JSON = "debezium-json"
    FLAT_AVRO = "flat-avro"
    FLAT_JSON = "flat-json"
    FLAT_PROTOBUF = "flat-protobuf"
    CUD_JSON = "cud-json"

    @property
    def is_avro(self) -> bool:
        """Tell whether keys and values are Avro."""
        return self.value.endswith("-avro")

    @property
    def is_registered(self) -> bool:
        """Tell whether the registry says what the columns are."""
        return self.is_avro or self is ValueShape.FLAT_PROTOBUF

    @property
    def is_flat(self) -> bool:
        """Tell whether a value is a row and no event."""
        return self.value.startswith("flat-")


class Order(Enum):
    """The rule that decides which of two records of a key is newer."""

    OFFSET = "offset"  # the place in the partition
    LSN = "lsn"  # the source's own position, which Debezium's envelope has as `source.lsn`


class Unavailable(Enum):
    """The treatment of a column that its source left out and no older record has."""

    FAIL = "fail"  # the record cannot be read
    NULL = "null"
    KEEP = "keep"  # the placeholder stays, as if it were the value


class Beginning(Enum):
    """The place where a log may begin."""

    START = "start"  # at its first record: all that was ever written, or what compaction left of it
    EARLIEST = "earliest"  # at what is there still: rows whose last record was deleted are missing


@dataclass(frozen=True, slots=True)
class From:
    """The log begins with the records appended since a time, milliseconds since 1970."""

    ms: int

    def __str__(self) -> str:
        """Return the time for people."""
        return datetime.fromtimestamp(self.ms / 1000, UTC).isoformat()


PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes for a value that PostgreSQL did not send, unless it is told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLog:
    """A topic that another program writes."""

    table: TableName  # the name under which views read it
    topic: str  # where its records lie
    shape: ValueShape  # what its values tell
    key: tuple[str, ...]  # its key's columns
    # of flattened rows the column that marks a deleted one; empty for tombstones alone
    delete: str = ""
    order: Order = Order.OFFSET  # what says which of two records is newer
    columns: tuple[LoggedColumn, ...] = ()  # name and type of each column, in JSON
    # whether an update may change a key; a compacted topic then loses deletes
    key_changes: bool = True
    # the text that stands for a value that PostgreSQL did not send; empty where there is none
    placeholder: str = PLACEHOLDER
    # what becomes of such a column, where no older record has its value
    on_unavailable: Unavailable = Unavailable.FAIL
    beginning: Beginning | From = Beginning.START  # where it may begin, or from when on it is read

    @property
    def leaves_out(self) -> bool:
        """Return whether a record may leave out unchanged values."""
        never = {ValueShape.CUD_JSON, ValueShape.FLAT_PROTOBUF}
        return bool(self.placeholder) and self.shape not in never

    def rule(self) -> str:
        """Return the guarantee of the log's states, in words."""
        newest = (
            "the newest record of a key is the one with the highest source.lsn"
            if self.order is Order.LSN
            else "the newest record of a key is the last one of its partition"
        )
        return f"{newest}; no frontier cuts transactions or topics at one moment"


SPARK_TYPES = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "bigint": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "binary": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMPTZ,
    "timestamp_ntz": Kind.TIMESTAMP,
}
"""The kinds of values by Spark's names of their types; decimals have a pattern of their own."""

_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")


def declared_columns(columns: Mapping[str, str], where: str) -> tuple[LoggedColumn, ...]:
    """Read the declared columns of a JSON log: Spark's names of types.

    Raises ConfigurationError: a type is not known.
    """
    return tuple(
        LoggedColumn(name, name, _declared_type(text, f"{where}.columns.{name}"), nullable=True)
        for name, text in columns.items()
    )


def _declared_type(text: str, where: str) -> ColumnType:
    if (match := _DECIMAL.fullmatch(text)) is not None:
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision:
            return ColumnType(text, Kind.DECIMAL, precision, scale)
    kind = SPARK_TYPES.get(text)
    if kind is None:
        raise ConfigurationError(
            f'{where}: "{text}" is no type of a column here',
            hint=f"use decimal(p,s) with p up to {MAX_DECIMAL_PRECISION}, {', '.join(SPARK_TYPES)}",
        )
    return ColumnType(text, kind)


MILLIS = "timestamp in milliseconds"
"""Name of a type whose numbers are milliseconds; every other timestamp's are microseconds."""

_AVRO_PLAIN = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
}
_CONNECT = {
    ("int", "io.debezium.time.Date"): ColumnType("date", Kind.DATE),
    ("long", "io.debezium.time.MicroTimestamp"): ColumnType("timestamp", Kind.TIMESTAMP),
    ("long", "io.debezium.time.Timestamp"): ColumnType(MILLIS, Kind.TIMESTAMP),
}
_LOGICAL = {
    ("int", "date"): ColumnType("date", Kind.DATE),
    ("long", "timestamp-micros"): ColumnType("timestamptz", Kind.TIMESTAMPTZ),
    ("long", "local-timestamp-micros"): ColumnType("timestamp", Kind.TIMESTAMP),
    ("long", "timestamp-millis"): ColumnType(MILLIS, Kind.TIMESTAMPTZ),
    ("long", "local-timestamp-millis"): ColumnType(MILLIS, Kind.TIMESTAMP),
    ("string", "uuid"): ColumnType("uuid", Kind.UUID),
}


def avro_columns(text: str, shape: ValueShape) -> tuple[LoggedColumn, ...]:
    """Read the columns of the row that a value has or tells of.

    Other semantic types (times of day, nanoseconds, zoned text) keep the number or text that the
    source gave.

    Raises:
        CorruptRecordError: the schema is not of that shape, or a column's type has no exact form.
    """
    try:
        raw = json.loads(text)
        if not shape.is_flat:
            fields = {field["name"]: field for field in raw["fields"]}
            branches = fields["before"]["type"]
            raw = next(branch for branch in branches if isinstance(branch, dict))
        return tuple(_avro_column(field) for field in raw["fields"])
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise CorruptRecordError(
            f"a schema of the registry is not of the form {shape.value}: {error!r}",
            hint="check `form` of the log in changelog.toml",
        ) from error


def _avro_column(field: Mapping[str, Any]) -> LoggedColumn:
    union = field["type"] if isinstance(field["type"], list) else [field["type"]]
    types = [branch for branch in union if branch != "null"]
    if len(types) != 1:
        raise _inexact(field["name"], union)
    default = field.get("default")
    return LoggedColumn(
        field["name"],
        field["name"],
        _avro_type(field["name"], types[0]),
        "null" in union,
        None if default is None else json.dumps(default),
    )


DIGITS = "decimal of any scale"
"""Name of Debezium's type for a `numeric` without a precision; read as the text of its digits."""

_DIGITS = "io.debezium.data.VariableScaleDecimal"


def _avro_type(name: str, raw: Any) -> ColumnType:  # noqa: ANN401 - an Avro schema is JSON
    if raw == _DIGITS or (isinstance(raw, dict) and raw.get("connect.name") == _DIGITS):
        return ColumnType(DIGITS, Kind.STRING)
    if isinstance(raw, str) and raw in _AVRO_PLAIN:
        return ColumnType(raw, _AVRO_PLAIN[raw])
    if not isinstance(raw, dict) or raw["type"] not in {*_AVRO_PLAIN, "array"}:
        raise _inexact(name, raw)
    plain = raw["type"]
    if plain == "array":
        items = raw["items"] if isinstance(raw["items"], list) else [raw["items"]]
        inner = [branch for branch in items if branch != "null"]
        element = _avro_type(name, inner[0]) if len(inner) == 1 else None
        if element is None or element.name in {MILLIS, DIGITS} or element.has_escape:
            raise _inexact(name, raw)
        return ColumnType(f"{element.name}[]", Kind.ARRAY, element=element)
    if raw.get("logicalType") == "decimal":
        precision, scale = int(raw["precision"]), int(raw.get("scale", 0))
        if not 0 <= scale <= precision <= MAX_DECIMAL_PRECISION:
            raise _inexact(name, raw)
        return ColumnType(f"decimal({precision},{scale})", Kind.DECIMAL, precision, scale)
    for kinds, marks in ((_CONNECT, raw.get("connect.name")), (_LOGICAL, raw.get("logicalType"))):
        if (plain, str(marks)) in kinds:
            return kinds[plain, str(marks)]
    return ColumnType(plain, _AVRO_PLAIN[plain])


def _inexact(name: str, raw: object) -> CorruptRecordError:
    return CorruptRecordError(
        f'column "{name}" of a declared log has the Avro type {json.dumps(raw)[:200]}, which has '
        "no exact form here",
        hint="let its connector write it as text, or leave the column out at the source",
    )
