"""Maps a view's columns to columns of PostgreSQL: names, types, and exact values.

| Spark | PostgreSQL |
|---|---|
| boolean, string, binary, date | boolean, text, bytea, date |
| float, double | real, double precision |
| tinyint and smallint, int, bigint | smallint, integer, bigint |
| decimal(p, s) | numeric(p, s) |
| timestamp, timestamp_ntz | timestamp with, without time zone |
| array of these | an array |
| struct, map, array of arrays or of these | jsonb, by the rules of `views.sinks.rendering` |

In `jsonb` numbers are `numeric`, which has no -0.0: a document with one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from psycopg2 import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changelog.contract.base.errors import SinkError
from views.sinks.postgres import encode
from views.sinks.postgres.options import PostgresOptions
from views.sinks.rendering import json_text
from views.sinks.unique import column

LONGEST_NAME_BYTES = 63
_SYSTEM = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
_ZERO = r"[:,\[]-0\.0[,\]}]"
_SCALARS: dict[type[DataType], tuple[str, int, encode.Column]] = {
    BooleanType: ("boolean", 16, encode.boolean),
    ByteType: ("smallint", 21, encode.integer(2)),
    ShortType: ("smallint", 21, encode.integer(2)),
    IntegerType: ("integer", 23, encode.integer(4)),
    LongType: ("bigint", 20, encode.integer(8)),
    FloatType: ("real", 700, encode.real(4)),
    DoubleType: ("double precision", 701, encode.real(8)),
    BinaryType: ("bytea", 17, encode.bytea),
    DateType: ("date", 1082, encode.date),
    TimestampType: ("timestamp with time zone", 1184, encode.moment),
    TimestampNTZType: ("timestamp without time zone", 1114, encode.moment),
}
"""Name, object id and encoder of a type; any other scalar is a text."""
_TEXT = ("text", 25, encode.text)


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column of a view as a column of its table: names and types."""

    name: str  # in the view
    target: str  # in the table
    kind: DataType  # its type in Spark
    loaded: str  # its type in PostgreSQL while it is loaded
    type: str  # its final type in PostgreSQL

    @property
    def is_document(self) -> bool:
        """Tell whether it is sent as JSON."""
        return self.loaded == "jsonb"

    def values(self) -> Column:
        """Return the expression of its values as they are sent."""
        value = column(self.name)
        return (json_text(value, self.kind) if self.is_document else value).alias(self.name)

    def fields(self, array: pa.Array, row: Callable[[int], str] = lambda _: "") -> pa.Array:
        """Return its values as fields of COPY.

        `row`: returns the words that name the row at a place.
        """
        try:
            if self.is_document:
                _refuse_negative_zero(array)
                return encode.jsonb(array)
            return _native(self.kind)[2](array)
        except ValueError as error:
            where = row(error.place) if isinstance(error, encode.RangeError) else ""
            raise SinkError(
                f'column "{self.name}" holds {error}{where}',
                hint="leave such rows out, or cast the column in the view",
            ) from error


def forms_of(schema: StructType, options: PostgresOptions, view: str) -> tuple[ColumnForm, ...]:
    """Return the columns of a view as columns of a table."""
    _check_known("columns", options.columns, schema.fieldNames(), view)
    targets = [options.columns.get(name, name) for name in schema.fieldNames()]
    _check_known("types", options.types, targets, view)
    for name in targets:
        if targets.count(name) > 1:
            raise SinkError(f'{view}.postgres.json: two columns go to "{name}"')
        if not name or len(name.encode()) > LONGEST_NAME_BYTES:
            raise SinkError(
                f'column "{name}" cannot be the name of a column of PostgreSQL: it has '
                f"{len(name.encode())} bytes, and at most {LONGEST_NAME_BYTES} are possible",
                hint=f"give it another name in {view}.postgres.json, under columns",
            )
        if name in _SYSTEM:
            raise SinkError(
                f'column "{name}" cannot be the name of a column of PostgreSQL, which has one of '
                "that name in every table",
                hint=f"give it another name in {view}.postgres.json, under columns",
            )
    forms = []
    for field, target in zip(schema.fields, targets, strict=True):
        loaded = _loaded(field.dataType)
        forms.append(
            ColumnForm(
                field.name, target, field.dataType, loaded, options.types.get(target, loaded)
            )
        )
    return tuple(forms)


def sent(rows: DataFrame, forms: Sequence[ColumnForm]) -> DataFrame:
    """Return rows with their documents as JSON, in the order of the forms.

    Columns have new names, because PySpark reads a name such as `a.b` as a field of a struct.
    """
    return rows.select(*(form.values().alias(f"c{n}") for n, form in enumerate(forms)))


def _check_known(option: str, named: dict[str, str], names: Sequence[str], view: str) -> None:
    unknown = sorted(named.keys() - set(names))
    if unknown:
        raise SinkError(
            f'{view}.postgres.json: {option} names "{unknown[0]}", which is not a column',
            hint=f"its columns are {', '.join(names)}",
        )


def _is_nested(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, (ArrayType, StructType, MapType))
    return isinstance(kind, (StructType, MapType))


def _loaded(kind: DataType) -> str:
    return "jsonb" if _is_nested(kind) else _native(kind)[0]


def _native(kind: DataType) -> tuple[str, int, encode.Column]:
    match kind:
        case ArrayType():
            name, oid, fields = _native(kind.elementType)
            return f"{name}[]", 0, encode.listed(oid, fields)
        case DecimalType():
            name = f"numeric({kind.precision},{kind.scale})"
            return name, 1700, encode.numeric(kind.precision, kind.scale)
        case _:
            return _SCALARS.get(type(kind), _TEXT)


def _refuse_negative_zero(array: pa.Array) -> None:
    suspects = array.filter(pc.match_substring_regex(array, _ZERO))
    if any(_holds_negative_zero(orjson.loads(text)) for text in suspects.to_pylist() if text):
        raise ValueError("-0.0 inside a document, and jsonb has no such number")


def _holds_negative_zero(value: Any) -> bool:  # noqa: ANN401 - JSON
    match value:
        case dict():
            return any(_holds_negative_zero(item) for item in value.values())
        case list():
            return any(_holds_negative_zero(item) for item in value)
        case float():
            return value == 0 and math.copysign(1, value) < 0
        case _:
            return False


def first_changed(cursor: Any, table: sql.Composable, form: ColumnForm) -> str | None:  # noqa: ANN401
    """Return the text of a value that a column's final type does not hold exactly, or None."""
    cursor.execute(
        sql.SQL(
            f"SELECT {{0}}::text FROM {{1}} WHERE {{0}}::{form.type}::{form.loaded}::text "
            "IS DISTINCT FROM {0}::text LIMIT 1"
        ).format(sql.Identifier(form.target), table)
    )
    row = cursor.fetchone()
    return None if row is None else str(row[0])
