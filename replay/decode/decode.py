"""Surviving records -> rows. Pure: DataFrame to DataFrame; the schemas are given.

Each Avro record is decoded under the schema that wrote it, resolved to the reader's, in one
expression that looks at the record's schema id. `from_avro` runs in its permissive mode so that the
error can name the corrupt record: it returns nulls for a record that it cannot decode, and a null
in the key, which no row has, shows that. In its strict mode it fails without naming a record. JSON
documents are read by `replay.decode.documents`, which gives the same shape.

A fault is a text beside the row. Either it ends the task, naming topic, partition and offset, or
the record is quarantined (`quarantined`) and its row left out. Every column of the result is taken
through that check, so it works whatever columns a view uses.

A value that its column's type cannot hold is another matter: the record is sound, and the value
ends the task only where its column is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import TypeVar, cast

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.utils import is_remote

from changelog.contract.base.headers import Op
from changelog.contract.log.form import Envelope, Form, Output
from changelog.contract.rows.choices import ValueChoice, advice
from changelog.contract.rows.codec import FRAME_BYTES, frame
from changelog.contract.rows.evolution import obstacles
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema, nulls_of
from changelog.contract.rows.types import ColumnType, Kind
from replay.base.failures import fail, joined
from replay.base.record_place import FAULT
from replay.base.task_faults import HINT, TaskFault
from replay.decode import documents
from replay.decode.documents import ESCAPE, VALUE
from replay.decode.schemas import TopicSchemas
from replay.result.state import StateRows
from replay.scan.java_source import place

_ROW_OPS = [op.value.decode() for op in (Op.READ, Op.CREATE, Op.UPDATE)]
_GONE = Op.DELETE.value.decode()
_PLACE = ("partition", "offset")
_MOMENTS = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Surviving records, decoded: `key, value, partition, offset, fault, row`."""

    # one row a record; `fault` says what is wrong with it, else `row` holds its row
    frame: DataFrame
    schemas: TopicSchemas  # under which it was decoded

    def rows(self) -> StateRows:
        """Return the rows, one column per column of the table; a fault ends the task."""
        return self._rows(self.frame.select(*_PLACE, built(sound_row, self.schemas)))

    def sound_rows(self) -> StateRows:
        """Return the rows of the records that have no fault."""
        return self._rows(self.frame.where(F.col("fault").isNull()))

    def quarantined(self) -> DataFrame:
        """Return the records that have a fault: `topic, partition, offset, key, value, reason`."""
        topic = F.lit(self.schemas.topic).alias("topic")
        reason = F.col("fault").alias("reason")
        faulty = self.frame.where(F.col("fault").isNotNull())
        return faulty.select(topic, *_PLACE, "key", "value", reason)

    def _rows(self, frame: DataFrame) -> StateRows:
        logged = built(_logged_columns, self.schemas)
        return StateRows(
            frame.select(*_PLACE, *logged),
            partial(read_columns, self.schemas),
            partial(formless, self.schemas),
        )


def decode(survivors: DataFrame, schemas: TopicSchemas) -> StateRows:
    """Decode the records of `key, value, partition, offset` to rows; a faulty record fails."""
    return decoded(survivors, schemas).rows()


def decoded(survivors: DataFrame, schemas: TopicSchemas) -> Decoded:
    """Decode the records of `key, value, partition, offset`, and `fault` where reading found one.

    An event of a delete is no row; mostly the tombstone after it has removed it before this.
    """
    reader = schemas.logged(schemas.reader_id)
    faults = [F.col(FAULT)] if FAULT in survivors.columns else []
    own = ("key", "value", *_PLACE)
    if schemas.form.output is Output.JSON:
        frame = _of_documents(survivors, schemas, reader, own, faults)
    else:
        frame = _of_avro(survivors, schemas, own, faults)
    if schemas.form.has_events:
        frame = frame.where(F.col("fault").isNotNull() | (F.col("op") != _GONE))
    return Decoded(frame.select(*own, "fault", "row"), schemas)


def _of_avro(
    survivors: DataFrame,
    schemas: TopicSchemas,
    own: tuple[str, ...],
    faults: list[Column],
) -> DataFrame:
    decoded = survivors.select(*own, *faults, built(_by_schema, schemas))
    parts = decoded.select(*own, *faults, *built(_parts, schemas))
    fault = F.coalesce(*faults, *built(_avro_faults, schemas))
    return parts.select(*own, fault.alias("fault"), "row", "op")


