"""Values of surviving records as a table of Arrow, by fastavro.

Each record is read as it was written: resolved to another schema, the text of a value without a
place in its type would be taken for the bytes of one that has it. What the reader's schema has
and the writer's has not is its default. The rules are those of `replay.decode.decode`, in its
words: a record that cannot be read ends the read and is named, and so is a value that has no place
in its column's type, where that column is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from changelog.contract.base.errors import ConfigurationError, LogError
from changelog.contract.base.headers import Op
from changelog.contract.log.form import Envelope, Output
from changelog.contract.rows.codec import FRAME_BYTES, unframe
from changelog.contract.rows.evolution import obstacles
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind
from replay.base.task_faults import HINT, Fault, error_of
from replay.decode.schemas import TopicSchemas
from replay.local.arrow import array_maker, arrow_type, bare
from replay.local.records import Written

_GONE = Op.DELETE.value.decode()
_UNLIKE = "the value's body does not follow its schema"
_THERE = {op.value.decode() for op in (Op.READ, Op.CREATE, Op.UPDATE)}


@dataclass(frozen=True, slots=True)
class _Writer:
    """A version of the value's schema: fastavro's form, and where each column comes from."""

    schema: Any
    plan: tuple[tuple[str | None, Any], ...]


def can_read(schemas: TopicSchemas) -> bool:
    """Return whether records of these schemas can be read here: only Avro can."""
    return schemas.form.output is Output.AVRO


class RowReader:
    """Reads the records of a topic.

    Args:
        schemas: under which they were written; in Avro.
        columns: names of the columns that are wanted, in their order; None for all.

    Raises:
        ConfigurationError: the table has no such column.
    """

    def __init__(self, schemas: TopicSchemas, columns: Sequence[str] | None = None) -> None:
        self._schemas = schemas
        self.logged: LoggedSchema = schemas.logged(schemas.reader_id)
        self._places = _chosen(self.logged, columns)
        self._key = [
            n for n, each in enumerate(self.logged.columns) if each.column in self.logged.key
        ]
        self._writer = cache(self._read_writer)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the tables."""
        columns = (self.logged.columns[place] for place in self._places)
        return pa.schema([(each.column, arrow_type(each.type)) for each in columns])

    def table(self, records: Sequence[Written]) -> pa.Table:
        """Return the rows of records; an event that says that its row is gone has none.

        Raises:
            CorruptRecordError: one cannot be read; names topic, partition and offset.
            LogError: a value has no place in its column's type; names row and column too.
        """
        rows, places = [], []
        for each in records:
            row = self._row(each)
            if row is not None:
                rows.append(row)
                places.append(each)
        arrays = [self._array(place, rows, places) for place in self._places]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, place: int, rows: list[tuple[Any, ...]], at: list[Written]) -> pa.Array:
        column = self.logged.columns[place]
        values = [row[place] for row in rows]
        try:
            return array_maker(column.type)(values)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            for value, row, where in zip(values, rows, at, strict=True):
                if column.type.has_escape and isinstance(value, str):
                    raise self._homeless(column, value, row, where) from error
            raise LogError(
                f'topic "{self._schemas.topic}": the values of column "{column.column}" do not '
                f"follow their type {column.type.name}: {error}"
            ) from error

    def _homeless(
        self, column: LoggedColumn, value: str, row: tuple[Any, ...], where: Written
    ) -> LogError:
        key = ", ".join(
            _text(item, each.type)
            for item, each in zip(row, self.logged.columns, strict=True)
            if each.column in self.logged.key
        )
        text = (
            f'table "{self.logged.table}", column "{column.column}" ({column.type.name}): the '
            f"value {value} of the row with key ({key}) has no exact form in this type; "
            f"{self._place(where)}{HINT}leave the column out of what is read, or cast it to text "
            "at the source"
        )
        return error_of(Fault.ESCAPE, text)

    def _row(self, record: Written) -> tuple[Any, ...] | None:
        """Return the values of a row under the reader's schema."""
        number = int.from_bytes(record.value[1:FRAME_BYTES], "big")
        if record.value[:1] != b"\x00" or number not in self._schemas.writers:
            head = record.value[:FRAME_BYTES].hex().upper()
            subject = f"{self._schemas.topic}-value"
            said = f"the value's first bytes {head} are no frame with a schema id of subject \""
            raise self._corrupt(record, f'{said}{subject}"')
        found = self._writer(number)
        if isinstance(found, str):
            raise self._corrupt(record, found)
        body = BytesIO(unframe(record.value)[1])
        try:
            read: Any = fastavro.schemaless_reader(body, found.schema)
            is_short = not body.read(1)
        except Exception as error:
            raise self._corrupt(record, _UNLIKE) from error
        if not is_short:
            raise self._corrupt(record, "the value's body is longer than its schema says")
        if self._schemas.form.has_events:
            if read["op"] == _GONE:
                return None
            if read["op"] not in _THERE:
                raise self._corrupt(record, f"the event's operation is '{read['op']}'")
        if self._schemas.form.envelope is Envelope.NESTED:
            read = read["after"]
            if read is None:
                raise self._corrupt(record, _UNLIKE)
        row = tuple(none if field is None else read[field] for field, none in found.plan)
        if any(row[place] is None for place in self._key):
            raise self._corrupt(record, _UNLIKE)
        return row

    def _read_writer(self, number: int) -> _Writer | str:
        """Return the reader of a writer's version, or the reason why it cannot be read."""
        writer, text = self._schemas.logged(number), self._schemas.writers[number]
        why = obstacles(writer, self.logged)
        if why:
            reader_id = self._schemas.reader_id
            return f"written under schema id {number}, cannot be read as {reader_id}: " + "; ".join(
                why
            )
        there = {each.field for each in writer.columns}
        plan = tuple(
            (each.field, None) if each.field in there else (None, _default(each))
            for each in self.logged.columns
        )
        return _Writer(fastavro.parse_schema(bare(json.loads(text))), plan)

    def _corrupt(self, record: Written, why: str) -> LogError:
        return error_of(Fault.CORRUPT, f"{self._place(record)}: {why}")

    def _place(self, where: Written) -> str:
        return f'topic "{self._schemas.topic}", partition {where.partition}, offset {where.offset}'


def _chosen(logged: LoggedSchema, columns: Sequence[str] | None) -> list[int]:
    names = [each.column for each in logged.columns]
    if columns is None:
        return list(range(len(names)))
    for name in columns:
        if name not in names:
            raise ConfigurationError(
                f'table "{logged.table}" has no column "{name}"', hint=f"it has {', '.join(names)}"
            )
    return [names.index(name) for name in columns]


def _default(column: LoggedColumn) -> Any:  # noqa: ANN401 - any type
    """Return the value of a column that a record lacks."""
    return None if column.default is None else _bare_value(json.loads(column.default), column.type)


def _bare_value(value: Any, kind: ColumnType) -> Any:  # noqa: ANN401 - any type
    if value is None:
        return None
    if kind.element is not None:
        return [_bare_value(item, kind.element) for item in value]
    if kind.kind in {Kind.BYTES, Kind.DECIMAL}:
        return value.encode("iso-8859-1")  # as Avro writes bytes in JSON
    return value


def _text(value: Any, kind: ColumnType) -> str:  # noqa: ANN401 - any type
    """Return a value of a key for a message."""
    if kind.kind is Kind.DECIMAL and isinstance(value, bytes):
        return str(array_maker(kind)([value])[0].as_py())
    if kind.kind in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
        return str(array_maker(kind)([value]).cast(pa.string())[0].as_py())
    return str(value)
