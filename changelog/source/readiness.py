"""Whether the server has room for capture and the role its rights; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changelog.contract.errors import SlotError, SourceError
from changelog.contract.relation import Relation, TableName
from changelog.source.connect import Connection, source_errors

_ROOM = """
SELECT current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_replication)
"""
# Partitions are copied and locked by themselves. A row-level policy would leave rows out of a copy,
# so the copy refuses to run under one.
_RIGHTS = """
SELECT DISTINCT n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid)
  FROM unnest(%s::oid[]) AS root(oid)
 CROSS JOIN LATERAL (SELECT root.oid AS relid
                     UNION SELECT relid::oid FROM pg_partition_tree(root.oid)) t
  JOIN pg_class c ON c.oid = t.relid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 ORDER BY 1, 2
"""
_OWNERS = """
SELECT n.nspname, c.relname
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE (n.nspname, c.relname) IN
       (SELECT * FROM unnest(%s::text[], %s::text[]))
   AND NOT pg_has_role(c.relowner, 'USAGE')
 ORDER BY 1, 2
"""
_BYTES = """
SELECT coalesce(sum(pg_table_size(t.relid)), 0)::bigint
  FROM unnest(%s::oid[]) AS root(oid)
 CROSS JOIN LATERAL (SELECT root.oid AS relid
                     UNION SELECT relid::oid FROM pg_partition_tree(root.oid)) t
"""


def check_room(connection: Connection, *, needs_slot: bool) -> str:
    """Check that a slot can be made, if one is needed, and that it can be read.

    Returns:
        What is free, for people.

    Raises:
        SlotError: too few slots or senders are free.
    """
    with source_errors(connection, "cannot read settings"), connection.cursor() as cursor:
        cursor.execute(_ROOM)
        slots, used, senders, busy = cursor.fetchone() or (0, 0, 0, 0)
    if needs_slot and used >= slots:
        raise SlotError(
            f"all {slots} replication slots are in use",
            hint="drop an unused slot, or raise max_replication_slots and restart PostgreSQL",
        )
    if busy >= senders:
        raise SlotError(
            f"all {senders} WAL senders are busy",
            hint="end an unused one, or raise max_wal_senders and restart PostgreSQL",
        )
    return f"{slots - used} of {slots} slots and {senders - busy} of {senders} WAL senders are free"


def check_readable(connection: Connection, relations: Iterable[Relation]) -> None:
    """Check that the role may read tables that are to be copied.

    Raises:
        SourceError: it may not; names all tables, each with what is missing.
    """
    with source_errors(connection, "cannot read the rights"), connection.cursor() as cursor:
        cursor.execute(_RIGHTS, ([relation.oid for relation in relations],))
        rows = cursor.fetchall()
    found = []
    hints = set()
    for schema, name, usage, select, policy in rows:
        table = TableName(schema, name)
        if not usage:
            found.append(f'the role may not use the schema of table "{table}"')
            hints.add("GRANT USAGE ON SCHEMA … TO …")
        elif not select:
            found.append(f'the role may not read table "{table}"')
            hints.add("GRANT SELECT ON … TO …")
        elif policy:
            found.append(f'row-level policies hide rows of table "{table}" from the role')
            hints.add("ALTER ROLE … BYPASSRLS")
    if found:
        raise SourceError("; ".join(found), hint="; ".join(sorted(hints)))


def check_owned(connection: Connection, tables: Sequence[TableName]) -> None:
    """Check that the role may alter tables.

    Raises:
        SourceError: some belong to another role; names them.
    """
    what = "cannot read the owners of tables"
    with source_errors(connection, what), connection.cursor() as cursor:
        names = [table.schema for table in tables], [table.table for table in tables]
        cursor.execute(_OWNERS, names)
        others = [TableName(*row) for row in cursor.fetchall()]
    if others:
        raise SourceError(
            "only their owner may alter " + ", ".join(f'"{table}"' for table in others),
            hint="have the owner give them REPLICA IDENTITY FULL",
        )


def table_bytes(connection: Connection, relations: Iterable[Relation]) -> int:
    """Give the size of tables on disk, their partitions included and their indexes left out."""
    what = "cannot read the sizes of tables"
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(_BYTES, ([relation.oid for relation in relations],))
        (size,) = cursor.fetchone() or (0,)
    return int(size)
