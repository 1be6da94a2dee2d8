"""Values of a record's join columns, in a form in which equal values are the same.

This reads the few columns by which rows find each other, from the bytes of a record, to look them
up: a wrong answer may only be one row too many. Values are as on the log, where dates and
timestamps are numbers, or columns of Arrow in the types that views have.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from changelog.avro.arrow import array_maker
from changelog.avro.rows import AvroRowReader, DecodedBodies, UnreadableRecordError
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.log.form import PLAIN
from changelog.contract.rows.schema import LoggedSchema
from changelog.contract.rows.types import Kind
from replay.decode.schemas import TopicSchemas
from views.rebuild.plan.dialect import UnknownValueError

Value = int | str | bytes | None
_CLASSES = {
    Kind.BOOLEAN: (bool, "boolean"),
    Kind.INT: (int, "integer"),
    Kind.LONG: (int, "integer"),
    Kind.STRING: (str, "text"),
    Kind.UUID: (str, "text"),
    Kind.BYTES: (bytes, "bytes"),
    Kind.DATE: (int, "date"),
    Kind.TIMESTAMP: (int, "timestamp"),
    Kind.TIMESTAMPTZ: (int, "timestamptz"),
}


def class_of(schema: LoggedSchema, column: str) -> str:
    """Return the class of a column's values: within one, equality is Spark's."""
    kind = next(logged.type.kind for logged in schema.columns if logged.column == column)
    if kind not in _CLASSES:
        raise UnknownValueError(f'rows cannot be looked up by "{column}", a {kind.value}')
    return _CLASSES[kind][1]


class JoinValues:
    """Reads some columns of a topic's records.

    Raises:
        UnknownValueError: they cannot be read here.
    """

    def __init__(
        self, schemas: TopicSchemas, columns: Sequence[str], decoded: DecodedBodies | None = None
    ) -> None:
        if schemas.form != PLAIN:
            raise UnknownValueError("its records are no plain rows in Avro")
        self._rows = AvroRowReader(
            schemas.topic, schemas.writers, schemas.reader_id, PLAIN, columns, decoded=decoded
        )
        self._types = [_CLASSES[column.type.kind][0] for column in self._rows.columns]
        self._makers = [array_maker(column.type) for column in self._rows.columns]

    def of(self, record: bytes) -> tuple[Value, ...]:
        """Return the values of a record."""
        try:
            values = self._rows.row(record) or ()
        except (UnreadableRecordError, CorruptRecordError) as error:
            raise UnknownValueError("a record cannot be read here") from error
        for value, kind in zip(values, self._types, strict=True):
            if value is not None and type(value) is not kind:
                raise UnknownValueError("a value has no plain form")
        return values

    def table(self, values: Sequence[tuple[Value, ...]]) -> pa.Table:
        """Return values of records as columns, named in lower case."""
        arrays = []
        for number, (kind, maker) in enumerate(zip(self._types, self._makers, strict=True)):
            column: list[Value] = [row[number] for row in values]
            if kind is bool:  # SQLite gives them as numbers
                column = [None if value is None else bool(value) for value in column]
            arrays.append(maker(column))
        return pa.Table.from_arrays(
            arrays, names=[column.column.lower() for column in self._rows.columns]
        )


def logged_values(column: pa.ChunkedArray) -> list[Value]:
    """Return the values of a column as on the log, where dates and timestamps are numbers."""
    array = column.combine_chunks()
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return list(array.to_pylist())


def typed_values(values: list[Value], kind: pa.DataType) -> pa.Array:
    """Return values of the log as an array of a type, the inverse of `logged_values`."""
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def distinct(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column, each once, without null."""
    return pc.drop_null(pc.unique(column))


def is_one_of(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Tell for each value of a column whether it is one of others of the same class."""
    if pa.types.is_integer(column.type) and values.type != column.type:
        wide, narrow = pa.int64(), pa.int32()
        if column.type == narrow:  # a number without a place in it is none of its values
            numbers = pc.cast(values, wide)
            inside = pc.and_(pc.greater_equal(numbers, -(1 << 31)), pc.less(numbers, 1 << 31))
            values = numbers.filter(inside)
        values = pc.cast(values, column.type)
    return pc.is_in(column, value_set=values)
