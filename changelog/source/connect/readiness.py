"""Whether the server has room for capture and the role its rights; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import SlotError, SourceError
from changelog.contract.rows.relation import Relation, TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of, rows_of
from changelog.source.connect.steady import steadily
from changelog.source.connect.tree import TREE

_ROOM = """
SELECT current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_replication)
"""
# Partitions are copied and locked by themselves. A row-level policy would leave rows out of a copy,
# so the copy refuses to run under one. The right to a table that is gone meanwhile is null.
_RIGHTS = f"""{TREE}
SELECT DISTINCT n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE') IS NOT FALSE,
       has_table_privilege(c.oid, 'SELECT') IS NOT FALSE, row_security_active(c.oid)
  FROM tree JOIN pg_class c ON c.oid = tree.oid
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
_BYTES = f"""{TREE}
SELECT coalesce(sum(pg_table_size(tree.oid)), 0)::bigint
  FROM tree
"""


def check_room(connection: Connection, *, slots: int = 0, senders: int = 1) -> str:
    """Check that a number of slots can be made, and a number be read.

    Returns:
        What is free, for people.

    Raises SlotError: too few slots or senders are free.
    """
    most_slots, used, most_senders, busy = row_of(connection, "cannot read settings", _ROOM)
    if used + slots > most_slots:
        raise SlotError(
            _exhausted("replication slots are in use", used, most_slots, slots),
            hint="drop an unused slot, or raise max_replication_slots and restart PostgreSQL",
        )
    if busy + senders > most_senders:
        raise SlotError(
            _exhausted("WAL senders are busy", busy, most_senders, senders),
            hint="end an unused one, or raise max_wal_senders and restart PostgreSQL",
        )
    return (
        f"{most_slots - used} of {most_slots} slots and {most_senders - busy} of {most_senders} "
        "WAL senders are free"
    )


def _exhausted(state: str, used: int, most: int, needed: int) -> str:
    return (
        f"all {most} {state}"
        if needed == 1
        else f"{used} of {most} {state}, and {needed} are needed"
    )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A table, or a partition, that the role may not copy."""

    table: TableName  # of the rows
    reason: str  # what is missing
    hint: str  # what to do


def unreadable(connection: Connection, relations: Iterable[Relation]) -> list[Unreadable]:
    """Return the tables and partitions whose rows the role may not read."""
    oids = [relation.oid for relation in relations]
    refusals = []
    failure = "cannot read the rights"
    rights = steadily(lambda: rows_of(connection, failure, _RIGHTS, {"oids": oids}))
    for schema, name, usage, select, policy in rights:
        table = TableName(schema, name)
        if not usage:
            reason = f"the role may not use the schema of table {table.said}"
            refusals.append(Unreadable(table, reason, "GRANT USAGE ON SCHEMA … TO …"))
        elif not select:
            reason = f"the role may not read table {table.said}"
            refusals.append(Unreadable(table, reason, "GRANT SELECT ON … TO …"))
        elif policy:
            reason = f"row-level policies hide rows of table {table.said} from the role"
            refusals.append(Unreadable(table, reason, "ALTER ROLE … BYPASSRLS"))
    return refusals


def check_readable(connection: Connection, relations: Iterable[Relation]) -> None:
    """Check that the role may read tables that are to be copied.

    Raises SourceError: it may not; names all tables, each with what is missing.
    """
    refusals = unreadable(connection, relations)
    if refusals:
        hints = sorted({refusal.hint for refusal in refusals})
        raise SourceError("; ".join(refusal.reason for refusal in refusals), hint="; ".join(hints))


def not_owned(connection: Connection, tables: Sequence[TableName]) -> list[TableName]:
    """Return the tables that the role may not alter, since another role owns them."""
    names = [table.schema for table in tables], [table.table for table in tables]
    rows = rows_of(connection, "cannot read the owners of tables", _OWNERS, names)
    return [TableName(*row) for row in rows]


def check_owned(connection: Connection, tables: Sequence[TableName]) -> None:
    """Check that the role may alter tables.

    Raises SourceError: some belong to another role; names them.
    """
    others = not_owned(connection, tables)
    if others:
        raise SourceError(
            "only their owner may alter " + ", ".join(f'"{table}"' for table in others),
            hint="have the owner give them REPLICA IDENTITY FULL",
        )


def table_bytes(connection: Connection, relations: Iterable[Relation]) -> int:
    """Return the size of tables on disk, their partitions included and their indexes left out."""
    oids = [relation.oid for relation in relations]
    (size,) = row_of(connection, "cannot read the sizes of tables", _BYTES, {"oids": oids})
    return int(size)
