"""confluent-kafka's consumer, whose records go into a batch; the rule of `batch.c`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changelog.kafka.messages import MessageBatches
from changelog.native.base.batches import BatchNews, BatchRecord, Limits, Slice
from changelog.native.plain.loads.batches import Batch

_FETCHED = 512
_FETCH_S = 0.02
_Headers = Sequence[tuple[str, str | bytes | None]] | None


class BatchReader:
    """Reads slices of partitions into batches."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._consumer = Consumer(dict(config))
        self._messages = MessageBatches(self._consumer, _FETCHED, lingers=False)
        self._slices: dict[tuple[str, int], Slice] = {}
        self._open: set[tuple[str, int]] = set()

    def assign(self, slices: Sequence[Slice]) -> None:
        """Begin to read slices.

        Raises:
            KafkaException: the client refuses.
        """
        self._slices = {(part.topic, part.partition): part for part in slices}
        self._open = {
            at for at, part in self._slices.items() if part.end is None or part.next < part.end
        }
        self._consumer.assign([TopicPartition(*at, self._slices[at].next) for at in self._open])

    @property
    def slices(self) -> list[Slice]:
        """Return the slices being read, each with its next offset and its end."""
        return list(self._slices.values())

    @property
    def is_done(self) -> bool:
        """Tell whether each slice is read to its end."""
        return not self._open

    def poll(self, into: Batch, until: Limits, *, timeout_ms: int) -> BatchNews:
        """Read until all slices are read, a limit is reached, something is told, or time is out."""
        deadline, before = time.monotonic() + timeout_ms / 1000, len(into)
        news = BatchNews(0, 0)
        while (
            self._open
            and not news.error
            and len(into) < until.records
            and into.size_bytes < until.bytes
            and time.monotonic() < deadline
        ):
            reading = {*self._open}
            for message in self._messages.next(_FETCH_S, until.records - len(into)):
                error = message.error()
                if error is None:
                    self._take(message, into, until)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._reach(message)
                elif not news.error:
                    at = message.topic() or "", message.partition() or 0
                    news = BatchNews(0, 0, error.code(), *at, error.str() or "")
            closed = reading - self._open
            if closed and self._open:
                self._consumer.pause([TopicPartition(*at) for at in closed])
        return news._replace(added=len(into) - before, open=len(self._open))

    def _reach(self, message: Message) -> None:
        at = message.topic() or "", message.partition() or 0
        end = self._slices[at].end if at in self._slices else None
        if end is not None and (message.offset() or 0) >= end:
            self._open.discard(at)

    def _take(self, message: Message, into: Batch, until: Limits) -> None:
        at = message.topic() or "", message.partition() or 0
        offset, (_, timestamp) = message.offset() or 0, message.timestamp()
        if at not in self._open or offset < self._slices[at].next:
            return
        mine = self._slices[at]
        if mine.end is None and until.before_ms is not None and timestamp >= until.before_ms:
            mine = self._slices[at] = mine._replace(end=offset)
        if mine.end is not None and offset >= mine.end:
            self._open.discard(at)
            return
        raw_headers = cast(_Headers, message.headers() if until.with_headers else None) or ()
        headers = tuple((name, _bytes(content)) for name, content in raw_headers)
        key, value = _bytes(message.key()), _bytes(message.value())
        into.add(BatchRecord(*at, offset, timestamp, key, value, headers))
        self._slices[at] = mine._replace(next=offset + 1)
        if mine.end is not None and offset + 1 >= mine.end:
            self._open.discard(at)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw
