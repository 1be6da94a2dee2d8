"""PostgreSQL column types and the Avro type that carries each one exactly.

| PostgreSQL | Avro | note |
|---|---|---|
| bool | boolean | |
| int2, int4 / int8, oid | int / long | |
| float4 / float8 | float / double | NaN and infinities are theirs |
| numeric(p, s), p <= 38 | bytes, decimal(p, s), with escape | NaN takes the escape |
| numeric | string | PostgreSQL's text, NaN and infinities too |
| text, varchar, bpchar, name, citext, enums | string | |
| bytea | bytes | |
| date | int, date | infinities are the two ends of the 32 bits |
| timestamp | long, local-timestamp-micros | infinities are the two ends of the 64 bits |
| timestamptz | long, timestamp-micros | the same |
| time, timetz, interval | string | 24:00:00 has no Avro form; ISO 8601 for interval |
| uuid | string, uuid | |
| json, jsonb | string | PostgreSQL's text, not normalised |
| arrays of these | array of nullable elements, with escape | other dimensions, bounds: escape |
| anything else | string | PostgreSQL's text; capture says so once |

*Escape*: a type with a few values outside its Avro type is a union with one more branch, a
string that holds PostgreSQL's own text. Nothing is rounded and nothing stops the log; a reader
that has no place for such a value fails loudly instead of guessing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_DECIMAL_PRECISION = 38
"""What Spark, DuckDB and Parquet hold; a wider numeric travels as text."""


class Kind(Enum):
    """The Avro shape of a column."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column's type: PostgreSQL's name for it and the Avro shape that carries it.

    Attributes:
        name: PostgreSQL's `format_type`, such as `numeric(10,2)` or `text[]`.
        kind: the Avro shape.
        precision: total digits of a DECIMAL, else 0.
        scale: digits behind the point of a DECIMAL, else 0.
        element: the element of an ARRAY, else None.
        mapped: False for a type that we do not know and carry as text.
    """

    name: str
    kind: Kind
    precision: int = 0
    scale: int = 0
    element: ColumnType | None = None
    mapped: bool = True

    @property
    def has_escape(self) -> bool:
        """Tell whether the union has a branch for PostgreSQL's own text."""
        return self.kind in {Kind.DECIMAL, Kind.ARRAY}


_KINDS = {
    "bool": Kind.BOOLEAN,
    "int2": Kind.INT,
    "int4": Kind.INT,
    "int8": Kind.LONG,
    "oid": Kind.LONG,
    "float4": Kind.FLOAT,
    "float8": Kind.DOUBLE,
    "numeric": Kind.STRING,
    "text": Kind.STRING,
    "varchar": Kind.STRING,
    "bpchar": Kind.STRING,
    "char": Kind.STRING,
    "name": Kind.STRING,
    "citext": Kind.STRING,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    "time": Kind.STRING,
    "timetz": Kind.STRING,
    "interval": Kind.STRING,
    "uuid": Kind.UUID,
    "json": Kind.STRING,
    "jsonb": Kind.STRING,
}
_DECIMAL = re.compile(r"numeric\((\d+),(-?\d+)\)")


def column_type(base: str, formatted: str, *, is_enum: bool = False) -> ColumnType:
    """Map a type that is not an array.

    Args:
        base: `pg_type.typname`, such as `int4`.
        formatted: `format_type(oid, typmod)`, such as `numeric(10,2)`.
        is_enum: whether `pg_type.typtype` is `e`.
    """
    if is_enum:
        return ColumnType(formatted, Kind.STRING)
    if base == "numeric" and (match := _DECIMAL.fullmatch(formatted)):
        precision, scale = int(match[1]), int(match[2])
        if precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision:
            return ColumnType(formatted, Kind.DECIMAL, precision, scale)
    kind = _KINDS.get(base)
    return ColumnType(formatted, kind or Kind.STRING, mapped=kind is not None)


def array_type(element: ColumnType, formatted: str) -> ColumnType:
    """Map an array; an element that would need an escape of its own travels as text.

    An array of a type that we do not know travels whole as text: its elements may be parted by
    another character than a comma (`box` has `;`, PostGIS has `:`).
    """
    if not element.mapped:
        return ColumnType(formatted, Kind.STRING, mapped=False)
    if element.has_escape:
        element = ColumnType(element.name, Kind.STRING)
    return ColumnType(formatted, Kind.ARRAY, element=element)
