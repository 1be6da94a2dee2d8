"""Rows of an exported snapshot, in chunks that several sessions can read side by side.

A chunk is a range of pages of one table or partition (`ctid`), which PostgreSQL reads without
touching the other pages. The chunks together hold each row once that was there when they were
planned: later rows may lie in new pages, and are in the stream. Chunks may also be read in
different snapshots, as long as the table's file stays the same (`TablePlan`): a row that moves
between two of them is in the stream, unless the whole table was rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg2
from psycopg2 import errorcodes, errors, extensions, sql

from changelog.contract.base.errors import SourceError, UnavailableSourceError
from changelog.contract.log.backfill import RowStore
from changelog.contract.rows.relation import Field, Relation, TableName
from changelog.native import Texts
from changelog.native.libpq import copy_lines
from changelog.postgres.connection import Connection
from changelog.runtime.process.silence import watched
from changelog.source.connect.connect import rows_of, source_error, source_errors
from changelog.source.connect.system import IN_RECOVERY
from changelog.source.connect.tree import TREE
from changelog.source.connect.versions import for_version

DEFAULT_BLOCKS = 8192
"""64 MiB of pages: enough work for one request, and progress that people can see."""

BATCH_BYTES = 8 << 20  # rows can be large: a batch of lines ends here too

OnLines = Callable[[Texts], None]
"""Takes the next rows, each a line without its line feed; what it raises ends the COPY."""

LOCK_WAIT_MS = 2000  # how long a lock on tables is waited for: who holds it may be waiting for ours

# By which servers before 17, and those from it on, say that there is no such snapshot.
_NO_SNAPSHOT = (errors.InvalidParameterValue, errors.UndefinedObject)

# What holds rows: the table itself, or the leaves of a partitioned one.
_STORES = f"""{TREE}
SELECT tree.root, n.nspname, c.relname, c.relfilenode, c.oid
  FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r'
 ORDER BY tree.root, n.nspname, c.relname
"""
# Locks them for the moment. A table that is gone has no size.
_PAGES = """
SELECT oid, pg_relation_size(oid) / current_setting('block_size')::bigint
  FROM unnest(%s::oid[]) AS o(oid)
"""
_COLUMNS = """
SELECT attrelid, md5(string_agg(format('%%s %%s %%s %%s', attnum, attname, atttypid, atttypmod),
                                ',' ORDER BY attnum))
  FROM pg_attribute
 WHERE attrelid = ANY (%s) AND attnum > 0 AND NOT attisdropped
 GROUP BY attrelid
"""
_OIDS = """
SELECT c.oid FROM unnest(%s::text[], %s::text[]) AS wanted(nspname, relname)
  JOIN pg_namespace n USING (nspname)
  JOIN pg_class c ON c.relname = wanted.relname AND c.relnamespace = n.oid
"""
_ESTIMATE = f"""{TREE}
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
  FROM pg_class c WHERE c.oid IN (SELECT oid FROM tree) AND c.relkind = 'r'
"""
# Who may have written to the tables and not ended yet: such a lock is kept to the very end, after
# the commit is in the WAL and also after the transaction is visible.
_WRITERS = f"""{TREE}
SELECT DISTINCT x.transactionid::text::bigint
  FROM pg_locks w JOIN pg_locks x USING (virtualtransaction)
 WHERE x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
   AND w.locktype = 'relation' AND w.granted
   AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND w.mode NOT IN ('AccessShareLock', 'RowShareLock')
   AND w.relation IN (SELECT oid FROM tree)
"""
# relfilenode as the snapshot sees it, beside the present one: they differ after a rewrite.
_REWRITTEN = f"""{TREE}
SELECT DISTINCT tree.root
  FROM tree JOIN pg_class c ON c.oid = tree.oid
 WHERE c.relkind = 'r' AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
"""
_EXPORT = "SELECT pg_export_snapshot(), pg_current_snapshot()::text"
_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
_BUSY_CODES = {
    errorcodes.LOCK_NOT_AVAILABLE,
    errorcodes.UNDEFINED_TABLE,
    errorcodes.INVALID_SCHEMA_NAME,
    errorcodes.DEADLOCK_DETECTED,
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages of a table: from `start` up to, not including, `end`."""

    store: TableName  # what holds the rows: the table, or one of its partitions
    start: int  # first page
    end: int  # first page that does not belong to it


class TablesBusyError(SourceError):
    """Tables cannot be locked now: others change them, or one is gone; try again later."""


