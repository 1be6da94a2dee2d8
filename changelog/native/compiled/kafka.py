"""Producer and reader without an object for each record, by librdkafka's public interface.

confluent_kafka's producer takes one record a call and does not give access to its handle, so this
one is created separately, by the same copy of librdkafka. Errors are confluent_kafka's. The reader
writes records into a batch: `batch.c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from changelog.contract.base.headers import Headers
from changelog.native.compiled.client import REASON_BYTES, Settings, client_error, load, opened
from changelog.native.compiled.library import ffi, lib, text
from changelog.native.loads import (
    BatchLimits,
    BatchNews,
    Slice,
)
from changelog.native.records import (
    NO_MEMORY,
    PARTITION_UA,
    TextColumn,
)

if TYPE_CHECKING:
    from changelog.native import protocols


class ProducerHandle:
    """A producer of librdkafka; one thread uses it at a time.

    It is destroyed with the object; records that are still queued are dropped.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        load()
        settings = Settings(config)
        reason = ffi.new("char[]", REASON_BYTES)
        raw = lib.producer_new(
            settings.names, settings.values, settings.count, reason, REASON_BYTES
        )
        if not raw:
            raise ValueError(text(reason))
        self._raw = ffi.gc(raw, lib.producer_free)
        self._reported = 0
        self._code = ffi.new("int32_t *")
        self._tally = ffi.new("int64_t[2]")

    @property
    def sent_records(self) -> int:
        return int(self._tally[0])

    @property
    def sent_bytes(self) -> int:
        return int(self._tally[1])

    def failure(self) -> tuple[KafkaError, str] | None:
        failure = lib.producer_failure(self._raw)
        return (_error(failure), text(failure.topic)) if failure.code else None

    def told(self) -> KafkaError | None:
        count = lib.producer_tellings(self._raw)
        if count == self._reported:
            return None
        self._reported = count
        return _error(lib.producer_told(self._raw))

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = PARTITION_UA,
    ) -> int:
        names = [ffi.new("char[]", name.encode()) for name, _ in headers]
        raw = [content.encode() if isinstance(content, str) else content for _, content in headers]
        contents = [
            ffi.NULL if content is None else ffi.from_buffer("uint8_t[]", content)
            for content in raw
        ]
        sizes = [len(content or b"") for content in raw]
        return int(
            lib.producer_send(
                self._raw,
                topic.encode(),
                ffi.NULL if key is None else key,
                len(key or b""),
                ffi.NULL if value is None else value,
                len(value or b""),
                partition,
                names,
                contents,
                sizes,
                len(names),
            )
        )

    def send_records(
        self,
        topic: str,
        records: protocols.Records,
        first: int,
        end: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        behind = lib.producer_send_records(
            self._raw, topic.encode(), records.raw, first, end, partition, self._code, self._tally
        )
        return int(behind), int(self._code[0])

    def send_columns(
        self,
        topic: str,
        keys: TextColumn | None,
        values: TextColumn,
        first: int,
        partition: int = PARTITION_UA,
    ) -> tuple[int, int]:
        columns = [
            part
            for column in (keys, values)
            for part in (
                (ffi.NULL, ffi.NULL)
                if column is None
                else (
                    ffi.from_buffer("int32_t[]", column[0]),
                    ffi.from_buffer("uint8_t[]", column[1]),
                )
            )
        ]
        behind = lib.producer_send_columns(
            self._raw, topic.encode(), *columns, first, len(values[0]) - 1, partition, self._code
        )
        return int(behind), int(self._code[0])

    def poll(self, timeout_s: float) -> None:
        lib.producer_poll(self._raw, int(timeout_s * 1000))

    def flush(self, timeout_s: float) -> int:
        return int(lib.producer_flush(self._raw, int(timeout_s * 1000)))

    def purge(self) -> None:
        lib.producer_purge(self._raw)

    def __len__(self) -> int:
        return int(lib.producer_queued(self._raw))

    def init_transactions(self, timeout_s: float) -> KafkaError | None:
        return self._transact(lib.TRANSACTIONS_INIT, timeout_s)

    def begin_transaction(self) -> KafkaError | None:
        return self._transact(lib.TRANSACTION_BEGIN, 0)

    def commit_transaction(self, timeout_s: float) -> KafkaError | None:
        return self._transact(lib.TRANSACTION_COMMIT, timeout_s)

    def abort_transaction(self, timeout_s: float) -> KafkaError | None:
        return self._transact(lib.TRANSACTION_ABORT, timeout_s)

    def _transact(self, step: int, timeout_s: float) -> KafkaError | None:
        failure = ffi.new("failure *")
        lib.producer_transact(self._raw, step, int(timeout_s * 1000), failure)
        return _error(failure) if failure.code else None


def _error(failure: Any) -> KafkaError:  # noqa: ANN401 - the library's `failure`
    return KafkaError(
        failure.code,
        text(failure.said) or None,
        bool(failure.is_fatal),
        bool(failure.is_retriable),
        bool(failure.requires_abort),
    )


class BatchReader:
    """Reads slices of partitions into batches."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._raw = opened(lib.batch_reader_open, config)
        self._news, self._limits = ffi.new("batch_news *"), ffi.new("batch_limits *")
        self._slices: tuple[Slice, ...] = ()

    def assign(self, slices: Sequence[Slice]) -> None:
        topics = [ffi.new("char[]", part.topic.encode()) for part in slices]
        entries = [
            (topic, part.partition, 1, part.next, -1 if part.end is None else part.end)
            for topic, part in zip(topics, slices, strict=True)
        ]
        raw_slices = ffi.new("batch_slice[]", entries)
        code = lib.batch_reader_assign(self._raw, raw_slices, len(entries))
        if code:
            raise client_error(code)
        self._slices = tuple(slices)

    @property
    def slices(self) -> list[Slice]:
        raw = lib.batch_reader_slices(self._raw)
        return [
            part._replace(next=raw[n].next, end=None if raw[n].end < 0 else raw[n].end)
            for n, part in enumerate(self._slices)
        ]

    @property
    def is_done(self) -> bool:
        raw = lib.batch_reader_slices(self._raw)
        return not any(raw[n].is_open for n in range(len(self._slices)))

    def poll(self, into: protocols.Batch, until: BatchLimits, *, timeout_ms: int) -> BatchNews:
        limits, news = self._limits, self._news
        limits.records, limits.bytes, limits.timeout_ms = until.records, until.bytes, timeout_ms
        limits.before_ms = -1 if until.before_ms is None else until.before_ms
        limits.with_headers = until.with_headers
        lib.batch_reader_poll(self._raw, into.raw, limits, news)
        if not news.has_memory:
            raise MemoryError(NO_MEMORY)
        topic, reason = text(news.topic), text(news.said)
        return BatchNews(news.added, news.open, news.error, topic, news.partition, reason)

    def close(self) -> None:
        lib.batch_reader_close(self._raw)
        self._raw = ffi.NULL
