"""Records in JSON -> the bytes of their keys and values, by the form that a request names.

Schemas are registered under the subjects TOPIC-key and TOPIC-value, as the serializers of other
clients do it, and records carry their ids.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException

from changelog.avro.from_json import MisfitError, json_encoder
from changelog.connect.produce.errors import (
    KAFKA_LATER,
    NO_CONVERSION,
    NO_KEY_SCHEMA,
    NO_PAYLOAD,
    NO_SCHEMA,
    NO_VALUE_SCHEMA,
    ProduceError,
    unprocessable,
)
from changelog.connect.produce.requests import NamedSchema, ProduceRequest, ValueForm
from changelog.connect.rules.records.reading import BadRecordError, json_of
from changelog.contract.base.connection import RegistryConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.contract.rows.codec import frame
from changelog.kafka.send import OutgoingRecord
from changelog.protobuf.compile import UnfitMessageError, compiled
from changelog.runtime.installed.extras import missing_extra
from changelog.sink.registry import RegisteredSchema, SchemaRegistry

Encode = Callable[[Any], bytes]
_MOST_SCHEMAS = 1000


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request's records as they are to be written."""

    records: tuple[OutgoingRecord, ...]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class _SchemaEncoder:
    """A registered schema, and the encoder of values under it, the frame included."""

    number: int | None  # its id; None where all keys, or all values, are null
    encode: Encode


class Encoders:
    """Encodes requests; any number of threads may use it.

    Without the URL of a registry no form with schemas is taken.
    """

    def __init__(self, registry: RegistryConnection) -> None:
        self._connection = registry
        self._registry: SchemaRegistry | None = None
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ValueForm, NamedSchema], _SchemaEncoder] = OrderedDict()

    def encoded(self, topic: str, request: ProduceRequest) -> EncodedRequest:
        """Encode the records of a request, registering its schemas.

        Raises ProduceError: a record has no schema, or does not fit its own.
        """
        if request.form not in {ValueForm.AVRO, ValueForm.PROTOBUF}:
            if request.key_schema or request.value_schema:
                raise unprocessable(f"the form {request.form.value} has no schemas")
            encode = _base64 if request.form is ValueForm.BINARY else _json
            return EncodedRequest(_records(request, encode, encode))
        key, value = (
            self._of_part(topic, request, part, schema, code)
            for part, schema, code in (
                ("key", request.key_schema, NO_KEY_SCHEMA),
                ("value", request.value_schema, NO_VALUE_SCHEMA),
            )
        )
        return EncodedRequest(_records(request, key.encode, value.encode), key.number, value.number)

    def _of_part(
        self, topic: str, request: ProduceRequest, part: str, schema: NamedSchema | None, code: int
    ) -> _SchemaEncoder:
        """Return the encoder of keys or of values."""
        if schema is not None:
            return self._schema(f"{topic}-{part}", request.form, schema)
        if any(getattr(record, part) is not None for record in request.records):
            raise ProduceError(code, f"Request includes {part}s but does not include {part} schema")
        return _SchemaEncoder(None, _json)

    def _schema(self, subject: str, form: ValueForm, schema: NamedSchema) -> _SchemaEncoder:
        """Return the encoder of a schema; it is asked for once."""
        name = (subject, form, schema)
        with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                kept = self._kept[name] = self._looked_up(subject, form, schema)
            self._kept.move_to_end(name)
            while len(self._kept) > _MOST_SCHEMAS:
                self._kept.popitem(last=False)
        return kept

    def _looked_up(self, subject: str, form: ValueForm, schema: NamedSchema) -> _SchemaEncoder:
        kind = form.value.upper()
        try:
            registry = self._opened()
            if schema.number is None:
                encode = _encoder(form, schema.text)  # before it is registered for ever
                number = registry.register(subject, RegisteredSchema(kind, schema.text))
            else:
                number, registered = schema.number, registry.schema(schema.number)
                if registered.kind != kind or not registry.is_version(subject, registered):
                    raise ProduceError(
                        NO_SCHEMA, f"Invalid schema: {number} is no {kind} of subject {subject}"
                    )
                encode = _encoder(form, registered.text)
        except UnavailableLogError as error:
            raise ProduceError(KAFKA_LATER, f"the schema registry: {error}") from error
        except LogError as error:
            raise ProduceError(NO_SCHEMA, f"Invalid schema: {error}") from error
        begin = frame(number)
        return _SchemaEncoder(number, lambda value: begin + encode(value))

    def _opened(self) -> SchemaRegistry:
        if self._registry is None:
            if not self._connection.url:
                raise unprocessable("this worker has no schema registry: --schema-registry URL")
            self._registry = SchemaRegistry(self._connection)
        return self._registry


def _encoder(form: ValueForm, text: str) -> Encode:
    """Return the encoder of a schema without the frame; raises ProduceError, CorruptRecordError."""
    if form is ValueForm.PROTOBUF:
        try:
            descriptors = compiled(text, "it")
        except ModuleNotFoundError as error:
            raise ProduceError(415, str(missing_extra(error))) from error
        from changelog.protobuf.messages import MessageTypes  # noqa: PLC0415 - of an extra

        return MessageTypes(descriptors).encoded
    try:
        return json_encoder(text)
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise ProduceError(NO_SCHEMA, f"Invalid schema: {error}") from error


def _records(request: ProduceRequest, key: Encode, value: Encode) -> tuple[OutgoingRecord, ...]:
    outgoing = []
    for number, record in enumerate(request.records):
        parts = []
        for part, encode in (("key", key), ("value", value)):
            plain = getattr(record, part)
            where = f"record {number}, {part}"
            parts.append(None if plain is None else _bytes(encode, plain, where))
        place = {} if record.partition is None else {"partition": record.partition}
        outgoing.append(OutgoingRecord(*parts, **place))  # type: ignore[arg-type]
    return tuple(outgoing)


def _bytes(encode: Encode, plain: Any, where: str) -> bytes:  # noqa: ANN401 - any JSON
    try:
        return encode(plain)
    except (MisfitError, UnfitMessageError) as error:
        raise ProduceError(NO_CONVERSION, f"{where}: {error}") from None
    except BadRecordError as error:
        raise ProduceError(NO_PAYLOAD, f"{where}: {error}") from None


def _base64(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    if type(value) is not str:
        raise BadRecordError("it is not base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadRecordError("it is not base64") from None


_json: Encode = json_of
