"""The last record of each key of a topic, in batches, folded on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa

from views.verify.processes.threads import in_threads
from views.verify.records.buckets import Buckets
from views.verify.records.fold import FoldRules, fold
from views.verify.values.types import quoted

BATCH_ROWS = 20_000


class Survivors(Protocol):
    """Records by partition, offset and value; their batches can be asked for once."""

    def batches(self) -> Iterator[pa.Table]:
        """Return the records."""
        ...


@dataclass(frozen=True, slots=True)
class FoldedBuckets:
    """The survivors of records in buckets, folded by some threads; None for one a core."""

    database: duckdb.DuckDBPyConnection
    buckets: Buckets
    rules: FoldRules
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
        """Return the records, and remove the table at last."""
        with self.database.cursor() as cursor:
            query = f"SELECT part, off, value FROM {quoted(self.table)}"
            for batch in cursor.sql(query).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch])
        self.database.execute(f"DROP TABLE {quoted(self.table)}")
