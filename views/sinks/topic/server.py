"""Requests of the topic sink to brokers and registry; their errors become SinkErrors.

Topics have one partition, because a transaction becomes visible partition by partition: readers of
several could see a part of it.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

import fastavro
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    LogError,
    RefusedAccessError,
    SinkError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted
from changelog.contract.log.topic import TopicSettings
from changelog.contract.rows.codec import FRAME_BYTES
from changelog.kafka.clients import writing_config
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import log_error
from changelog.kafka.scan import TO_END, OffsetRange, scan
from changelog.kafka.send import OutgoingRecord, send
from changelog.native import ProducerHandle
from changelog.native.records import TextColumn
from changelog.runtime.http_modules import NO_ANSWER
from views.sinks.base import UnavailableSinkError

TRANSACTION_S = 900
"""The brokers' default for the longest open transaction."""

_NAP_S = 0.02
FULL_S = 0.02
"""Seconds to wait for a full queue."""
_ABORT_S = 5.0
"""Seconds to wait for the end of an aborted transaction."""
_SERVER_ERROR = 500
_NO_SCHEMA: tuple[type[Exception], ...] = (SchemaRegistryError, ValueError, *NO_ANSWER)
_SMALL_SEGMENT = str(1 << 20)
"""Bytes of a segment of a register, so that it is compacted soon."""


class RefusedAccessSinkError(UnavailableSinkError):
    """The brokers refuse access: at a first start a matter of configuration, as for the log."""

    exit_code = 2


def sink_error(error: LogError) -> SinkError:
    """Convert an error of the log to a sink's, with the same exit code and hint."""
    match error:
        case RefusedAccessError():
            kind: type[SinkError] = RefusedAccessSinkError
        case UnavailableLogError():
            kind = UnavailableSinkError
        case _:
            kind = SinkError
    return kind(*error.args, hint=error.hint)


def explained(kafka: KafkaConnection, error: KafkaError, subject: str) -> SinkError:
    """Return the SinkError for an error of the brokers."""
    return sink_error(log_error(error, subject, kafka=kafka))


