"""The registry of our generations in the database: tables in a schema of our own.

| table of `changelog_views` | a row for |
|---|---|
| `targets` | each table that readers open: its view, the object we created, the rows it has |
| `generations` | each generation: its table, state, rows and frontier |
| `attempts` | each task that has written rows, with its transaction |

The tables of generations are in that schema too, so their names cannot clash with a user's.
`frontier` is for deltas of a served generation; a rebuild leaves it null.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg2 import sql

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from views.sinks.base import held_already, not_sealed

SCHEMA = "changelog_views"
OPEN, LOADED, SEALED = "open", "loaded", "sealed"
_LOCK = 0x63_6C_76_73
"""The advisory lock under which the schema is created, by one transaction at a time."""
_READABLE = 36
"""Characters of a table's own name in the names of its generations."""
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.targets (
    schema text, name text, view text NOT NULL, relation regclass, serving bigint,
    PRIMARY KEY (schema, name));
CREATE TABLE IF NOT EXISTS {SCHEMA}.generations (
    schema text, name text, generation bigint, relation text NOT NULL UNIQUE,
    state text NOT NULL, rows bigint, sealed_at timestamptz, frontier jsonb,
    PRIMARY KEY (schema, name, generation),
    FOREIGN KEY (schema, name) REFERENCES {SCHEMA}.targets);
CREATE TABLE IF NOT EXISTS {SCHEMA}.attempts (
    relation text REFERENCES {SCHEMA}.generations (relation) ON DELETE CASCADE,
    attempt uuid, writer xid8 NOT NULL, rows bigint NOT NULL,
    PRIMARY KEY (relation, attempt));
ALTER TABLE {SCHEMA}.targets ADD COLUMN IF NOT EXISTS serving bigint;
ALTER TABLE {SCHEMA}.targets ALTER COLUMN relation TYPE regclass USING relation::oid::regclass;
"""
"""The last two statements are for the tables of older versions. A regclass is written by name into
a dump, so that a restored table is still ours, under its new object id."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The registry's entry for a generation."""

    relation: str  # its table in our schema
    state: str  # `open`, `loaded` or `sealed`
    rows: int | None  # how many it has; None until it is sealed
    sealed_at: datetime | None  # when its state last changed


