"""A key as people write it -> its bytes on the log. Pure.

A value may be of Python's own type or PostgreSQL's text of it. The bytes are those that capture
writes, since keys are compared and placed by them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from changelog.contract.base.errors import ConfigurationError, EncodeError
from changelog.contract.rows.codec import frame
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.text import encoder
from changelog.contract.rows.types import Kind

_DAY = r"\d{4,}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
# PostgreSQL's texts. Capture's encoders are given no others, and would make a value of some.
_FORMS = {
    Kind.BOOLEAN: re.compile("[tf]"),
    Kind.INT: re.compile(r"-?\d+", re.ASCII),
    Kind.LONG: re.compile(r"-?\d+", re.ASCII),
    Kind.DATE: re.compile(rf"-?infinity|{_DAY}( BC)?", re.ASCII),
    Kind.TIMESTAMP: re.compile(rf"-?infinity|{_DAY} {_CLOCK}( BC)?", re.ASCII),
    Kind.TIMESTAMPTZ: re.compile(rf"-?infinity|{_DAY} {_CLOCK}\+00( BC)?", re.ASCII),
}
_CHAR = re.compile(r"character\((\d+)\)")
_ISO = re.compile(rf"{_DAY}[ T]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)

Key = object
"""A value; of a key of several columns a tuple of them in its order, or a mapping by column."""


def key_bytes(logged: LoggedSchema, schema_id: int | None, key: Key) -> bytes:
    """Return a key in its form on the log.

    `logged`: the schema of the table's rows. `schema_id`: that its keys bear; None where they are
    no Avro. `key`: see `Key`.
    """
    if schema_id is None:
        raise ConfigurationError(f'table "{logged.table}" has no keys in Avro')
    columns = {column.column: column for column in logged.columns}
    parts = [frame(schema_id)]
    for name, value in zip(logged.key, _values(logged, key), strict=True):
        parts.append(_encoded(logged, columns[name], value))
    return b"".join(parts)


def _values(logged: LoggedSchema, key: Key) -> tuple[object, ...]:
    names = ", ".join(logged.key)
    hint = f"the key of this table is ({names})"
    if isinstance(key, Mapping):
        if set(key) != set(logged.key):
            raise ConfigurationError(
                f'table "{logged.table}": ({", ".join(map(str, key))}) is not its key', hint=hint
            )
        return tuple(key[name] for name in logged.key)
    values = tuple(key) if isinstance(key, list | tuple) else (key,)
    if len(values) != len(logged.key):
        raise ConfigurationError(
            f'table "{logged.table}": a key of {len(values)} values was given, it has '
            f"{len(logged.key)}",
            hint=hint,
        )
    return values


def _encoded(logged: LoggedSchema, column: LoggedColumn, value: object) -> bytes:
    try:
        return encoder(column.type, nullable=False)(_text(column, value).encode())
    except (ValueError, IndexError, ArithmeticError, TypeError, EncodeError) as error:
        raise ConfigurationError(
            f'table "{logged.table}": {value!r} is no value of its key column '
            f'"{column.column}" ({column.type.name})',
            hint="a value of Python's own type, or PostgreSQL's text of it",
        ) from error


def _text(column: LoggedColumn, value: object) -> str:
    """Return PostgreSQL's text of a value."""
    match value:
        case None:
            raise ValueError("a key has no null")
        case bool():
            text = "t" if value else "f"
        case float():
            text = _float(value)
        case Decimal():
            text = format(value, "f")
        case bytes():
            text = "\\x" + value.hex()
        case datetime():
            text = _moment(column, value)
        case date():
            text = value.isoformat()
        case str() if column.type.kind is Kind.UUID:
            text = str(UUID(value))
        case str() if (length := _CHAR.fullmatch(column.type.name)) is not None:
            text = value.rstrip(" ").ljust(int(length[1]))  # as PostgreSQL pads it
        case "true" | "false" if column.type.kind is Kind.BOOLEAN:
            text = value[0]
        case str() if column.type.kind in _FORMS and not _FORMS[column.type.kind].fullmatch(value):
            text = _iso_moment(column, value)
        case _:
            text = str(value)
    return text


def _iso_moment(column: LoggedColumn, value: str) -> str:
    """Return PostgreSQL's text of a moment in ISO 8601, whatever its zone."""
    if column.type.kind not in {Kind.TIMESTAMP, Kind.TIMESTAMPTZ} or not _ISO.fullmatch(value):
        raise ValueError("not PostgreSQL's text")
    return _moment(column, datetime.fromisoformat(value))


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _moment(column: LoggedColumn, value: datetime) -> str:
    if column.type.kind is Kind.TIMESTAMPTZ:
        if value.tzinfo is None:
            raise ValueError("a moment without a zone")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ") + "+00"
    if value.tzinfo is not None or column.type.kind is Kind.DATE:
        raise ValueError("a moment with a zone, or in place of a date")
    return value.isoformat(sep=" ")
