"""The topic of the leases: records go out one flush at a time, and are read back up to its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    LogError,
    RefusedAccessError,
    UnavailableError,
    UnavailableLogError,
)
from changelog.contract.log.topic import TopicSettings
from changelog.kafka.clients import make_client, reading_consumer
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import log_error
from changelog.kafka.send import OutgoingRecord, send
from views.leases.record import LeaseRecord, Placed, split_key

log = logging.getLogger("changelog.views")

ANSWER_S = 10.0
"""Brokers that do not answer for so long count as away.

Shorter than others wait: a renewal has to end before the next one is due, a third of a lease later.
"""
_LAG_MS = 7_200_000
"""Many times the longest lease: what a cleaner may take is long decided."""
_RETENTION_MS = 86_400_000
_SEGMENT_BYTES = 1 << 20
_FETCH_MS = 500
_GOES_WITHOUT = '[rebuild] lock = "local" (--lock local) goes without, on one machine'


class LeaseTopic:
    """A connection to the topic; a context manager, for one thread at a time.

    `topic`: its name; it is made where it is not there.

    Raises:
        UnavailableError: the brokers do not answer.
        ChangelogError: they refuse.
    """

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._place = (topic, 0)
        config = kafka.client_config(
            enable_idempotence=True, linger_ms=0, message_timeout_ms=round(ANSWER_S * 1000)
        )
        self._producer = make_client(Producer, config)
        self._cluster = Cluster(kafka, answer_s=ANSWER_S)
        with self._explaining():
            self._next = self._start()
        # It stays as long as a lock is held, and fetches in the background: a record is answered at
        # once, but what waits for none should not ask a hundred times a second.
        self._consumer = reading_consumer(kafka, committed=False, fetch_wait_max_ms=_FETCH_MS)
        # Not the beginning by name, which the client asks for half a second later.
        self._consumer.assign([TopicPartition(topic, 0, self._next)])

    @staticmethod
    def is_there(kafka: KafkaConnection, topic: str) -> bool:
        """Tell whether the topic exists.

        Raises UnavailableError: the brokers do not answer; ChangelogError: they refuse.
        """
        return bool(Cluster(kafka).topics([topic]))

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._producer.flush(1)
        self._consumer.close()

    @property
    def seen(self) -> int:
        """Return the last offset that was read, -1 for none."""
        return self._next - 1

    def append(self, records: Mapping[bytes, LeaseRecord | None]) -> int:
        """Write records, in this order, and wait until the brokers have them.

        Returns:
            The offset behind the last of them.

        Raises UnavailableError: the brokers do not answer; ChangelogError: they refuse.
        """
        outgoing = [
            OutgoingRecord(key, None if record is None else record.to_bytes(), partition=0)
            for key, record in records.items()
        ]
        try:
            return send(self._producer, self._topic, outgoing, answer_s=ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                raise self._away() from error
            raise self._refused(error.args[0]) from error

    def read(self, end: int | None = None) -> Iterator[Placed]:
        """Yield the records since the last call.

        `end`: the offset up to which, that of the topic's end as it is now if None.

        Raises UnavailableError: the brokers do not answer; ChangelogError: they refuse, or a record
        is none of ours.
        """
        if end is None:
            with self._explaining():
                # Not by the consumer, whose requests wait for a fetch.
                end = self._cluster.ends([self._place])[self._place]
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
                raise self._refused(refused)
            else:
                deadline = time.monotonic() + ANSWER_S
                self._next = (message.offset() or 0) + 1
                yield self._placed(message)

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
            record=None if value is None else LeaseRecord.from_bytes(value),
        )

    def _start(self) -> int:
        """Return the first offset of the topic, which is made if need be."""
        if not self._cluster.topics([self._topic]):
            settings = TopicSettings(
                min_compaction_lag_ms=_LAG_MS, delete_retention_ms=_RETENTION_MS
            )
            config = {
                **settings.to_config(),
                "segment.bytes": str(_SEGMENT_BYTES),
                "segment.ms": str(_LAG_MS),
                "min.cleanable.dirty.ratio": "0.01",
            }
            new = NewTopic(self._topic, num_partitions=1, replication_factor=-1, config=config)
            self._cluster.create([new])
        return self._cluster.bounds([self._place])[self._place].start

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise errors of the log inside the block as errors about the locks."""
        try:
            yield
        except LogError as error:
            raise _of_locks(error) from error

    def _refused(self, error: KafkaError) -> ChangelogError:
        return _of_locks(log_error(error, f'the locks on topic "{self._topic}"', kafka=self._kafka))

    def _away(self) -> UnavailableError:
        return UnavailableError(
            f'the topic of the locks, "{self._topic}", does not answer',
            hint=f"see how the brokers are; {_GOES_WITHOUT}",
        )


def _of_locks(error: LogError) -> ChangelogError:
    """Return an error of the log as one about the locks, with a way to go without them."""
    match error:
        case RefusedAccessError():
            kind: type[ChangelogError] = RefusedAccessError
        case UnavailableLogError():
            kind = UnavailableError
        case _:
            kind = ChangelogError
    return kind(*error.args, hint=f"{error.hint}; {_GOES_WITHOUT}")
