"""Read the rows of one topic: the last committed record of each key, without tombstones.

In a topic without keys each record is a row. One with keys is read twice: first to find the last
record of each key, then for these records. Records in JSON are read like all documents; those in
Avro are decoded by fastavro without logical types and converted to Arrow by the view's own types,
so that a column of another type is an error. In both forms a record's key must be that of its row,
or must be absent.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import CorruptRecordError, SinkError, UnavailableLogError
from changelog.kafka.errors import is_waited_for
from views.base.address import Address
from views.verify.log.registry import WriterSchemas, parsed
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN, DocumentForm, text_page
from views.verify.values.jsonform import identifier, load
from views.verify.values.types import Type, arrow_type

_BATCH, _WAIT_S, _STALL_S = 5_000, 0.02, 60.0
_FRAME_BYTES = 5
_EXACT = Context(prec=60)
_LOWEST = {"date": -(2**31), "timestamp": -(2**63), "timestamp_ntz": -(2**63)}
"""A topic's number for `-infinity`. DuckDB's is one more, which a sound topic does not have."""
Take = Callable[[Any], Any]


def topic_tables(address: Address, form: DocumentForm) -> Iterator[pa.Table]:
    """Return the rows of a topic."""
    place = address.location
    options = json.loads(place.get("options", "{}"))
    kafka = KafkaConnection(brokers=place["brokers"], options=options.get("kafka", {}))
    topic = place["topic"]
    is_keyed = place.get("records", "keyed") == "keyed"
    try:
        last = {
            message.key(): message.offset()
            for some in (_messages(kafka, topic) if is_keyed else ())
            for message in some
        }
        tables: Callable[[list[Message]], pa.Table] = _Json(form, is_keyed=is_keyed).table
        if place["value"] == "avro":
            schemas = WriterSchemas(
                RegistryConnection(url=place["registry"], options=options.get("registry", {}))
            )
            tables = _Avro(form, schemas, is_keyed=is_keyed).table
        for some in _messages(kafka, topic):
            rows = [
                message
                for message in some
                if not is_keyed
                or (message.value() is not None and last[message.key()] == message.offset())
            ]
            if rows:
                yield tables(rows)
    except (KafkaException, UnavailableLogError, CorruptRecordError) as error:
        raise SinkError(
            f'topic "{topic}" at {kafka.brokers} cannot be read: {error}',
            hint="check that the brokers and the registry run and that their addresses are right",
        ) from error


def _messages(kafka: KafkaConnection, topic: str) -> Iterator[list[Message]]:
    """Yield the committed records up to the topic's present end, in batches."""
    config = kafka.client_config(
        group_id=f"changelog-{uuid.uuid4()}",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level="read_committed",
        auto_offset_reset="error",  # the first offset is 0, unless records were deleted
        fetch_wait_max_ms=10,
    )
    with closing(Consumer({**config, "log_level": 0})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        since = time.monotonic()
        while time.monotonic() - since < _STALL_S:
            batch, is_over = [], False
            for message in consumer.consume(_BATCH, _WAIT_S):
                error = message.error()
                if error is None:
                    batch.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    is_over = True
                elif not is_waited_for(error):
                    raise KafkaException(error)
            if batch:
                since = time.monotonic()
                yield batch
            if is_over:
                return
    raise SinkError(f'topic "{topic}" at {kafka.brokers} gave nothing for {_STALL_S:.0f} s')


class _Json:
    def __init__(self, form: DocumentForm, *, is_keyed: bool) -> None:
        self._form, self._is_keyed = form, is_keyed

    def table(self, messages: list[Message]) -> pa.Table:
        ids = [self._id(message) for message in messages]
        return self._form.table(text_page(ids, [message.value() or b"" for message in messages]))

    def _id(self, message: Message) -> str:
        """Return the id of a record's key; a malformed key is its own id, and a fault.

        A record that should have no key and has none gets the id of its row's key.
        """
        key = message.key()
        is_keyless = not self._is_keyed and key is None
        try:
            row = load((message.value() if is_keyless else key) or b"")
            if is_keyless or list(row) == [name for name, _ in self._form.key]:
                return identifier(row, self._form.key)
        except (ValueError, KeyError, TypeError):
            pass
        return (key or b"").decode("utf-8", "replace")


class _Avro:
    def __init__(self, form: DocumentForm, schemas: WriterSchemas, *, is_keyed: bool) -> None:
        self._form, self._schemas, self._is_keyed = form, schemas, is_keyed
        self._bare: dict[int, Any] = {}
        self._takes = [(name, _converter(kind)) for name, kind in form.columns]

    def table(self, messages: list[Message]) -> pa.Table:
        rows = [self._row(message) for message in messages]
        arrays = {
            name: _arrow_array(name, [row[n] for row in rows], kind)
            for n, (name, kind) in enumerate(self._form.columns)
        }
        arrays[FAULT_COLUMN] = pa.array([row[-2] for row in rows], pa.string())
        arrays[ID_COLUMN] = pa.array([row[-1] for row in rows], pa.string())
        return pa.table(arrays)

    def _row(self, message: Message) -> list[Any]:
        raw = message.key() or b""
        nulls: list[Any] = [None] * len(self._takes)
        try:
            key = self._decoded(raw) if self._is_keyed else message.key()
            row = self._decoded(message.value() or b"")
            if list(row) != [name for name, _ in self._takes]:
                raise ValueError(f"its columns are {', '.join(row)}")
            values = [None if row[name] is None else take(row[name]) for name, take in self._takes]
        except (ValueError, TypeError, KeyError, IndexError, EOFError, AttributeError) as error:
            return [*nulls, f"malformed: {error}", raw.hex()]
        own = {name: row[name] for name, _ in self._form.key} if self._is_keyed else None
        fault = None if key == own else f"stored under {key!r}, its key says {own!r}"
        return [*values, fault, raw.hex()]

    def _decoded(self, raw: bytes) -> dict[str, Any]:
        if len(raw) < _FRAME_BYTES or raw[0]:
            raise ValueError("no frame with a schema id")
        number = int.from_bytes(raw[1:_FRAME_BYTES], "big")
        if number not in self._bare:
            self._bare[number] = parsed(json.loads(self._schemas.text(number)))
        body = BytesIO(raw[_FRAME_BYTES:])
        record = fastavro.schemaless_reader(body, self._bare[number], None)
        if body.tell() != len(raw) - _FRAME_BYTES or not isinstance(record, dict):
            raise ValueError("not a record of its schema")
        return record


def _arrow_array(name: str, values: Sequence[Any], kind: Type) -> pa.Array:
    try:
        return pa.array(values, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SinkError(f'column "{name}" of a record is no {kind.name}: {error}') from error


def _converter(kind: Type) -> Take:
    """Return the function that converts a raw Avro value to this Arrow type; null stays null."""
    inner = [(name, _converter(inner_kind)) for name, inner_kind in kind.fields]
    match kind.name:
        case "decimal":
            return lambda raw: Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(
                -kind.scale, _EXACT
            )
        case "date" | "timestamp" | "timestamp_ntz":
            return _moment(kind.name)
        case "array":
            return lambda items: [_or_null(inner[0][1], item) for item in items]
        case "map":
            return lambda entries: [
                (k, _or_null(inner[1][1], value)) for k, value in entries.items()
            ]
        case "struct":
            return lambda struct: {name: _or_null(take, struct[name]) for name, take in inner}
        case _:
            return lambda value: value


def _moment(kind: str) -> Take:
    lowest = _LOWEST[kind]

    def take(raw: Any) -> Any:  # noqa: ANN401 - of any type
        if raw == lowest + 1:
            raise ValueError(f"{raw} is no {kind}")
        return lowest + 1 if raw == lowest else raw

    return take


def _or_null(take: Take, value: Any) -> Any:  # noqa: ANN401 - of any type
    return None if value is None else take(value)
