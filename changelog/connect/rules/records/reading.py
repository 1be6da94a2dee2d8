"""Decodes keys and values of records: JSON, or Avro and Protobuf with the schemas of a registry.

The converter says which they are. Without one, bytes that begin like a framed record are of the
schema that they name, because no JSON begins with a zero byte.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import orjson

from changelog.avro.decimals import decimal_text
from changelog.avro.framed import FramedReader
from changelog.avro.jsonforms import DIGITS, LOG_FORM
from changelog.avro.messages import MessageDocuments
from changelog.connect.rules.records.avro import RENAMED, Schema, columns_of, prepared
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import FRAME_BYTES, unframe
from changelog.protobuf.compile import compiled

JsonSchema = Mapping[str, Any]
_CONNECT = "org.apache.kafka.connect.data."


def described(schema: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value with times as ISO 8601, and decimals and bits as texts, by its schema.

    Raises CorruptRecordError: a value cannot be written so; ValueError, TypeError, KeyError,
    AttributeError: it does not fit its schema.
    """
    if value is None or not schema:
        return value
    kind = _TYPES.get(schema.get("name"))
    if kind is not None:
        return _written(kind, value, schema)
    if isinstance(value, dict) and "fields" in schema:
        fields = {field["field"]: field for field in schema["fields"]}
        return {name: described(fields.get(name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [described(schema.get("items"), item) for item in value]
    return value


def _written(kind: tuple[str, str], value: Any, schema: JsonSchema) -> Any:  # noqa: ANN401
    """Return the text of a value whose type in Avro is known."""
    plain, logical = kind
    if logical == DIGITS:
        return decimal_text(b64decode(value["value"], validate=True), int(value["scale"]))
    if plain != "bytes":
        return LOG_FORM.writers[kind](int(value), {})
    if logical == "decimal" and type(value) is not str:  # decimal.format is NUMERIC
        return value
    raw = b64decode(value, validate=True)
    return LOG_FORM.writers[kind](raw, schema.get("parameters") or {})


_TYPES: Mapping[Any, tuple[str, str]] = {
    **RENAMED,
    f"{_CONNECT}Date": ("int", "date"),
    f"{_CONNECT}Time": ("int", "time-millis"),
    f"{_CONNECT}Timestamp": ("long", "timestamp-millis"),
    f"{_CONNECT}Decimal": ("bytes", "decimal"),
}


_SAFE_DIGITS = 18  # orjson writes integers of at most 64 bits
_AVRO, _MAGIC = "AvroConverter", b"\0"


class BadRecordError(Exception):
    """A record cannot be decoded or written; the message has the reason, but no values."""


class WrittenNumber(str):
    """A number with all its digits, as its text."""

    __slots__ = ()


class RecordReading:
    """Decodes the records of a sink."""

    def __init__(self, *, key_form: str, value_form: str, schema: Schema | None) -> None:
        """Take the converters' names, empty to recognise the form of each record.

        `schema` returns the schema of an id of the registry; None if there is no registry.
        """
        self._forms = {"key": key_form, "value": value_form}
        self._schema = schema
        self._framed = None if schema is None else FramedReader(schema, prepare=prepared)
        self._columns: dict[bytes, dict[str, str]] = {b"": {}}
        self._shapes: dict[tuple[bytes, bytes], tuple[Mapping[str, str], tuple[str, ...]]] = {}

    def read(self, raw: bytes, part: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a key or value in the types of JSON.

        Raises BadRecordError: it cannot be decoded; LogError: the registry refuses, or does not
        answer.
        """
        form = self._forms[part]
        if form == _AVRO or (not form and is_framed(raw)):
            if self._framed is None:
                raise BadRecordError(
                    f"the {part} begins like a record of a schema registry, and none is set"
                )
            try:
                return self._framed(raw)
            except CorruptRecordError as error:
                raise BadRecordError(f"the {part} cannot be decoded: {error}") from None
        return _payload(parse_json(raw, part), part)

    def shape(
        self, key: bytes | None, value: bytes | None
    ) -> tuple[Mapping[str, str], tuple[str, ...]]:
        """Return the SQL types of a record's columns by name, and the names of its key's columns.

        They are from the schemas of its key and value; empty without schemas.
        """
        both = self._frame(key, "key"), self._frame(value, "value")
        shape = self._shapes.get(both)
        if shape is None:
            keys = self._of(both[0])
            shape = self._shapes[both] = {**keys, **self._of(both[1])}, tuple(keys)
        return shape

    def _frame(self, raw: bytes | None, part: str) -> bytes:
        if raw is None or self._framed is None or self._forms[part] not in {"", _AVRO}:
            return b""
        return raw[:FRAME_BYTES] if is_framed(raw) else b""

    def _of(self, frame: bytes) -> dict[str, str]:
        if frame not in self._columns:
            assert self._schema is not None  # noqa: S101 - else there are no frames
            kind, text = self._schema(unframe(frame)[0])
            if kind == "PROTOBUF":
                compiled_text = compiled(text, f"schema {unframe(frame)[0]}")
                self._columns[frame] = MessageDocuments(compiled_text).sql_types()
            else:
                self._columns[frame] = columns_of(json.loads(text)) if kind == "AVRO" else {}
        return self._columns[frame]


def is_framed(raw: bytes) -> bool:
    """Return whether bytes look like a record with a schema id of a registry."""
    return raw[:1] == _MAGIC and len(raw) >= FRAME_BYTES


def parse_json(raw: bytes, part: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; numbers with a fraction or more than 64 bits become `WrittenNumber`.

    Raises BadRecordError: it is not JSON.
    """
    try:
        return _DECODER.decode(raw.decode())
    except (ValueError, RecursionError):
        raise BadRecordError(f"the {part} is not JSON") from None


def check_json(text: str, name: str) -> None:
    """Check that a text is JSON for PostgreSQL, which allows an object to have a name twice.

    Raises BadRecordError: it is not.
    """
    try:
        text.encode()  # raises an error for half of a surrogate pair
        _CHECKER.decode(text)
    except (ValueError, RecursionError):
        raise BadRecordError(f"the text for {name} is not JSON") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name twice")
    return members


_DECODER = json.JSONDecoder(
    parse_float=WrittenNumber,
    parse_int=lambda text: int(text) if len(text) <= _SAFE_DIGITS else WrittenNumber(text),
    parse_constant=_no_number,
    object_pairs_hook=_object,
)
"""Made once, because `json.loads` with options makes a decoder for each text."""
_CHECKER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_number)


def _payload(decoded: Any, part: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the payload if a value is the JSON converter's pair of schema and payload."""
    if not isinstance(decoded, dict) or decoded.keys() != {"schema", "payload"}:
        return decoded
    try:
        return described(decoded["schema"], decoded["payload"])
    except (CorruptRecordError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadRecordError(f"the payload of the {part} does not fit its schema") from None


def json_of(value: object) -> bytes:
    """Return a value as JSON, with numbers in the digits that were read.

    Raises BadRecordError: a text has half of a surrogate pair, or the value nests too deeply.
    """
    try:
        return orjson.dumps(value, default=_digits, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:
        raise BadRecordError("a text is not valid Unicode, or the value nests too deeply") from None


def _digits(value: object) -> orjson.Fragment:
    if isinstance(value, WrittenNumber):
        return orjson.Fragment(value.encode())
    raise TypeError


JSON = RecordReading(key_form="", value_form="", schema=None)  # reads only JSON
