"""Mode `exchange`: the generation that serves is the one partition of the table that readers open.

Publishing detaches it and attaches another one, in one transaction whose lock on the table is
asked for briefly and again: no reader waits long behind it for another one.

A transaction that reads at the state of its beginning (REPEATABLE READ) sees no row that was
written later, and so would find a generation empty that was loaded after it began. Publishing waits
for such transactions, as PostgreSQL's CREATE INDEX CONCURRENTLY does.
"""

from __future__ import annotations

from typing import Any

from psycopg2 import sql

from views.sinks.base import BusyError
from views.sinks.postgres.readers import Readers
from views.sinks.postgres.registry import Entry, place
from views.sinks.postgres.stable import Columns, columns_of, foreign

_OLDER = """
SELECT pid, usename, state FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid() AND application_name NOT LIKE 'changelog%%'
AND backend_xmin IS NOT NULL AND xact_start < %s
AND (state <> 'active' OR query_start > xact_start) LIMIT 1
"""
"""Transactions older than a moment that may still read another table by their old snapshot: one
that consists of a single statement has locked all of its tables."""


class Exchange(Readers):
    """The partitioned table that readers open."""

    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Raise when the table that readers open is somebody else's, or does not fit."""
        existing = self.stable.found(cursor)
        if self.auto_create:
            if existing is not None and existing != self.registry.made(cursor):
                raise foreign(self.stable.target)
            if existing is not None and not self.stable.is_partitioned(cursor):
                raise self._other_mode("is not partitioned")
        elif columns and (reason := self.stable.unfit(cursor, columns)):
            raise self._unfit(reason, self.stable.definition(columns).as_string(cursor))

    def _serving(self, cursor: Any, table: int) -> int | None:  # noqa: ANN401
        attached = self.stable.partition(cursor, table)
        entries = self.registry.entries(cursor).items()
        return next((number for number, entry in entries if entry.relation == attached), None)

    def prepare(self, cursor: Any, relation: str) -> None:  # noqa: ANN401
        """Give a generation the indexes and constraints of the stable table."""
        if self.stable.found(cursor) is not None:
            self.stable.prepare(cursor, relation)

    def wait(self, cursor: Any, entry: Entry) -> None:  # noqa: ANN401
        """Raise BusyError while a transaction could find the generation empty."""
        cursor.execute(_OLDER, [entry.sealed_at])
        older = cursor.fetchone()
        if older is not None:
            raise BusyError(
                f"a transaction of {older[1]} (process {older[0]}, {older[2]}) began before the "
                "generation was written, and would find it empty"
            )

    def move(self, cursor: Any, entry: Entry, generation: int) -> None:  # noqa: ANN401
        """Attach a sealed generation in place of the one that serves."""
        existing = self.stable.found(cursor)
        if existing is None:
            self.stable.make(cursor, entry.relation)
            self.stable.attach(cursor, entry.relation)
        elif self.current(cursor) != generation:
            attached = self.stable.partition(cursor, existing)
            if not self.auto_create:
                columns = columns_of(cursor, place(entry.relation))
                if reason := self.stable.unfit(cursor, columns):
                    raise self._unfit(reason)
            self.stable.move(cursor, entry.relation, attached)
        self.registry.note_made(cursor, self.stable.found(cursor))

    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the table; one that a user made stays, without rows."""
        existing = self.stable.found(cursor)
        if existing is not None and existing == self.registry.made(cursor):
            attached = self.stable.partition(cursor, existing)
            if attached is not None:
                statement = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
                cursor.execute(statement.format(self.stable.name, place(attached)))
            if self.auto_create:
                cursor.execute(sql.SQL("DROP TABLE {}").format(self.stable.name))
        self.registry.note_made(cursor, None)
