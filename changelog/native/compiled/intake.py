"""librdkafka's consumer, whose records become columns without an object for each: `intake.c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from changelog.native.base.records_read import SCHEMA, IntakeNews, Outcome
from changelog.native.compiled.client import client_error, opened
from changelog.native.compiled.library import ffi, lib


class RecordColumns:
    """Records by column, in buckets by a hash of their key.

    Attributes:
        raw: the library's `columns`.
    """

    def __init__(self, *, prefix: bytes, buckets: int) -> None:
        """Begin without a record.

        Args:
            prefix: what every key begins with; of at most 8 bytes.
            buckets: how many there are.
        """
        raw = lib.columns_new(ffi.from_buffer(prefix), len(prefix), buckets)
        if raw == ffi.NULL:
            raise MemoryError
        self.raw: Any = ffi.gc(raw, lib.columns_free)

    @property
    def held_bytes(self) -> int:
        """Return the bytes held."""
        return int(lib.columns_held(self.raw))

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        """Add a record."""
        alive = [ffi.new("char[]", name.encode()) for name, _ in headers]
        raw_headers = ffi.new("header[]", len(headers))
        for to, name, (_, content) in zip(raw_headers, alive, headers, strict=True):
            to.name, to.bytes, to.size = name, _pointer(content), len(content or b"")
        sizes = len(key or b""), len(value or b"")
        if not lib.columns_add(
            self.raw, partition, offset, _pointer(key), sizes[0], _pointer(value), sizes[1],
            raw_headers, len(headers),
        ):  # fmt: skip
            raise MemoryError

    def take(self, bucket: int) -> pa.Table:
        """Return the records of a bucket, and empty it."""
        columns = ffi.gc(ffi.new("column_set *"), lib.column_set_free)
        lib.columns_take(self.raw, bucket, columns)
        rows = int(columns.rows)
        if not rows:
            return SCHEMA.empty_table()

        def buffer(name: str, size: int) -> pa.Buffer:
            if not size:
                return pa.py_buffer(b"")  # there may be no memory behind it
            return pa.foreign_buffer(
                int(ffi.cast("uintptr_t", getattr(columns, name))), size, columns
            )

        buffers = {
            "part": [None, buffer("partitions", 4 * rows)],
            "off": [None, buffer("offsets", 8 * rows)],
            "epoch": [None, buffer("epochs", 4 * rows)],
            "commit_lsn": [None, buffer("lsns", 8 * rows)],
            "sequence": [None, buffer("sequences", 8 * rows)],
            "key": [None, buffer("key_ends", 4 * rows + 4), buffer("keys", columns.key_bytes)],
            "value": [
                buffer("is_there", (rows + 7) // 8),
                buffer("value_ends", 4 * rows + 4),
                buffer("values", columns.value_bytes),
            ],
            "fault": [None, buffer("faults", rows)],
        }
        arrays = [pa.Array.from_buffers(field.type, rows, buffers[field.name]) for field in SCHEMA]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _pointer(raw: bytes | None) -> Any:  # noqa: ANN401 - of cffi's
    return ffi.NULL if raw is None else ffi.from_buffer("uint8_t[]", raw)


class Intake:
    """Reads slices of some partitions of a topic into columns."""

    def __init__(self, config: Mapping[str, Any], into: RecordColumns) -> None:
        """Connect in the background.

        Raises:
            KafkaException: librdkafka does not know a setting.
        """
        self._into = into
        self._raw = opened(lib.intake_open, config, into.raw)
        self._news = ffi.new("intake_news *")

    def assign(self, topic: str, slices: Mapping[int, tuple[int, int]]) -> None:
        """Begin to read a slice of each partition: from its first offset up to its end.

        Raises:
            KafkaException: the client refuses.
        """
        entries = [(part, first < end, first, end) for part, (first, end) in slices.items()]
        raw_slices = ffi.new("intake_slice[]", entries)
        code = lib.intake_assign(self._raw, topic.encode(), raw_slices, len(entries))
        if code:
            raise client_error(code)

    def poll(self, *, timeout_ms: int, most_bytes: int) -> IntakeNews:
        """Read until the slices are over, so much is held, something is wrong, or time is out.

        Raises:
            MemoryError: there is none left.
        """
        news = self._news
        lib.intake_poll(self._raw, timeout_ms, most_bytes, news)
        outcome = Outcome(news.outcome)
        if outcome is Outcome.NO_MEMORY:
            raise MemoryError
        reason = ffi.string(news.said).decode("utf-8", "replace")
        return IntakeNews(
            news.added, news.open, outcome, news.partition, news.offset, news.error, reason
        )

    def close(self) -> None:
        """Disconnect, and free the memory."""
        lib.intake_close(self._raw)
        self._raw = ffi.NULL