def _parts(schemas: TopicSchemas) -> tuple[Column, Column]:
    """Return the row and the operation of a decoded value."""
    value = F.col("decoded")
    row = value.getField("after") if schemas.form.envelope is Envelope.NESTED else value
    op = value.getField("op") if schemas.form.has_events else F.lit(None).cast("string")
    return row.alias("row"), op.alias("op")


def _avro_faults(schemas: TopicSchemas) -> tuple[Column, Column]:
    reader = schemas.logged(schemas.reader_id)
    return _frame_fault(schemas), _row_fault(schemas, reader)


def _of_documents(
    survivors: DataFrame,
    schemas: TopicSchemas,
    reader: LoggedSchema,
    own: tuple[str, ...],
    faults: list[Column],
) -> DataFrame:
    envelope = schemas.form.envelope
    read = survivors.select(
        *own, *faults, documents.parsed(F.col("value"), envelope).alias("document")
    )
    document = F.col("document")
    row = documents.members(document, envelope)
    op = documents.operation(document, envelope) if schemas.form.has_events else F.lit(None)
    texts = read.select(
        *own,
        *faults,
        document.isNull().alias("is_lost"),
        op.cast("string").alias("op"),
        F.when(row.isNotNull(), documents.texts(row, reader, envelope)).alias("texts"),
    )
    texts_read = F.col("texts")
    typed = F.when(texts_read.isNotNull(), documents.typed(texts_read, reader))
    parts = texts.select(*own, *faults, "is_lost", "op", "texts", typed.alias("row"))
    malformed = documents.malformed(texts_read, F.col("row"), reader)
    fault = F.coalesce(
        *faults,
        F.when(F.col("is_lost"), F.lit("the value is not a JSON document")),
        _row_fault(schemas, reader),
        F.when(
            malformed.isNotNull(),
            F.concat(F.lit('the value of column "'), malformed, F.lit('" is not of its type')),
        ),
    )
    return parts.select(*own, fault.alias("fault"), "row", "op")


def _by_schema(schemas: TopicSchemas) -> Column:
    """Decode by the schema id of the record's frame; null under any other."""
    frame_bytes = F.substring("value", 1, FRAME_BYTES)
    first, *rest = [
        schema_id for schema_id in schemas.writers if not _obstacles(schemas, schema_id)
    ]
    decoded = F.when(_bears(frame_bytes, first), _decoded(schemas, first))
    for schema_id in rest:
        decoded = decoded.when(_bears(frame_bytes, schema_id), _decoded(schemas, schema_id))
    return decoded.alias("decoded")


def _bears(frame_bytes: Column, schema_id: int) -> Column:
    return frame_bytes == F.lit(bytearray(frame(schema_id)))


def _decoded(schemas: TopicSchemas, writer_id: int) -> Column:
    body = F.expr(f"substring(value, {FRAME_BYTES + 1})")
    options = {"mode": "PERMISSIVE", "avroSchema": schemas.reader}
    return from_avro(body, schemas.writers[writer_id], options)


def _obstacles(schemas: TopicSchemas, writer_id: int) -> list[str]:
    return obstacles(schemas.logged(writer_id), schemas.logged(schemas.reader_id))


def _frame_fault(schemas: TopicSchemas) -> Column:
    """Return the fault in a record's schema id, or null."""
    frame_bytes = F.substring("value", 1, FRAME_BYTES)
    unknown = F.concat(
        F.lit("the value's first bytes "),
        F.hex(frame_bytes),
        F.lit(f' are no frame with a schema id of subject "{schemas.topic}-value"'),
    )
    faults = []
    for schema_id in schemas.writers:
        why = _obstacles(schemas, schema_id)
        if why:
            text = (
                f"written under schema id {schema_id}, cannot be read as {schemas.reader_id}: "
                + "; ".join(why)
            )
            faults.append(F.when(_bears(frame_bytes, schema_id), F.lit(text)))
    is_known = reduce(
        Column.__or__, [_bears(frame_bytes, schema_id) for schema_id in schemas.writers]
    )
    return F.coalesce(*faults, F.when(~is_known, unknown))


