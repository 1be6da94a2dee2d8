"""Mode `exchange`: the served generation is the only partition of the table that readers open.

Publishing detaches it and attaches another one, in one transaction. Its lock on the table is
requested for a moment and again later, so that no reader waits long for it.

A transaction that reads a snapshot of its beginning (REPEATABLE READ) does not see rows written
later, so a generation loaded after it began would look empty. Publishing waits for such
transactions, as PostgreSQL's CREATE INDEX CONCURRENTLY does.
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
"""Transactions that began before a given time and may still open another table with their old
snapshot. One with a single statement has locked all of its tables already."""


class Exchange(Readers):
    """The partitioned table that readers open, whose partition is exchanged."""

    def check(self, cursor: Any, columns: Columns = ()) -> None:  # noqa: ANN401
        """Refuse a table that was created by others, or does not fit."""
        existing = self.stable.oid(cursor)
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
        if self.stable.oid(cursor) is not None:
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
        """Attach a sealed generation in place of the served one."""
        existing = self.stable.oid(cursor)
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
        self.registry.note_made(cursor, self.stable.oid(cursor))

    def drop(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the table; one that a user created stays, without rows."""
        existing = self.stable.oid(cursor)
        if existing is not None and existing == self.registry.made(cursor):
            attached = self.stable.partition(cursor, existing)
            if attached is not None:
                statement = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
                cursor.execute(statement.format(self.stable.name, place(attached)))
            if self.auto_create:
                cursor.execute(sql.SQL("DROP TABLE {}").format(self.stable.name))
        self.registry.note_made(cursor, None)
