"""Renders a view's rows exactly as ids and JSON documents, in Spark expressions.

The document is one JSON object with a member per column, in order, nulls present:

| Spark type | JSON |
|---|---|
| boolean | `true`, `false` |
| tinyint, smallint, int, bigint | number |
| float, double | number, the shortest text that reads back; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| decimal(p, s) | string, plain notation with all s decimals |
| string | string |
| binary | string, base64 in one line |
| date | string `YYYY-MM-DD` |
| timestamp | string `YYYY-MM-DDTHH:MM:SS.ffffffZ`, in UTC |
| timestamp_ntz | string, the same without `Z` |
| array, struct | array, object, by the same rules |
| map | object, a key as the text that it would have as an id |

The first and last values of dates and timestamps stand for PostgreSQL's `-infinity` and `infinity`
and are written as these words. A year after 9999 has five or six digits; one before 1 is written as
in PostgreSQL, `0044-03-15 BC`, `0044-03-15T12:00:00.000000Z BC`.

The id of a key of one column is its value as text (a string without quotes); that of a key of
several columns is a compact JSON array of their values: `["UA",1545]`. It is null if a part of the
key is. An array is a compact JSON array. In an id -0.0 is written as 0.0: as keys the two are equal
in PostgreSQL and in Spark.

`to_json` alone is not enough: it writes decimals as numbers, timestamps in milliseconds and base64
in lines. So each value is converted to its text first, and `to_json` only adds quotes and commas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changelog.contract.base.errors import SinkError
from views.sinks.shape import INTEGERS
from views.sinks.unique import column

ID = "id"
DOCUMENT = "document"

_DATE_ENDS = ("+5881580-07-11", "-5877641-06-23")
_TIMESTAMP_ENDS = ("+294247-01-10 04:00:54.775807", "-290308-12-21 19:59:05.224192")
_KEEP_NULLS = {"ignoreNullFields": "false"}
_CLOCK = len("HH:MM:SS.ffffff")


def rendered(
    rows: DataFrame, key: Sequence[str], form: Callable[[StructType], Column] | None = None
) -> DataFrame:
    """Return the columns `id` and `document` of each row.

    Raises SinkError: the session's settings would change the text of values.
    """
    check_session(rows.sparkSession)
    text = (form or document)(rows.schema)
    return rows.select(identity(rows.schema, key).alias(ID), text.alias(DOCUMENT))


def check_session(spark: SparkSession) -> None:
    """Refuse a session that does not write times in UTC and decimals in plain notation."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in {"UTC", "Etc/UTC", "Z", "+00:00"}:
        raise SinkError(
            f"the Spark session's time zone is {zone}", hint="set spark.sql.session.timeZone to UTC"
        )
    if spark.conf.get("spark.sql.ansi.enabled") != "true":
        # Without ANSI a decimal below 1e-6 becomes text with an exponent.
        raise SinkError(
            "the Spark session is not in ANSI mode", hint="set spark.sql.ansi.enabled to true"
        )


def document(schema: StructType) -> Column:
    """Return a row's JSON object."""
    members = [_plain(column(f.name), f.dataType).alias(f.name) for f in schema.fields]
    return F.to_json(F.struct(*members), _KEEP_NULLS)


def identity(schema: StructType, key: Sequence[str]) -> Column:
    """Return a row's id, which is null if a part of its key is null."""
    kinds = [schema[name].dataType for name in key]
    values = [_unsigned_zero(column(n), kind) for n, kind in zip(key, kinds, strict=True)]
    if len(key) == 1 and not isinstance(kinds[0], ArrayType):
        return scalar_text(values[0], kinds[0])
    texts = [_json_text(value, kind) for value, kind in zip(values, kinds, strict=True)]
    if len(key) == 1:
        return texts[0]
    parts = [part for text in texts for part in (F.lit(","), text)][1:]
    return F.concat(F.lit("["), *parts, F.lit("]"))


def _unsigned_zero(value: Column, kind: DataType) -> Column:
    """Return a value with 0.0 in place of -0.0."""
    match kind:
        case FloatType() | DoubleType():
            return F.when(value == F.lit(0), F.lit(0.0).cast(kind)).otherwise(value)
        case ArrayType():
            return F.transform(value, lambda item: _unsigned_zero(item, kind.elementType))
        case _:
            return value


