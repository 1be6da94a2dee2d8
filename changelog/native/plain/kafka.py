"""Producer and reader by confluent-kafka, in place of the ones in C."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from changelog.contract.base.headers import Headers, Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.kafka.messages import MessageBatches
from changelog.native.loads import (
    BatchLimits,
    BatchNews,
    BatchRecord,
    Slice,
)
from changelog.native.records import (
    PARTITION_UA,
    TextColumn,
)

if TYPE_CHECKING:
    from changelog.native import protocols

_MOST_MESSAGES, _BATCH_S = 512, 0.02
_Headers = Sequence[tuple[str, str | bytes | None]] | None


class _ReportedErrors:
    """Errors that librdkafka reports, in an object that has no reference to the producer.

    If the client's callbacks referred to its handle, its threads and sockets would stay until
    Python collects cycles, which a process that handles rows does rarely.
    """

    def __init__(self) -> None:
        self.failure: tuple[KafkaError, str] | None = None
        self.told: KafkaError | None = None

    def deliver(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.failure is None:
            self.failure = error, message.topic() or ""

    def hear(self, error: KafkaError) -> None:
        self.told = error
        if error.fatal() and self.failure is None:
            self.failure = error, ""


class ProducerHandle:
    """A producer; one thread uses it at a time.

    It is destroyed with the object; records that are still queued are dropped.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._heard = _ReportedErrors()
        own = {"error_cb": self._heard.hear, "on_delivery": self._heard.deliver}
        self._producer = Producer({**config, **own})
        self.sent_records = 0
        self.sent_bytes = 0

    def failure(self) -> tuple[KafkaError, str] | None:
        return self._heard.failure

    def told(self) -> KafkaError | None:
        error, self._heard.told = self._heard.told, None
        return error

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = PARTITION_UA,
    ) -> int:
        try:
            self._producer.produce(topic, value, key, partition, headers=list(headers))
        except BufferError:
            return int(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def send_records(
        self,
        topic: str,
        records: protocols.Records,
        first: int,
        end: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        for place in range(first, end):
            if records.is_left_out(place):
                continue
            record = records[place]
            position = Position(records.epoch, Lsn(record.lsn), record.sequence)
            headers = encode_headers(position, Op(record.op), record.ts_us)
            if code := self.send(topic, record.key, record.value, headers, partition):
                return place, code
            self.sent_records += 1
            self.sent_bytes += len(record.key or b"") + len(record.value or b"")
        return end, 0

    def send_columns(
        self,
        topic: str,
        keys: TextColumn | None,
        values: TextColumn,
        first: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        for place in range(first, len(values[0]) - 1):
            key = None if keys is None else _bytes_at(keys, place)
            if code := self.send(topic, key, _bytes_at(values, place), [], partition):
                return place, code
        return len(values[0]) - 1, 0

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        return int(KafkaError._TIMED_OUT) if self._producer.flush(timeout_s) else 0

    def purge(self) -> None:
        self._producer.purge()

    def __len__(self) -> int:
        return len(self._producer)

    def init_transactions(self, timeout_s: float) -> KafkaError | None:
        return _error_of(lambda: self._producer.init_transactions(timeout_s))

    def begin_transaction(self) -> KafkaError | None:
        return _error_of(self._producer.begin_transaction)

    def commit_transaction(self, timeout_s: float) -> KafkaError | None:
        return _error_of(lambda: self._producer.commit_transaction(timeout_s))

    def abort_transaction(self, timeout_s: float) -> KafkaError | None:
        return _error_of(lambda: self._producer.abort_transaction(timeout_s))


def _bytes_at(column: TextColumn, place: int) -> bytes:
    ends, content = column
    return bytes(content[ends[place] : ends[place + 1]])


def _error_of(call: Callable[[], Any]) -> KafkaError | None:
    try:
        call()
    except KafkaException as error:
        refusal: KafkaError = error.args[0]
        return refusal
    return None


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw


class BatchReader:
    """Reads slices of partitions into batches."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(config))
        self._messages = MessageBatches(self._consumer, _MOST_MESSAGES, lingers=False)
        self._slices: dict[tuple[str, int], Slice] = {}
        self._open: set[tuple[str, int]] = set()

    def assign(self, slices: Sequence[Slice]) -> None:
        self._slices = {(part.topic, part.partition): part for part in slices}
        self._open = {
            at for at, part in self._slices.items() if part.end is None or part.next < part.end
        }
        self._consumer.assign([TopicPartition(*at, self._slices[at].next) for at in self._open])

    @property
    def slices(self) -> list[Slice]:
        return list(self._slices.values())

    @property
    def is_done(self) -> bool:
        return not self._open

    def poll(self, into: protocols.Batch, until: BatchLimits, *, timeout_ms: int) -> BatchNews:
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
            for message in self._messages.next(_BATCH_S, until.records - len(into)):
                error = message.error()
                if error is None:
                    self._add(message, into, until)
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

    def _add(self, message: Message, into: protocols.Batch, until: BatchLimits) -> None:
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
        self._consumer.close()
