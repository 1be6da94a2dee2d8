"""Decode surviving records to plain Python values, by our own code and fastavro.

fastavro's own logical types fail on infinities, on years before 1 and past 9999, so the schema is
read without logical types; the bare integers and bytes are interpreted in
`views.verify.log.tables` and `views.verify.values.canonical`, by our own code. Documents give the
same bare values (`views.verify.log.documents`).
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar

import fastavro
import pyarrow as pa

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.event import AFTER
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.log.form import Envelope
from changelog.contract.rows.schema import LoggedColumn
from views.verify.log.documents import Reader, load, value_reader
from views.verify.log.registry import WriterSchemas, parsed
from views.verify.records.read import place
from views.verify.values.faults import FaultError, Quarantine

_FRAME = struct.Struct(">BI")
_DELETE, _WITH_ROW = "d", frozenset("rcu")

Survivor = tuple[int, int, bytes]
"""Partition, offset, value."""

_MALFORMED = (
    ValueError,
    IndexError,
    EOFError,
    struct.error,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema under which values were written."""

    columns: tuple[LoggedColumn, ...]  # of the row
    defaults: dict[str, Any]  # the values of columns that a record does not have, by column
    bare: Any  # fastavro's form of the schema, without logical types


def survivors_of(batch: pa.Table) -> list[Survivor]:
    """Return the survivors of a batch one by one."""
    return list(zip(*(batch[name].to_pylist() for name in ("part", "off", "value")), strict=True))


class Decoder(ABC):
    """Decodes the values of one topic to a list for each column.

    `quarantine`: takes the records that cannot be read; None makes one an error.
    """

    travels: ClassVar[bool] = False  # whether it can be sent to another process

    def __init__(
        self, topic: str, columns: tuple[LoggedColumn, ...], quarantine: Quarantine | None
    ) -> None:
        self.columns = columns
        self._topic = topic
        self.quarantine = quarantine

    def decode(
        self, survivors: Sequence[Survivor]
    ) -> tuple[list[tuple[int, int]], list[list[Any]]]:
        """Return partition and offset of each row, and the values of each column in their order.

        Raises CorruptRecordError: a value does not decode; names topic, partition and offset.
        """
        places: list[tuple[int, int]] = []
        columns: list[list[Any]] = [[] for _ in self.columns]
        for partition, offset, value in survivors:
            if self.quarantine is not None and self.quarantine.holds(partition, offset):
                continue
            try:
                row = self._row(value)
            except CorruptRecordError as error:
                self._refuse(partition, offset, str(error.args[0]), error)
                continue
            except FaultError as error:
                self._refuse(partition, offset, str(error), error)
                continue
            except _MALFORMED as error:
                self._refuse(partition, offset, f"the value does not decode: {error}", error)
                continue
            if row is None:
                continue
            places.append((partition, offset))
            for column, item in zip(columns, row, strict=True):
                column.append(item)
        return places, columns

    @abstractmethod
    def _row(self, value: bytes) -> Sequence[Any] | None:
        """Return the values of a row; None for an event of a delete."""

    def _refuse(self, partition: int, offset: int, why: str, error: Exception) -> None:
        if self.quarantine is None:
            hint = error.hint if isinstance(error, CorruptRecordError) else ""
            raise CorruptRecordError(
                f"{place(self._topic, partition, offset)}: {why}", hint=hint
            ) from error
        self.quarantine.add(partition, offset, why)


