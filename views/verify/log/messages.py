"""Messages of Protobuf, read by the verifier's own code: as JSON, by Protobuf's own library.

The library writes a message in Protobuf's JSON form, and what the values of columns are is taken
from that text, as from a document of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import Kind
from views.verify.log.declared_values import Literal
from views.verify.log.registry import WriterSchemas
from views.verify.values.faults import FaultError

if TYPE_CHECKING:
    from changelog.protobuf.messages import MessageTypes

_WHOLE = (Kind.INT, Kind.LONG, Kind.DECIMAL)
_MORE_FOLLOWS = 0x80


def is_framed(raw: bytes) -> bool:
    """Return whether bytes begin as a registry's frame does, which no text and no JSON does."""
    return raw[:1] == b"\0"


class MessageReader:
    """Reads framed messages as documents of JSON, under the schemas that they name."""

    def __init__(self, schemas: WriterSchemas) -> None:
        self._schemas = schemas
        self._types: dict[int, tuple[MessageTypes, Mapping[str, LoggedColumn]]] = {}

    def columns(self, number: int) -> tuple[LoggedColumn, ...]:
        """Return the columns of the rows of a schema's first message."""
        return tuple(self._of(number)[1].values())

    def row(self, raw: bytes) -> dict[str, Any]:
        """Return a message by column, as a document of JSON has it; raises FaultError."""
        if not is_framed(raw) or len(raw) < 6:  # noqa: PLR2004 - the frame, and a path
            raise FaultError("no frame with a schema id")
        types, columns = self._of(int.from_bytes(raw[1:5], "big"))
        numbers, place = list[int](), 5
        while len(numbers) < 1 + (numbers[0] if numbers else 0):
            end = place
            while raw[end] >= _MORE_FOLLOWS:
                end += 1
            number = sum((byte & 0x7F) << (7 * n) for n, byte in enumerate(raw[place : end + 1]))
            numbers.append((number >> 1) ^ -(number & 1))
            place = end + 1
        if any(numbers[1:]) or numbers[0] > 1:
            raise FaultError("a message that is not the first of its schema")
        document = types.document(types.parsed(raw[place:]))
        return {name: _plain(column, document.get(name)) for name, column in columns.items()}

    def _of(self, number: int) -> tuple[MessageTypes, Mapping[str, LoggedColumn]]:
        from changelog.protobuf.messages import MessageTypes, RowTypes  # noqa: PLC0415 - an extra

        if number not in self._types:
            compiled = self._schemas.protobuf(number)
            columns = RowTypes(compiled).columns
            self._types[number] = MessageTypes(compiled), {c.column: c for c in columns}
        return self._types[number]


def _plain(column: LoggedColumn, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value as a parsed document of JSON has it: numbers are their characters."""
    if value is None:
        return None
    if column.type.element is not None:
        kind = column.type.element.kind
        return [_element(kind, item) for item in value]
    return _element(column.type.kind, value)


def _element(kind: Kind, value: Any) -> Any:  # noqa: ANN401 - JSON
    if kind is Kind.STRING:
        if isinstance(value, int):
            raise FaultError(f"{value} is no value of its enum")
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if kind in _WHOLE:
        return Literal(str(value))
    return Literal(repr(value)) if isinstance(value, float) else value
