"""confluent-kafka's consumer, whose records go into a fold."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changelog.contract.base.headers import POSITION
from changelog.kafka.messages import MessageBatches
from changelog.native.base.folded import FoldRecord
from changelog.native.base.news import News
from changelog.native.plain.fold import Fold

_MOST_MESSAGES = 512
_BATCH_S = 0.02
_Headers = list[tuple[str, Any]] | None
_NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}


class RangeReader:
    """Reads ranges of partitions, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._consumer = Consumer({**config, "error_cb": self._hear})
        self._messages = MessageBatches(self._consumer, _MOST_MESSAGES, lingers=False)
        self._following = 0
        self._errors: list[KafkaError] = []
        self._is_fatal = False

    def _hear(self, error: KafkaError) -> None:
        self._is_fatal |= error.fatal()
        self._errors.append(error)

    def assign(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> None:
        """Begin at an offset, once the leader is known.

        Raises:
            KafkaException: the brokers do not answer in time, or refuse.
        """
        self._consumer.list_topics(topic, timeout=timeout_s)
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        self._following = offset

    def rest(self) -> None:
        """Stop fetching until the next range is assigned."""
        self._consumer.unassign()

    def poll(self, into: Fold, end: int, *, timeout_ms: int) -> News:
        """Read until the range is over, the fold is full, something is told, or the time is out.

        Raises:
            StrangePlaceError: as `Fold.add`.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        added, ends_at = 0, None
        self._errors.clear()
        while time.monotonic() < deadline:
            messages = self._messages.next(_BATCH_S, end - self._following)
            records = [_record(message) for message in messages if message.error() is None]
            into.add([record for record in records if record.offset < end])
            added += sum(record.offset < end for record in records)
            if records:
                self._following = records[-1].offset + 1
            for error, message in ((message.error(), message) for message in messages):
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ends_at = message.offset()
                elif error is not None:
                    self._hear(error)
            is_told = ends_at is not None or self._errors
            if is_told or self._following >= end or into.is_full:
                break
        news = News(added, self._following >= end, ends_at, is_fatal=self._is_fatal)
        if not self._errors:
            return news
        # The first, unless a later one says why no broker lets us in.
        refusals = (error for error in self._errors if error.code() in _NOT_LET_IN)
        error = next(refusals, self._errors[0])
        return news._replace(error=error.code(), message=error.str())

    def close(self) -> None:
        """Disconnect, and free the memory."""
        self._consumer.close()


def _record(message: Message) -> FoldRecord:
    offset = message.offset()
    assert offset is not None  # noqa: S101 - that of a record
    key, value = _bytes(message.key()), _bytes(message.value())
    return FoldRecord(key, value, position_of(cast(_Headers, message.headers())), offset)


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw


def position_of(headers: Iterable[tuple[str, Any]] | None) -> bytes | None:
    """Return the position: capture writes it first; where it does not, the last of the name."""
    pairs = list(headers or ())
    is_first = bool(pairs) and pairs[0][0] == POSITION
    return _bytes(pairs[0][1] if is_first else dict(pairs).get(POSITION))
