"""The last record of each key of a range, in bounded memory. Needs neither Spark nor Kafka.

The rules are those of `replay.scan.fold`: the highest position wins, of equal positions the highest
offset, and a tombstone is a record like any other. Records arrive in the order of their offsets.
When the keys no longer fit into memory, the records are written to a file in buckets, and each
bucket is folded separately at the end. `changelog.native.Fold` does the work for each record.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa

from changelog.contract.base.position import POSITION_BYTES, Position
from changelog.contract.rows.codec import key_prefix
from changelog.native import Fold
from changelog.native.records import FoldColumns, Strange, StrangePlaceError
from replay.base.record_place import NO_POSITION, TopicRange, no_key


class StrangeRecordError(Exception):
    """A record without a position, or of a key that does not belong to its partition."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset, self.why = offset, why


class RecordBatch(NamedTuple):
    """Last records of some keys, by column."""

    keys: pa.BinaryArray  # null for a record without a key
    positions: pa.BinaryArray  # in bytes
    offsets: pa.Int64Array  # in their partition
    values: pa.BinaryArray  # null for a tombstone
    faults: pa.StringArray  # the fault of a record, or null


NEVER = b"\xff" * POSITION_BYTES
"""A position after all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRules:
    """The rules by which records count, and the number of keys held."""

    prefix: bytes  # the first bytes of every key
    no_key: str  # the error text for a key with another prefix
    since: bytes  # records before this position are dead; empty if there are none
    before: bytes  # the first position that does not count
    keeps_faults: bool  # whether a record without a position is kept with its fault
    most_bytes: int  # memory for the keys of one range and their last records
    by_offset: bool = False  # whether the highest offset of a key decides, not the position

    @classmethod
    def of(
        cls, topic_range: TopicRange, *, since: Position | None, before: Position, most_bytes: int
    ) -> FoldRules:
        """Return the rules for a range of a topic."""
        return cls(
            prefix=key_prefix(topic_range.key_schema_id),
            no_key=no_key(topic_range.key_schema_id),
            since=b"" if since is None else since.to_bytes(),
            before=before.to_bytes(),
            keeps_faults=topic_range.keeps_faults,
            most_bytes=most_bytes,
        )

    @classmethod
    def by_last(cls, *, most_bytes: int) -> FoldRules:
        """Return the rules for a topic of any program: the last record of a key decides."""
        return cls(
            prefix=b"",
            no_key="",
            since=b"",
            before=NEVER,
            keeps_faults=True,
            most_bytes=most_bytes,
            by_offset=True,
        )


class LastRecords:
    """Folds the records of one range."""

    def __init__(self, rules: FoldRules, *, partition: int = 0, homes: int | None = None) -> None:
        """Start without a record.

        `homes`: the number of partitions, if every key must be in the partition that its hash
        names; None if keys may be in other partitions too.
        """
        self._rules = rules
        self._file: IO[bytes] | None = None
        self._fold = Fold(
            prefix=rules.prefix,
            since=rules.since,
            before=rules.before,
            keeps_faults=rules.keeps_faults,
            most_bytes=rules.most_bytes,
            partition=partition,
            homes=homes,
            by_offset=rules.by_offset,
        )

    @property
    def records(self) -> int:
        """Return the number of records added."""
        return self._fold.records

    @property
    def tombstones(self) -> int:
        """Return the number of tombstones among them."""
        return self._fold.tombstones

    @property
    def keys_held(self) -> int:
        """Return the number of keys held in memory."""
        return self._fold.keys_held

    @contextmanager
    def adding(self) -> Iterator[Fold]:
        """Yield the fold for adding records; make room for more afterwards.

        Raises:
            StrangeRecordError: one has no place, and faults are not kept.
            OSError: the file cannot be written.
            MemoryError: the memory that was granted is not there.
        """
        try:
            yield self._fold
        except StrangePlaceError as error:
            raise self._strange(error) from None
        if self._fold.is_full:
            self._spill()

    def _strange(self, error: StrangePlaceError) -> StrangeRecordError:
        why = self._fault_text(error.what)
        if error.what is Strange.STRAY:
            why = f"its key belongs to partition {error.home}, so it may be there too"
        return StrangeRecordError(error.offset, why)

    def _fault_text(self, fault: Strange) -> str:
        return self._rules.no_key if fault is Strange.KEY else NO_POSITION

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115 - see `close`
        self._fold.spill(self._file.fileno())

    def drain(self, rows: int, most_bytes: int) -> Iterator[RecordBatch]:
        """Yield the last record of each key in no order; no record may be added afterwards.

        Records before `since` are left out. A fresh copy deletes the keys that it does not have by
        tombstones in the partition of the old record, which may be another one than the key's, if
        the topic has got more partitions since: so tombstones at `since` are left out too.

        `most_bytes`: of keys and values in each batch, unless one row has more.

        Raises:
            StrangeRecordError: a key does not belong to this partition.
            OSError: the file cannot be read.
            MemoryError: the memory that was granted is not there.
        """
        if self._file is not None:
            self._spill()
        try:
            yield from map(self._columns, self._fold.drain(rows, most_bytes))
        except StrangePlaceError as error:
            raise self._strange(error) from None

    def _columns(self, folded: FoldColumns) -> RecordBatch:
        faults = pa.nulls(len(folded.keys), pa.string())
        if folded.faults is not None:
            texts = [fault and self._fault_text(fault) for fault in folded.faults]
            faults = pa.array(texts, pa.string())
        return RecordBatch(folded.keys, folded.positions, folded.offsets, folded.values, faults)

    def close(self) -> None:
        """Release the memory, and the file if there is one."""
        self._fold.close()
        if self._file is not None:
            self._file.close()


def _folder() -> str | None:
    """Return the first folder that Spark gives its tasks, or None for the system's own."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
