"""Writes a loaded table: rows by COPY and the offsets in the topics, in one transaction.

Rows that are appended go straight into the table. If rows are replaced by key, or a text has to be
cast, they go into a temporary table, from which one statement writes the last row of each key. An
offset is moved only from the value that the load last saw, so a load whose offset another load has
moved writes nothing.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions, sql

from changelog.connect.postgres.places import Partition, Places
from changelog.connect.postgres.session import DatabaseAddress, Session, is_of_a_row
from changelog.connect.postgres.tables import names_sql
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.load.encode import GONE, ORDINAL, CopyChunk, UnfitRecordError
from changelog.load.rules.table import LoadedTable, TableColumn
from changelog.native import BatchRange
from changelog.native.loads import BatchRecord

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER = struct.pack(">h", -1)
_STAGE = "changelog_load_stage"
_COPY_BYTES = 1 << 20
_OPTIONS = (
    "-c default_transaction_read_only=off "
    # Enough to sort a batch by key in memory.
    "-c work_mem=128MB -c temp_buffers=64MB"
)
_HINTS = {
    errorcodes.DISK_FULL: "free space on the server, then start again: this batch was not written",
    errorcodes.INSUFFICIENT_PRIVILEGE: "grant the right, or connect as another user",
}

Encode = Callable[[BatchRange], Iterator[CopyChunk]]


class LoadTarget:
    """The database of a loaded table, over one connection for one thread."""

    def __init__(self, url: str, owner: str) -> None:
        """Connect, and create the table of the offsets if it is missing.

        Raises:
            UnavailableError: no server answers.
            SinkError: the server refuses.
            ConfigurationError: the address cannot be used.
        """
        self.session = Session(
            DatabaseAddress(
                url=url,
                application="changelog load",
                options=_OPTIONS,
                named="--into",
                look_at="the address, PGUSER, PGPASSWORD or PGPASSFILE",
            )
        )
        self.places = Places(owner, "load")  # the stored offsets of the load
        try:
            with self.session.transaction() as cursor:
                Places.make(cursor)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.session.close()

    def table(self, name: str) -> LoadedTable:
        """Return the columns and keys of a table.

        Raises ConfigurationError: there is no such table; SinkError: the server refuses.
        """
        with self.session.transaction() as cursor:
            return described(cursor, name)

    def create(self, name: str, types: Mapping[str, str], keys: Sequence[str]) -> None:
        """Create a table unless it exists.

        A type that the server does not know becomes text, and a list of it a list of texts.

        Raises SinkError: the server refuses.
        """
        with self.session.transaction() as cursor:
            parts = []
            for column, kind in types.items():
                cursor.execute("SELECT to_regtype(%s) IS NOT NULL", (kind.partition("(")[0],))
                substitute = "text[]" if kind.endswith("[]") else "text"
                known_kind = kind if cursor.fetchone() == (True,) else substitute
                parts.append(sql.SQL("{} ").format(sql.Identifier(column)) + sql.SQL(known_kind))
            if keys:
                parts.append(sql.SQL("PRIMARY KEY ({})").format(names_sql(keys)))
            cursor.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                    identifier(name), sql.SQL(", ").join(parts)
                )
            )

    def write(
        self,
        writer: TableWriter,
        records: BatchRange,
        moves: Mapping[Partition, tuple[int, int]],
        *,
        refuse: Callable[[Sequence[tuple[BatchRecord, str]]], None] | None = None,
    ) -> int:
        """Write the rows of records and move the offsets in one transaction; return their number.

        Records come in the order of their partitions. `refuse` is called with the records that
        cannot be written, before the transaction is committed; without it the first one is an
        error.

        Raises:
            OvertakenError: an offset no longer has the value that this load last saw.
            UnavailableError: the server does not answer; all of this may be written or nothing.
            SinkError: the server refuses; if a record causes it, the message names the record.
        """
        refused: list[tuple[BatchRecord, str]] = []
        with self.session.transaction() as cursor:
            self.places.move(cursor, moves)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            try:
                rows = self._apply(cursor, writer, records, refused, only=refuse is None)
            except psycopg2.Error as error:
                raise self._explained(error) from error
            if refused and refuse is None:
                raise _unfit(*refused[0])
            if refuse is not None and refused:
                refuse(refused)
        return rows

    def _explained(self, error: psycopg2.Error) -> Exception:
        hint = _HINTS.get(error.pgcode or "")
        if hint is None or self.session.connection.closed:
            return error
        message = self.session.clean(error.diag.message_primary or str(error))
        return SinkError(f"the database refuses: {message} ({error.pgcode})", hint=hint)

    def _apply(
        self,
        cursor: extensions.cursor,
        writer: TableWriter,
        records: BatchRange,
        refused: list[tuple[BatchRecord, str]],
        *,
        only: bool,
    ) -> int:
        """Write records; if that fails, write each half, until each bad record is alone.

        With `only` it stops at the first bad record.
        """
        cursor.execute("SAVEPOINT batch")
        try:
            rows = writer.write(cursor, records)
        except UnfitRecordError as error:
            reason = str(error)
            if only or len(records) == 1:
                refused.append((error.record, reason))
                cursor.execute("ROLLBACK TO SAVEPOINT batch")
                return 0
        except psycopg2.Error as error:
            if not is_of_a_row(error):
                raise
            if len(records) == 1:
                message = f"{error.diag.message_primary} ({error.pgcode})"
                refused.append((records[0], self.session.clean(message)))
                cursor.execute("ROLLBACK TO SAVEPOINT batch")
                return 0
        else:
            cursor.execute("RELEASE SAVEPOINT batch")
            return rows
        cursor.execute("ROLLBACK TO SAVEPOINT batch")
        half = len(records) // 2
        rows = self._apply(cursor, writer, records[:half], refused, only=only)
        if refused and only:
            return rows
        return rows + self._apply(cursor, writer, records[half:], refused, only=only)


def _unfit(record: BatchRecord, reason: str) -> SinkError:
    return SinkError(
        f"the record at offset {record.offset} of partition {record.partition} of topic "
        f'"{record.topic}" cannot be written: {reason}',
        hint="the batches before it are written, and the next start continues there; "
        "--on-error dead-letter:TOPIC sends bad records to a topic",
    )


class TableWriter:
    """Writes rows into one table."""

    def __init__(
        self,
        table: LoadedTable,
        columns: Sequence[str],
        keys: Sequence[str],
        encode: Encode,
        casts: Callable[[], frozenset[str]],
    ) -> None:
        """Prepare to write some columns of a table.

        `casts` returns the columns whose texts PostgreSQL casts; it is called after `encode`.
        """
        self._table, self._columns, self._keys = table, tuple(columns), tuple(keys)
        self._encode, self._casts = encode, casts
        self._name = sql.SQL(table.name)  # quoted by the server
        self._staged: tuple[object, frozenset[str]] | None = None

    def write(self, cursor: extensions.cursor, records: BatchRange) -> int:
        """Write records and return the number of rows.

        Raises UnfitRecordError: a record cannot become a row; psycopg2.Error: the server refuses.
        """
        all_chunks = self._encode(records)
        first = next(all_chunks, None)
        if first is None:
            return 0
        chunks, casts = chain([first], all_chunks), self._casts()
        if not self._keys and not casts:
            return _copy(cursor, self._name, self._columns, chunks).rows
        self._stage(cursor, casts)
        names = (*self._columns, *((ORDINAL, GONE) if self._keys else ()))
        copied = _copy(cursor, sql.Identifier(_STAGE), names, chunks)
        if copied.deletes:
            self._delete(cursor, casts)
        self._insert(cursor, casts)
        cursor.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(_STAGE)))
        return copied.rows

    def _stage(self, cursor: extensions.cursor, casts: frozenset[str]) -> None:
        """Create the temporary table, unless this session has it with the same columns."""
        stage = (cursor.connection, casts)
        if self._staged == stage:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (f"pg_temp.{_STAGE}",))
            if cursor.fetchone() == (True,):  # a rollback may have removed it
                return
        picked = sql.SQL(", ").join(
            sql.SQL("{0}::text AS {0}" if name in casts else "{0}").format(sql.Identifier(name))
            for name in self._columns
        )
        marks = sql.SQL(f", 0::bigint AS {ORDINAL}, false AS {GONE}" if self._keys else "")
        cursor.execute(
            sql.SQL("DROP TABLE IF EXISTS pg_temp.{0}; CREATE TEMP TABLE {0} AS SELECT ").format(
                sql.Identifier(_STAGE)
            )
            + picked + marks + sql.SQL(" FROM {} WITH NO DATA").format(self._name)
        )  # fmt: skip
        self._staged = stage

    def _cast(self, name: str, casts: frozenset[str], qualifier: str = "") -> sql.Composable:
        column = sql.SQL(qualifier) + sql.Identifier(name)
        if name not in casts:
            return column
        # Without a length: a cast to varchar(5) cuts, the assignment to the column raises an error.
        return column + sql.SQL("::" + self._table.columns[name].unlimited)

    def _last(self, casts: frozenset[str]) -> sql.Composable:
        """Return a query of the last row of each key."""
        keys = sql.SQL(", ").join(self._cast(name, casts) for name in self._keys)
        return sql.SQL(
            "SELECT DISTINCT ON ({keys}) * FROM {stage} ORDER BY {keys}, {n} DESC"
        ).format(keys=keys, stage=sql.Identifier(_STAGE), n=sql.Identifier(ORDINAL))

    def _delete(self, cursor: extensions.cursor, casts: frozenset[str]) -> None:
        same = sql.SQL(" AND ").join(
            sql.SQL("old.{} = ").format(sql.Identifier(name)) + self._cast(name, casts, "last.")
            for name in self._keys
        )
        cursor.execute(
            sql.SQL("DELETE FROM {} AS old USING ({}) AS last WHERE last.{} AND ").format(
                self._name, self._last(casts), sql.Identifier(GONE)
            )
            + same
        )

    def _insert(self, cursor: extensions.cursor, casts: frozenset[str]) -> None:
        names = names_sql(self._columns)
        values = sql.SQL(", ").join(self._cast(name, casts) for name in self._columns)
        if not self._keys:
            cursor.execute(
                sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
                    self._name, names, values, sql.Identifier(_STAGE)
                )
            )
            return
        changed = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
            for name in self._columns
            if name not in self._keys
        )
        has_values = len(self._columns) > len(self._keys)
        cursor.execute(
            sql.SQL(
                "INSERT INTO {table} ({names}) SELECT {values} FROM ({last}) AS last"
                " WHERE NOT {gone} ON CONFLICT ({keys}) DO "
            ).format(
                table=self._name, names=names, values=values, last=self._last(casts),
                gone=sql.Identifier(GONE), keys=names_sql(self._keys)
            )
            + (sql.SQL("UPDATE SET ") + changed if has_values else sql.SQL("NOTHING"))
        )  # fmt: skip


def _copy(
    cursor: extensions.cursor,
    name: sql.Composable,
    columns: Sequence[str],
    chunks: Iterator[CopyChunk],
) -> _Copied:
    """Send chunks to the server by COPY: all of the first one's format, then the rest."""
    copied = _Copied()
    while (first := next(chunks, None)) is not None:
        form = sql.SQL(" WITH (FORMAT binary)" if first.is_binary else "")
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(name, names_sql(columns)) + form
        stream = _CopyStream(chain([first], chunks), copied, is_binary=first.is_binary)
        try:
            cursor.copy_expert(statement, stream, _COPY_BYTES)
        except psycopg2.Error:
            if stream.failure is not None:
                raise stream.failure from None  # psycopg2 has turned it into an error of its own
            raise
        chunks = iter(stream.others)
    return copied


