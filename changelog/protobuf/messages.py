"""Framed messages <-> values, by the descriptors of their schema.

Frame: a zero byte, the schema id, the path of the message within the schema (a count and numbers as
zigzag varints; a single 0 for the first message), then the message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import unframe
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from changelog.protobuf.compile import UnfitMessageError
from changelog.protobuf.fit import WRAPPERS, fitted

FIRST = (0,)
"""The path of a schema's first message."""

_MOST_DEPTH, _VARINT_BYTES = 32, 5
_TIMESTAMP = "google.protobuf.Timestamp"
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_SECOND_NANOS, _MICRO_NANOS = 1_000_000_000, 1_000
_UINT64 = ColumnType("decimal(20,0)", Kind.DECIMAL, 20, 0)
_STRING = ColumnType("string", Kind.STRING)
_F = FieldDescriptor
_TYPES: Mapping[int, ColumnType] = {
    _F.TYPE_BOOL: ColumnType("boolean", Kind.BOOLEAN),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), ColumnType("int", Kind.INT)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), ColumnType("long", Kind.LONG)),
    **dict.fromkeys(
        (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), ColumnType("long", Kind.LONG)
    ),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), _UINT64),
    _F.TYPE_FLOAT: ColumnType("float", Kind.FLOAT),
    _F.TYPE_DOUBLE: ColumnType("double", Kind.DOUBLE),
    _F.TYPE_STRING: _STRING,
    _F.TYPE_ENUM: _STRING,
    _F.TYPE_BYTES: ColumnType("bytes", Kind.BYTES),
}
_Read = Callable[[Any], Any]


def split(raw: bytes) -> tuple[int, tuple[int, ...], bytes]:
    """Return schema id, path of the message, and the message's bytes.

    Raises CorruptRecordError: the bytes are not framed so.
    """
    number, rest = unframe(raw)
    count, place = _zigzag(rest, 0)
    if count == 0:
        return number, FIRST, rest[place:]
    if not 0 < count <= _MOST_DEPTH:
        raise CorruptRecordError(f"a path of {count} numbers names no message")
    path = []
    for _ in range(count):
        step, place = _zigzag(rest, place)
        path.append(step)
    return number, tuple(path), rest[place:]


def _zigzag(raw: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(_VARINT_BYTES):
        if place >= len(raw):
            raise CorruptRecordError("the bytes end in the path of the message")
        number |= (raw[place] & 0x7F) << (7 * shift)
        place += 1
        if raw[place - 1] < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            return (number >> 1) ^ -(number & 1), place
    raise CorruptRecordError("the path of the message has too large a number")


class MessageTypes:
    """The messages of a compiled schema.

    `descriptors`: a FileDescriptorSet in base64, as `compiled` returns it.
    """

    def __init__(self, descriptors: str) -> None:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors))
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.Add(file)
        self._file = files.file[-1]  # the schema itself stands behind what it imports

    def descriptor(self, path: tuple[int, ...] = FIRST) -> Descriptor:
        """Return a message's descriptor; raises CorruptRecordError if there is none."""
        types, names = self._file.message_type, [self._file.package] if self._file.package else []
        for step in path:
            if not 0 <= step < len(types):
                raise CorruptRecordError(f"its schema has no message at {list(path)}")
            names.append(types[step].name)
            types = types[step].nested_type
        return self._pool.FindMessageTypeByName(".".join(names))

    def parsed(self, body: bytes, path: tuple[int, ...] = FIRST) -> Message:
        """Return a message of the schema.

        Raises CorruptRecordError: it does not follow the schema, or has fields that this lacks.
        """
        kind = message_factory.GetMessageClass(self.descriptor(path))
        try:
            message = kind.FromString(body)
        except DecodeError as error:
            raise CorruptRecordError(f"it is no {kind.DESCRIPTOR.full_name}: {error}") from error
        if not message.IsInitialized():
            raise CorruptRecordError(f"a required field of {kind.DESCRIPTOR.full_name} is missing")
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise CorruptRecordError(f"it has fields that {kind.DESCRIPTOR.full_name} does not")
        return message

    def document(self, message: Message) -> dict[str, Any]:
        """Return a message in Protobuf's JSON form, with the names of its schema."""
        try:
            document: dict[str, Any] = json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except (json_format.Error, ValueError, TypeError) as error:
            raise CorruptRecordError(f"it has no form in JSON: {error}") from error
        return document

    def encoded(self, document: Any) -> bytes:  # noqa: ANN401 - any JSON
        """Return a document in Protobuf's JSON form as the first message, with its path.

        Raises UnfitMessageError: it does not fit the message.
        """
        message = message_factory.GetMessageClass(self.descriptor())()
        try:
            json_format.ParseDict(
                fitted(document, message.DESCRIPTOR), message, descriptor_pool=self._pool
            )
        except RecursionError:
            raise UnfitMessageError("it nests too deeply") from None
        except (json_format.ParseError, TypeError, AttributeError) as error:
            raise UnfitMessageError(str(error)) from error
        if not message.IsInitialized():
            raise UnfitMessageError(f"{message.FindInitializationErrors()[0]} is missing")
        body: bytes = message.SerializeToString(deterministic=True)
        return b"\0" + body


