"""Fetch what the stream left out: TOAST values that an update did not touch."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2
from psycopg2 import errorcodes, sql

from changelog.contract.base.errors import UncapturableTableError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import Field, KeyRow, Relation
from changelog.native.libpq import copy_lines
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.system import current_lsn
from changelog.source.snapshot.snapshot import parse_row

_CHANGED_CODES = {
    errorcodes.UNDEFINED_COLUMN,
    errorcodes.UNDEFINED_TABLE,
    errorcodes.INVALID_SCHEMA_NAME,
    errorcodes.INVALID_TEXT_REPRESENTATION,
    errorcodes.NUMERIC_VALUE_OUT_OF_RANGE,
}


AS_WRITTEN = Lsn(0)
"""Where the stream has to be for values that are those of the change itself: anywhere."""


def fetch_columns(
    connection: Connection, relation: Relation, key: KeyRow, columns: Sequence[str], xid: int
) -> tuple[tuple[Field, ...] | None, Lsn]:
    """Read some columns of one row, and the WAL position up to which they may be newer.

    The values are those of now. When nobody but the transaction `xid` itself has written the row
    since, they are those of the change, and the position is `AS_WRITTEN`. Else whatever made them
    so was committed before the position: once the stream has passed it, the log holds that change
    too. None means that the row is gone; its end is then in the stream.

    A savepoint has a number of its own, which the stream does not tell: its rows count as newer.

    The connection is in autocommit mode. COPY gives the text of the type's output function,
    which a cast to text does not for every type (`char(n)` would lose its blanks).
    """
    rows: list[bytes] = []
    failure = f"table {relation.name.said}: a value that the stream left out cannot be fetched"
    with source_errors(connection, failure):
        query = _copy(connection, relation, key, columns).as_string(connection)
        try:
            for lines in copy_lines(connection, query, most_rows=1, most_bytes=1):
                rows += lines
        except psycopg2.Error as error:
            if error.pgcode not in _CHANGED_CODES:
                raise
            raise UncapturableTableError(
                f"{failure}: {error}", hint="the table was altered after the row was written"
            ) from error
    if not rows:
        return None, current_lsn(connection)
    writer, *fields = parse_row(rows[0])
    return tuple(fields), AS_WRITTEN if writer == b"%d" % xid else current_lsn(connection)


def _copy(
    connection: Connection, relation: Relation, key: KeyRow, columns: Sequence[str]
) -> sql.Composed:
    # An untyped literal takes the column's type, so that the primary key's index serves.
    where = sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(field.decode("utf-8")))
        for name, field in zip(relation.key, key, strict=True)
    )
    # Another table may have taken the name: then the row is not to be had any more.
    name = sql.Identifier(*relation.name)
    same = sql.SQL("{}::regclass = {}").format(
        sql.Literal(name.as_string(connection)), sql.Literal(relation.oid)
    )
    return sql.SQL("COPY (SELECT xmin, {} FROM {} WHERE {} AND {}) TO STDOUT").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), name, where, same
    )
