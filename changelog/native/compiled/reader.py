"""librdkafka's consumer, whose records go into a fold without an object for each: `reader.c`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changelog.native.base.news import News
from changelog.native.compiled.client import client_error, opened
from changelog.native.compiled.fold import Fold
from changelog.native.compiled.library import ffi, lib


class RangeReader:
    """Reads ranges of partitions, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._raw = opened(lib.reader_open, config)
        self._news = ffi.new("reader_news *")

    def assign(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> None:
        """Begin at an offset, once the leader is known.

        Raises:
            KafkaException: the brokers do not answer in time, or refuse.
        """
        code = lib.reader_assign(
            self._raw, topic.encode(), partition, offset, int(timeout_s * 1000)
        )
        if code:
            raise client_error(code)

    def rest(self) -> None:
        """Read nothing more until the next range is assigned: else it fetches later records."""
        lib.reader_assign(self._raw, ffi.NULL, 0, 0, 0)

    def poll(self, into: Fold, end: int, *, timeout_ms: int) -> News:
        """Read until the range is over, the fold is full, something is told, or the time is out.

        Raises:
            StrangePlaceError, MemoryError: as `Fold.add`.
        """
        news = self._news
        lib.reader_poll(self._raw, into.raw, end, timeout_ms, news)
        into.check(news.outcome)
        return News(
            news.added,
            bool(news.is_over),
            news.ends_at if news.ends_at >= 0 else None,
            news.error,
            ffi.string(lib.reader_said(self._raw)).decode("utf-8", "replace"),
            bool(news.is_fatal),
        )

    def close(self) -> None:
        """Leave the block and release the memory."""
        lib.reader_close(self._raw)
