"""Look at captured tables in the catalogue: what changes there without a word in the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class

from changelog.contract.log.standing import SeenColumn, SeenStore, Standing
from changelog.contract.rows.relation import KeyIndex, Relation, TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import rows_of, source_errors
from changelog.source.connect.versions import SENDS_TRUNCATE, for_version
from changelog.source.tables.key_index import INDEXES, Index
from changelog.source.tables.user_types import FIRST_USER_OID, user_types

_INDEXED = """
       ARRAY(SELECT i.xmin::text::bigint
               FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
              WHERE x.indrelid = c.oid)
"""
_TABLES = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p', c.relnatts, c.relfilenode::bigint,
       c.xmin::text::bigint, {_INDEXED},
       coalesce((SELECT k.oid::bigint FROM pg_constraint k
                  WHERE k.conrelid = c.oid AND k.contype = 'p'), 0)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%s)
"""
# Whoever tries to alter an entry overwrites the number of the command that wrote it.
_COLUMNS = """
SELECT a.attrelid, a.attname, a.attnum, a.xmin::text::bigint, a.atttypid::bigint, a.atttypmod,
       a.atthasmissing,
       to_hex(hashtext(ROW(a.attnotnull, a.atthasdef, a.attidentity, a.attgenerated,
                           a.attstattarget, a.attstorage, a.attcompression, a.attcollation,
                           a.attoptions, a.attacl, d.oid)::text)),
       a.xmax::text = '0' AND coalesce(
           (SELECT bool_and(i.xmax::text = '0' AND a.cmin::text::bigint > i.cmin::text::bigint)
              FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
             WHERE x.indrelid = c.oid AND i.xmin = a.xmin),
           a.xmin = c.xmin AND c.xmax::text = '0' AND a.cmin::text::bigint > c.cmin::text::bigint
       ),
       a.xmin = c.xmin AND a.cmin::text = c.cmin::text
       AND a.xmax::text = '0' AND c.xmax::text = '0'
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
# The entry of a system column stays as it was made with its table. Of a table that was made as a
# partition some column's entry is as old; ATTACH PARTITION writes each of them anew.
# Not by functions that lock the tables: an ALTER TABLE that stays open is not waited for.
_PARTITIONS = f"""
WITH RECURSIVE tree AS (
    SELECT oid AS root, oid FROM unnest(%(oids)s::oid[]) AS o(oid)
     UNION
    SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.root, c.oid, c.relfilenode::bigint, c.xmin::text::bigint, i.xmin::text::bigint,
       NOT EXISTS (SELECT FROM pg_attribute u
                    WHERE u.attrelid = c.oid AND u.attnum > 0
                      AND u.xmin = a.xmin AND u.cmin = a.cmin), {_INDEXED}
  FROM tree
  JOIN pg_class c ON c.oid = tree.oid AND c.oid <> tree.root
  JOIN pg_inherits i ON i.inhrelid = c.oid
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = -6
"""


def look_at(connection: Connection, relations: Iterable[Relation]) -> dict[int, Standing]:
    """Return the state of tables now, by oid; a table that is gone is left out."""
    relations = list(relations)
    oids = [relation.oid for relation in relations]
    indexed = {relation.oid: relation.key_index.oid for relation in relations if relation.key_index}
    with _at_one_moment(connection) as cursor:
        cursor.execute(_TABLES, (oids,))
        tables = cursor.fetchall()
        version = connection.server_version
        cursor.execute(for_version(_COLUMNS, version), (oids,))
        columns: dict[int, dict[str, SeenColumn]] = {}
        for oid, name, number, xid, kind, modifier, *more in cursor.fetchall():
            seen = SeenColumn(number, xid, (kind, modifier), *more)
            columns.setdefault(oid, {})[name] = seen
        stores: dict[int, dict[int, SeenStore]] = {}
        roots = [row[0] for row in tables if row[3]]
        if roots:
            cursor.execute(_PARTITIONS, {"oids": roots})
            for root, oid, filenode, xid, joined, attached, entries in cursor.fetchall():
                store = SeenStore(filenode, xid, joined, attached, frozenset(entries))
                stores.setdefault(root, {})[oid] = store
        types = user_types(cursor, [oid for oid in columns if _shows_types(columns[oid])])
        keys: dict[int, KeyIndex] = {}
        if indexed:
            cursor.execute(for_version(INDEXES, version), (list(indexed),))
            owned = ((owner, Index(*index)) for owner, *index in cursor.fetchall())
            keys = {
                owner: index.key
                for owner, index in owned
                if index.oid == indexed[owner] and not index.fault
            }
    return {
        oid: Standing(
            oid,
            TableName(schema, table),
            columns.get(oid, {}),
            number,
            stores.get(oid, {})
            if partitioned
            else {oid: SeenStore(filenode, xid, indexed=frozenset(entries))},
            types.get(oid, {}),
            keys.get(oid),
            hears_truncate=version >= SENDS_TRUNCATE,
            key_constraint=constraint,
        )
        for oid, schema, table, partitioned, number, filenode, xid, entries, constraint in tables
    }


def without_pages(connection: Connection, oids: Iterable[int]) -> set[int]:
    """Return the relations whose file has no page, or that are gone."""
    query = (
        "SELECT o.oid::bigint FROM unnest(%s::oid[]) AS o(oid) "
        "WHERE coalesce(pg_relation_size(o.oid), 0) = 0"
    )
    return {
        oid for (oid,) in rows_of(connection, "cannot look at partitions", query, (list(oids),))
    }


@contextmanager
def _at_one_moment(connection: Connection) -> Iterator[Cursor]:
    """Run several queries at one moment: file, columns and types belong together."""
    with source_errors(connection, "cannot look at the tables"), connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            yield cursor
        finally:
            if not connection.closed:
                cursor.execute("ROLLBACK")


def _shows_types(columns: Mapping[str, SeenColumn]) -> bool:
    """Tell whether some column is not of a type of PostgreSQL's own."""
    return any(column.type[0] >= FIRST_USER_OID for column in columns.values())