def _row_fault(schemas: TopicSchemas, reader: LoggedSchema) -> Column:
    """Return the fault in a row, or in its event, or null."""
    row = F.col("row")
    missing = [row.getField(column.field).isNull() for column in _key_columns(reader)]
    is_broken = reduce(Column.__or__, missing) if missing else _is_unlike(schemas, reader)
    broken = F.when(is_broken, F.lit("the value's body does not follow its schema"))
    if not schemas.form.has_events:
        return broken
    op = F.coalesce(F.col("op"), F.lit(""))
    strange = F.concat(F.lit("the event's operation is '"), op, F.lit("'"))
    return F.when(op.isin(_ROW_OPS), broken).when(op != _GONE, strange)


def _is_unlike(schemas: TopicSchemas, reader: LoggedSchema) -> Column:
    """Tell whether a record without a key is unreadable, rather than a row of nulls.

    `from_avro` gives nulls for both. A row of nulls has exactly one encoding, which is compared.
    """
    row = F.col("row")
    if schemas.form.output is Output.JSON:
        return row.isNull()
    is_empty = reduce(Column.__and__, [row.getField(c.field).isNull() for c in reader.columns])
    nulls = [
        frame(schema_id) + nulls_of(schemas.writers[schema_id]) for schema_id in schemas.writers
    ]
    return is_empty & ~F.col("value").isin([bytearray(encoding) for encoding in nulls])


def _key_columns(schema: LoggedSchema) -> list[LoggedColumn]:
    by_name = {column.column: column for column in schema.columns}
    return [by_name[name] for name in schema.key]


def logged_name(number: int) -> str:
    """Return the name under which a column is kept; it cannot clash with a table's own names."""
    return f"column_{number}"


def sound_row(schemas: TopicSchemas) -> Column:
    """Return the row of a record; a fault ends the task."""
    fault = F.col("fault")
    corrupt = fail(TaskFault.CORRUPT, *place(schemas.topic), ": ", fault)
    return F.when(fault.isNotNull(), corrupt).otherwise(F.col("row")).alias("row")


def _logged_columns(schemas: TopicSchemas) -> list[Column]:
    """Return the fields of a row, each value with its escape."""
    return [
        F.col("row").getField(column.field).alias(logged_name(number))
        for number, column in enumerate(schemas.logged(schemas.reader_id).columns)
    ]


def read_columns(schemas: TopicSchemas, logged: DataFrame) -> DataFrame:
    """Return the columns of rows that are stored as they were logged."""
    return logged.select(*read_columns_of(schemas))


def read_columns_of(schemas: TopicSchemas) -> Sequence[Column]:
    """Return the columns of a table, taken out of rows as they were logged."""
    return built(_table_columns, schemas)


def _table_columns(schemas: TopicSchemas) -> list[Column]:
    reader = schemas.logged(schemas.reader_id)
    choices = schemas.chosen
    where = (" of the row with key (", _key_text(reader), ") has no exact form in this type; ")
    ending = joined(*where, *place(schemas.topic), HINT)
    return [
        _column(reader, column, number, ending)
        if column.column not in choices
        else _chosen(F.col(logged_name(number)), column.type, choices[column.column]).alias(
            column.column
        )
        for number, column in enumerate(reader.columns)
    ]


def _column(reader: LoggedSchema, column: LoggedColumn, number: int, where: Column) -> Column:
    """Return one column; a value that the log has only as an exact text ends the task."""
    value = F.col(logged_name(number))
    if column.type.has_escape:
        escape = value.getField(ESCAPE)
        refused = fail(
            TaskFault.ESCAPE,
            f'table "{reader.table}", column "{column.column}" ({column.type.name}): the value ',
            escape,
            where,
            advice(reader.table, column),
        )
        value = F.when(escape.isNotNull(), refused).otherwise(value.getField(VALUE))
    return value.alias(column.column)