class AvroDecoder(Decoder):
    """Decodes Avro rows, and events that contain rows.

    `reader_id`: the schema that rows are read as. `quarantine`: takes the records that cannot be
    read; None makes one an error.
    """

    travels = True

    def __init__(
        self,
        schemas: WriterSchemas,
        topic: str,
        reader_id: int,
        envelope: Envelope = Envelope.ROW,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._schemas = schemas
        self.envelope = envelope
        self._writers: dict[int, WriterSchema] = {}
        self._plans: dict[int, list[tuple[str | None, Any]]] = {}
        self._reader = self._writer(reader_id)
        super().__init__(topic, self._reader.columns, quarantine)

    def _row(self, value: bytes) -> Sequence[Any] | None:
        magic, schema_id = _FRAME.unpack_from(value)
        if magic != 0:
            raise FaultError(f"the first byte is {magic}, not 0")
        plan = self._plans.get(schema_id)
        if plan is None:
            plan = self._plans[schema_id] = self._plan(schema_id)
        body = BytesIO(value)
        body.seek(_FRAME.size)
        record: Any = fastavro.schemaless_reader(body, self._writer(schema_id).bare, None)
        if body.tell() != len(value):
            raise FaultError(f"{len(value) - body.tell()} bytes are left over")
        if self.envelope is not Envelope.ROW and is_gone(record["op"]):
            return None
        row = record["after"] if self.envelope is Envelope.NESTED else record
        return [default if field is None else row[field] for field, default in plan]

    def writer(
        self, schema_id: int
    ) -> tuple[str, tuple[LoggedColumn, ...], list[tuple[str | None, Any]]]:
        """Return a writer's schema, its columns, and where each column of the reader comes from.

        Raises CorruptRecordError: it was not made by capture, or does not fit the reader's.
        """
        columns = self._writer(schema_id).columns
        return self._schemas.text(schema_id), columns, self._plan(schema_id)

    def _plan(self, schema_id: int) -> list[tuple[str | None, Any]]:
        """Return for each column of the reader its source: a field of the writer, or a default."""
        fields = {column.column: column for column in self._writer(schema_id).columns}
        plan: list[tuple[str | None, Any]] = []
        for column in self.columns:
            written = fields.get(column.column)
            if written is None:
                if column.column not in self._reader.defaults:
                    raise CorruptRecordError(
                        f"schema {schema_id} has no column {column.column!r}, and it has no default"
                    )
                plan.append((None, self._reader.defaults[column.column]))
            elif written.type.scale != column.type.scale:
                raise CorruptRecordError(
                    f"schema {schema_id} has column {column.column!r} as {written.type.name}, "
                    f"the newest has {column.type.name}",
                    hint="take a new snapshot of the table",
                )
            else:
                plan.append((written.field, None))
        return plan

    def _writer(self, schema_id: int) -> WriterSchema:
        if schema_id not in self._writers:
            self._writers[schema_id] = parse_writer(self._schemas.text(schema_id))
        return self._writers[schema_id]


class DocumentDecoder(Decoder):
    """Decodes JSON documents: rows, and events that contain rows.

    `schema`: the value's schema, as the topic of the schemas has it. `quarantine`: takes the
    records that cannot be read; None makes one an error.
    """

    travels = True

    def __init__(
        self,
        topic: str,
        schema: str,
        envelope: Envelope = Envelope.ROW,
        quarantine: Quarantine | None = None,
    ) -> None:
        logged = read_value_schema(schema)
        super().__init__(topic, logged.columns, quarantine)
        self._schema, self._envelope = schema, envelope
        prefix = AFTER if envelope is Envelope.FLAT else ""
        self._members: list[tuple[str, Reader, bool]] = [
            (prefix + column.column, value_reader(column.type), column.column in logged.key)
            for column in logged.columns
        ]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the arguments: the functions that read values are looked up again."""
        return DocumentDecoder, (self._topic, self._schema, self._envelope, self.quarantine)

    def _row(self, value: bytes) -> Sequence[Any] | None:
        document = load(value)
        if self._envelope is not Envelope.ROW and is_gone(document["op"]):
            return None
        row = document["after"] if self._envelope is Envelope.NESTED else document
        return [self._value(row, *member) for member in self._members]

    @staticmethod
    def _value(row: dict[str, Any], name: str, read: Callable[[Any], Any], is_key: bool) -> Any:  # noqa: ANN401 - any type
        member = row.get(name)
        if member is None:
            if is_key:
                raise FaultError(f"the key's column {name!r} is not there")
            return None
        try:
            return read(member)
        except (*_MALFORMED, FaultError) as error:
            raise FaultError(f"column {name!r}: {error}") from error


def is_gone(op: object) -> bool:
    """Tell whether an operation is a delete."""
    if op == _DELETE:
        return True
    if op not in _WITH_ROW:
        raise FaultError(f"the event's operation is {op!r}")
    return False


def parse_writer(text: str) -> WriterSchema:
    """Parse a value schema of the log.

    Raises CorruptRecordError: capture did not make it.
    """
    logged = read_value_schema(text)
    raw = json.loads(text)
    # In an envelope the only default is null, which every field of a row has there.
    rows = raw["fields"][0]["type"][1] if raw.get("envelope") == Envelope.NESTED.value else raw
    defaults = {
        field["column"]: _default(field["default"], field["type"])
        for field in rows["fields"]
        if "default" in field and "column" in field
    }
    bare = parsed(raw)
    return WriterSchema(logged.columns, defaults, bare)


def _default(value: Any, union: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a default as the reader would decode it: Avro writes bytes as text of code points."""
    first = union[0] if isinstance(union, list) else union
    plain = first["type"] if isinstance(first, dict) else first
    if plain == "bytes" and isinstance(value, str):
        return value.encode("iso-8859-1")
    return value
