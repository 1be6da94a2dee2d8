"""Values of surviving records: Avro bytes to plain Python values by fastavro.

fastavro's own logical types fail on infinities, on years before 1 and past 9999, so the schema
is read with every logical type taken off; what the bare integers and bytes mean is decided in
`views.verify.tables` and `views.verify.canonical`, by our own code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro

from changelog.contract.errors import CorruptRecordError
from changelog.contract.schema import LoggedColumn, read_schema
from views.verify.read import place
from views.verify.registry import Schemas

_FRAME = struct.Struct(">BI")

Survivor = tuple[int, int, bytes]
"""Partition, offset, value."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema under which values were written.

    Attributes:
        columns: what the schema says of each column.
        defaults: what a record without the column holds instead, by the column's name.
        bare: fastavro's form of the schema, without logical types.
    """

    columns: tuple[LoggedColumn, ...]
    defaults: dict[str, Any]
    bare: Any


def schema_ids(values: Sequence[bytes]) -> set[int]:
    """Give the schema ids in the frames of some values."""
    return {int.from_bytes(value[1:5], "big") for value in values}


class Decoder:
    """Decodes the values of one topic; each column's values in a list.

    Args:
        schemas: where schemas come from.
        topic: for messages.
        reader_id: the schema whose columns are given.
    """

    def __init__(self, schemas: Schemas, topic: str, reader_id: int) -> None:
        self._schemas = schemas
        self._topic = topic
        self._writers: dict[int, WriterSchema] = {}
        self._reader = self._writer(reader_id)

    @property
    def columns(self) -> tuple[LoggedColumn, ...]:
        """Give the columns of the reader's schema."""
        return self._reader.columns

    def decode(self, survivors: Sequence[Survivor]) -> list[list[Any]]:
        """Give the values of each column, in the order of the survivors.

        Raises:
            CorruptRecordError: a value does not decode; names topic, partition and offset.
        """
        columns: list[list[Any]] = [[] for _ in self.columns]
        plans: dict[int, list[tuple[list[Any], str | None, Any]]] = {}
        for schema_id, record in self._records(survivors):
            plan = plans.get(schema_id)
            if plan is None:
                plan = plans[schema_id] = self._plan(schema_id, columns)
            for out, field, default in plan:
                out.append(default if field is None else record[field])
        return columns

    def _records(self, survivors: Sequence[Survivor]) -> Iterator[tuple[int, dict[str, Any]]]:
        for partition, offset, value in survivors:
            try:
                magic, schema_id = _FRAME.unpack_from(value)
                if magic != 0:
                    raise ValueError(f"the first byte is {magic}, not 0")
                body = BytesIO(value)
                body.seek(_FRAME.size)
                record: Any = fastavro.schemaless_reader(body, self._writer(schema_id).bare, None)
                if body.tell() != len(value):
                    raise ValueError(f"{len(value) - body.tell()} bytes are left over")
            except CorruptRecordError as error:
                raise CorruptRecordError(
                    f"{place(self._topic, partition, offset)}: {error.args[0]}", hint=error.hint
                ) from error
            except (ValueError, IndexError, EOFError, struct.error, TypeError, KeyError) as error:
                raise CorruptRecordError(
                    f"{place(self._topic, partition, offset)}: the value does not decode: {error}"
                ) from error
            yield schema_id, record

    def _plan(
        self, schema_id: int, columns: list[list[Any]]
    ) -> list[tuple[list[Any], str | None, Any]]:
        """Say where each column of the reader comes from: a field of the writer, or a default."""
        fields = {column.column: column for column in self._writer(schema_id).columns}
        plan: list[tuple[list[Any], str | None, Any]] = []
        for out, column in zip(columns, self.columns, strict=True):
            written = fields.get(column.column)
            if written is None:
                if column.column not in self._reader.defaults:
                    raise CorruptRecordError(
                        f"schema {schema_id} has no column {column.column!r}, and it has no default"
                    )
                plan.append((out, None, self._reader.defaults[column.column]))
            elif written.type.scale != column.type.scale:
                raise CorruptRecordError(
                    f"schema {schema_id} has column {column.column!r} as {written.type.name}, "
                    f"the newest has {column.type.name}",
                    hint="take a new snapshot of the table",
                )
            else:
                plan.append((out, written.field, None))
        return plan

    def _writer(self, schema_id: int) -> WriterSchema:
        if schema_id not in self._writers:
            self._writers[schema_id] = parse_writer(self._schemas.text(schema_id))
        return self._writers[schema_id]


def parse_writer(text: str) -> WriterSchema:
    """Read a value schema of the log.

    Raises:
        CorruptRecordError: capture did not make it.
    """
    logged = read_schema(text)
    raw = json.loads(text)
    defaults = {
        field["column"]: _default(field["default"], field["type"])
        for field in raw["fields"]
        if "default" in field
    }
    bare = fastavro.parse_schema(_stripped(raw))
    return WriterSchema(logged.columns, defaults, bare)


def _default(value: Any, union: Any) -> Any:  # noqa: ANN401 - JSON
    """Give a default as the reader would give it: Avro writes bytes as text of code points."""
    first = union[0] if isinstance(union, list) else union
    plain = first["type"] if isinstance(first, dict) else first
    if plain == "bytes" and isinstance(value, str):
        return value.encode("iso-8859-1")
    return value


def _stripped(raw: Any) -> Any:  # noqa: ANN401 - JSON
    match raw:
        case dict():
            # An attribute `key` or `relation` is ours and holds names, never types.
            return {
                name: _stripped(item)
                for name, item in raw.items()
                if name in {"type", "name", "namespace", "fields", "items"}
            }
        case list():
            return [_stripped(item) for item in raw]
        case _:
            return raw
