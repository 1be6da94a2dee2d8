"""Fetch what the stream left out: TOAST values that an update did not touch."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2 import sql

from changelog.contract.lsn import Lsn
from changelog.contract.relation import Field, KeyRow, Relation
from changelog.source.connect import Connection, source_errors
from changelog.source.copytext import CopyTarget, parse_row
from changelog.source.system import current_lsn


def fetch_columns(
    connection: Connection, relation: Relation, key: KeyRow, columns: Sequence[str]
) -> tuple[tuple[Field, ...] | None, Lsn]:
    """Read some columns of one row, and the WAL position read after it.

    The values are those of now, which may be later than the change that needs them. Whatever
    made them so was committed before the returned position: once the stream has passed it, the
    log holds that change too. None means that the row is gone; its end is then in the stream.

    The connection is in autocommit mode. COPY gives the text of the type's output function,
    which a cast to text does not for every type (`char(n)` would lose its blanks).
    """
    lines: list[bytes] = []
    target = CopyTarget(lines.extend, batch_rows=1)
    with (
        source_errors(connection, f'cannot fetch a row of "{relation.name}"'),
        connection.cursor() as cursor,
    ):
        cursor.copy_expert(_copy(relation, key, columns), target)
    target.finish()
    return (parse_row(lines[0]) if lines else None), current_lsn(connection)


def _copy(relation: Relation, key: KeyRow, columns: Sequence[str]) -> sql.Composed:
    # An untyped literal takes the column's type, so that the primary key's index serves.
    where = sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(field.decode("utf-8")))
        for name, field in zip(relation.key, key, strict=True)
    )
    return sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(*relation.name), where
    )
