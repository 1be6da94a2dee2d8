"""Records in JSON -> the bytes of their keys and values, by the form that a request names.

Schemas are registered under the subjects TOPIC-key and TOPIC-value, as the serializers of other
clients do it, and records carry their ids.
"""

from __future__ import annotations

import base64
import binascii
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

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
_ASKERS = 4
"""Schemas that are asked for, and compiled, at the same time."""
_FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class PartEncoder:
    """The encoder of all keys, or of all values, the frame of their schema included."""

    number: int | None  # the schema's id; None without a schema
    encode: Encode


class _Name(NamedTuple):
    subject: str
    form: ValueForm
    schema: NamedSchema


@dataclass(slots=True)
class _Kept:
    """A schema that has been asked for."""

    encoder: Future[PartEncoder]
    until: float  # from when on it is asked for again, by the clock


class Encoders:
    """Encodes requests; any number of threads may use it.

    Schemas are asked for by threads of its own, so that no record waits for the schema of another
    one. After a minute a schema that is used is asked for again: a registry that was put back or
    emptied gives it a new id. While the registry does not answer, what it has said counts.

    Without the URL of a registry no form with schemas is taken.
    """

    def __init__(
        self, registry: RegistryConnection, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection, self._clock = registry, clock
        self._registry: SchemaRegistry | None = None
        self._lock = threading.Lock()
        self._questions: queue.SimpleQueue[tuple[_Name, Future[PartEncoder]]] = queue.SimpleQueue()
        self._askers: list[threading.Thread] = []
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()

    def of(
        self, topic: str, request: ProduceRequest
    ) -> tuple[Future[PartEncoder], Future[PartEncoder]]:
        """Return the encoders of a request's keys and values, which may have to be waited for.

        Raises ProduceError (or its futures do): a part has no schema, or one that is none.
        """
        if request.form not in {ValueForm.AVRO, ValueForm.PROTOBUF}:
            if request.key_schema or request.value_schema:
                raise unprocessable(f"the form {request.form.value} has no schemas")
            both = _ready(PartEncoder(None, _base64 if request.form is ValueForm.BINARY else _json))
            return both, both
        key = self._of_part(topic, request, "key", request.key_schema, NO_KEY_SCHEMA)
        value = self._of_part(topic, request, "value", request.value_schema, NO_VALUE_SCHEMA)
        return key, value

    def _of_part(
        self, topic: str, request: ProduceRequest, part: str, schema: NamedSchema | None, code: int
    ) -> Future[PartEncoder]:
        """Return the encoder of keys or of values."""
        if schema is not None:
            return self._schema(_Name(f"{topic}-{part}", request.form, schema))
        if any(getattr(record, part) is not None for record in request.records):
            raise ProduceError(code, f"Request includes {part}s but does not include {part} schema")
        return _ready(PartEncoder(None, _json))

    def _schema(self, name: _Name) -> Future[PartEncoder]:
        """Return the encoder of a schema, asking for one that is new."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                kept = self._kept[name] = _Kept(Future(), self._clock() + _FRESH_S)
                self._begin(name, kept.encoder)
            elif kept.until < self._clock() and kept.encoder.done():
                kept.until = self._clock() + _FRESH_S
                self._begin(name, Future())
            self._kept.move_to_end(name)
            while len(self._kept) > _MOST_SCHEMAS:
                self._kept.popitem(last=False)
            return kept.encoder

    def _begin(self, name: _Name, encoder: Future[PartEncoder]) -> None:
        """Have a schema asked for, by threads that the process does not wait for at its end."""
        self._questions.put((name, encoder))
        if len(self._askers) < _ASKERS:
            thread = threading.Thread(target=self._ask_on, name="schemas", daemon=True)
            self._askers.append(thread)
            thread.start()

    def _ask_on(self) -> None:
        while True:
            self._ask(*self._questions.get())

    def _ask(self, name: _Name, encoder: Future[PartEncoder]) -> None:
        """Ask for a schema; from then on its encoder is the one that is kept."""
        try:
            answer = self._looked_up(*name)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            is_later = isinstance(error, ProduceError) and error.error_code == KAFKA_LATER
            with self._lock:
                kept = self._kept.get(name)
                if kept is not None and (kept.encoder is encoder or not is_later):
                    del self._kept[name]
            encoder.set_exception(error)
        else:
            encoder.set_result(answer)
            with self._lock:
                if name in self._kept:
                    self._kept[name].encoder = encoder

    def _looked_up(self, subject: str, form: ValueForm, schema: NamedSchema) -> PartEncoder:
        kind = form.value.upper()
        try:
            registry = self._opened()
            registry.forget()
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
        return PartEncoder(number, lambda value: begin + encode(value))

    def _opened(self) -> SchemaRegistry:
        if not self._connection.url:
            raise unprocessable("this worker has no schema registry: --schema-registry URL")
        with self._lock:
            if self._registry is None:
                self._registry = SchemaRegistry(self._connection)
            return self._registry


def _ready(encoder: PartEncoder) -> Future[PartEncoder]:
    future: Future[PartEncoder] = Future()
    future.set_result(encoder)
    return future


@lru_cache(_MOST_SCHEMAS)
def _encoder(form: ValueForm, text: str) -> Encode:
    """Return the encoder of a schema without the frame; raises ProduceError, CorruptRecordError."""
    if form is ValueForm.PROTOBUF:
        try:
            descriptors = compiled(text, "it")
        except ModuleNotFoundError as error:
            raise ProduceError(415, str(missing_extra(error))) from error
        from changelog.protobuf.messages import MessageTypes  # noqa: PLC0415 - of an extra

        types = MessageTypes(descriptors)
        types.descriptor()  # a schema without a message is refused before it is registered
        return types.encoded
    try:
        return json_encoder(text)
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise ProduceError(NO_SCHEMA, f"Invalid schema: {error}") from error


def encoded(
    request: ProduceRequest, key: PartEncoder, value: PartEncoder
) -> tuple[OutgoingRecord, ...]:
    """Encode the records of a request; raises ProduceError: one does not fit its schema."""
    outgoing = []
    for number, record in enumerate(request.records):
        parts = []
        for part, encoder in (("key", key), ("value", value)):
            plain = getattr(record, part)
            where = f"record {number}, {part}"
            parts.append(None if plain is None else _bytes(encoder.encode, plain, where))
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
