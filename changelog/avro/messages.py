"""Messages of Protobuf as documents, in the form of Avro's: `changelog.avro.jsonforms`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from changelog.avro.jsonforms import LOG_FORM, base64_text
from changelog.contract.forms.moments import moment_text
from changelog.contract.rows.types import ColumnType, Kind

if TYPE_CHECKING:
    from changelog.protobuf.messages import RowTypes

_WRITERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.DECIMAL: int,
    Kind.BYTES: base64_text,
    Kind.TIMESTAMPTZ: moment_text,
    Kind.FLOAT: lambda value: LOG_FORM.writers["float", "float"](value, {}),
    Kind.DOUBLE: lambda value: LOG_FORM.writers["double", "double"](value, {}),
}
_SQL: Mapping[Kind, str] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "integer",
    Kind.LONG: "bigint",
    Kind.FLOAT: "real",
    Kind.DOUBLE: "double precision",
    Kind.DECIMAL: "numeric(20,0)",
    Kind.STRING: "text",
    Kind.BYTES: "bytea",
    Kind.TIMESTAMPTZ: "timestamp with time zone",
}


class MessageDocuments:
    """Reads framed messages of one schema as documents.

    `descriptors`: the compiled schema.
    """

    def __init__(self, descriptors: str) -> None:
        from changelog.protobuf.messages import RowTypes  # noqa: PLC0415 - of an extra

        self._rows: RowTypes = RowTypes(descriptors)
        self._writers = {c.column: self._writer(c.column, c.type) for c in self._rows.columns}

    def read(self, raw: bytes) -> tuple[dict[str, Any], int]:
        """Return the document of a record, and 0: no bytes are left over.

        Raises CorruptRecordError: it does not follow its schema, or a value has no exact form.
        """
        from changelog.protobuf.messages import split  # noqa: PLC0415

        _, path, body = split(raw)
        row = self._rows.row(body, path)
        return {
            name: None if row[name] is None else write(row[name])
            for name, write in self._writers.items()
        }, 0

    def sql_types(self) -> dict[str, str]:
        """Return the SQL type of each column."""
        return {
            column.column: "jsonb"
            if column.column in self._rows.documents
            else f"{_SQL[column.type.element.kind]}[]"
            if column.type.element is not None
            else _SQL[column.type.kind]
            for column in self._rows.columns
        }

    def _writer(self, name: str, kind: ColumnType) -> Callable[[Any], Any]:
        if name in self._rows.documents:
            return json.loads
        if kind.element is not None:
            one = _WRITERS.get(kind.element.kind, _same)
            return lambda values: [*map(one, values)]
        return _WRITERS.get(kind.kind, _same)


def _same(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    return value
