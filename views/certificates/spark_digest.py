"""Digest of rows in Spark, by the rule of docs/certificate.md.

It is written with Spark's own functions, so that the rows stay where they are. It shares no code
with the implementations for DuckDB and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as T  # noqa: N812 - likewise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DATE_END, _MOMENT_END = 2**31 - 1, 2**63 - 1
_EXPONENT_BIAS = 1023
_HEX_FLOAT = r"^(-?)0x([01])\.([0-9a-f]+)p(-?[0-9]+)$"
"""Java's notation of a double, whose digits are the bits of the fraction."""


def spark_digest(rows: DataFrame, key: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return of each key range that has rows their number and digest.

    Raises ValueError: the session's zone is not UTC, in which timestamps without a zone are read.
    """
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone != "UTC":
        raise ValueError(f"the session's zone is {zone}, not UTC")
    kinds = {field.name: field.dataType for field in rows.schema.fields}

    def encoded(name: str) -> Column:
        return _value(rows["`" + name.replace("`", "``") + "`"], kinds[name])

    digests = rows.select(
        F.sha2(F.concat(*map(encoded, kinds)), 256).alias("digest"),
        F.substring(F.sha2(F.concat(*map(encoded, key)), 256), 1, 1).alias("key_range"),
    )
    words = [
        F.sum(F.conv(F.substring("digest", 1 + 8 * word, 8), 16, 10).cast("decimal(20,0)"))
        for word in range(8)
    ]
    added = digests.groupBy("key_range").agg(F.count(F.lit(1)), *words)
    ranges = {}
    for place, count, *sums in added.collect():
        number = sum(int(part) << (32 * (7 - word)) for word, part in enumerate(sums))
        ranges[place] = count, format(number % 2**256, "064x")
    return dict(sorted(ranges.items()))


def _value(column: Column, kind: T.DataType) -> Column:
    """Return the encoding of a value."""
    letter, body = _body(column, kind)
    whole = F.concat(F.lit(letter), F.octet_length(body).cast("string"), F.lit(":"), body)
    return F.when(column.isNull(), F.lit("-")).otherwise(whole)


def _body(column: Column, kind: T.DataType) -> tuple[str, Column]:  # noqa: PLR0911 - one per type
    """Return the letter of a type, and the body of a value that is not null."""
    match kind:
        case T.BooleanType():
            return "b", F.when(column, F.lit("t")).otherwise(F.lit("f"))
        case T.DecimalType():
            return "n", _decimal(column, kind.scale)
        case T.IntegralType():
            return "n", column.cast("string")
        case T.FractionalType():
            return "f", _float(column.cast("double"))
        case T.BinaryType():
            return "x", F.lower(F.hex(column))
        case T.DateType():
            return "d", _bounded(F.unix_date(column), _DATE_END)
        case T.TimestampType() | T.TimestampNTZType():
            return "m", _bounded(F.unix_micros(column.cast("timestamp")), _MOMENT_END)
        case T.ArrayType():
            items = F.transform(column, lambda item: _value(item, kind.elementType))
            return "l", F.array_join(items, "")
        case T.StructType():
            fields = [_value(column.getField(f.name), f.dataType) for f in kind.fields]
            return "r", F.concat(F.lit(""), *fields)
        case T.MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.concat(
                    _value(entry["key"], kind.keyType), _value(entry["value"], kind.valueType)
                ),
            )
            return "k", F.array_join(F.array_sort(entries), "")
        case T.StringType() | T.CharType() | T.VarcharType():
            return "s", column.cast("string")
        case _:
            raise ValueError(f"the type {kind.simpleString()} has no encoding")


def _decimal(column: Column, scale: int) -> Column:
    """Return the digits of a decimal: a cast to a string may write an exponent."""
    plain = F.regexp_replace(F.format_number(column, scale), ",", "")
    return F.regexp_replace(plain, r"\.?0+$", "") if scale else plain


def _float(column: Column) -> Column:
    """Return the bits of a double in hexadecimal, from Java's notation in hexadecimal."""
    text = F.format_string("%a", column)
    part = [F.regexp_extract(text, _HEX_FLOAT, group) for group in range(5)]
    exponent = F.when(part[2] == "0", 0).otherwise(part[4].cast("int") + _EXPONENT_BIAS)
    high = F.when(part[1] == "-", 2048).otherwise(0) + exponent
    bits = F.concat(F.lpad(F.lower(F.hex(high)), 3, "0"), F.rpad(part[3], 13, "0"))
    return (
        F.when(F.isnan(column), F.lit("NaN"))
        .when(column == float("inf"), F.lit("7ff0000000000000"))
        .when(column == float("-inf"), F.lit("fff0000000000000"))
        .otherwise(bits)
    )


def _bounded(number: Column, end: int) -> Column:
    """Return a date's or a moment's number; the two ends of the range are infinite."""
    return (
        F.when(number == end, F.lit("infinity"))
        .when(number <= -end, F.lit("-infinity"))
        .otherwise(number.cast("string"))
    )
