"""REPLICA IDENTITY FULL: the old row of updates and deletes, whole, in the WAL."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg2 import sql

from changelog.contract.rows.relation import Relation, TableName
from changelog.source.connect.connect import Connection, source_errors
from changelog.source.connect.tree import TREE

# A root has no rows of its own, but its identity decides what the stream says of them.
_NOT_FULL = f"""{TREE}
SELECT DISTINCT n.nspname, c.relname
  FROM tree JOIN pg_class c ON c.oid = tree.oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND c.relreplident <> 'f'
 ORDER BY 1, 2
"""
LOCK_TIMEOUT = "10s"
"""How long a table is waited for: whoever waits for its lock makes all others wait behind."""


def tables_not_full(connection: Connection, relations: Iterable[Relation]) -> list[TableName]:
    """Return those of some tables and of their partitions that have another replica identity."""
    what = "cannot read the replica identities"
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(_NOT_FULL, {"oids": [relation.oid for relation in relations]})
        return [TableName(*row) for row in cursor.fetchall()]


def make_full(connection: Connection, table: TableName) -> None:
    """Alter a table.

    Raises:
        SourceError: it is not ours, or in use for longer than `LOCK_TIMEOUT`.
    """
    alter = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY FULL").format(sql.Identifier(*table))
    what = f'cannot give the table "{table}" REPLICA IDENTITY FULL'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", (LOCK_TIMEOUT,))
        cursor.execute(alter)
        cursor.execute("RESET lock_timeout")
