"""Changes that capture cannot notice in the catalogue, told at the start and by `--check`."""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.rows.relation import Relation
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.versions import for_version
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

    Raises:
        SourceError: the catalogue cannot be read.
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
