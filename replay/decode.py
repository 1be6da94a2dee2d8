"""Surviving records -> rows. Pure: DataFrame to DataFrame; the schemas are given.

Each record is decoded under the schema that wrote it, resolved to the newest one, in one
expression that looks at the record's schema id. `from_avro` runs in its permissive mode only to
say *which* record is corrupt: there it answers a record that it cannot decode with nulls, and the
next step fails on a null in the key, which no row has, naming topic, partition and offset. In its
strict mode it fails too, but names nothing. A null never gets through: every column of the result
is taken from behind that check, so it holds whatever columns a view uses.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from changelog.contract.codec import FRAME_BYTES, frame
from changelog.contract.evolution import obstacles
from changelog.contract.schema import LoggedColumn, LoggedSchema
from replay.failures import Fault, fail
from replay.read import place
from replay.schemas import TopicSchemas

_VALUE, _ESCAPE = "member0", "member1"  # how Spark names the branches of a union


def decode(survivors: DataFrame, schemas: TopicSchemas) -> DataFrame:
    """Give the rows of `key, value, partition, offset`, one column per column of the table."""
    reader = schemas.logged(schemas.reader_id)
    decoded = survivors.select("partition", "offset", _by_schema(schemas).alias("decoded"))
    checked = decoded.select("partition", "offset", _checked(schemas.topic, reader).alias("row"))
    return checked.select(*(_column(schemas.topic, reader, column) for column in reader.columns))


def _by_schema(schemas: TopicSchemas) -> Column:
    """Decode by the schema id of the record's frame."""
    found = F.substring("value", 1, FRAME_BYTES)
    unknown = fail(
        Fault.CORRUPT,
        *place(schemas.topic),
        ": the value's first bytes ",
        F.hex(found),
        f' are no frame with a schema id of subject "{schemas.topic}-value"',
    )
    return reduce(
        lambda rest, each: F.when(
            found == F.lit(bytearray(frame(each))), _decoded(schemas, each)
        ).otherwise(rest),
        schemas.writers,
        unknown,
    )


def _decoded(schemas: TopicSchemas, writer_id: int) -> Column:
    why = obstacles(schemas.logged(writer_id), schemas.logged(schemas.reader_id))
    if why:
        return fail(
            Fault.CORRUPT,
            *place(schemas.topic),
            f": written under schema id {writer_id}, cannot be read as {schemas.reader_id}: ",
            "; ".join(why),
        )
    body = F.expr(f"substring(value, {FRAME_BYTES + 1})")
    options = {"mode": "PERMISSIVE", "avroSchema": schemas.reader}
    return from_avro(body, schemas.writers[writer_id], options)


def _checked(topic: str, reader: LoggedSchema) -> Column:
    decoded = F.col("decoded")
    corrupt = fail(Fault.CORRUPT, *place(topic), ": the value's body does not follow its schema")
    missing = [decoded.getField(column.field).isNull() for column in _key_columns(reader)]
    return F.when(reduce(Column.__or__, missing), corrupt).otherwise(decoded)


def _key_columns(schema: LoggedSchema) -> list[LoggedColumn]:
    by_name = {column.column: column for column in schema.columns}
    return [by_name[name] for name in schema.key]


def _column(topic: str, reader: LoggedSchema, column: LoggedColumn) -> Column:
    """Take a column out of the row; PostgreSQL's text in the escape branch has no place here."""
    value = F.col("row").getField(column.field)
    if column.type.has_escape:
        escape = value.getField(_ESCAPE)
        loud = fail(
            Fault.ESCAPE,
            f'table "{reader.table}", column "{column.column}" ({column.type.name}): the value ',
            escape,
            " of the row with key (",
            _key_text(reader),
            ") has no exact form in this type; ",
            *place(topic),
        )
        value = F.when(escape.isNotNull(), loud).otherwise(value.getField(_VALUE))
    return value.alias(column.column)


def _key_text(reader: LoggedSchema) -> Column:
    texts = []
    for column in _key_columns(reader):
        value = F.col("row").getField(column.field)
        if column.type.has_escape:
            value = F.coalesce(value.getField(_VALUE).cast("string"), value.getField(_ESCAPE))
        texts.append(value.cast("string"))
    return F.concat_ws(", ", *texts)
