"""The producer: idempotent, acknowledged by all replicas, bounded in memory.

A record counts as on the log when `flush` has returned since. librdkafka reports failures only to
a callback; a bare `flush() == 0` or the success of a later record says nothing about an earlier
one. So the first failure of any record is kept, and every later call raises it: the caller starts
over from the last frontier.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import LogError, UnavailableLogError
from changelog.contract.headers import Headers

log = logging.getLogger("changelog.producer")

PARTITION_UA = -1
QUEUE_KBYTES = 64 * 1024
QUEUE_MESSAGES = 200_000
WAIT_S = 0.5
FULL_S = 0.005
CLOSE_S = 2.0


def _nothing() -> None:
    """Stand in for a caller that needs nothing while it waits."""


class LogProducer:
    """Writes records.

    Attributes:
        on_wait: called again and again while a call waits for the broker.
        records: how many were queued.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        options: Mapping[str, Any] | None = None,
        *,
        on_wait: Callable[[], None] = _nothing,
    ) -> None:
        """Connect in the background.

        Args:
            kafka: the brokers.
            options: further librdkafka settings; those that the log needs cannot be changed.
            on_wait: see the attribute.
        """
        self.on_wait = on_wait
        self.records = 0
        self._failure: KafkaError | None = None
        self._producer = Producer(
            {
                "compression.type": "lz4",
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                **kafka.client_config(),
                **(options or {}),
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
                "error_cb": self._said,
                "log_level": 0,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error
            log.error('topic "%s" does not take a record: %s', message.topic(), error.str())

    def _said(self, error: KafkaError) -> None:
        if error.fatal() and self._failure is None:
            self._failure = error
        log.debug("kafka: %s", error.str())

    def produce(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        headers: Headers,
        partition: int | None = None,
    ) -> None:
        """Queue one record; waits while the queue is full.

        Raises:
            LogError: an earlier record, or this one, is refused.
        """
        # librdkafka's own mark for "let the partitioner choose".
        place = PARTITION_UA if partition is None else partition
        while True:
            try:
                self._producer.produce(topic, value, key, place, headers=headers)
            except BufferError:
                # Not longer: only errors are reported, so no event ends the wait when there is room.
                self._producer.poll(FULL_S)
                self.on_wait()
                self._raise_failure()
            except KafkaException as error:
                self._failure = self._failure or error.args[0]
                self._raise_failure()
            else:
                self.records += 1
                return

    def poll(self) -> None:
        """Take what the broker has reported.

        Raises:
            LogError: a record was refused.
        """
        self._producer.poll(0)
        self._raise_failure()

    def flush(self, deadline_s: float | None = None) -> None:
        """Wait until the broker has acknowledged every record.

        Raises:
            LogError: a record was refused since the producer was made.
            UnavailableLogError: not done within `deadline_s`; without one, it waits for ever.
        """
        started = time.monotonic()
        while self._producer.flush(WAIT_S):
            self._raise_failure()
            self.on_wait()
            if deadline_s is not None and time.monotonic() - started > deadline_s:
                raise UnavailableLogError(
                    f"{len(self._producer)} records are not acknowledged after {deadline_s:.0f} s"
                )
        self._raise_failure()

    @property
    def queued(self) -> int:
        """Give how many records are not acknowledged yet."""
        return len(self._producer)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise LogError(
                f"the broker does not take a record: {self._failure.str()}",
                hint="nothing after the last frontier counts; correct the cause and start again",
            )

    def close(self) -> None:
        """Let go; what is not acknowledged is dropped, and comes again after a restart."""
        self._producer.purge()
        self._producer.flush(CLOSE_S)