@dataclass(slots=True)
class _Copied:
    """The numbers of rows and deletes sent to the server."""

    rows: int = 0
    deletes: int = 0


class _CopyStream(io.RawIOBase):
    """The stream from which psycopg2 reads a COPY, produced while it is read."""

    def __init__(self, chunks: Iterator[CopyChunk], copied: _Copied, *, is_binary: bool) -> None:
        super().__init__()
        self._parts = self._contents(chunks, copied, is_binary=is_binary)
        self._rest = memoryview(b"")
        self.others: list[CopyChunk] = []  # chunks in the other format
        self.failure: Exception | None = None  # the error that ended the stream, if any

    def _contents(
        self, chunks: Iterator[CopyChunk], copied: _Copied, *, is_binary: bool
    ) -> Iterator[bytes]:
        if is_binary:
            yield HEADER
        for chunk in chunks:
            if chunk.is_binary is not is_binary:
                self.others.append(chunk)
                continue
            copied.rows += chunk.rows
            copied.deletes += chunk.deletes
            yield chunk.content
        if is_binary:
            yield TRAILER

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`; empty at the end."""
        while not self._rest:
            try:
                part = next(self._parts, None)
            except Exception as error:
                self.failure = error
                raise
            if part is None:
                return b""
            if len(part) <= size:
                return part
            self._rest = memoryview(part)
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)


def identifier(name: str) -> sql.Identifier:
    """Return the identifier of a table named as `table` or `schema.table`.

    Raises ConfigurationError: it has another form.
    """
    parts = name.split(".")
    if len(parts) > 2 or not all(parts):  # noqa: PLR2004 - schema and table
        raise ConfigurationError(
            f'"{name}" is not the name of a table', hint="table or schema.table"
        )
    return sql.Identifier(*parts)


# `format_type(…, NULL)` returns "character" and "bit", which in a cast mean one letter and one bit.
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.oid::int8, e.typname,
       e.oid::int8, t.typtype = 'e', a.attnotnull, format_type(t.oid, -1)
FROM pg_attribute a
JOIN LATERAL (
  WITH RECURSIVE up AS (
    SELECT oid, typtype, typbasetype FROM pg_type WHERE oid = a.atttypid
    UNION ALL
    SELECT b.oid, b.typtype, b.typbasetype FROM up
    JOIN pg_type b ON up.typtype = 'd' AND b.oid = up.typbasetype
  ) SELECT oid FROM up WHERE typtype <> 'd'
) own ON true
JOIN pg_type t ON t.oid = own.oid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
  AND a.attgenerated = '' AND a.attidentity <> 'a'
ORDER BY a.attnum
"""
_KEYS = """
SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attnum = k.attnum
WHERE i.indrelid = to_regclass(%s) AND a.attrelid = i.indrelid AND i.indisunique AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid
GROUP BY i.indexrelid, i.indisprimary
"""


def described(cursor: extensions.cursor, name: str) -> LoadedTable:
    """Return the columns and keys of a table from the catalogue.

    Raises ConfigurationError: there is no such table.
    """
    quoted = identifier(name).as_string(cursor)
    cursor.execute(_COLUMNS, (quoted,))
    columns = {row[0]: _column(row) for row in cursor.fetchall()}
    if not columns:
        raise ConfigurationError(
            f"there is no table {quoted} with columns that can be written",
            hint="create it, or give --create; write its schema as schema.table",
        )
    cursor.execute(_KEYS, (quoted,))
    indexes = cursor.fetchall()
    primary = next((tuple(names) for is_primary, names in indexes if is_primary), ())
    return LoadedTable(quoted, columns, primary, tuple(frozenset(names) for _, names in indexes))


def _column(row: Sequence[Any]) -> TableColumn:
    name, kind, base, oid, element, element_oid, is_enum, is_not_null, unlimited = row
    inner = None if element is None else (element, element_oid)
    return TableColumn(name, kind, base, oid, inner, is_enum, is_not_null, unlimited)