def formless(schemas: TopicSchemas, logged: DataFrame) -> DataFrame:
    """Return `column` and `key` of the values of logged rows that no Spark type can hold.

    Columns with a chosen replacement are left out.
    """
    reader = schemas.logged(schemas.reader_id)
    key = _key_text(reader)
    escapes = [
        F.when(
            F.col(logged_name(number)).getField(ESCAPE).isNotNull(),
            F.struct(F.lit(column.column).alias("column"), key.alias("key")),
        )
        for number, column in enumerate(reader.columns)
        if column.type.has_escape and column.column not in schemas.chosen
    ]
    present = F.filter(F.array(*escapes), lambda value: value.isNotNull())
    return logged.select(F.explode(present).alias("escape")).select("escape.*")


def _key_text(reader: LoggedSchema) -> Column:
    texts = []
    for number, column in enumerate(reader.columns):
        if column.column not in reader.key:
            continue
        value = F.col(logged_name(number))
        if column.type.has_escape or column.type.kind in _MOMENTS:
            value = _chosen(value, column.type, ValueChoice.TEXT)
        texts.append(value.cast("string"))
    return F.concat_ws(", ", *texts)


# Spark's text of a day differs from PostgreSQL's outside of the years 1 to 9999: it has a sign,
# and counts a year 0. The greatest and the least number of 32 bits of days, and of 64 bits of
# microseconds, are PostgreSQL's infinities; these are Spark's texts of them.
_INFINITIES = {
    Kind.DATE: ("+5881580-07-11", "-5877641-06-23"),
    Kind.TIMESTAMP: ("+294247-01-10 04:00:54.775807", "-290308-12-21 19:59:05.224192"),
}
_ZONES = {Kind.DATE: "", Kind.TIMESTAMP: "", Kind.TIMESTAMPTZ: "+00"}


def _chosen(value: Column, kind: ColumnType, choice: ValueChoice) -> Column:
    """Return a column, as the log has it, in the form that was chosen for views."""
    if kind.has_escape:
        plain = value.getField(VALUE)
        if choice is ValueChoice.NULL:
            return plain
        return F.coalesce(value.getField(ESCAPE), plain.cast("string"))
    bare = value.cast("timestamp_ntz") if kind.kind is Kind.TIMESTAMPTZ else value
    text = bare.cast("string")
    last, first = _INFINITIES[Kind.DATE if kind.kind is Kind.DATE else Kind.TIMESTAMP]
    infinity = F.when(text == last, "infinity").when(text == first, "-infinity")
    if choice is ValueChoice.NULL:
        return F.when(infinity.isNull(), value)
    day = F.substring_index(text, " ", 1)
    clock = F.lit("") if kind.kind is Kind.DATE else F.substring_index(text, " ", -1)
    ending = F.concat(F.lit("" if kind.kind is Kind.DATE else " "), clock, F.lit(_ZONES[kind.kind]))
    year = F.year(bare)
    old = F.concat(F.format_string("%04d", 1 - year), F.right(day, F.lit(len("-MM-DD"))))
    return F.coalesce(
        infinity,
        F.when(year > 0, F.concat(F.ltrim(day, F.lit("+")), ending)),
        F.concat(old, ending, F.lit(" BC")),
    )


T = TypeVar("T")
# Building an expression takes some hundred calls of the JVM, and it is bound to no frame, while a
# run decodes a topic several times, and a follower again and again: so they are kept.
_CACHED_EXPRESSIONS = 512


def built(build: Callable[[TopicSchemas], T], schemas: TopicSchemas) -> T:
    """Return an expression built from schemas; built once in this session's JVM."""
    # With Spark Connect expressions are built in this process, without calls.
    jvm = None if is_remote() else SparkContext._gateway
    writers = tuple(schemas.writers.items())
    expression = _built(
        jvm, build, schemas.topic, schemas.key_id, writers, schemas.reader_id, schemas.form,
        schemas.key, schemas.choices,
    )  # fmt: skip
    return cast("T", expression)


@lru_cache(_CACHED_EXPRESSIONS)
def _built(  # noqa: PLR0917 - the parts of what cannot be hashed
    _jvm: Hashable,
    build: Callable[[TopicSchemas], object],
    topic: str,
    key_id: int | None,
    writers: tuple[tuple[int, str], ...],
    reader_id: int,
    form: Form,
    key: str,
    choices: tuple[tuple[str, str], ...],
) -> object:
    return build(TopicSchemas(topic, key_id, dict(writers), reader_id, form, key, choices))
