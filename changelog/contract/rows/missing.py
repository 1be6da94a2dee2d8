"""Values that older rows have in a column that was added later: Avro defaults (pure).

`ADD COLUMN … DEFAULT` with a constant writes no row. PostgreSQL keeps the constant in the
catalogue (`pg_attribute.attmissingval`) and gives it to every older row, and says nothing of it
in the stream. As the Avro default of the new field it does the same for records: a reader that
resolves the writer's schema to the newest one fills it in.

A default of a union belongs to its first branch, so such a column has its type before null. Not
every value can be a default: JSON has no NaN or infinity. In an array only nulls could be written,
and Avro's reader for Java (1.12) fails on an empty one inside a union. Those give None here, and
the table needs a fresh snapshot.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from contextlib import suppress

from changelog.contract.base.errors import EncodeError
from changelog.contract.rows.text import (
    SPECIAL_NUMBERS,
    days_of,
    decimal_bytes,
    float_bytes,
    micros_of,
)
from changelog.contract.rows.types import ColumnType, Kind

_FLOAT = struct.Struct("<f")


def avro_default(kind: ColumnType, text: bytes) -> str | None:
    """Return a value as the JSON of an Avro default, or None if it cannot be one.

    `text` is the value as PostgreSQL writes it under `SESSION_SETTINGS`.
    """
    with suppress(ValueError, ArithmeticError, EncodeError):
        default = _default(kind, text)
        return None if default is None else json.dumps(default)
    return None


def _default(kind: ColumnType, text: bytes) -> object:
    read = _READERS.get(kind.kind)
    return read(kind, text) if read is not None else text.decode("utf-8")


def _bytes(_kind: ColumnType, text: bytes) -> str:
    return bytes.fromhex(text.removeprefix(b"\\x").decode("ascii")).decode("iso-8859-1")


def _finite(kind: ColumnType, text: bytes) -> float | None:
    number = float(text)
    if kind.kind is Kind.FLOAT:
        # Not by way of a double, which would round twice.
        (number,) = _FLOAT.unpack(float_bytes(text))
    return number if math.isfinite(number) else None


def _decimal(kind: ColumnType, text: bytes) -> str | None:
    if text in SPECIAL_NUMBERS:
        return None
    return decimal_bytes(text, kind.scale).decode("iso-8859-1")


_READERS: dict[Kind, Callable[[ColumnType, bytes], object]] = {
    Kind.BOOLEAN: lambda _, text: {b"t": True, b"f": False}.get(text),
    Kind.INT: lambda _, text: int(text),
    Kind.LONG: lambda _, text: int(text),
    Kind.FLOAT: _finite,
    Kind.DOUBLE: _finite,
    Kind.BYTES: _bytes,
    Kind.DATE: lambda _, text: days_of(text),
    Kind.TIMESTAMP: lambda _, text: micros_of(text),
    Kind.TIMESTAMPTZ: lambda _, text: micros_of(text),
    Kind.DECIMAL: _decimal,
    Kind.ARRAY: lambda *_: None,
}
"""How a value is read; the others are text."""
