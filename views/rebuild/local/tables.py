"""The tables of one follower, brought forward round by round from the stored states."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql.utils import is_remote

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.store.stored import StoredRecords
from views.rebuild.local.join_values import UnknownValueError
from views.rebuild.local.table import LocalTable, Record, Touched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("changelog.views")

MOST_RECORDS = 5_000_000
"""Of one table: more are left to Spark, as they would take minutes to be brought here."""
_RECORD = ("key", "value", "partition", "offset")
_TYPES = (pa.binary(), pa.binary(), pa.int32(), pa.int64())
_QUICK = {
    # A plan over some thousand rows runs for less time than its code takes to be compiled.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
_OURS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.avro.datetimeRebaseModeInRead",
)


class LocalTables:
    """Keeps tables between the rounds of a follower; a context manager."""

    def __init__(self) -> None:
        self._tables: dict[TableName, LocalTable] = {}
        self._touched: dict[TableName, Touched] = {}
        self._folder = TemporaryDirectory(prefix="changelog-follow-", ignore_cleanup_errors=True)
        self._files = 0
        self._session: SparkSession | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget all tables."""
        for table in list(self._tables):
            self._forget(table)
        self._folder.cleanup()

    def session(self, spark: SparkSession) -> SparkSession:
        """Return a session on the same context whose plans are for few rows.

        Raises:
            UnknownValueError: a server plans for us.
        """
        if is_remote():
            raise UnknownValueError("a Spark Connect server plans for all sizes alike")
        if self._session is None:
            self._session = spark.newSession()
            for name in _OURS:
                self._session.conf.set(name, str(spark.conf.get(name)))
            for name, value in _QUICK.items():
                self._session.conf.set(name, value)
        return self._session

    def brought(
        self,
        table: TableName,
        records: StoredRecords,
        columns: Sequence[str],
        between: tuple[Position, Position],
    ) -> tuple[LocalTable, Touched]:
        """Return a table at a frontier, and what changed of it since the round before.

        Args:
            table: its name.
            records: its stored state there.
            columns: by which rows are to be found.
            between: the positions of what serves and of the frontier.

        Raises:
            UnknownValueError: it cannot be here.
        """
        position = between[1]
        held = self._tables.get(table)
        if held is not None and (
            held.schemas != records.schemas or not set(columns) <= set(held.columns)
        ):
            columns = list(dict.fromkeys([*columns, *held.columns]))
            self._forget(table)
            held = None
        if held is None:
            held = self._filled(table, records, columns, between[0])
        if held.until != position or table not in self._touched:
            try:
                self._touched[table] = self._advanced(held, records, position)
            except BaseException:
                self._forget(table)
                raise
        return held, self._touched[table]

    def _filled(
        self, table: TableName, records: StoredRecords, columns: Sequence[str], position: Position
    ) -> LocalTable:
        """Bring a table here as it was when what serves was made."""
        if not (records.knows_changes_since(position) and records.knows_rows_at(position)):
            raise UnknownValueError(f"what {table} held before is not stored any more")
        rows = sum(layer.rows for layer in records.checkpoint.layers)
        if rows > MOST_RECORDS:
            raise UnknownValueError(f"{table} has {rows:,} records")
        self._files += 1
        made = LocalTable(self._folder.name, f"table{self._files}", records.schemas, columns)
        with translated():
            found = records.survivors_at(position).select(*_RECORD).toLocalIterator()
            made.fill(((bytes(k), bytes(v), p, o) for k, v, p, o in found), position)
        self._tables[table] = made
        return made

    @staticmethod
    def _advanced(held: LocalTable, records: StoredRecords, position: Position) -> Touched:
        if not records.knows_changes_since(held.until):
            raise UnknownValueError("its checkpoint was made anew")
        found = records.fetched_since(held.until)
        if found is None:
            raise UnknownValueError("too much has changed")
        return held.advance(found, position)

    def _forget(self, table: TableName) -> None:
        self._touched.pop(table, None)
        if (held := self._tables.pop(table, None)) is not None:
            held.close()


def frame_of(session: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return records as a frame `key, value, partition, offset`."""
    columns = [[getattr(each, name) for each in records] for name in _RECORD]
    return session.createDataFrame(
        pa.table(columns, schema=pa.schema(zip(_RECORD, _TYPES, strict=True)))
    )
