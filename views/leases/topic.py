"""The topic of the leases: records go out one flush at a time, and are read back up to its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    RefusedAccessError,
    UnavailableError,
    UnavailableLogError,
)
from changelog.contract.log.topic import TopicSettings
from changelog.kafka.errors import Meaning, is_missing, log_error, meaning
from replay.broker.topics import consumer_of, inspect
from views.leases.record import Placed, Record, split_key

log = logging.getLogger("changelog.views")

T = TypeVar("T")

ANSWER_S = 10.0
"""Brokers that do not answer for so long are told as away."""
_LAG_MS = 7_200_000
"""Many times the longest lease: what a cleaner may take is long decided."""
_RETENTION_MS = 86_400_000
_SEGMENT_BYTES = 1 << 20
_NAP_S = 0.05
_GOES_WITHOUT = '[rebuild] lock = "local" (--lock local) goes without, on one machine'
_PASSING = {Meaning.BUSY}


class LeaseTopic:
    """A connection to the topic; a context manager, for one thread at a time.

    Args:
        kafka: the brokers.
        topic: its name; it is made where it is not there.

    Raises:
        UnavailableError: the brokers do not answer.
        ChangelogError: they refuse.
    """

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._place = TopicPartition(topic, 0, 0)
        self._next = 0
        self._written = 0
        self._failure: KafkaError | None = None
        config = kafka.client_config(
            enable_idempotence=True, linger_ms=0, message_timeout_ms=round(ANSWER_S * 1000)
        )
        self._producer = Producer({**config, "log_level": 0})
        self._admin = self._asking()
        self._consumer = self._opened()

    @staticmethod
    def is_there(kafka: KafkaConnection, topic: str) -> bool:
        """Tell whether there is such a topic.

        Raises:
            UnavailableError: the brokers do not answer.
            ChangelogError: they refuse.
        """
        return bool(inspect(kafka, [topic]))

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._producer.flush(1)
        self._consumer.close()

    @property
    def seen(self) -> int:
        """Return the last offset that was read, -1 for none."""
        return self._next - 1

    def append(self, records: Mapping[bytes, Record | None]) -> int:
        """Write records, in this order, and wait until the brokers have them.

        Returns:
            The offset behind the last of them.

        Raises:
            UnavailableError: the brokers do not answer.
            ChangelogError: they refuse.
        """
        self._failure, self._written = None, 0
        for key, record in records.items():
            value = None if record is None else record.to_bytes()
            self._producer.produce(
                self._topic, key=key, value=value, partition=0, on_delivery=self._delivered
            )
        left = self._producer.flush(ANSWER_S)
        if self._failure is not None:
            raise self._explained(KafkaException(self._failure))
        if left:
            raise self._away()
        return self._written

    def read(self, end: int | None = None) -> Iterator[Placed]:
        """Yield the records since the last call.

        Args:
            end: the offset up to which, that of the topic's end as it is now if None.

        Raises:
            UnavailableError: the brokers do not answer.
            ChangelogError: they refuse, or a record is none of ours.
        """
        if end is None:
            end = self._end()
        deadline = time.monotonic() + ANSWER_S
        while self._next < end:
            message = self._consumer.poll(min(1.0, ANSWER_S))
            if time.monotonic() > deadline and message is None:
                raise self._away()
            if message is None:
                continue
            refused = message.error()
            if refused is not None and refused.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, message.offset() or 0)
            elif refused is not None:
                raise self._explained(KafkaException(refused))
            else:
                deadline = time.monotonic() + ANSWER_S
                self._next = (message.offset() or 0) + 1
                yield self._placed(message)

    def _end(self) -> int:
        """Return the topic's end, by the admin client: a consumer's request waits for a fetch."""
        wanted = {self._place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]

        def ask() -> int:
            try:
                asked = self._admin.list_offsets(wanted, request_timeout=ANSWER_S)
                return int(asked[self._place].result().offset)
            except KafkaException:
                # It goes on asking under the epoch of the leader before, once that is another.
                self._admin = self._asking()
                raise

        try:
            return _patiently(ask, _PASSING)
        except KafkaException as error:
            raise self._explained(error) from error

    def _asking(self) -> AdminClient:
        return AdminClient({**self._kafka.client_config(), "log_level": 0})

    def _placed(self, message: Message) -> Placed:
        kind, at_ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise ConfigurationError(
                f'topic "{self._topic}": message.timestamp.type is not LogAppendTime, so nobody '
                "knows when a lock ends",
                hint="set it on the topic, or remove the topic: it is made anew",
            )
        lock, claim = split_key(message.key() or b"")
        value = message.value()
        return Placed(
            offset=message.offset() or 0,
            at_ms=at_ms,
            lock=lock,
            id=claim,
            record=None if value is None else Record.from_bytes(value),
        )

    def _opened(self) -> Consumer:
        """Return a consumer at the start of the topic, which is made if need be."""
        consumer = consumer_of(self._kafka, committed=False, fetch_wait_max_ms=10)
        try:
            try:
                start = _patiently(lambda: self._start(consumer), _PASSING)
            except KafkaException as error:
                if not is_missing(error):
                    raise
                self._create()
                start = _patiently(lambda: self._start(consumer), _PASSING | {Meaning.MISSING})
        except KafkaException as error:
            consumer.close()
            raise self._explained(error) from error
        self._next = start
        # Not the beginning by name, which the client asks for half a second later.
        consumer.assign([TopicPartition(self._topic, 0, start)])
        return consumer

    def _start(self, consumer: Consumer) -> int:
        found = consumer.list_topics(self._topic, ANSWER_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        start, _ = consumer.get_watermark_offsets(self._place, ANSWER_S, cached=False)
        return int(start)

    def _create(self) -> None:
        settings = TopicSettings(min_compaction_lag_ms=_LAG_MS, delete_retention_ms=_RETENTION_MS)
        config = {
            **settings.to_config(),
            "segment.bytes": str(_SEGMENT_BYTES),
            "segment.ms": str(_LAG_MS),
            "min.cleanable.dirty.ratio": "0.01",
        }
        new = NewTopic(self._topic, num_partitions=1, replication_factor=-1, config=config)
        try:
            self._admin.create_topics([new], request_timeout=ANSWER_S)[self._topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = error
        else:
            self._written = max(self._written, (message.offset() or 0) + 1)

    def _explained(self, error: KafkaException) -> ChangelogError:
        found = log_error(error, f'the locks on topic "{self._topic}"', kafka=self._kafka)
        hint = f"{found.hint}; {_GOES_WITHOUT}"
        match found:
            case RefusedAccessError():
                return RefusedAccessError(*found.args, hint=hint)
            case UnavailableLogError():
                return UnavailableError(*found.args, hint=hint)
            case _:
                return ChangelogError(*found.args, hint=hint)

    def _away(self) -> UnavailableError:
        return UnavailableError(
            f'the topic of the locks, "{self._topic}", does not answer',
            hint=f"see how the brokers are; {_GOES_WITHOUT}",
        )


def _patiently(ask: Callable[[], T], passing: AbstractSet[Meaning]) -> T:
    """Ask the brokers, retrying while the error is one that passes.

    Raises:
        KafkaException: something else, or it did not pass.
    """
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if meaning(error.args[0]) not in passing or time.monotonic() > deadline:
                raise
            time.sleep(_NAP_S)
