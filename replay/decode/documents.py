"""JSON documents of a log -> rows in the shape that its Avro records have. Pure expressions.

A document is read as a map of texts, never by Spark's own types: those round a `numeric`, take a
wrong value for a null and cannot tell a member that is not there from one that is null. Each text
is then converted to its column's type; one that cannot be is a fault of its record. The forms of
the texts are listed in `changelog.contract.forms.document`.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.forms.event import AFTER
from changelog.contract.log.form import Envelope
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.text import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)
from changelog.contract.rows.types import ColumnType, Kind

VALUE, ESCAPE = "member0", "member1"
"""How Spark names the branches of an Avro union with an escape; documents are given its shape."""

_MAP = "map<string,string>"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_SHAPES = {
    Envelope.ROW: _MAP,
    Envelope.FLAT: _MAP,
    Envelope.NESTED: f"struct<op:string,after:{_MAP}>",
}
_NUMBERS = ("NaN", "Infinity", "-Infinity")


def parsed(value: Column, envelope: Envelope) -> Column:
    """Parse a value's bytes; null unless it is exactly one JSON object.

    It is parsed inside of an array, because Spark ignores whatever follows the first document.
    """
    text = value.cast("string")
    inside = F.concat(F.lit("["), text, F.lit("]"))
    documents = F.from_json(inside, f"array<{_SHAPES[envelope]}>", _OPTIONS)
    is_one = F.is_valid_utf8(text) & (F.size(documents) == 1)
    return F.when(is_one, F.get(documents, F.lit(0)))


def members(document: Column, envelope: Envelope) -> Column:
    """Return the map that holds the columns of the row, null where there is no row."""
    return document.getField("after") if envelope is Envelope.NESTED else document


def operation(document: Column, envelope: Envelope) -> Column:
    """Return the operation of an event."""
    return document.getField("op") if envelope is Envelope.NESTED else document.getItem("op")


def texts(parsed_members: Column, schema: LoggedSchema, envelope: Envelope) -> Column:
    """Return the text of each column, null for one that is null or not there."""
    prefix = AFTER if envelope is Envelope.FLAT else ""
    named = [
        F.try_element_at(parsed_members, F.lit(prefix + column.column)).alias(column.field)
        for column in schema.columns
    ]
    return F.struct(*named)


def typed(column_texts: Column, schema: LoggedSchema) -> Column:
    """Convert the texts of `texts` to the columns' types; null where that is not possible."""
    return F.struct(
        *(
            _column(column_texts.getField(column.field), column).alias(column.field)
            for column in schema.columns
        )
    )


def malformed(column_texts: Column, row: Column, schema: LoggedSchema) -> Column:
    """Return the name of the first column whose text cannot be converted to its type, or null."""
    checks = [
        F.when(
            column_texts.getField(column.field).isNotNull()
            & _has_no_value(row.getField(column.field), column),
            F.lit(column.column),
        )
        for column in schema.columns
    ]
    return F.coalesce(*checks, F.lit(None).cast("string"))


def _has_no_value(value: Column, column: LoggedColumn) -> Column:
    if not column.type.has_escape:
        return value.isNull()
    return value.getField(VALUE).isNull() & value.getField(ESCAPE).isNull()


def _column(text: Column, column: LoggedColumn) -> Column:
    kind = column.type
    if kind.kind is Kind.DECIMAL:
        is_special = text.isin(*_NUMBERS)
        return _with_escape(F.when(~is_special, _decimal(text, kind)), F.when(is_special, text))
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None  # noqa: S101 - array_type always sets it
        items = F.from_json(text, "array<string>", _OPTIONS)
        # An array of other shape is PostgreSQL's text, which is no JSON array.
        return _with_escape(_array(items, kind.element), F.when(items.isNull(), text))
    return _SIMPLE[kind.kind](text)


def _with_escape(value: Column, escape: Column) -> Column:
    return F.struct(value.alias(VALUE), escape.alias(ESCAPE))


def _array(items: Column, element: ColumnType) -> Column:
    """Return the array of the elements' values, null when one of them cannot be converted."""
    read = _SIMPLE[element.kind]
    values = F.transform(items, read)
    is_lost = F.exists(
        F.arrays_zip(items.alias("text"), values.alias("value")),
        lambda pair: pair.getField("text").isNotNull() & pair.getField("value").isNull(),
    )
    return F.when(~is_lost, values)


def _decimal(text: Column, kind: ColumnType) -> Column:
    """Cast exactly: a plain cast would round digits beyond the scale."""
    value = text.try_cast(f"decimal({kind.precision},{kind.scale})")
    return F.when(value.cast("string") == text, value)


def _float(name: str) -> Callable[[Column], Column]:
    def read(text: Column) -> Column:
        value = text.try_cast(name)
        is_infinite = F.abs(value.cast("double")) == F.lit(float("inf"))
        return F.when(text.isin(*_NUMBERS) | ~is_infinite, value)

    return read


def _boolean(text: Column) -> Column:
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))


def _integer(name: str) -> Callable[[Column], Column]:
    return lambda text: F.when(text.rlike("^-?[0-9]+$"), text.try_cast(name))


def _bytes(text: Column) -> Column:
    return F.try_to_binary(text, F.lit("base64"))


def _date(text: Column) -> Column:
    ends = _ends(text, DATE_MINUS_INFINITY, DATE_INFINITY)
    return F.when(ends.isNotNull(), F.date_from_unix_date(ends.cast("int"))).otherwise(
        _astronomical(text).try_cast("date")
    )


def _timestamp(name: str) -> Callable[[Column], Column]:
    def read(text: Column) -> Column:
        ends = _ends(text, TIMESTAMP_MINUS_INFINITY, TIMESTAMP_INFINITY)
        moment = _astronomical(text).try_cast(name)
        return F.when(ends.isNotNull(), F.timestamp_micros(ends).cast(name)).otherwise(moment)

    return read


def _ends(text: Column, low: int, high: int) -> Column:
    return F.when(text == "infinity", F.lit(high).cast("bigint")).when(
        text == "-infinity", F.lit(low).cast("bigint")
    )


def _astronomical(text: Column) -> Column:
    """Write a year BC as Spark does: 1 BC is the year 0, and earlier years are negative."""
    year = F.regexp_extract(text, "^([0-9]+)-.* BC$", 1)
    rest = F.regexp_extract(text, "^[0-9]+(-.*) BC$", 1)
    negative = F.concat(F.lit("-"), F.lpad((year.try_cast("int") - 1).cast("string"), 4, "0"), rest)
    return F.when(text.endswith(" BC"), negative).otherwise(text)


def _same(text: Column) -> Column:
    return text


_SIMPLE: dict[Kind, Callable[[Column], Column]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer("int"),
    Kind.LONG: _integer("bigint"),
    Kind.FLOAT: _float("float"),
    Kind.DOUBLE: _float("double"),
    Kind.STRING: _same,
    Kind.UUID: _same,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp("timestamp_ntz"),
    Kind.TIMESTAMPTZ: _timestamp("timestamp"),
}
