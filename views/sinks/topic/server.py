"""Brokers and registry as this sink asks them, and their errors as ours.

Topics have one partition: a transaction becomes visible in each partition by itself, so that
readers of several could see some of it.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import fastavro
import pyarrow as pa
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx import HTTPError

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    LogError,
    RefusedAccessError,
    SinkError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted
from changelog.contract.log.properties import RECORD_BYTES
from changelog.contract.log.topic import TopicSettings
from changelog.contract.rows.codec import FRAME_BYTES
from changelog.kafka.errors import is_missing, is_waited_for, log_error
from changelog.native.librdkafka import ProducerHandle, Texts
from replay.broker.topics import consumer_of
from views.sinks.base import UnavailableSinkError

TRANSACTION_S = 900
"""The longest that brokers let a transaction be open, unless they are told otherwise."""

_BATCH, _WAIT_S, _NAP_S = 5_000, 0.02, 0.02
FULL_S = 0.02
"""So long a full queue is waited for."""
_ABORT_S = 5.0
_SERVER_ERROR = 500
_SMALL_SEGMENT = str(1 << 20)
T = TypeVar("T")


def producer_settings(
    kafka: Mapping[str, str | int | float | bool], wait_s: float
) -> dict[str, object]:
    """Return settings of a producer that loses and doubles nothing.

    Args:
        kafka: how the brokers are reached.
        wait_s: how long they are waited for.
    """
    return {
        "compression.type": "lz4",
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 64 * 1024,
        "message.max.bytes": RECORD_BYTES,
        "log_level": 0,
        **kafka,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": round(1000 * wait_s),
        "delivery.report.only.error": True,
    }


def put(producer: Producer, topic: str, key: bytes, value: bytes | None) -> None:
    """Queue a record; waits while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, 0)
        except BufferError:
            producer.poll(FULL_S)
        else:
            return


class RefusedAccessSinkError(UnavailableSinkError):
    """The brokers do not let us in: at a first start a matter of configuration, as for the log."""

    exit_code = 2


def sink_error(error: LogError) -> SinkError:
    """Return an error of the log's family as a sink's, with the same exit code and hint."""
    match error:
        case RefusedAccessError():
            kind: type[SinkError] = RefusedAccessSinkError
        case UnavailableLogError():
            kind = UnavailableSinkError
        case _:
            kind = SinkError
    return kind(*error.args, hint=error.hint)


def explained(kafka: KafkaConnection, error: KafkaError, what: str) -> SinkError:
    """Return an error of the brokers as ours."""
    return sink_error(log_error(error, what, kafka=kafka))


