"""The last record of each key of a topic, in batches, folded on demand."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.native.columns import NO_EPOCH
from changelog.runtime.process.scratch import ScratchFolder
from views.verify.processes.pool import in_threads
from views.verify.values.types import quoted

BATCH_ROWS = 20_000


class Survivors(Protocol):
    """Records by partition, offset and value, which can be read once."""

    def batches(self) -> Iterator[pa.Table]:
        """Return the records."""
        ...


@dataclass(frozen=True, slots=True)
class FoldedBuckets:
    """The survivors of records in buckets, folded by `threads` threads; None for one per core."""

    database: duckdb.DuckDBPyConnection
    buckets: Buckets
    rules: SurvivorRules
    threads: int | None = None

    def batches(self) -> Iterator[pa.Table]:
        """Fold one bucket after the other, dropping each afterwards."""
        with closing(self.buckets):
            for folded in in_threads(self._fold, range(len(self.buckets)), self.threads):
                for first in range(0, len(folded), BATCH_ROWS):
                    yield folded.slice(first, BATCH_ROWS)

    def _fold(self, bucket: int) -> pa.Table:
        with self.database.cursor() as cursor:
            folded = fold(cursor, self.buckets.tables(bucket), self.rules)
        self.buckets.forget(bucket)
        return folded


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """Survivors in a table of DuckDB."""

    database: duckdb.DuckDBPyConnection
    table: str

    def batches(self) -> Iterator[pa.Table]:
        """Yield the records; drops the table at the end."""
        with self.database.cursor() as cursor:
            query = f"SELECT part, off, value FROM {quoted(self.table)}"
            for batch in cursor.sql(query).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch])
        self.database.execute(f"DROP TABLE {quoted(self.table)}")


# An aggregate that skips nulls (`arg_max(value, position)`) would revive deleted rows, so the
# record is chosen by its number without looking at its value. DuckDB gets only keys and positions;
# the values, the wide part, are taken afterwards. Each bucket of keys is folded alone, a large one
# in pieces: the survivors of a piece are folded with the next.
_PIECE_BYTES = 96 << 20
_SURVIVOR = ["part", "off", "key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorRules:
    """The rules by which records count."""

    epoch: int  # the frontier's; `before` counts in it, records of older epochs all count
    since: Position | None = None  # records before this position do not count; None if all do
    before: Lsn | None = None  # only transactions whose commit LSN is before it; None for all
    tells_deleted: bool = False  # whether the tombstones of deleted keys are among the survivors


def fold(
    database: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table], rules: SurvivorRules
) -> pa.Table:
    """Return the last record of each key that is not a tombstone; with tombstones by the rules.

    A record without a position counts as the last of its key, since it cannot be ordered.

    `tables`: all records of some keys, as `changelog.native` returns them.
    """
    last = None
    for piece in _pieces(tables):
        records = piece if last is None else pa.concat_tables([last, piece])
        last = _last_of_each_key(database, records.combine_chunks(), rules)
    if last is None:
        return pa.table({name: [] for name in _SURVIVOR})
    if rules.tells_deleted:
        return last.select(_SURVIVOR)
    is_there = last["value"].is_valid().to_numpy() | (last["epoch"].to_numpy() == NO_EPOCH)
    return last.select(_SURVIVOR).filter(pa.array(is_there))


def _pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    piece: list[pa.Table] = []
    size = 0
    for table in tables:
        if piece and size + table.nbytes > _PIECE_BYTES:
            yield pa.concat_tables(piece)
            piece, size = [], 0
        piece.append(table)
        size += table.nbytes
    if piece:
        yield pa.concat_tables(piece)


def _last_of_each_key(
    database: duckdb.DuckDBPyConnection, records: pa.Table, rules: SurvivorRules
) -> pa.Table:
    """Return the last record of each key, tombstones too."""
    start = rules.since or Position(0, Lsn(0), 0)
    limit = None if rules.before is None else int(rules.before)
    narrow = records.drop_columns(["value", "fault", "part"])
    numbers = pa.array(np.arange(len(records)))
    database.register("records", narrow.append_column("number", numbers))
    last = database.execute(
        """
        SELECT arg_max(number, {e: epoch, l: commit_lsn, s: sequence, o: off}) AS number
        FROM records
        WHERE (epoch, commit_lsn, sequence) >= (?::UINTEGER, ?::UBIGINT, ?::UBIGINT)
          AND (epoch < ? OR ?::UBIGINT IS NULL OR commit_lsn < ?::UBIGINT)
        GROUP BY key
        """,
        [*map(int, start), rules.epoch, limit, limit],
    ).fetchnumpy()["number"]
    database.unregister("records")
    return records.take(pa.array(np.sort(last)))


KEPT_BYTES = 160 << 20
"""Records of all buckets in memory; the rest is written to files."""


# All records of a key are in one bucket, so that each bucket can be folded alone.
class Buckets:
    """Records in buckets of keys; several threads may add some."""

    def __init__(self, count: int, folder: Path | None, *, most_bytes: int = KEPT_BYTES) -> None:
        """Create empty buckets.

        `folder`: for files, None for the system's temporary folder. `most_bytes`: how much is kept
        in memory.
        """
        self._kept: list[list[pa.Table]] = [[] for _ in range(count)]
        self._locks = [threading.Lock() for _ in range(count)]
        self._most_bytes, self._kept_bytes, self._lock = most_bytes, 0, threading.Lock()
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._kept)

    def put(self, bucket: int, table: pa.Table) -> None:
        """Add records to a bucket."""
        size = table.nbytes
        with self._lock:
            fits = self._kept_bytes + size <= self._most_bytes
            self._kept_bytes += size if fits else 0
            if not fits and self._folder is None:
                self._folder = ScratchFolder("verify", self._parent)
        if fits:
            self._kept[bucket].append(table)
            return
        with (
            self._locks[bucket],
            pa.OSFile(str(self._path(bucket)), "ab") as file,
            pa.ipc.new_stream(file, table.schema) as stream,
        ):
            stream.write_table(table)

    def tables(self, bucket: int) -> Iterator[pa.Table]:
        """Yield the records of a bucket in several tables."""
        yield from self._kept[bucket]
        if self._folder is None or not self._path(bucket).exists():
            return
        with pa.OSFile(str(self._path(bucket))) as file:
            while file.tell() < file.size():
                with pa.ipc.open_stream(file) as stream:
                    yield stream.read_all()

    def forget(self, bucket: int) -> None:
        """Drop a bucket's records."""
        self._kept[bucket] = []
        if self._folder is not None:
            self._path(bucket).unlink(missing_ok=True)

    def close(self) -> None:
        """Drop all records and remove the folder."""
        self._kept = [[] for _ in self._kept]
        if self._folder is not None:
            self._folder.cleanup()

    def _path(self, bucket: int) -> Path:
        assert self._folder is not None  # noqa: S101 - made before the first file
        return Path(self._folder.name) / f"{bucket}.arrow"