class TopicTransaction:
    """Records that become visible together."""

    def __init__(self, server: TopicServer, producer: ProducerHandle) -> None:
        self._server, self._producer = server, producer
        self.topics: set[str] = set()

    def put(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Write a record; without a value it is a tombstone."""
        self.topics.add(topic)
        while self._is_full(self._producer.send(topic, key, value, [], 0)):
            pass

    def put_rows(self, topic: str, keys: pa.Array | None, values: pa.Array) -> None:
        """Write encoded records, with or without keys."""
        self.topics.add(topic)
        columns, first = (keys if keys is None else texts(keys), texts(values)), 0
        while first < len(values):
            first, code = self._producer.send_columns(topic, *columns, first, 0)
            self._is_full(code)

    def end(self, topic: str) -> int:
        """Return the end of a topic, including the records written in this transaction."""
        self.flush()
        return self._server.end(topic, committed=False)

    def flush(self) -> None:
        """Wait until the brokers have all records."""
        code = self._producer.flush(self._server.retry_seconds)
        require(self._producer.failure())
        require(KafkaError(code) if code else None)

    def _is_full(self, code: int) -> bool:
        """Tell whether the queue was full, after waiting for it; raise other errors."""
        is_full = code == KafkaError._QUEUE_FULL
        self._producer.poll(FULL_S if is_full else 0)
        require(self._producer.failure())
        require(KafkaError(code) if code and not is_full else None)
        return is_full


def require(error: KafkaError | tuple[KafkaError, str] | None) -> None:
    """Raise an error of librdkafka, if there is one."""
    if error is not None:
        raise KafkaException(error[0] if isinstance(error, tuple) else error)


def texts(array: pa.Array) -> TextColumn:
    """Return the buffers of a column of byte strings without nulls."""
    _, ends, content = array.buffers()
    places = memoryview(ends).cast("i")[array.offset : array.offset + len(array) + 1]
    return places, memoryview(content if content is not None else b"")


@dataclass(frozen=True, slots=True)
class TopicServer:
    """The brokers and the registry of a topic sink."""

    kafka: KafkaConnection  # the brokers
    registry: RegistryConnection | None  # of Avro's schemas; None if the project has none
    retry_seconds: float  # how long requests to a busy or absent server are repeated
    answer_seconds: float = 60.0  # how long brokers may be silent to a request

    @contextmanager
    def asking(self) -> Iterator[Cluster]:
        """Return the brokers; errors inside the block become SinkErrors."""
        try:
            yield Cluster(self.kafka, answer_s=self.answer_seconds)
        except LogError as error:
            raise sink_error(error) from error

    @contextmanager
    def errors(self, subject: str) -> Iterator[None]:
        """Turn errors of librdkafka inside the block into SinkErrors."""
        try:
            yield
        except KafkaException as error:
            raise explained(self.kafka, error.args[0], subject) from error

    def exists(self, topic: str) -> bool:
        """Tell whether the topic exists."""
        with self.asking() as cluster:
            return topic in cluster.topics([topic])

    def create(self, topic: str, *, small: bool = False, retention_ms: int | None = None) -> None:
        """Create a topic if it does not exist; without `retention_ms` a compacted one.

        `small`: whether it is often read from its start. `retention_ms`: how long records stay; -1
        for ever.
        """
        config = TopicSettings(compacted=retention_ms is None).to_config()
        if retention_ms is not None:
            config |= {"retention.ms": str(retention_ms), "retention.bytes": "-1"}
        if small:
            config |= {"segment.bytes": _SMALL_SEGMENT, "min.compaction.lag.ms": "0"}
        new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)
        with self.asking() as cluster:
            cluster.create([new])
            self._wait(lambda: _is_led(cluster, topic), f'topic "{topic}" has no leader')

    def delete(self, topic: str) -> None:
        """Remove a topic, if it exists."""
        with self.asking() as cluster:
            for _, refused in cluster.delete([topic]):
                if refused is not None:
                    raise refused
            self._wait(lambda: not cluster.topics([topic]), f'topic "{topic}" is not removed')

    def end(self, topic: str, *, committed: bool = True) -> int:
        """Return the end of a topic's committed records, or of all records."""
        with self.asking() as cluster:
            return _end(cluster, topic, committed=committed)

    def records(self, topic: str, start: int = 0) -> Generator[Message]:
        """Yield the committed records of a topic from an offset to its present end, in order."""

        def lost(reason: str) -> SinkError:
            return SinkError(reason, hint="rebuild the view")

        whole = [OffsetRange(topic, 0, start, TO_END)]
        try:
            yield from scan(self.kafka, whole, stall_s=self.retry_seconds, lost=lost)
        except LogError as error:
            raise sink_error(error) from error

    @contextmanager
    def transaction(self, name: str) -> Iterator[TopicTransaction]:
        """Begin a transaction, and commit it after the block unless the block fails.

        An earlier transaction of this name can write no more. After the block readers see the
        records.

        Raises:
            SinkError: the brokers refuse, or a later transaction of this name has begun.
            UnavailableSinkError: they do not answer; none of the records is visible.
        """
        own = {
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_S * 1000,
            "linger.ms": 0,
        }
        settings = writing_config(self.kafka, own, wait_s=self.retry_seconds)
        with self.errors(f'topic "{name}"'):
            producer = ProducerHandle(settings)
            require(producer.init_transactions(self.retry_seconds))
            require(producer.begin_transaction())
            transaction = TopicTransaction(self, producer)
            try:
                yield transaction
                transaction.flush()
                require(producer.commit_transaction(self.retry_seconds))
            except BaseException:
                self._abort(producer)
                raise
            finally:
                producer.purge()
        for topic in transaction.topics:
            self._see(topic)

    def write(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Write one record without a transaction, and wait until readers see it.

        Raises SinkError: the brokers refuse it; UnavailableSinkError: they do not answer.
        """
        producer = Producer(
            {
                **writing_config(self.kafka, {"linger.ms": 0}, wait_s=self.retry_seconds),
                # A record that is written twice does no harm, and an idempotent producer would wait
                # half a second for its number.
                "enable.idempotence": False,
            }
        )
        with self.errors(f'topic "{topic}"'):
            try:
                record = OutgoingRecord(key, value, partition=0)
                send(producer, topic, [record], answer_s=self.retry_seconds)
            finally:
                producer.purge()
        self._see(topic)

    def _see(self, topic: str) -> None:
        """Wait until readers of committed records see all records written so far."""
        with self.asking() as cluster:
            end = _end(cluster, topic, committed=False)
            self._wait(
                lambda: _end(cluster, topic) >= end,
                f'a transaction stays open in topic "{topic}"',
            )

    def _abort(self, producer: ProducerHandle) -> None:
        producer.purge()
        # If this fails, the brokers abort it after its timeout, or the next of its name does.
        producer.abort_transaction(_ABORT_S)

    def register(self, subjects: Mapping[str, str]) -> list[int]:
        """Register Avro schemas by subject, and return their ids."""
        if self.registry is None:
            raise SinkError(
                "records in Avro need a schema registry, and the project has none",
                hint='name one (registry.url), or write {"value": "json"} in the view\'s options '
                "of the topic",
            )
        ids = []
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            for subject, text in subjects.items():
                try:
                    ids.append(client.register_schema(subject, Schema(text, "AVRO")))
                except SchemaRegistryError as error:
                    if error.http_status_code >= _SERVER_ERROR:
                        raise self._away() from error
                    raise SinkError(
                        f'the registry {self.registry} refuses subject "{subject}": '
                        f"{redacted(str(error.error_message))[:300]}",
                        hint="keep the types of the view's columns, or drop the view, delete its "
                        "subjects and rebuild it",
                    ) from error
                except NO_ANSWER as error:
                    raise self._away() from error
        return ids

    def json_of(self, record: bytes, schema_id: int) -> str:
        """Return a record in Avro as JSON for messages, or its hex digits if that fails."""
        if self.registry is None:
            return record.hex()
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            try:
                text = client.get_schema(schema_id).schema_str or ""
                schema = fastavro.parse_schema(json.loads(text))
                body = io.BytesIO(record[FRAME_BYTES:])
                return json.dumps(fastavro.schemaless_reader(body, schema, None), default=str)
            except _NO_SCHEMA:
                return record.hex()

    def _away(self) -> UnavailableSinkError:
        return UnavailableSinkError(
            f"the registry {self.registry} does not answer",
            hint="see that it runs, then run it again",
        )

    def _wait(self, done: Callable[[], bool], state: str) -> None:
        deadline = time.monotonic() + self.retry_seconds
        while not done():
            if time.monotonic() > deadline:
                raise UnavailableSinkError(
                    f"{state} after {self.retry_seconds:.0f} s", hint="check the brokers"
                )
            time.sleep(_NAP_S)


def _is_led(cluster: Cluster, topic: str) -> bool:
    return any(topic_state.is_led for topic_state in cluster.topics([topic]).values())


def _end(cluster: Cluster, topic: str, *, committed: bool = True) -> int:
    return cluster.ends([(topic, 0)], committed=committed)[topic, 0]
