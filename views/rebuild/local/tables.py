"""The tables of one follower: filled from stored states, brought forward by what came since."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Self

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.store.stored import FetchedRecord, StoredRecords
from views.rebuild.local.join_values import UnknownValueError
from views.rebuild.local.table import LocalTable, Touched

log = logging.getLogger("changelog.views")

MOST_RECORDS = 5_000_000
"""Of one table: more are left to Spark, as they would take minutes to be brought here."""
_RECORD = ("key", "value", "partition", "offset")


class LocalTables:
    """Keeps tables between the rounds of a follower; a context manager."""

    def __init__(self) -> None:
        self._tables: dict[TableName, LocalTable] = {}
        self._folder = TemporaryDirectory(prefix="changelog-follow-", ignore_cleanup_errors=True)
        self._files = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget all tables."""
        self.forget()
        self._folder.cleanup()

    @property
    def held(self) -> Mapping[TableName, LocalTable]:
        """Return the tables."""
        return self._tables

    def forget(self) -> None:
        """Forget all tables."""
        for table in self._tables.values():
            table.close()
        self._tables = {}

    def fill(
        self, table: TableName, records: StoredRecords, columns: Sequence[str], position: Position
    ) -> None:
        """Bring a table here.

        Args:
            table: its name.
            records: its stored state.
            columns: by which rows are to be found.
            position: the first that the state does not hold.

        Raises:
            UnknownValueError: it cannot be here.
        """
        rows = sum(layer.rows for layer in records.checkpoint.layers)
        if rows > MOST_RECORDS:
            raise UnknownValueError(f"{table} has {rows:,} records")
        self._files += 1
        made = LocalTable(self._folder.name, f"table{self._files}", records.schemas, columns)
        self._tables[table] = made
        with translated():
            found = records.survivors().select(*_RECORD).toLocalIterator()
            made.fill(((bytes(k), bytes(v), p, o) for k, v, p, o in found), position)

    def advance(
        self, changed: Mapping[TableName, Sequence[FetchedRecord]], position: Position
    ) -> dict[TableName, Touched]:
        """Take what came since; returns what was touched of each table.

        Raises:
            UnknownValueError: a record cannot be read; the tables are of no use any more.
        """
        return {
            table: self._tables[table].advance(found, position) for table, found in changed.items()
        }
