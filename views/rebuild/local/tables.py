"""The tables of one follower: filled with their rows, brought forward by new records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Self

from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.base.record_place import FetchedRecord
from replay.decode.schemas import TopicSchemas
from views.rebuild.local.table import LocalTable, Touched

log = logging.getLogger("changelog.views")


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
        self,
        table: TableName,
        records: Iterable[FetchedRecord],
        schemas: TopicSchemas,
        columns: Sequence[str],
        position: Position,
    ) -> None:
        """Fill a new local table.

        Args:
            table: its name.
            records: those of its live keys.
            schemas: of its topic.
            columns: by which rows are to be found.
            position: the first that the records do not hold.

        Raises:
            UnknownValueError: it cannot be here.
        """
        self._files += 1
        local_table = LocalTable(self._folder.name, f"table{self._files}", schemas, columns)
        self._tables[table] = local_table
        with translated():
            live = ((k, v, p, o) for k, v, p, o in records if v is not None)
            local_table.fill(live, position)

    def advance(
        self, changed: Mapping[TableName, Sequence[FetchedRecord]], position: Position
    ) -> dict[TableName, Touched]:
        """Apply the new records; returns the touched records of each table.

        Raises:
            UnknownValueError: a record cannot be read; the tables are of no use any more.
        """
        return {
            table: self._tables[table].advance(records, position)
            for table, records in changed.items()
        }
