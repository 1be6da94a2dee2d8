"""The last record of each key of a range, in bounded memory. Needs neither Spark nor Kafka.

The rules are those of `replay.scan.fold`: the highest position wins, of equal ones the highest
offset, and nobody looks yet whether it is a tombstone. Records come in the order of their offsets,
as they stand in a partition. Where their keys no longer fit into memory they go to a file in
buckets, and each bucket is folded by itself at the end. What is done for each record is `fold.c`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import pyarrow as pa

from changelog.contract.base.position import POSITION_BYTES, Position
from changelog.native.library import ffi, lib
from replay.base.record_place import NO_POSITION, TopicRange, key_prefix, no_key


class StrangeRecordError(Exception):
    """A record that has no place: its offset, and why."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset, self.why = offset, why


class Columns(NamedTuple):
    """Last records of some keys, by column.

    Attributes:
        keys: null for a record that has none.
        positions: in bytes.
        offsets: in their partition.
        values: null for a tombstone.
        faults: what is wrong with each, null where nothing is.
    """

    keys: pa.BinaryArray
    positions: pa.BinaryArray
    offsets: pa.Int64Array
    values: pa.BinaryArray
    faults: pa.StringArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRules:
    """Which records count, and how many are held.

    Attributes:
        prefix: what every key begins with.
        no_key: what is wrong with one that does not.
        since: records before this position are dead; empty when none are.
        before: the first position that does not count.
        keeps_faults: whether a record without a place is kept with its fault.
        most_bytes: of the memory for the keys of one range and their last records.
    """

    prefix: bytes
    no_key: str
    since: bytes
    before: bytes
    keeps_faults: bool
    most_bytes: int

    @classmethod
    def of(
        cls, wanted: TopicRange, *, since: Position | None, before: Position, most_bytes: int
    ) -> FoldRules:
        """Return the rules for a range of a topic."""
        return cls(
            prefix=key_prefix(wanted.key_schema_id),
            no_key=no_key(wanted.key_schema_id),
            since=b"" if since is None else since.to_bytes(),
            before=before.to_bytes(),
            keeps_faults=wanted.keeps_faults,
            most_bytes=most_bytes,
        )


class LastRecords:
    """Folds the records of one range.

    Attributes:
        handle: what the compiled functions call this; a reader adds records to it.
    """

    def __init__(self, rules: FoldRules, *, partition: int = 0, homes: int | None = None) -> None:
        """Begin without a record.

        Args:
            rules: see there.
            partition: of the range.
            homes: the partitions of the topic, where each key has to lie in the one that its
                hash names; None where keys may lie in others too.
        """
        self._rules = rules
        self._file: IO[bytes] | None = None
        prefix, before = ffi.from_buffer(rules.prefix), ffi.from_buffer(rules.before)
        since = ffi.from_buffer(rules.since) if rules.since else ffi.NULL
        wanted = ffi.new(
            "fold_rules *",
            {
                "prefix": ffi.cast("uint8_t *", prefix),
                "prefix_size": len(rules.prefix),
                "since": ffi.cast("uint8_t *", since),
                "before": ffi.cast("uint8_t *", before),
                "keeps_faults": rules.keeps_faults,
                "partition": partition,
                "homes": homes or 0,
                "most_bytes": rules.most_bytes,
                "seed": secrets.randbits(64),
            },
        )
        made = lib.fold_new(wanted)
        if made == ffi.NULL:
            raise MemoryError
        self.handle = ffi.gc(made, lib.fold_free)

    @property
    def records(self) -> int:
        """Return how many were added."""
        return int(lib.fold_records(self.handle))

    @property
    def tombstones(self) -> int:
        """Return how many of them had no value."""
        return int(lib.fold_tombstones(self.handle))

    @property
    def keys_held(self) -> int:
        """Return how many keys are held in memory."""
        return int(lib.fold_keys(self.handle))

    def settle(self, outcome: int) -> None:
        """See what a call that added records came to, and make room for more.

        Raises:
            StrangeRecordError: one has no place, and faults are not kept.
            OSError: the file cannot be written.
            MemoryError: the memory that was granted is not there.
        """
        self._check(outcome)
        if lib.fold_is_full(self.handle):
            self._spill()

    def _check(self, outcome: int) -> None:
        if outcome != lib.FOLD_OK:
            self._raise(outcome)

    def _raise(self, outcome: int) -> NoReturn:
        offset = int(lib.fold_strange_offset(self.handle))
        if outcome == lib.FOLD_STRANGE_KEY:
            raise StrangeRecordError(offset, self._rules.no_key)
        if outcome == lib.FOLD_STRANGE_POSITION:
            raise StrangeRecordError(offset, NO_POSITION)
        if outcome == lib.FOLD_STRAY:
            place = int(lib.fold_strange_place(self.handle))
            why = f"its key belongs to partition {place}, so it may be there too"
            raise StrangeRecordError(offset, why)
        if outcome == lib.FOLD_FILE:
            raise OSError(ffi.errno, f"{os.strerror(ffi.errno)}: in the task's file of buckets")
        raise MemoryError

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115 - see `close`
        self._check(lib.fold_spill(self.handle, self._file.fileno()))

    def drain(self, rows: int, most_bytes: int) -> Iterator[Columns]:
        """Return the last record of each key in no order; nothing is added then.

        Those before `since` are left out.

        Args:
            rows: at a time.
            most_bytes: at a time, of keys and values, unless one row has more.

        Raises:
            StrangeRecordError: a key does not belong to this partition.
            OSError: the file cannot be read.
            MemoryError: the memory that was granted is not there.
        """
        if self._file is not None:
            self._spill()
        sizes = ffi.new("fold_sizes *")
        while (outcome := lib.fold_next_bucket(self.handle)) != lib.FOLD_OVER:
            self._check(outcome)
            while True:
                self._check(lib.fold_pick(self.handle, rows, most_bytes, sizes))
                if not sizes.rows:
                    break
                yield self._columns(sizes)

    def _columns(self, sizes: Any) -> Columns:  # noqa: ANN401 - a struct of cffi's
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
        lib.fold_fill(self.handle, columns)
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
        faults = pa.nulls(count, pa.string())
        if sizes.faults:
            says = {lib.FOLD_NO_POSITION: NO_POSITION, lib.FOLD_NO_KEY: self._rules.no_key}
            faults = pa.array([says.get(each) for each in bytes(buffers["faults"])], pa.string())
        return Columns(
            keys=strings["key"],
            positions=strings["position"],
            offsets=pa.Array.from_buffers(pa.int64(), count, [None, buffers["offsets"]]),
            values=strings["value"],
            faults=faults,
        )

    def close(self) -> None:
        """Let go of the memory, and of the file if there is one."""
        ffi.release(self.handle)
        if self._file is not None:
            self._file.close()


_POINTERS = {name: field.type for name, field in ffi.typeof("fold_columns").fields}


def _folder() -> str | None:
    """Return the first of the folders that Spark gives its tasks, None for the system's own."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
