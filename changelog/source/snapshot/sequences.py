"""Sequences: where they stand, as the catalogue and the sequences themselves say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from psycopg2 import sql

from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.steady import steadily
from changelog.source.tables.filter import TableFilter

# Those of identity columns hang on their table internally (i), others by OWNED BY (a).
_LIST = """
SELECT n.nspname, c.relname,
       (SELECT d.refobjid FROM pg_depend d
         WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
           AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
         LIMIT 1)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'S' AND c.relpersistence <> 't'
   AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
 ORDER BY 1, 2
"""
_AT_ONCE = 200
_WHAT = "cannot read the sequences"


@dataclass(frozen=True, slots=True)
class Sequence:
    """The state of a sequence."""

    name: TableName  # of it, with its schema
    last_value: int  # the value that was given last, or set
    is_called: bool  # whether it has been given; else it is the next one


def read_sequences(
    connection: Connection, table_filter: TableFilter, captured: Collection[int]
) -> tuple[Sequence, ...]:
    """Return the sequences that columns of captured tables own, or whose names are wanted.

    Raises SourceError: one cannot be read: the role needs SELECT on it.
    """
    return steadily(lambda: _read(connection, table_filter, captured))


def _read(
    connection: Connection, table_filter: TableFilter, captured: Collection[int]
) -> tuple[Sequence, ...]:
    sequences: list[Sequence] = []
    with source_errors(connection, _WHAT), connection.cursor() as cursor:
        cursor.execute(_LIST)
        names = [
            TableName(schema, name)
            for schema, name, owner in cursor.fetchall()
            if owner in captured or table_filter.wants(TableName(schema, name))
        ]
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            parts = [
                sql.SQL("SELECT {}, last_value, is_called FROM {}").format(
                    sql.Literal(place), sql.Identifier(*name)
                )
                for place, name in enumerate(some)
            ]
            cursor.execute(sql.SQL(" UNION ALL ").join(parts))
            sequences += [Sequence(some[place], *row) for place, *row in cursor.fetchall()]
    return tuple(sequences)
