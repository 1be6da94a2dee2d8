"""REPLICA IDENTITY FULL: the old row of updates and deletes, whole, in the WAL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg2 import sql

from changelog.contract.rows.relation import Relation, TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import rows_of, source_errors
from changelog.source.connect.tree import TREE

# A root has no rows of its own, but its identity decides what the stream says of them.
_NOT_FULL = f"""{TREE}
SELECT DISTINCT n.nspname, c.relname, c.relreplident::text, coalesce(i.relname, '')
  FROM tree JOIN pg_class c ON c.oid = tree.oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_index x ON x.indrelid = c.oid AND x.indisreplident
  LEFT JOIN pg_class i ON i.oid = x.indexrelid
 WHERE c.relkind IN ('r', 'p') AND c.relreplident <> 'f'
 ORDER BY 1, 2
"""
LOCK_TIMEOUT = "10s"
"""How long a table is waited for: whoever waits for its lock makes all others wait behind."""

_FULL = sql.SQL("FULL")


@dataclass(frozen=True, slots=True)
class Identity:
    """The replica identity of a table."""

    table: TableName
    kind: str  # the letter that the catalogue has for it
    index: str  # the name of the index that it is by, or an empty text

    @property
    def clause(self) -> sql.Composable:
        """Return the clause that sets it on the table again."""
        if self.index:
            return sql.SQL("USING INDEX {}").format(sql.Identifier(self.index))
        return sql.SQL("NOTHING" if self.kind == "n" else "DEFAULT")


def tables_not_full(connection: Connection, relations: Iterable[Relation]) -> list[Identity]:
    """Return the tables and partitions, of the given ones, without REPLICA IDENTITY FULL."""
    oids = [relation.oid for relation in relations]
    rows = rows_of(connection, "cannot read the replica identities", _NOT_FULL, {"oids": oids})
    return [Identity(TableName(schema, table), *more) for schema, table, *more in rows]


def make_full(connection: Connection, tables: Iterable[TableName]) -> None:
    """Alter tables: all of them, or none.

    Raises SourceError: one is not ours, or in use for longer than `LOCK_TIMEOUT`.
    """
    _alter(connection, [(table, _FULL) for table in tables])


def restore(connection: Connection, identities: Iterable[Identity]) -> None:
    """Restore the replica identities of tables: all of them, or none.

    Raises SourceError: as of `make_full`.
    """
    _alter(connection, [(identity.table, identity.clause) for identity in identities])


def _alter(connection: Connection, clauses: Sequence[tuple[TableName, sql.Composable]]) -> None:
    names = ", ".join(f'"{table}"' for table, _ in clauses)
    failure = f"cannot alter the REPLICA IDENTITY of {names}"
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
            for table, clause in clauses:
                alter = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY {}")
                cursor.execute(alter.format(sql.Identifier(*table), clause))
            cursor.execute("COMMIT")
        except BaseException:
            if not connection.closed:
                cursor.execute("ROLLBACK")
            raise
