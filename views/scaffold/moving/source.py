"""The source as a translation asks for it: columns, keys and foreign keys of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg2

from changelog.contract.base.errors import SourceError
from changelog.postgres.connection import opened, parts_of
from changelog.postgres.errors import why_not_opened

_COLUMNS = """
SELECT n.nspname || '.' || c.relname, a.attname,
    format_type(a.atttypid, CASE WHEN a.atttypid = 'numeric'::regtype THEN a.atttypmod END),
    coalesce(array_position(i.indkey::int2[], a.attnum), -1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1, a.attnum
"""
_REFERENCES = """
SELECT n.nspname || '.' || c.relname, rn.nspname || '.' || r.relname,
    (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(f.conkey)
        WITH ORDINALITY k(attnum, place) JOIN pg_attribute a
        ON a.attrelid = f.conrelid AND a.attnum = k.attnum),
    (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(f.confkey)
        WITH ORDINALITY k(attnum, place) JOIN pg_attribute a
        ON a.attrelid = f.confrelid AND a.attnum = k.attnum)
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class r ON r.oid = f.confrelid
JOIN pg_namespace rn ON rn.oid = r.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 ORDER BY f.oid
"""


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key."""

    columns: tuple[str, ...]
    table: str  # schema.table that it refers to
    others: tuple[str, ...]  # the columns there


@dataclass(slots=True)
class SourceTable:
    """A table of the source."""

    types: dict[str, str] = field(
        default_factory=dict
    )  # by column; only a numeric has its precision
    key: list[str] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)


Tables = Mapping[str, SourceTable]
"""The tables of the source, by `schema.table`; empty where no source was asked."""


def tables_of(dsn: str) -> Tables:
    """Return the tables of a database.

    Raises SourceError: it cannot be asked.
    """
    parts = parts_of(dsn, named="--postgres", example="postgresql://me@localhost:5432/app")
    try:
        with closing(opened(**dict[str, Any](parts))) as session, session.cursor() as cursor:
            cursor.execute(_COLUMNS)
            columns = cursor.fetchall()
            cursor.execute(_REFERENCES)
            references = cursor.fetchall()
    except psycopg2.Error as error:
        raise SourceError(
            f"the source cannot be asked: {why_not_opened(error, parts).message}"
        ) from error
    tables: dict[str, SourceTable] = {}
    keys: dict[str, dict[int, str]] = {}
    for table, column, kind, place in columns:
        tables.setdefault(table, SourceTable()).types[column] = kind
        if place >= 0:
            keys.setdefault(table, {})[place] = column
    for table, places in keys.items():
        tables[table].key = [places[place] for place in sorted(places)]
    for table, other, own, others in references:
        if table in tables:
            tables[table].references.append(Reference(tuple(own), other, tuple(others)))
    return tables