def json_text(value: Column, kind: DataType) -> Column:
    """Return the JSON text of an array, a struct or a map, null for null."""
    return F.to_json(_plain(value, kind), _KEEP_NULLS)


def scalar_text(value: Column, kind: DataType) -> Column:
    """Return a scalar's JSON text, a string without its quotes."""
    return _plain(value, kind).cast("string")


def _json_text(value: Column, kind: DataType) -> Column:
    """Return the JSON of a part of a key."""
    if isinstance(kind, (BooleanType, *INTEGERS)):
        return value.cast("string")
    quoted = F.to_json(F.array(_plain(value, kind)), _KEEP_NULLS)
    inner = F.substring(quoted, F.lit(2), F.length(quoted) - F.lit(2))
    return F.when(value.isNotNull(), inner)


def _plain(value: Column, kind: DataType) -> Column:  # noqa: PLR0911 - one for each type
    """Convert a value to a type that `to_json` writes as the table above says."""
    match kind:
        case DecimalType():
            return value.cast("string")
        case BinaryType():
            return F.translate(F.base64(value), "\r\n", "")
        case DateType():
            return _date_text(value)
        case TimestampType():
            return _timestamp_text(value.cast("timestamp_ntz"), "Z")
        case TimestampNTZType():
            return _timestamp_text(value, "")
        case ArrayType() if _changes(kind):
            return F.transform(value, lambda item: _plain(item, kind.elementType))
        case StructType() if _changes(kind):
            members = [
                _plain(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields
            ]
            return F.when(value.isNotNull(), F.struct(*members))
        case MapType() if _changes(kind):
            texts = F.transform_keys(value, lambda k, _: scalar_text(k, kind.keyType))
            return F.transform_values(texts, lambda _, v: _plain(v, kind.valueType))
        case _:
            return value


def _changes(kind: DataType) -> bool:
    """Tell whether `to_json` alone would write values of a type differently."""
    match kind:
        case ArrayType():
            return _changes(kind.elementType)
        case StructType():
            return any(_changes(field.dataType) for field in kind.fields)
        case MapType():
            return True
        case _:
            changing = (DecimalType, BinaryType, DateType, TimestampType, TimestampNTZType)
            return isinstance(kind, changing)


def _date_text(value: Column) -> Column:
    text = value.cast("string")
    return (
        F.when(_common_year(text), text)
        .when(text == _DATE_ENDS[0], "infinity")
        .when(text == _DATE_ENDS[1], "-infinity")
        .when(F.year(value) > 0, _unsigned(text))
        .otherwise(F.concat(_before_christ(value, text), F.lit(" BC")))
    )


def _timestamp_text(value: Column, zone: str) -> Column:
    """Render a timestamp_ntz; its text in Spark does not depend on the session's time zone."""
    text = value.cast("string")
    day, clock = F.substring_index(text, " ", 1), F.substring_index(text, " ", -1)
    whole = F.when(F.length(clock) == len("HH:MM:SS"), F.concat(clock, F.lit("."))).otherwise(clock)
    time = F.concat(F.lit("T"), F.rpad(whole, _CLOCK, "0"), F.lit(zone))
    return (
        F.when(_common_year(text), F.concat(day, time))
        .when(text == _TIMESTAMP_ENDS[0], "infinity")
        .when(text == _TIMESTAMP_ENDS[1], "-infinity")
        .when(F.year(value) > 0, F.concat(_unsigned(day), time))
        .otherwise(F.concat(_before_christ(value, day), time, F.lit(" BC")))
    )


def _common_year(text: Column) -> Column:
    """Tell whether the year is between 1 and 9999; Spark writes others with a sign, or as 0000."""
    return (F.substring(text, 5, 1) == "-") & ~text.startswith("0000")


def _unsigned(text: Column) -> Column:
    return F.ltrim(text, F.lit("+"))


def _before_christ(value: Column, day: Column) -> Column:
    """Return the date of year 0 (1 BC in PostgreSQL) or earlier."""
    year = F.format_string("%04d", F.lit(1) - F.year(value))
    return F.concat(year, F.right(day, F.lit(len("-MM-DD"))))
