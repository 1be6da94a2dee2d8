"""Objects that capture does not put on the log, and changes that it cannot notice in a database."""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.rows.relation import Relation, TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.versions import for_version
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.user_types import INSIDE

_NAMING = f"""
WITH RECURSIVE shown AS (
    SELECT attrelid AS root, attname AS name, atttypid AS type
      FROM pg_attribute
     WHERE attrelid = ANY (%s) AND attnum > 0 AND NOT attisdropped
     UNION
    SELECT shown.root, shown.name, inside.type
      FROM shown
      JOIN pg_type t ON t.oid = shown.type
     CROSS JOIN LATERAL {INSIDE}
     WHERE inside.type <> 0
)
SELECT DISTINCT n.nspname, c.relname, shown.name
  FROM shown
  JOIN pg_type t ON t.oid = shown.type AND t.typnamespace = 'pg_catalog'::regnamespace
  JOIN pg_class c ON c.oid = shown.root
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE t.typname ~ '^reg' OR t.typname = 'aclitem'
 ORDER BY 1, 2, 3
"""
_STANDBYS = "SELECT current_setting('synchronous_standby_names')"


def unnoticed(connection: Connection, relations: Sequence[Relation]) -> tuple[str, ...]:
    """Return a line for each sort of change that may stay unnoticed for some tables.

    Raises SourceError: the catalogue cannot be read.
    """
    failure = "cannot read the catalogue"
    with source_errors(connection, failure), connection.cursor() as cursor:
        naming = for_version(_NAMING, connection.server_version)
        cursor.execute(naming, ([relation.oid for relation in relations],))
        columns = [".".join(row) for row in cursor.fetchall()]
        cursor.execute(_STANDBYS)
        (standbys,) = cursor.fetchone() or ("",)
    lines = []
    if columns:
        lines.append(
            f"columns {columns} name other objects or roles: when one of these is renamed, older "
            "records keep the name that it had; `changelog verify` finds them"
        )
    if standbys:
        lines.append(
            "synchronous_standby_names is set: where the commit of an altered table or type waits "
            "for a standby, it may be noticed one frontier late"
        )
    return tuple(lines)


# Temporary tables of every session: whoever expects one on the log reads its name here.
_OTHERS = """
SELECT CASE WHEN c.relpersistence = 't' THEN 'temporary tables'
            WHEN c.relpersistence = 'u' AND c.relkind <> 'S' THEN 'unlogged tables'
            WHEN c.relkind = 'S' THEN 'positions of sequences'
            WHEN c.relkind = 'f' THEN 'foreign tables'
            ELSE 'materialized views' END,
       CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE n.nspname END, c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE (c.relkind IN ('S', 'f', 'm') OR c.relkind IN ('r', 'p') AND c.relpersistence <> 'p')
   AND NOT (c.relkind = 'S' AND c.relpersistence = 't')
   AND NOT (c.relispartition AND c.relkind <> 'r')
   AND n.nspname NOT IN ('pg_catalog', 'information_schema')
   AND (c.relpersistence = 't' OR n.nspname NOT LIKE 'pg\\_%')
 ORDER BY 1, 2, 3
"""
_LARGE_OBJECTS = "SELECT count(*) FROM pg_catalog.pg_largeobject_metadata"
_MOST_NAMES = 10


def uncaptured(connection: Connection, table_filter: TableFilter) -> tuple[str, ...]:
    """Return a line for each kind of object in the database that is not captured.

    Temporary tables count whatever their names are.

    Raises SourceError: the catalogue cannot be read.
    """
    named: dict[str, list[str]] = {}
    failure = "cannot read the catalogue"
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_OTHERS)
        for kind, schema, name in cursor.fetchall():
            table = TableName(schema, name)
            if schema == "pg_temp" or table_filter.wants(table):
                named.setdefault(kind, []).append(str(table))
        cursor.execute(_LARGE_OBJECTS)
        (objects,) = cursor.fetchone() or (0,)
    lines = [f"{kind}: {_listed(names)}" for kind, names in named.items()]
    return (*lines, f"large objects: {objects}") if objects else tuple(lines)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
