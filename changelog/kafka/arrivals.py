"""Wait for the next record of a topic, by a request that a broker holds open until there is one."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.clients import reading_consumer

_HELD_MS = 5_000
"""How long a broker may hold a request: what it costs at rest is one answer in this time."""
_CONNECTING_S = 1.0
"""The first wait of a client is at most this long: it misses what came while it connected."""
_LOOK_S = 0.2
"""Interval at which a stop is looked for."""


class Arrivals:
    """Records that come to the one partition of a topic; a hint, not a reading.

    A record may be missed, as one that is written while the client connects: whoever has to know
    asks the brokers at intervals too.
    """

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Connect at the first `wait`."""
        self._kafka, self._topic = kafka, topic
        self._consumer: Consumer | None = None

    def wait(self, until: float, stop: Callable[[], bool]) -> None:
        """Return once a record has come, a stop is requested, or a moment is reached.

        `until`: by the monotonic clock, in seconds.
        """
        if self._consumer is None:
            until = min(until, time.monotonic() + _CONNECTING_S)
        while not stop() and (left_s := until - time.monotonic()) > 0:
            try:
                if self._came(min(left_s, _LOOK_S)):
                    return
            except KafkaException:
                # The brokers' absence is told by whoever asks them; a new client tries again.
                self.close()
                time.sleep(min(left_s, _LOOK_S))

    def close(self) -> None:
        """Leave the brokers."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _came(self, seconds: float) -> bool:
        if self._consumer is None:
            self._consumer = reading_consumer(self._kafka, fetch_wait_max_ms=_HELD_MS)
            self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_END)])
        message = self._consumer.poll(seconds)
        if message is None or message.error() is not None:
            return False
        self._consumer.consume(1_000, 0)  # one is as good as all
        return True