class SnapshotHolder:
    """A session that keeps a snapshot for others, and locks on tables."""

    def __init__(self, connection: Connection) -> None:
        """Take over a connection; it is not to be used for anything else."""
        self._connection = connection
        connection.set_session(
            isolation_level=extensions.ISOLATION_LEVEL_REPEATABLE_READ,
            readonly=True,
            autocommit=False,
        )

    def take(self) -> tuple[str, str, bool]:
        """Take a snapshot; returns its name, and what it sees as `pg_current_snapshot()` says.

        The third part tells whether that names the running transactions: a standby's does not.

        Raises UnavailableSourceError: the connection is lost.
        """
        self.release()
        failure = "cannot take a snapshot"
        with source_errors(self._connection, failure), self._connection.cursor() as cursor:
            version = self._connection.server_version
            # Before the snapshot: it only ever goes off.
            cursor.execute(for_version(IN_RECOVERY, version))
            (standby,) = cursor.fetchone() or ("off",)
            cursor.execute(for_version(_EXPORT, version))
            name, text = cursor.fetchone() or ("", "")
        return name, text, standby == "off"

    def lock(self, relations: Sequence[Relation]) -> None:
        """Keep tables from being changed or rewritten until `release`.

        Raises TablesBusyError: not possible now.
        """
        if relations:
            lock_tables(self._connection, relations)

    def release(self) -> None:
        """Release snapshot and locks."""
        failure = "cannot let the snapshot go"
        with source_errors(self._connection, failure), watched(self._connection):
            self._connection.rollback()

    def close(self) -> None:
        """End the session."""
        self._connection.close()


def lock_tables(connection: Connection, relations: Sequence[Relation]) -> None:
    """Lock tables against DDL in the connection's transaction.

    Raises TablesBusyError: one is locked by others for longer than `LOCK_WAIT_MS`, or is gone.
    """
    names = sql.SQL(", ").join(sql.Identifier(*relation.name) for relation in relations)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_TIMEOUT, (str(LOCK_WAIT_MS),))
            cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
    except psycopg2.Error as error:
        raise _busy_or(error, "cannot lock tables", connection) from error


def _busy_or(error: psycopg2.Error, failure: str, connection: Connection) -> SourceError:
    ours = source_error(error, failure, lost=bool(connection.closed))
    return TablesBusyError(str(ours)) if error.pgcode in _BUSY_CODES else ours


def begin_snapshot(
    connection: Connection, snapshot_name: str, relations: Sequence[Relation]
) -> None:
    """Set a session to the exported snapshot, and lock the tables against DDL.

    The session keeps both until its transaction ends (`connection.rollback()`, or closing).
    Row-level security is an error here and not a filter.

    Raises:
        UnavailableSourceError: the snapshot is gone; who takes a new one may go on.
        SourceError: a table was rewritten or truncated since it was taken, so that the snapshot
            would read it as empty: start again.
        TablesBusyError: a table is locked by others.
    """
    connection.set_session(
        isolation_level=extensions.ISOLATION_LEVEL_REPEATABLE_READ, readonly=True, autocommit=False
    )
    with source_errors(connection, "cannot use the snapshot"), connection.cursor() as cursor:
        try:
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot_name,))
        except _NO_SNAPSHOT as error:
            # Whoever exported it is gone, and so was the server, or the connection to it.
            raise UnavailableSourceError(
                f"the snapshot is gone: {error.diag.message_primary}"
            ) from error
        cursor.execute("SET LOCAL row_security = off")
        cursor.execute("SET LOCAL statement_timeout = 0")
    if not relations:
        return
    lock_tables(connection, relations)
    asked_oids = {"oids": [relation.oid for relation in relations]}
    rows = rows_of(connection, "cannot use the snapshot", _REWRITTEN, asked_oids)
    oids = {oid for (oid,) in rows}
    rewritten = [str(relation.name) for relation in relations if relation.oid in oids]
    if rewritten:
        raise SourceError(
            f"tables were rewritten or truncated after the snapshot: {', '.join(rewritten)}",
            hint="start again",
        )


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files and the columns of a table's rows."""

    stores: tuple[RowStore, ...]  # the table, or its partitions
    columns: str  # changes with every change of the columns

    def is_same(self, other: TablePlan) -> bool:
        """Tell whether no row has moved from one chunk to another without the stream's word.

        The number of pages may change: rows in new pages are new.
        """
        mine = [(store.name, store.filenode) for store in self.stores]
        others = [(store.name, store.filenode) for store in other.stores]
        return mine == others and self.columns == other.columns


def plan_tables(connection: Connection, relations: Iterable[Relation]) -> dict[int, TablePlan]:
    """Look up, by oid, where the rows of tables are now; a table that is gone is left out.

    Raises TablesBusyError: one is locked by others for longer than `LOCK_WAIT_MS`.
    """
    oids = [relation.oid for relation in relations]
    failure = "cannot plan the copying of tables"
    with source_errors(connection, failure), connection.cursor() as cursor:
        columns, stores = _looked_up(cursor, oids)
        leaf_oids = [oid for entries in stores.values() for _, _, oid in entries]
        pages = _pages(connection, leaf_oids) if leaf_oids else {}
    return _plans(columns, stores, pages)


def looks_of(connection: Connection, relations: Iterable[Relation]) -> dict[int, TablePlan]:
    """Look up the same, but for the number of pages: waits for nobody's locks."""
    failure = "cannot look at the tables"
    with source_errors(connection, failure), connection.cursor() as cursor:
        columns, stores = _looked_up(cursor, [relation.oid for relation in relations])
    return _plans(columns, stores, {})


