"""Read a table of PostgreSQL as it was at one LSN, by the exported snapshot of a temporary slot.

The slot is temporary: PostgreSQL drops it with its connection, however that ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from uuid import uuid4

import duckdb
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import pyarrow as pa
from psycopg2 import sql

from changelog.contract.base.errors import SourceError, UnavailableSourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.secret import redacted
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.postgres.connection import Connection, opened
from views.verify.processes.scratch import insert
from views.verify.values.canonical import source_expression
from views.verify.values.types import quoted

BATCH_ROWS = 10_000
_COPY_HEADER = 19
_COUNT = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
_END = -1
_OLDEST_VERSION = 100_000
_FILTERS_VERSION = 150_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An open snapshot of the source."""

    connection: psycopg2.extensions.connection  # in a transaction that sees the snapshot
    lsn: Lsn  # transactions whose commit LSN is before it are in the snapshot, others are not
    system_id: str  # the cluster's identifier


@contextmanager
def open_snapshot(dsn: str) -> Iterator[Snapshot]:
    """Open a snapshot at an LSN and close it, with its slot, at the end."""
    connection = connect(dsn)
    with closing(connection):
        if connection.server_version < _OLDEST_VERSION:
            raise SourceError("verification against the source needs PostgreSQL 10 or newer")
        replication = connect(dsn, psycopg2.extras.LogicalReplicationConnection)
        try:
            with closing(replication):
                lsn, name, system_id = _export(replication)
                connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION SNAPSHOT %s", [name])
            yield Snapshot(connection, lsn, system_id)
            connection.rollback()
        except psycopg2.Error as error:
            first = redacted(str(error)).partition("\n")[0]
            if connection.closed:
                raise UnavailableSourceError(
                    f"PostgreSQL has ended the snapshot: {first}", hint="verify once more"
                ) from error
            raise SourceError(f"PostgreSQL refuses to read the snapshot: {first}") from error


def connect(
    dsn: str, factory: type[psycopg2.extensions.connection] | None = None
) -> psycopg2.extensions.connection:
    """Connect with session settings that give every value exactly one text."""
    options = " ".join(
        f"-c {name}={value.replace(', ', ',')}" for name, value in SESSION_SETTINGS.items()
    )
    try:
        return opened(
            factory or Connection,
            dsn=dsn,
            options=f"{options} -c statement_timeout=0",
            application_name="changelog verify",
        )
    except psycopg2.OperationalError as error:
        first = redacted(str(error)).partition("\n")[0]
        raise UnavailableSourceError(
            f"PostgreSQL does not let us in: {first}",
            hint="check that it runs and that address, user and password are right",
        ) from None


def _export(replication: psycopg2.extensions.connection) -> tuple[Lsn, str, str]:
    slot = f"changelog_verify_{uuid4().hex[:12]}"
    try:
        with replication.cursor() as cursor:
            cursor.execute("IDENTIFY_SYSTEM")
            system_id = _row(cursor)[0]
            cursor.execute(
                f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            )
            _, lsn, name, _ = _row(cursor)
    except psycopg2.Error as error:
        first = redacted(str(error)).partition("\n")[0]
        raise SourceError(
            f"PostgreSQL gives no snapshot at an LSN: {first}",
            hint="wal_level must be logical, the role may replicate, a slot must be free",
        ) from error
    return Lsn.parse(lsn), name, system_id


def _row(cursor: psycopg2.extensions.cursor) -> tuple[str, ...]:
    row: tuple[str, ...] | None = cursor.fetchone()
    if row is None:
        raise SourceError("PostgreSQL answered a replication command with nothing")
    return row


def copy_table(
    snapshot: Snapshot,
    name: TableName,
    columns: tuple[LoggedColumn, ...],
    database: duckdb.DuckDBPyConnection,
    table: str,
    *,
    where: str = "",
) -> int:
    """Stream a table of the snapshot into a DuckDB table of texts; return the number of rows.

    `where` is a condition written by the server itself, see `row_filter`, or an empty text.
    """
    query = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT WITH (FORMAT binary)").format(
        sql.SQL(", ").join(source_expression(c.column, c.type) for c in columns),
        _relation(snapshot, name),
        _where(where),
    )
    into = TextTable(database, table, text_columns(columns))
    try:
        with snapshot.connection.cursor() as cursor:
            cursor.copy_expert(query, _CopyParser(into))
    except psycopg2.Error as error:
        first = redacted(str(error)).partition("\n")[0]
        raise SourceError(f'table "{name}" cannot be read: {first}') from error
    into.flush()
    return into.rows


def why_unreadable(snapshot: Snapshot, name: TableName) -> str:
    """Return the reason why a table cannot be read, or an empty text."""
    with snapshot.connection.cursor() as cursor:
        cursor.execute(
            "SELECT has_schema_privilege(n.oid, 'USAGE') AND (has_table_privilege(c.oid, 'SELECT') "
            "OR has_any_column_privilege(c.oid, 'SELECT')) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            [name.schema, name.table],
        )
        row = cursor.fetchone()
    if row is None:
        return "is not there any more at the source"
    return "" if row[0] else "cannot be read at the source: GRANT SELECT to who verifies"


