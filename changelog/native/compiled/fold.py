"""The last record of each key of a range, in bounded memory: `fold.c`; and its reader: `reader.c`.

Records come in the order of their offsets. The highest position decides, of equal ones the highest
offset. Keys that no longer fit into memory are written to a file in buckets, and at the end each
bucket is folded alone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changelog.contract.base.position import POSITION_BYTES
from changelog.native.compiled.client import client_error, opened
from changelog.native.compiled.library import ffi, lib, text
from changelog.native.records import (
    FoldColumns,
    FoldRecord,
    News,
    Strange,
    StrangePlaceError,
    TextColumn,
)

if TYPE_CHECKING:
    from changelog.native import protocols


class Fold:
    """Folds the records of one range."""

    def __init__(
        self,
        *,
        prefix: bytes,
        since: bytes,
        before: bytes,
        keeps_faults: bool,
        most_bytes: int,
        partition: int,
        homes: int | None,
        by_offset: bool = False,
    ) -> None:
        buffers = [ffi.from_buffer(text) for text in (prefix, since, before)]
        pointers = [ffi.cast("uint8_t *", buffer) for buffer in buffers]
        options = ffi.new(
            "fold_rules *",
            {
                "prefix": pointers[0],
                "prefix_size": len(prefix),
                "since": pointers[1] if since else ffi.NULL,
                "before": pointers[2],
                "keeps_faults": keeps_faults,
                "by_offset": by_offset,
                "partition": partition,
                "homes": homes or 0,
                "most_bytes": most_bytes,
                "seed": secrets.randbits(64),
            },
        )
        fold = lib.fold_new(options)
        if fold == ffi.NULL:
            raise MemoryError
        self.raw: Any = ffi.gc(fold, lib.fold_free)  # the library's `fold`

    @property
    def records(self) -> int:
        return int(lib.fold_records(self.raw))

    @property
    def tombstones(self) -> int:
        return int(lib.fold_tombstones(self.raw))

    @property
    def keys_held(self) -> int:
        return int(lib.fold_keys(self.raw))

    @property
    def is_full(self) -> bool:
        return bool(lib.fold_is_full(self.raw))

    def add(self, records: Sequence[FoldRecord]) -> None:
        raw_records = ffi.new("fold_record[]", len(records))
        alive = []
        for to, record in zip(raw_records, records, strict=True):
            for name in ("key", "value", "position"):
                text = getattr(record, name)
                if text is not None:
                    alive.append(ffi.from_buffer(text))
                    setattr(to, name, ffi.cast("uint8_t *", alive[-1]))
                    setattr(to, f"{name}_size", len(text))
            to.offset = record.offset
        _raise_failure(self.raw, lib.fold_add(self.raw, raw_records, len(records)))

    def spill(self, file: int) -> None:
        _raise_failure(self.raw, lib.fold_spill(self.raw, file))

    def drain(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        sizes = ffi.new("fold_sizes *")
        while (outcome := lib.fold_next_bucket(self.raw)) != lib.FOLD_OVER:
            _raise_failure(self.raw, outcome)
            while True:
                _raise_failure(self.raw, lib.fold_pick(self.raw, rows, most_bytes, sizes))
                if not sizes.rows:
                    break
                yield self._columns(sizes)

    def _columns(self, sizes: Any) -> FoldColumns:  # noqa: ANN401 - a struct of cffi's
        count = int(sizes.rows)
        ends = 4 * (count + 1)
        bits = (count + 7) // 8
        buffers = {
            "keys": pa.allocate_buffer(sizes.key_bytes),
            "values": pa.allocate_buffer(sizes.value_bytes),
            "positions": pa.allocate_buffer(count * POSITION_BYTES),
            "key_ends": pa.allocate_buffer(ends),
            "value_ends": pa.allocate_buffer(ends),
            "position_ends": pa.allocate_buffer(ends),
            "key_is_there": pa.allocate_buffer(bits),
            "value_is_there": pa.allocate_buffer(bits),
            "offsets": pa.allocate_buffer(8 * count),
            "faults": pa.allocate_buffer(count),
        }
        columns = ffi.new("fold_columns *")
        for name, buffer in buffers.items():
            setattr(columns, name, ffi.cast(_POINTERS[name], buffer.address))
        lib.fold_fill(self.raw, columns)
        strings = {
            name: pa.Array.from_buffers(
                pa.binary(), count, [buffers.get(f"{name}_is_there"), buffers[f"{name}_ends"], data]
            )
            for name, data in (
                ("key", buffers["keys"]),
                ("value", buffers["values"]),
                ("position", buffers["positions"]),
            )
        }
        return FoldColumns(
            keys=strings["key"],
            positions=strings["position"],
            offsets=pa.Array.from_buffers(pa.int64(), count, [None, buffers["offsets"]]),
            values=strings["value"],
            faults=[_FAULTS[code] for code in bytes(buffers["faults"])] if sizes.faults else None,
        )

    def close(self) -> None:
        ffi.release(self.raw)


def _raise_failure(fold: Any, outcome: int) -> None:  # noqa: ANN401 - the library's `fold`
    """Raise the error of a result of the library."""
    if outcome == lib.FOLD_OK:
        return
    if outcome in _STRANGE:
        offset = int(lib.fold_strange_offset(fold))
        home = int(lib.fold_strange_place(fold))
        raise StrangePlaceError(offset, _STRANGE[outcome], home)
    if outcome == lib.FOLD_FILE:
        raise OSError(ffi.errno, f"{os.strerror(ffi.errno)}: in the task's file of buckets")
    raise MemoryError


class RangeReader:
    """Reads ranges of partitions, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._raw = opened(lib.reader_open, config)
        self._news = ffi.new("reader_news *")

    def assign(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> None:
        code = lib.reader_assign(
            self._raw, topic.encode(), partition, offset, int(timeout_s * 1000)
        )
        if code:
            raise client_error(code)

    def rest(self) -> None:
        lib.reader_assign(self._raw, ffi.NULL, 0, 0, 0)

    def poll(self, into: protocols.Fold, end: int, *, timeout_ms: int) -> News:
        news = self._news
        lib.reader_poll(self._raw, into.raw, end, timeout_ms, news)
        _raise_failure(into.raw, news.outcome)
        return News(
            news.added,
            bool(news.is_over),
            news.ends_at if news.ends_at >= 0 else None,
            news.error,
            text(lib.reader_said(self._raw)),
            bool(news.is_fatal),
        )

    def close(self) -> None:
        lib.reader_close(self._raw)


def text_hashes(seed: int, of: TextColumn) -> bytes:
    """Return a hash of 64 bits for each text, concatenated."""
    ends, content = of
    count = len(ends) - 1
    hashes = bytearray(8 * count)
    lib.fold_hashes(
        seed,
        ffi.from_buffer("int32_t[]", ends),
        ffi.from_buffer("uint8_t[]", content),
        count,
        ffi.from_buffer("uint64_t[]", hashes, require_writable=True),
    )
    return bytes(hashes)


_POINTERS = {name: field.type for name, field in ffi.typeof("fold_columns").fields}
_STRANGE = {
    lib.FOLD_STRANGE_KEY: Strange.KEY,
    lib.FOLD_STRANGE_POSITION: Strange.POSITION,
    lib.FOLD_STRAY: Strange.STRAY,
}
_FAULTS = {
    lib.FOLD_SOUND: None,
    lib.FOLD_NO_KEY: Strange.KEY,
    lib.FOLD_NO_POSITION: Strange.POSITION,
}
