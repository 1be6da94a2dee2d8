"""The last record of each key of a range, in bounded memory: `fold.c`.

Records come in the order of their offsets. The highest position wins, of equal ones the highest
offset. Where the keys no longer fit into memory they go to a file in buckets, and each bucket is
folded by itself at the end.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from changelog.contract.base.position import POSITION_BYTES
from changelog.native.base.folded import FoldColumns, FoldRecord, Strange, StrangePlaceError
from changelog.native.base.records import Texts
from changelog.native.compiled.library import ffi, lib


class Fold:
    """Folds the records of one range.

    Attributes:
        raw: the library's `fold`.
    """

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
        """Begin without a record.

        Args:
            prefix: what every key begins with.
            since: records before this position are dead; empty when none are.
            before: the first position that does not count.
            keeps_faults: whether a record without a place is kept with its fault.
            most_bytes: of the memory for keys and their last records.
            partition: of the range.
            homes: the partitions of the topic, where each key has to lie in the one that its
                hash names; None where keys may lie in others too.
            by_offset: whether the last record of a key decides, whatever its position.
        """
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
        self.raw: Any = ffi.gc(fold, lib.fold_free)

    @property
    def records(self) -> int:
        """Return the number of records added."""
        return int(lib.fold_records(self.raw))

    @property
    def tombstones(self) -> int:
        """Return the number of tombstones among them."""
        return int(lib.fold_tombstones(self.raw))

    @property
    def keys_held(self) -> int:
        """Return the number of keys held in memory."""
        return int(lib.fold_keys(self.raw))

    @property
    def is_full(self) -> bool:
        """Tell whether more is held than should be."""
        return bool(lib.fold_is_full(self.raw))

    def add(self, records: Sequence[FoldRecord]) -> None:
        """Add records in the order of their offsets.

        Raises:
            StrangePlaceError: one has no place, and faults are not kept.
            MemoryError: the memory that was granted is not there.
        """
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
        self.check(lib.fold_add(self.raw, raw_records, len(records)))

    def check(self, outcome: int) -> None:
        """Raise the error of a result of the library."""
        if outcome == lib.FOLD_OK:
            return
        if outcome in _STRANGE:
            offset = int(lib.fold_strange_offset(self.raw))
            home = int(lib.fold_strange_place(self.raw))
            raise StrangePlaceError(offset, _STRANGE[outcome], home)
        if outcome == lib.FOLD_FILE:
            raise OSError(ffi.errno, f"{os.strerror(ffi.errno)}: in the task's file of buckets")
        raise MemoryError

    def spill(self, file: int) -> None:
        """Write the records held to a file that the caller keeps open, and forget them.

        Raises:
            OSError: the file cannot be written.
        """
        self.check(lib.fold_spill(self.raw, file))

    def drain(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        """Return the last record of each key in no order; nothing is added then.

        Those before `since` are left out, and tombstones there. What was spilled once has to be
        spilled whole before.

        Args:
            rows: at a time.
            most_bytes: at a time, of keys and values, unless one row has more.

        Raises:
            StrangePlaceError: a key does not belong to this partition.
            OSError: the file cannot be read.
            MemoryError: the memory that was granted is not there.
        """
        sizes = ffi.new("fold_sizes *")
        while (outcome := lib.fold_next_bucket(self.raw)) != lib.FOLD_OVER:
            self.check(outcome)
            while True:
                self.check(lib.fold_pick(self.raw, rows, most_bytes, sizes))
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
        """Free the memory."""
        ffi.release(self.raw)


def text_hashes(seed: int, of: Texts) -> bytes:
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