@dataclass(frozen=True, slots=True)
class GenerationRegistry:
    """The entries of one view."""

    view: str  # its name
    target: TableName  # the table that readers open

    def relation(self, generation: int) -> str:
        """Return the name of a generation's table, which fits into 63 bytes."""
        plain = re.sub(r"[^a-z0-9_]", "_", self.target.table.lower())[:_READABLE]
        digest = hashlib.sha256(repr(tuple(self.target)).encode()).hexdigest()[:8]
        return f"{plain}_{digest}_{generation:06d}"

    def make(self, cursor: Any) -> None:  # noqa: ANN401 - psycopg2's
        """Create our tables if they are missing, and the view's entry.

        Raises SinkError: the table that readers open belongs to another view.
        """
        if not _is_there(cursor) or _types(cursor)["relation"] != "regclass":
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            cursor.execute(_TABLES)
        values = [*self.target, self.view]
        cursor.execute(
            f"INSERT INTO {SCHEMA}.targets (schema, name, view) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            values,
        )
        self.check_whose(cursor)

    def check_whose(self, cursor: Any) -> None:  # noqa: ANN401
        """Refuse a table that belongs to another view."""
        row = self._one(cursor, f"SELECT view FROM {SCHEMA}.targets WHERE (schema, name) = %s")
        if row is not None and row[0] != self.view:
            raise SinkError(
                f'table {self.target} serves the view "{row[0]}" already',
                hint=f'give "{self.view}" another table in {self.view}.postgres.json',
            )

    def is_known(self, cursor: Any) -> bool:  # noqa: ANN401
        """Tell whether the view has an entry."""
        query = f"SELECT 1 FROM {SCHEMA}.targets WHERE (schema, name) = %s"
        return _is_there(cursor) and self._one(cursor, query) is not None

    def elsewhere(self, cursor: Any) -> TableName | None:  # noqa: ANN401
        """Return another table that serves a view of this name."""
        if not _is_there(cursor):
            return None
        cursor.execute(
            f"SELECT schema, name FROM {SCHEMA}.targets WHERE view = %s AND (schema, name) <> %s",
            [self.view, tuple(self.target)],
        )
        row = cursor.fetchone()
        return None if row is None else TableName(*row)

    def made(self, cursor: Any) -> int | None:  # noqa: ANN401
        """Return the object id of the table that we created for readers, or None."""
        if not _is_there(cursor):
            return None
        query = f"SELECT relation::oid FROM {SCHEMA}.targets WHERE (schema, name) = %s"
        row = self._one(cursor, query)
        return None if row is None else row[0]

    def note_made(self, cursor: Any, relation: int | None) -> None:  # noqa: ANN401
        """Store the object id of the table that we created for readers."""
        cursor.execute(
            f"UPDATE {SCHEMA}.targets SET relation = %s::oid WHERE (schema, name) = %s",
            [relation, tuple(self.target)],
        )

    def serving(self, cursor: Any) -> int | None:  # noqa: ANN401
        """Return the generation whose rows were copied to the table that readers open, or None."""
        if not _is_there(cursor) or "serving" not in _types(cursor):
            return None
        row = self._one(cursor, f"SELECT serving FROM {SCHEMA}.targets WHERE (schema, name) = %s")
        return None if row is None else row[0]

    def note_serving(self, cursor: Any, generation: int | None) -> None:  # noqa: ANN401
        """Store the generation whose rows the table that readers open has."""
        cursor.execute(
            f"UPDATE {SCHEMA}.targets SET serving = %s WHERE (schema, name) = %s",
            [generation, tuple(self.target)],
        )

    def add(self, cursor: Any, generation: int) -> str:  # noqa: ANN401
        """Add an open generation and return the name of its table.

        Raises SinkError: it exists.
        """
        relation = self.relation(generation)
        cursor.execute(
            f"INSERT INTO {SCHEMA}.generations (schema, name, generation, relation, state) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [*self.target, generation, relation, OPEN],
        )
        if not cursor.rowcount:
            raise held_already(self.view, generation)
        return relation

    def lock(self, cursor: Any) -> None:  # noqa: ANN401
        """Lock the view's entry until the transaction ends, so that only one moves readers."""
        self._one(cursor, f"SELECT 1 FROM {SCHEMA}.targets WHERE (schema, name) = %s FOR UPDATE")

    def entries(self, cursor: Any) -> dict[int, Entry]:  # noqa: ANN401
        """Return the entries by generation."""
        if not _is_there(cursor):
            return {}
        cursor.execute(
            "SELECT generation, relation, state, rows, sealed_at "
            f"FROM {SCHEMA}.generations WHERE (schema, name) = %s",
            [tuple(self.target)],
        )
        return {number: Entry(*rest) for number, *rest in cursor.fetchall()}

    def sealed(self, cursor: Any, generation: int) -> Entry:  # noqa: ANN401
        """Return a sealed generation.

        Raises SinkError: it does not exist, or is not sealed.
        """
        entries = self.entries(cursor)
        entry = entries.get(generation)
        if entry is None or entry.state != SEALED:
            raise not_sealed(self.view, generation, sorted(entries))
        return entry

    def hold(self, cursor: Any, generation: int) -> None:  # noqa: ANN401
        """Lock a generation's entry until the transaction ends, so that only one applies deltas."""
        cursor.execute(
            f"SELECT 1 FROM {SCHEMA}.generations WHERE (schema, name) = %s AND generation = %s "
            "FOR UPDATE",
            [tuple(self.target), generation],
        )

    def position(self, cursor: Any, generation: int) -> Position | None:  # noqa: ANN401
        """Return the log position of a generation's last delta, or None."""
        if not _is_there(cursor):
            return None
        cursor.execute(
            f"SELECT frontier->>'position' FROM {SCHEMA}.generations "
            "WHERE (schema, name) = %s AND generation = %s",
            [tuple(self.target), generation],
        )
        row = cursor.fetchone()
        return None if row is None or row[0] is None else Position.parse(row[0])

    def note_forward(
        self,
        cursor: Any,  # noqa: ANN401
        generation: int,
        rows: int,
        position: Position,
    ) -> None:
        """Record a generation's number of rows and its log position."""
        cursor.execute(
            f"UPDATE {SCHEMA}.generations SET rows = %s, "
            "frontier = jsonb_build_object('position', %s::text) "
            "WHERE (schema, name) = %s AND generation = %s",
            [rows, str(position), tuple(self.target), generation],
        )

    def set_state(
        self,
        cursor: Any,  # noqa: ANN401
        generation: int,
        state: str,
        rows: int | None = None,
    ) -> None:
        """Change a generation's state, its number of rows, and the time of the change."""
        cursor.execute(
            f"UPDATE {SCHEMA}.generations SET state = %s, rows = %s, "
            "sealed_at = clock_timestamp() WHERE (schema, name) = %s AND generation = %s",
            [state, rows, tuple(self.target), generation],
        )

    def remove(self, cursor: Any, generation: int) -> None:  # noqa: ANN401
        """Remove a generation's entry."""
        cursor.execute(
            f"DELETE FROM {SCHEMA}.generations WHERE (schema, name) = %s AND generation = %s",
            [tuple(self.target), generation],
        )

    def forget(self, cursor: Any) -> None:  # noqa: ANN401
        """Remove the view's entry."""
        cursor.execute(
            f"DELETE FROM {SCHEMA}.targets WHERE (schema, name) = %s", [tuple(self.target)]
        )

    def _one(self, cursor: Any, query: str) -> Sequence[Any] | None:  # noqa: ANN401
        cursor.execute(query, [tuple(self.target)])
        row: Sequence[Any] | None = cursor.fetchone()
        return row


def place(relation: str) -> sql.Identifier:
    """Return the name of one of our tables, for SQL."""
    return sql.Identifier(SCHEMA, relation)


def _types(cursor: Any) -> dict[str, str]:  # noqa: ANN401
    """Return the types of the columns of our table of targets, by name."""
    cursor.execute(
        "SELECT attname, atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        [f"{SCHEMA}.targets"],
    )
    return dict(cursor.fetchall())


def _is_there(cursor: Any) -> bool:  # noqa: ANN401
    cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.attempts"])
    return bool(cursor.fetchone()[0])
