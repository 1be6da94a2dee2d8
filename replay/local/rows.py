"""Values of surviving records as a table of Arrow.

The rules are those of `replay.decode.decode`, in its words: a record that cannot be read ends the
read and is named, and so is a value that has no place in its column's type, where that column is
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from changelog.avro.arrow import array_maker, arrow_type
from changelog.avro.rows import AvroRowReader, DecodedBodies, UnreadableRecordError
from changelog.contract.base.errors import LogError
from changelog.contract.forms.moments import date_text, moment_text
from changelog.contract.log.form import Output
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.text import (
    DATE_ENDS,
    TIMESTAMP_ENDS,
)
from changelog.contract.rows.types import ColumnType, Kind
from replay.base.task_faults import HINT, TaskFault, error_of
from replay.decode.schemas import TopicSchemas

Placed = tuple[bytes, int, int]
"""A record's value, partition and offset; a `WrittenRecord` is one."""


def can_read(schemas: TopicSchemas) -> bool:
    """Return whether records of these schemas can be read here: only Avro can."""
    return schemas.form.output is Output.AVRO


class RowReader:
    """Reads the records of a topic.

    `schemas`: under which they were written; in Avro. `columns`: names of the columns that are
    wanted, in their order; None for all. `decoded`: of records that other readers have read.

    Raises:
        ConfigurationError: the table has no such column.
    """

    def __init__(
        self,
        schemas: TopicSchemas,
        columns: Sequence[str] | None = None,
        decoded: DecodedBodies | None = None,
    ) -> None:
        self._schemas = schemas
        self._rows = _rows_of(schemas, columns, decoded)
        self._makers = [array_maker(column.type) for column in self._rows.columns]
        # the columns of the tables
        self.schema = pa.schema(
            [(column.column, arrow_type(column.type)) for column in self._rows.columns]
        )

    def table(self, records: Sequence[Placed]) -> pa.Table:
        """Return the rows of records; an event that says that its row is gone has none.

        Raises:
            CorruptRecordError: one cannot be read; names topic, partition and offset.
            LogError: a value has no place in its column's type; names row and column too.
        """
        rows, places = [], []
        for record in records:
            try:
                row = self._rows.row(record[0])
            except UnreadableRecordError as error:
                text = f"{self._place(record)}: {error.args[0]}"
                raise error_of(TaskFault.CORRUPT, text) from error
            if row is not None:
                rows.append(row)
                places.append(record)
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._makers)
        arrays = [self._array(number, column, places) for number, column in enumerate(columns)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, number: int, values: Sequence[Any], at: Sequence[Placed]) -> pa.Array:
        try:
            return self._makers[number](values)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            column = self._rows.columns[number]
            for value, where in zip(values, at, strict=True):
                if column.type.has_escape and isinstance(value, str):
                    raise self._homeless(column, value, where) from error
            raise LogError(
                f'topic "{self._schemas.topic}": the values of column "{column.column}" do not '
                f"follow their type {column.type.name}: {error}"
            ) from error

    def _homeless(self, column: LoggedColumn, value: str, where: Placed) -> LogError:
        logged = self._rows.logged
        key = [column for column in logged.columns if column.column in logged.key]
        row = _rows_of(self._schemas, [column.column for column in key]).row(where[0]) or ()
        key_text = ", ".join(
            _text(item, column.type) for item, column in zip(row, key, strict=True)
        )
        text = (
            f'table "{logged.table}", column "{column.column}" ({column.type.name}): the '
            f"value {value} of the row with key ({key_text}) has no exact form in this type; "
            f"{self._place(where)}{HINT}leave the column out of what is read, or cast it to text "
            "at the source"
        )
        return error_of(TaskFault.ESCAPE, text)

    def _place(self, where: Placed) -> str:
        _, partition, offset = where
        return f'topic "{self._schemas.topic}", partition {partition}, offset {offset}'


def _rows_of(
    schemas: TopicSchemas, columns: Sequence[str] | None, decoded: DecodedBodies | None = None
) -> AvroRowReader:
    return AvroRowReader(
        schemas.topic, schemas.writers, schemas.reader_id, schemas.form, columns, decoded=decoded
    )


def _text(value: Any, kind: ColumnType) -> str:  # noqa: ANN401 - any type
    """Return a value of a key for a message."""
    if kind.kind is Kind.DECIMAL and isinstance(value, bytes):
        return str(array_maker(kind)([value])[0].as_py())
    if kind.kind is Kind.DATE:
        return DATE_ENDS.get(value) or date_text(value)
    if kind.kind in {Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
        text = moment_text(value, zoned=kind.kind is Kind.TIMESTAMPTZ)
        return TIMESTAMP_ENDS.get(value) or text.replace("T", " ").replace("+00:00", "+00")
    return str(value)
