"""librdkafka's consumer, whose records go into a batch without an object for each: `batch.c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from changelog.native.base.batches import BatchNews, Limits, Slice
from changelog.native.base.records import NO_MEMORY
from changelog.native.compiled.client import client_error, opened
from changelog.native.compiled.library import ffi, lib
from changelog.native.compiled.loads.batches import Batch


class BatchReader:
    """Reads slices of partitions into batches."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._raw = opened(lib.batch_reader_open, config)
        self._news, self._limits = ffi.new("batch_news *"), ffi.new("batch_limits *")
        self._slices: tuple[Slice, ...] = ()

    def assign(self, slices: Sequence[Slice]) -> None:
        """Begin to read slices.

        Raises:
            KafkaException: the client refuses.
        """
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
        """Return the slices being read, each with its next offset and its end."""
        raw = lib.batch_reader_slices(self._raw)
        return [
            part._replace(next=raw[n].next, end=None if raw[n].end < 0 else raw[n].end)
            for n, part in enumerate(self._slices)
        ]

    @property
    def is_done(self) -> bool:
        """Tell whether each slice is read to its end."""
        raw = lib.batch_reader_slices(self._raw)
        return not any(raw[n].is_open for n in range(len(self._slices)))

    def poll(self, into: Batch, until: Limits, *, timeout_ms: int) -> BatchNews:
        """Read until all slices are read, a limit is reached, something is told, or time is out.

        Raises:
            MemoryError: there is none left.
        """
        limits, news = self._limits, self._news
        limits.records, limits.bytes, limits.timeout_ms = until.records, until.bytes, timeout_ms
        limits.before_ms = -1 if until.before_ms is None else until.before_ms
        limits.with_headers = until.with_headers
        lib.batch_reader_poll(self._raw, into.raw, limits, news)
        if not news.has_memory:
            raise MemoryError(NO_MEMORY)
        topic, reason = (
            ffi.string(of).decode("utf-8", "replace") for of in (news.topic, news.said)
        )
        return BatchNews(news.added, news.open, news.error, topic, news.partition, reason)

    def close(self) -> None:
        """Disconnect, and free the memory."""
        lib.batch_reader_close(self._raw)
        self._raw = ffi.NULL