def row_filter(snapshot: Snapshot, publications: Sequence[str], name: TableName) -> str:
    """Return the condition by which publications filter a table, as the server writes it.

    It is read from the source: with a condition from the log, everybody who can write to the
    frontier topic could run SQL here.
    """
    if snapshot.connection.server_version < _FILTERS_VERSION:
        return ""
    with snapshot.connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_expr(r.prqual, r.prrelid) FROM pg_publication_rel r "
            "JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE p.pubname = ANY (%s) AND n.nspname = %s AND c.relname = %s",
            [[*publications], *name],
        )
        row = cursor.fetchone()
    return "" if row is None or row[0] is None else str(row[0])


def children_of(snapshot: Snapshot, name: TableName) -> list[str]:
    """Return the tables that inherit from one, also indirectly; none for a partitioned table."""
    with snapshot.connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE tree AS ("
            "SELECT c.oid, 0 AS depth "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r' "
            "UNION SELECT inhrelid, depth + 1 FROM tree JOIN pg_inherits ON inhparent = tree.oid) "
            "SELECT DISTINCT n.nspname || '.' || c.relname "
            "FROM tree JOIN pg_class c ON c.oid = tree.oid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE depth > 0",
            list(name),
        )
        return sorted(row[0] for row in cursor)


def _where(condition: str) -> sql.Composable:
    return sql.SQL(f" WHERE {condition}" if condition else "")


def count_rows(snapshot: Snapshot, name: TableName, *, where: str = "") -> int:
    """Count the rows of a table of the snapshot, `where` as for `copy_table`.

    Raises SourceError: the table is not there.
    """
    query = sql.SQL("SELECT count(*) FROM {}{}").format(_relation(snapshot, name), _where(where))
    with snapshot.connection.cursor() as cursor:
        cursor.execute(query)
        return int(_row(cursor)[0])


def _relation(snapshot: Snapshot, name: TableName) -> sql.Composable:
    """Return a table's name for a query: with ONLY, unless its rows are in its partitions."""
    with snapshot.connection.cursor() as cursor:
        cursor.execute(
            "SELECT relkind FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = %s AND relname = %s",
            list(name),
        )
        row = cursor.fetchone()
    if row is None:
        raise SourceError(
            f'table "{name}" is not in the source any more',
            hint="verify the others by naming them",
        )
    only = sql.SQL("" if row[0] == "p" else "ONLY ")
    return only + sql.Identifier(*name)


def text_columns(columns: Sequence[LoggedColumn]) -> list[str]:
    """Return numbered names, since DuckDB does not tell names apart that differ in case only."""
    return [f"c{number}" for number in range(len(columns))]


class TextTable:
    """A DuckDB table of texts, filled in batches."""

    def __init__(self, database: duckdb.DuckDBPyConnection, table: str, columns: list[str]) -> None:
        self.rows = 0
        self._database = database
        self._table = table
        self._columns = columns
        self._pending: list[list[str | None]] = []
        listed = ", ".join(f"{quoted(column)} VARCHAR" for column in columns)
        database.execute(f"CREATE OR REPLACE TABLE {quoted(table)} ({listed})")

    def add(self, row: list[str | None]) -> None:
        """Add a row."""
        self._pending.append(row)
        self.rows += 1
        if len(self._pending) >= BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Insert the pending rows."""
        if self._pending:
            columns = [pa.array(c, pa.string()) for c in zip(*self._pending, strict=True)]
            batch = pa.Table.from_arrays(columns, names=self._columns)
            insert(self._database, self._table, batch)
            self._pending = []


class _CopyParser:
    """A file for psycopg2 that reads the binary COPY format of text columns as it comes."""

    def __init__(self, into: TextTable) -> None:
        self._into = into
        self._rest = b""
        self._skip = _COPY_HEADER

    def write(self, chunk: bytes) -> int:
        """Parse the next bytes; psycopg2 passes whole rows, but nothing here relies on it."""
        raw = self._rest + chunk if self._rest else chunk
        place = 0
        if self._skip:
            if len(raw) < self._skip:
                self._rest = raw
                return len(chunk)
            place, self._skip = self._skip, 0
        while place < len(raw):
            row, after = self._row(raw, place)
            if after < 0:
                break
            if row is not None:
                self._into.add(row)
            place = after
        self._rest = raw[place:]
        return len(chunk)

    @staticmethod
    def _row(raw: bytes, place: int) -> tuple[list[str | None] | None, int]:
        """Return a row and the place after it; a negative place when it is not whole yet."""
        total = len(raw)
        if place + 2 > total:
            return None, -1
        (count,) = _COUNT.unpack_from(raw, place)
        place += 2
        if count == _END:
            return None, place
        row: list[str | None] = []
        for _ in range(count):
            if place + 4 > total:
                return None, -1
            (length,) = _LENGTH.unpack_from(raw, place)
            place += 4
            if length < 0:
                row.append(None)
                continue
            if place + length > total:
                return None, -1
            row.append(raw[place : place + length].decode())
            place += length
        return row, place