class RowTypes:
    """The rows of a schema's first message: a column for each field.

    Scalars, enums (by name), Timestamp and the wrappers of scalars have their types, and so have
    repeated ones; every other message, and maps, are texts in Protobuf's JSON form.
    """

    def __init__(self, descriptors: str) -> None:
        self._types = MessageTypes(descriptors)
        own = self._types.descriptor()
        self._fields = [(field, *self._column(field)) for field in own.fields]
        self.columns = tuple(
            LoggedColumn(field.name, field.name, kind, nullable=True)
            for field, kind, _ in self._fields
        )
        # the columns whose values are texts in JSON
        self.documents = frozenset(field.name for field, _, read in self._fields if read is None)

    def row(self, body: bytes, path: tuple[int, ...]) -> dict[str, Any]:
        """Return the values of a message by column; None for a field that is not there.

        Raises CorruptRecordError: it is another message, or a value has no exact form.
        """
        if path != FIRST:
            name = self._types.descriptor(path).full_name
            own = self._types.descriptor().full_name
            raise CorruptRecordError(f"it is a {name}, and rows are the schema's first, {own}")
        message = self._types.parsed(body)
        row: dict[str, Any] = {}
        for field, _, read in self._fields:
            name = field.name
            row[name] = None
            if read is None or (field.has_presence and not message.HasField(name)):
                continue
            try:
                row[name] = read(getattr(message, name))
            except (CorruptRecordError, UnicodeDecodeError) as error:
                raise CorruptRecordError(f'field "{name}": {error}') from error
        if self.documents:
            document = self._types.document(message)
            row |= {name: _json_text(document[name]) for name in self.documents if name in document}
        return row

    def _column(self, field: FieldDescriptor) -> tuple[ColumnType, _Read | None]:
        kind, read = _single(field)
        if not field.is_repeated or read is None:
            return kind, read
        if kind.has_escape:  # elements are what arrays of PostgreSQL's numerics are
            kind, read = _STRING, str
        one = read
        return ColumnType(f"{kind.name}[]", Kind.ARRAY, element=kind), lambda many: [
            *map(one, many)
        ]


def _single(field: FieldDescriptor) -> tuple[ColumnType, _Read | None]:
    """Return type and reader of a field's values; no reader for values that are texts in JSON."""
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return ColumnType("timestamptz", Kind.TIMESTAMPTZ), _micros
        if name in WRAPPERS:
            kind, read = _single(field.message_type.fields_by_name["value"])
            assert read is not None  # noqa: S101 - a scalar
            return kind, lambda message: read(message.value)
        return _STRING, None
    kind = _TYPES[field.type]
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return kind, lambda number: _name(names, number)
    return kind, Decimal if kind is _UINT64 else lambda value: value


def _name(names: Mapping[int, Any], number: int) -> str:
    if number not in names:
        raise CorruptRecordError(f"{number} is no value of its enum")
    return str(names[number].name)


def _micros(moment: Any) -> int:  # noqa: ANN401 - google.protobuf.Timestamp
    seconds, nanos = moment.seconds, moment.nanos
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _SECOND_NANOS):
        raise CorruptRecordError("it is no moment of the years 1 to 9999")
    if nanos % _MICRO_NANOS:
        raise CorruptRecordError("it has nanoseconds, and moments here have microseconds")
    return int(seconds * 1_000_000 + nanos // _MICRO_NANOS)


def _json_text(document: Any) -> str:  # noqa: ANN401 - any JSON
    """Return JSON with the members in the order of their names, as maps have none of their own."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
