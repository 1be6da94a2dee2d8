"""The publication: what PostgreSQL sends us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg2 import sql

from changelog.contract.errors import SourceError
from changelog.contract.relation import TableName
from changelog.source.connect import Connection, source_errors

_FIND = """
SELECT oid, puballtables, pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate
  FROM pg_publication WHERE pubname = %s
"""
_TABLES = """
SELECT n.nspname, c.relname
  FROM pg_publication_rel r
  JOIN pg_class c ON c.oid = r.prrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE r.prpubid = %s
"""
# PostgreSQL 15 added row filters, column lists and whole schemas.
_NARROWED = """
SELECT EXISTS (SELECT FROM pg_publication_rel
                WHERE prpubid = %(oid)s AND (prqual IS NOT NULL OR prattrs IS NOT NULL))
    OR EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = %(oid)s)
"""
# Changes with every statement that touches the publication, also one that is undone later.
_VERSION = """
SELECT format('%%s:%%s:', p.oid, p.xmin)
       || coalesce((SELECT string_agg(format('%%s:%%s', r.prrelid, r.xmin), ',' ORDER BY r.prrelid)
                      FROM pg_publication_rel r WHERE r.prpubid = p.oid), '')
  FROM pg_publication p WHERE p.pubname = %s
"""
_VERSION_15 = 150_000


@dataclass(frozen=True, slots=True)
class PublicationChange:
    """What `ensure_publication` did; an added table needs a snapshot of its own."""

    created: bool
    added: frozenset[TableName]
    removed: frozenset[TableName]


def ensure_publication(
    connection: Connection, name: str, tables: Iterable[TableName]
) -> PublicationChange:
    """Make the publication, or alter it, so that it has exactly these tables.

    Make it before the slot: a stream cannot read a publication that is younger than the changes.

    Raises:
        SourceError: the right is missing, or the existing publication sends something else than
            we need, which altering it now would not mend for the changes already made.
    """
    wanted = frozenset(tables)
    what = f'cannot make the publication "{name}"'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(_FIND, (name,))
        found = cursor.fetchone()
        if found is None:
            cursor.execute(_create(name, wanted))
            return PublicationChange(True, wanted, frozenset())
        oid, *kinds = found
        _check(name, *kinds)
        cursor.execute(_TABLES, (oid,))
        there = frozenset(TableName(*row) for row in cursor.fetchall())
        narrowed = False
        if connection.server_version >= _VERSION_15:
            cursor.execute(_NARROWED, {"oid": oid})
            narrowed = (cursor.fetchone() or (False,))[0]
        if narrowed:
            raise SourceError(
                f'the publication "{name}" has row filters, column lists or whole schemas',
                hint="drop it, or let capture use a publication of its own",
            )
        if there != wanted:
            alter = sql.SQL("ALTER PUBLICATION {} SET TABLE {}")
            cursor.execute(alter.format(sql.Identifier(name), _names(wanted)))
        return PublicationChange(False, wanted - there, there - wanted)


def published_tables(connection: Connection, name: str) -> frozenset[TableName]:
    """Give the tables of a publication, none when it is missing; changes nothing."""
    what = f'cannot read the publication "{name}"'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute("SELECT oid FROM pg_publication WHERE pubname = %s", (name,))
        found = cursor.fetchone()
        if found is None:
            return frozenset()
        cursor.execute(_TABLES, found)
        return frozenset(TableName(*row) for row in cursor.fetchall())


def publication_version(connection: Connection, name: str) -> str | None:
    """Give a text that changes whenever the publication does; None when it is missing.

    PostgreSQL 18 leaves out the changes of a missing publication with no more than a warning in
    its own log, and every version obeys when someone takes a table out: the stream goes on and
    rows are lost without a word. A version that is still the same, read after the stream has
    come to some LSN, proves that the publication was whole up to there.
    """
    what = f'cannot read the publication "{name}"'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(_VERSION, (name,))
        row = cursor.fetchone()
    return None if row is None else str(row[0])


def drop_publication(connection: Connection, name: str) -> None:
    """Drop the publication if it is there."""
    what = f'cannot drop the publication "{name}"'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def _check(name: str, all_tables: bool, via_root: bool, all_operations: bool) -> None:
    problem = ""
    if all_tables:
        problem = "is FOR ALL TABLES"
    elif not via_root:
        problem = "does not publish via the root of partitioned tables"
    elif not all_operations:
        problem = "does not publish each of insert, update, delete, truncate"
    if problem:
        raise SourceError(
            f'the publication "{name}" {problem}',
            hint="drop it, or let capture use a publication of its own",
        )


def _create(name: str, tables: frozenset[TableName]) -> sql.Composed:
    return sql.SQL(
        "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert, update, delete, truncate',"
        " publish_via_partition_root = true)"
    ).format(sql.Identifier(name), _names(tables))


def _names(tables: frozenset[TableName]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(*t)) for t in sorted(tables))
