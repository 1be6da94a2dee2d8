"""Fetch what the stream left out: TOAST values that an update did not touch."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg2
from psycopg2 import errorcodes, sql

from changelog.contract.base.errors import UnavailableSourceError, UncapturableTableError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import Field, KeyRow, Relation
from changelog.native.libpq import copy_lines
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of, source_errors
from changelog.source.connect.system import current_lsn
from changelog.source.snapshot.snapshot import parse_row

_CHANGED_CODES = {
    errorcodes.UNDEFINED_COLUMN,
    errorcodes.UNDEFINED_TABLE,
    errorcodes.INVALID_SCHEMA_NAME,
    errorcodes.INVALID_TEXT_REPRESENTATION,
    errorcodes.NUMERIC_VALUE_OUT_OF_RANGE,
}


_VISIBLE_S = 20.0
"""How long a transaction is waited for: a server gives up a stream that is not read in a minute."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.1
_NUMBERS = 1 << 32
"""Transaction ids in the stream have 32 bits and wrap around; those of a snapshot have 64."""
AS_WRITTEN = Lsn(0)
"""Where the stream has to be for values that are those of the change itself: anywhere."""
_PIECE = 1 << 20
Fetched = tuple[tuple[Field, ...] | None, Lsn]
"""Columns of a row, None if it is gone, and the WAL position up to which they may be newer."""


def fetch_columns(
    connection: Connection,
    relation: Relation,
    lookups: Sequence[tuple[KeyRow, int]],
    columns: Sequence[str],
) -> list[Fetched]:
    """Read some columns of rows, and the WAL positions up to which they may be newer.

    `lookups` are the rows' keys and the transactions that wrote them. The values are those of now.
    When nobody but its transaction has written a row since, they are those of the change, and the
    position is `AS_WRITTEN`. Else whatever made them so was committed before the position: once the
    stream has passed it, the log holds that change too. None means that the row is gone; its end is
    then in the stream.

    A savepoint has a number of its own, which the stream does not tell: its rows count as newer.

    PostgreSQL streams a commit before it is visible to other sessions: a moment before, or, with a
    synchronous standby, as long as that takes to answer. Until then the row may be missing, or be
    the one that the transaction replaced. So a row that another transaction wrote is read again
    once this one is visible.

    The connection is in autocommit mode. COPY gives the text of the type's output function,
    which a cast to text does not for every type (`char(n)` would lose its blanks).

    Raises UnavailableSourceError: PostgreSQL does not answer, or a transaction stays invisible.
    """
    rows = _fetched(connection, relation, [key for key, _ in lookups], columns)
    again = [
        number
        for number, (_, xid) in enumerate(lookups)
        if xid and not _is_written_by(xid, rows.get(number))
    ]
    if again:
        for xid in {lookups[number][1] for number in again}:
            _await_visible(connection, xid)
        newer = _fetched(connection, relation, [lookups[number][0] for number in again], columns)
        rows |= {number: newer.get(place) for place, number in enumerate(again)}
    own = [_is_written_by(xid, rows.get(number)) for number, (_, xid) in enumerate(lookups)]
    read_at = AS_WRITTEN if all(own) else current_lsn(connection)
    return [
        (None if (row := rows.get(number)) is None else row[1:], AS_WRITTEN if is_own else read_at)
        for number, is_own in enumerate(own)
    ]


def _is_written_by(xid: int, row: tuple[Field, ...] | None) -> bool:
    return row is not None and row[0] == b"%d" % xid


def _await_visible(connection: Connection, xid: int) -> None:
    """Wait until a streamed transaction is visible to new snapshots."""
    until, pause_s = time.monotonic() + _VISIBLE_S, _FIRST_PAUSE_S
    while not _is_visible(connection, xid):
        if time.monotonic() > until:
            raise UnavailableSourceError(
                f"transaction {xid} is committed and streamed, but not visible yet, and a value "
                "that it wrote has to be fetched",
                hint="if synchronous_standby_names is set, these standbys have to answer; capture "
                "cannot be one of them",
            )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _is_visible(connection: Connection, xid: int) -> bool:
    """Tell whether a new snapshot sees a transaction as ended; `xid` has 32 bits."""
    query = "SELECT txid_current_snapshot()::text"
    (snapshot,) = row_of(connection, "cannot ask which transactions have ended", query)
    first, end, running = snapshot.split(":")
    ahead = (xid - int(end)) % _NUMBERS
    number = int(end) + (ahead if ahead < _NUMBERS // 2 else ahead - _NUMBERS)
    is_running = str(number) in running.split(",")
    return number < int(first) or (number < int(end) and not is_running)


def _fetched(
    connection: Connection, relation: Relation, keys: Sequence[KeyRow], columns: Sequence[str]
) -> dict[int, tuple[Field, ...] | None]:
    """Return the transaction that wrote a row, and some columns, by the number of its key."""
    rows: list[bytes] = []
    failure = f"table {relation.name.said}: a value that the stream left out cannot be fetched"
    with source_errors(connection, failure):
        query = _copy(connection, relation, keys, columns)
        try:
            for lines in copy_lines(connection, query, most_rows=len(keys), most_bytes=_PIECE):
                rows += lines
        except psycopg2.Error as error:
            if error.pgcode not in _CHANGED_CODES:
                raise
            raise UncapturableTableError(
                f"{failure}: {error}", hint="the table was altered after the row was written"
            ) from error
    parsed = map(parse_row, rows)
    return {int(number): tuple(fields) for number, *fields in parsed if isinstance(number, bytes)}


def _copy(
    connection: Connection, relation: Relation, keys: Sequence[KeyRow], columns: Sequence[str]
) -> str:
    # Another table may have taken the name: then the row is not to be had any more.
    name = sql.Identifier(*relation.name)
    same = sql.SQL("{}::regclass = {}").format(
        sql.Literal(name.as_string(connection)), sql.Literal(relation.oid)
    )
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    read = sql.SQL("xmin, {} FROM {} WHERE {}").format(names, name, same).as_string(connection)
    parts = [sql.Identifier(column).as_string(connection) for column in relation.key]

    def select(number: int, key: KeyRow) -> str:
        # An untyped literal takes the column's type, so that the primary key's index serves.
        values = (sql.Literal(field.decode("utf-8")).as_string(connection) for field in key)
        equal = (f"{part} = {value}" for part, value in zip(parts, values, strict=True))
        return f"SELECT {number}, {read} AND {' AND '.join(equal)}"

    return f"COPY ({' UNION ALL '.join(map(select, range(len(keys)), keys))}) TO STDOUT"
