"""Values of a record's join columns, in a form in which equal values are the same.

This reads the few columns by which rows find each other, from the bytes of a record, to look them
up: a wrong answer may only be one row too many.
"""

from __future__ import annotations

from collections.abc import Sequence

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