_Stores = dict[int, list[tuple[TableName, int, int]]]
"""By the table's oid: name, file and oid of what holds its rows."""


def _looked_up(cursor: extensions.cursor, oids: Sequence[int]) -> tuple[dict[int, str], _Stores]:
    cursor.execute(_COLUMNS, (list(oids),))
    columns: dict[int, str] = dict(cursor.fetchall())
    cursor.execute(_STORES, {"oids": list(oids)})
    stores: _Stores = {oid: [] for oid in columns}
    for root, schema, table, filenode, oid in cursor.fetchall():
        stores.setdefault(root, []).append((TableName(schema, table), int(filenode), oid))
    return columns, stores


def _pages(connection: Connection, oids: Sequence[int]) -> dict[int, int]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                cursor.execute(_LOCK_TIMEOUT, (str(LOCK_WAIT_MS),))
                cursor.execute(_PAGES, (list(oids),))
                return {oid: int(pages) for oid, pages in cursor.fetchall() if pages is not None}
            finally:
                if not connection.closed:
                    cursor.execute("ROLLBACK")
    except psycopg2.Error as error:
        raise _busy_or(error, "cannot plan the copying of tables", connection) from error


def _plans(
    columns: Mapping[int, str], stores: _Stores, pages: Mapping[int, int]
) -> dict[int, TablePlan]:
    return {
        root: TablePlan(
            tuple(RowStore(name, filenode, pages.get(oid, 0)) for name, filenode, oid in entries),
            columns.get(root, ""),
        )
        for root, entries in stores.items()
    }


def chunks_of(stores: Iterable[RowStore], blocks: int = DEFAULT_BLOCKS) -> list[Chunk]:
    """Cut stores into chunks of at most `blocks` pages; an empty one has one chunk.

    The same stores give the same chunks, so that a chunk's number stands for it. Pages that come
    later are in none: what stands there was written after the plan was made.
    """
    return [
        Chunk(store.name, start, min(start + blocks, store.pages))
        for store in stores
        for start in range(0, max(1, store.pages), blocks)
    ]


def estimated_rows(connection: Connection, tables: Iterable[TableName]) -> int:
    """Return about how many rows some tables have, by PostgreSQL's statistics."""
    names = list(tables)
    failure = "cannot read the statistics"
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_OIDS, ([table.schema for table in names], [table.table for table in names]))
        cursor.execute(_ESTIMATE, {"oids": [oid for (oid,) in cursor.fetchall()]})
        (rows,) = cursor.fetchone() or (0,)
    return int(rows)


def writers_of(connection: Connection, relations: Sequence[Relation]) -> frozenset[int]:
    """Return the transactions, by the low 32 bits, that may have written and not ended."""
    oids = {"oids": [relation.oid for relation in relations]}
    rows = rows_of(connection, "cannot read the locks", _WRITERS, oids)
    return frozenset(int(xid) for (xid,) in rows)


def read_chunk(
    connection: Connection,
    relation: Relation,
    chunk: Chunk,
    on_lines: OnLines,
    *,
    batch_rows: int = 4000,
    batch_bytes: int = BATCH_BYTES,
    where: str = "",
) -> int:
    """Read a chunk's rows in the order of `relation.columns` and return their number.

    `where` is an SQL condition of the publication, as the server writes it, or an empty text.

    `on_lines` gets them as they come, lines of COPY's text format, `batch_rows` or about
    `batch_bytes` at a time; while it blocks, PostgreSQL waits. When it raises, the connection is in
    the middle of a COPY and has to be closed.

    Raises SourceError: PostgreSQL cannot read the rows, or the connection is lost.
    """
    rows = 0
    with source_errors(connection, f"cannot read the table {chunk.store.said}"):
        query = _copy(relation, chunk, where).as_string(connection)
        for lines in copy_lines(connection, query, most_rows=batch_rows, most_bytes=batch_bytes):
            rows += len(lines)
            on_lines(lines)
    return rows


def _copy(relation: Relation, chunk: Chunk, condition: str) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    where: list[sql.Composable] = [
        sql.SQL("ctid >= {}").format(sql.Literal(f"({chunk.start},0)")),
        sql.SQL("ctid < {}").format(sql.Literal(f"({chunk.end},0)")),
    ]
    if condition:
        where.append(sql.SQL(f"({condition})"))
    # ONLY: a table that others inherit from has their rows in their own topics.
    return sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE {}) TO STDOUT").format(
        columns, sql.Identifier(*chunk.store), sql.SQL(" AND ").join(where)
    )


_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NULL = b"\\N"


def parse_row(line: bytes) -> tuple[Field, ...]:
    """Split a line without its line feed into values."""
    fields = line.split(b"\t")
    if b"\\" not in line:
        return tuple(fields)
    return tuple([None if f == _NULL else _unescape(f) if b"\\" in f else f for f in fields])


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[1]), field)