class Transaction:
    """Records that become visible together."""

    def __init__(self, server: TopicServer, producer: ProducerHandle) -> None:
        self._server, self._producer = server, producer
        self.topics: set[str] = set()

    def put(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Write a record, a tombstone without a value."""
        self.topics.add(topic)
        while self._is_full(self._producer.send(topic, key, value, [], 0)):
            pass

    def put_rows(self, topic: str, keys: pa.Array | None, values: pa.Array) -> None:
        """Write records, as binary; without keys they have none."""
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
        """Tell whether a record found no room, which is waited for."""
        is_full = code == KafkaError._QUEUE_FULL
        self._producer.poll(FULL_S if is_full else 0)
        require(self._producer.failure())
        require(KafkaError(code) if code and not is_full else None)
        return is_full


def require(error: KafkaError | tuple[KafkaError, str] | None) -> None:
    """Raise what librdkafka says, if it says something."""
    if error is not None:
        raise KafkaException(error[0] if isinstance(error, tuple) else error)


def texts(array: pa.Array) -> Texts:
    """Return a column of byte strings without a null as its buffers."""
    _, ends, content = array.buffers()
    places = memoryview(ends).cast("i")[array.offset : array.offset + len(array) + 1]
    return places, memoryview(content if content is not None else b"")


@dataclass(frozen=True, slots=True)
class TopicServer:
    """The brokers and the registry of a topic sink.

    Attributes:
        kafka: the brokers.
        registry: of Avro's schemas; None without one.
        retry_seconds: how long a server that is busy or away is asked again.
        answer_seconds: how long brokers may be silent to a request.
    """

    kafka: KafkaConnection
    registry: RegistryConnection | None
    retry_seconds: float
    answer_seconds: float = 60.0

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn errors of the brokers inside the block into SinkErrors."""
        try:
            yield
        except KafkaException as error:
            raise explained(self.kafka, error.args[0], what) from error

    def exists(self, topic: str) -> bool:
        """Tell whether there is such a topic."""
        with self._admin(f'topic "{topic}"') as admin:
            try:
                admin.describe_topics(TopicCollection([topic]))[topic].result()
            except KafkaException as error:
                if is_missing(error):
                    return False
                raise
            return True

    def create(self, topic: str, *, small: bool = False, retention_ms: int | None = None) -> None:
        """Make a compacted topic; does nothing where it is.

        Args:
            topic: its name.
            small: whether it is read often and from its start.
            retention_ms: how long records stay in one that is not compacted, for ever at -1.
        """
        config = TopicSettings(compacted=retention_ms is None).to_config()
        if retention_ms is not None:
            config |= {"retention.ms": str(retention_ms), "retention.bytes": "-1"}
        if small:
            config |= {"segment.bytes": _SMALL_SEGMENT, "min.compaction.lag.ms": "0"}
        new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)
        with self._admin(f'topic "{topic}"') as admin:
            try:
                admin.create_topics([new])[topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        self._wait(lambda: self._is_led(topic), f'topic "{topic}" has no leader')

    def delete(self, topic: str) -> None:
        """Remove a topic; none there is no error."""
        with self._admin(f'topic "{topic}"') as admin:
            try:
                admin.delete_topics([topic])[topic].result()
            except KafkaException as error:
                if not is_missing(error):
                    raise
        self._wait(lambda: not self.exists(topic), f'topic "{topic}" does not go')

    def end(self, topic: str, *, committed: bool = True) -> int:
        """Return the end of a topic, of committed records or of all."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        place = TopicPartition(topic, 0)
        asked = {place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        with self._admin(f'topic "{topic}"') as admin:
            found = admin.list_offsets(asked, isolation_level=level)[place].result()
            return int(found.offset)

    def records(self, topic: str) -> Iterator[Message]:
        """Yield the committed records of a topic up to its present end, in order."""
        with (
            self.errors(f'topic "{topic}"'),
            closing(consumer_of(self.kafka, fetch_wait_max_ms=10)) as consumer,
        ):
            # Not the beginning by name, which a client asks for half a second later. The topic was
            # made here and is not cut off; one that was is an error.
            consumer.assign([TopicPartition(topic, 0, 0)])
            since = time.monotonic()
            while True:
                found = consumer.consume(_BATCH, _WAIT_S)
                since = time.monotonic() if found else since
                for message in found:
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return
                    elif not is_waited_for(error):
                        raise KafkaException(error)
                if time.monotonic() - since > self.retry_seconds:
                    raise UnavailableSinkError(
                        f'topic "{topic}" at {self.kafka.brokers} does not answer',
                        hint="see that the brokers run, then run it again",
                    )

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """Begin a transaction, and commit it after the block unless that fails.

        Whoever has begun one of that name cannot write any more. Behind the block readers see it.

        Raises:
            SinkError: the brokers refuse, or another one of that name has begun.
            UnavailableSinkError: they do not answer; nothing of it stands.
        """
        settings = producer_settings(self.kafka.client_config(), self.retry_seconds)
        settings |= {
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_S * 1000,
            "linger.ms": 0,
        }
        with self.errors(f'topic "{name}"'):
            producer = ProducerHandle(settings)
            require(producer.init_transactions(self.retry_seconds))
            require(producer.begin_transaction())
            made = Transaction(self, producer)
            try:
                yield made
                made.flush()
                require(producer.commit_transaction(self.retry_seconds))
            except BaseException:
                self._abort(producer)
                raise
            finally:
                producer.purge()
        for topic in made.topics:
            self._see(topic)

    def write(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Write one record without a transaction; afterwards readers see it.

        Raises:
            SinkError: the brokers refuse it.
            UnavailableSinkError: they do not answer.
        """
        failures: list[KafkaError] = []
        producer = Producer(
            {
                **producer_settings(self.kafka.client_config(), self.retry_seconds),
                "linger.ms": 0,
                # A record that is there twice says the same, and the number of a producer that
                # could not double it is half a second away.
                "enable.idempotence": False,
                "on_delivery": lambda error, _: failures.append(error) if error else None,
            }
        )
        with self.errors(f'topic "{topic}"'):
            put(producer, topic, key, value)
            left = producer.flush(self.retry_seconds)
            producer.purge()
            if failures or left:
                raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))
        self._see(topic)

    def _see(self, topic: str) -> None:
        """Wait until readers of committed records see all that is written now."""
        end = self.end(topic, committed=False)
        self._wait(lambda: self.end(topic) >= end, f'a transaction stays open in topic "{topic}"')

    def _abort(self, producer: ProducerHandle) -> None:
        producer.purge()
        # Where this fails the brokers end it after its time, or the next of its name does.
        producer.abort_transaction(_ABORT_S)

    def register(self, subjects: Mapping[str, str]) -> list[int]:
        """Register Avro schemas by subject, and return their ids.

        Raises:
            SinkError: there is no registry, or it refuses.
        """
        if self.registry is None:
            raise SinkError(
                "records in Avro need a schema registry, and the project has none",
                hint='name one (registry.url), or write {"value": "json"} in the view\'s options '
                "of the topic",
            )
        found = []
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            for subject, text in subjects.items():
                try:
                    found.append(client.register_schema(subject, Schema(text, "AVRO")))
                except SchemaRegistryError as error:
                    if error.http_status_code >= _SERVER_ERROR:
                        raise self._away() from error
                    raise SinkError(
                        f'the registry {self.registry} refuses subject "{subject}": '
                        f"{redacted(str(error.error_message))[:300]}",
                        hint="keep the types of the view's columns, or drop the view and build it "
                        "anew with its subjects deleted",
                    ) from error
                except (HTTPError, OSError) as error:
                    raise self._away() from error
        return found

    def json_of(self, record: bytes, schema_id: int) -> str:
        """Return a record in Avro as JSON, for people to read; its hex digits where that fails."""
        if self.registry is None:
            return record.hex()
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            try:
                text = client.get_schema(schema_id).schema_str or ""
                schema = fastavro.parse_schema(json.loads(text))
                body = io.BytesIO(record[FRAME_BYTES:])
                return json.dumps(fastavro.schemaless_reader(body, schema, None), default=str)
            except (SchemaRegistryError, HTTPError, OSError, ValueError):
                return record.hex()

    def _away(self) -> UnavailableSinkError:
        return UnavailableSinkError(
            f"the registry {self.registry} does not answer",
            hint="see that it runs, then run it again",
        )

    @contextmanager
    def _admin(self, what: str) -> Iterator[AdminClient]:
        """Return a client, which has to live until it is answered."""
        with self.errors(what):
            silence = {"socket.timeout.ms": round(1000 * self.answer_seconds), "log_level": 0}
            yield AdminClient({**silence, **self.kafka.client_config()})

    def _is_led(self, topic: str) -> bool:
        with self._admin(f'topic "{topic}"') as admin:
            try:
                found = admin.describe_topics(TopicCollection([topic]))[topic].result()
            except KafkaException as error:
                if is_missing(error):
                    return False
                raise
            return all(partition.leader for partition in found.partitions)

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.retry_seconds
        while not done():
            if time.monotonic() > deadline:
                raise UnavailableSinkError(
                    f"{what} after {self.retry_seconds:.0f} s", hint="see how the brokers are"
                )
            time.sleep(_NAP_S)
