"""The last record of each live key of one table, found by the columns that joins use.

A database of SQLite holds them: a scratch file, or one below the warehouse from which the next
start goes on (`views.rebuild.local.kept`). Nothing in it is the truth: it is filled from
checkpoints and brought forward by their layers, and what is found in it is decoded, computed and
proved like all else. Rows are found in columns of Arrow beside it (`views.rebuild.local.rows`);
where they are too many for that, or a value has no place in its type, by indexes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from changelog.avro.rows import DecodedBodies
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.decode.schemas import TopicSchemas
from views.rebuild.local.join_values import JoinValues, Value, logged_values
from views.rebuild.local.rows import RecordColumns, WholeRows
from views.rebuild.plan.dialect import UnknownValueError

CACHE = "PRAGMA cache_size = -8192;"
"""Of 8 MB: rows are looked up by the thousand, and the system has the file in its own cache."""
MOST_WHOLE = 1_000_000
"""Rows of a table that are held in columns: more would take gigabytes, and seconds to search."""
_AT_ONCE = 10_000
_VALUES_AT_ONCE = 500
"""In one query: SQLite keeps the prepared statement for the next query of as many."""
_SUM_BITS = 64
_RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


class RowRecord(NamedTuple):
    """A record of a row; thousands of them are made in each round."""

    key: bytes  # its bytes
    value: bytes  # its bytes
    partition: int  # where it lies
    offset: int  # of it there
    values: tuple[Value, ...]  # of the columns that are looked up


@dataclass(frozen=True, slots=True)
class Touched:
    """Changes of a table between two frontiers."""

    older: tuple[RowRecord, ...] = ()  # what the touched keys held; nothing of a new one
    newer: tuple[RowRecord, ...] = ()  # what they hold now; nothing of a deleted one

    @property
    def is_any(self) -> bool:
        """Tell whether any record was touched."""
        return bool(self.older or self.newer)


def opened(path: Path | str) -> sqlite3.Connection:
    """Open a database for local tables; a crash leaves nothing of a new one."""
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;" + CACHE
    )
    return database


class LocalTable:
    """One table, in a database that it may share with others.

    `is_there`: whether the database has its rows already. `decoded`: of records that other readers
    have read.

    Raises:
        UnknownValueError: one of them cannot be.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        name: str,
        schemas: TopicSchemas,
        columns: Sequence[str],
        *,
        is_there: bool = False,
        decoded: DecodedBodies | None = None,
    ) -> None:
        self._decoded = decoded
        self.schemas, self.name, self.columns = schemas, name, tuple(columns)
        self._values = JoinValues(schemas, columns, decoded)
        self._database = database
        if not is_there:
            names = "".join(f", c{number}" for number in range(len(self.columns)))
            self._database.execute(
                f"CREATE TABLE {name} (key BLOB PRIMARY KEY, value BLOB, partition INT, offset INT"
                f"{names}) WITHOUT ROWID"
            )
        self.until = Position(0, Lsn(0), 0)
        """The first position whose changes are not in it."""
        self.count = 0
        """Of its rows."""
        self.sum = 0
        """Of all that it holds; tables that hold the same have the same one."""
        self._wanted = dict.fromkeys(column.lower() for column in columns)
        self._whole: WholeRows | None = None
        self._has_unreadable = False
        self._readers: dict[tuple[str, ...], RecordColumns] = {}

    def close(self) -> None:
        """Close the database, and with it all of its tables."""
        self._database.close()

    def fill(self, records: Iterable[tuple[bytes, bytes, int, int]], position: Position) -> None:
        """Take the records of all live keys, once.

        Raises UnknownValueError: one cannot be read.
        """
        self._database.execute("BEGIN")
        self._put(RowRecord(*record, self._values.of(record[1])) for record in records)
        self._database.execute("COMMIT")
        self.take(position)

    def take(self, position: Position) -> None:
        """Take the rows that the database has; they are the ones at a position."""
        self.count = self.sum = 0
        for record in self._found("true"):
            self.count += 1
            self.sum = _sum(self.sum, record, 1)
        self.until = position

    def advance(
        self, changed: Iterable[tuple[bytes, bytes | None, int, int]], position: Position
    ) -> Touched:
        """Take the last records of all keys that were touched since; a tombstone has no value.

        Raises UnknownValueError: one cannot be read; the table is of no use any more.
        """
        records = list(changed)
        self.until = position
        if not records:
            return Touched()
        newer = [
            RowRecord(key, value, partition, offset, self._values.of(value))
            for key, value, partition, offset in records
            if value is not None
        ]
        older = tuple(self.of_keys(key for key, *_ in records))
        gone = ((key,) for key, value, *_ in records if value is None)
        self._database.executemany(f"DELETE FROM {self.name} WHERE key = ?", gone)
        self._put(newer)
        self.count += len(newer) - len(older)
        for record in older:
            self.sum = _sum(self.sum, record, -1)
        for record in newer:
            self.sum = _sum(self.sum, record, 1)
        if self._whole is not None:
            self._whole.advance(older, newer)
        return Touched(older, tuple(newer))

    def record(self, key: bytes, value: bytes, partition: int, offset: int) -> RowRecord:
        """Return a record with its values of the columns that are looked up.

        Raises UnknownValueError: it cannot be read.
        """
        return RowRecord(key, value, partition, offset, self._values.of(value))

    def places(self) -> pa.Table:
        """Return partition and offset of the record of each row."""
        rows = self._database.execute(f"SELECT partition, offset FROM {self.name}").fetchall()
        columns = zip(*rows, strict=True) if rows else ((), ())
        return pa.table([pa.array(c, pa.int64()) for c in columns], names=["partition", "offset"])

    def want(self, columns: Iterable[str]) -> None:
        """Take note of columns, in lower case, that may be asked for of all rows."""
        self._wanted |= dict.fromkeys(columns)

    def whole(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows, as they are now.

        Raises UnknownValueError: a record cannot be read.
        """
        self.want(columns)
        return self._in_columns().rows().select(columns)

    def having(
        self, column: str, values: pa.Array, columns: Sequence[str], *, most: int
    ) -> pa.Table:
        """Return some columns of the rows with one of some values in a column, as they are now.

        `most`: rows that are looked up where they are not held in columns.

        Raises UnknownValueError: they are too many, or one cannot be read.
        """
        if self.count <= MOST_WHOLE and not self._has_unreadable:
            self.want(columns)
            try:
                return self._in_columns().having(column.lower(), values, columns)
            except UnknownValueError:
                # It may be of a row that takes no part: rows are looked up, and those read alone.
                self._has_unreadable = True
        self._whole = None
        number = self.columns.index(column)
        # Where rows are held in columns no index is needed: keeping it costs as much as the row.
        self._database.execute(
            f"CREATE INDEX IF NOT EXISTS {self.name}_{number} ON {self.name} (c{number})"
        )
        rows = self._having(f"c{number}", logged_values(pa.chunked_array([values])))
        records = list(islice(rows, most + 1))
        if len(records) > most:
            raise UnknownValueError(f"more than {most:,} rows of it take part")
        return self.columns_of(records, columns)

    def columns_of(self, records: Sequence[RowRecord], columns: Sequence[str]) -> pa.Table:
        """Return some columns of records of this table.

        Raises UnknownValueError: one cannot be read.
        """
        names = tuple(columns)
        if names not in self._readers:
            self._readers[names] = RecordColumns(self.schemas, names, self._decoded)
        return self._readers[names].table(records).select(columns)

    def join_columns(self, records: Sequence[RowRecord]) -> pa.Table:
        """Return the columns that are looked up of records of this table, in lower case."""
        return self._values.table([record.values for record in records])

    def records_of(self, keys: Iterable[bytes]) -> pa.Table:
        """Return the records of some keys, as they are now."""
        return record_table(self.of_keys(keys))

    def _in_columns(self) -> WholeRows:
        if self._whole is None or not self._whole.names.issuperset(self._wanted):
            records = self._database.execute(
                f"SELECT key, value, partition, offset FROM {self.name}"
            )
            rows = (RowRecord._make((*record, ())) for record in records)
            self._whole = WholeRows(self.schemas, list(self._wanted), rows, self._decoded)
        return self._whole

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key's record, or None if there is none."""
        query = f"SELECT value FROM {self.name} WHERE key = ?"
        row = self._database.execute(query, (key,)).fetchone()
        return None if row is None else row[0]

    def forget_whole(self) -> None:
        """Decode all rows again when they are asked for next: the database has others."""
        self._whole = None

    def of_keys(self, keys: Iterable[bytes]) -> Iterator[RowRecord]:
        """Return the rows of some keys, as they are now."""
        return self._having("key", keys)

    def _having(self, column: str, values: Iterable[Value]) -> Iterator[RowRecord]:
        """Return the rows with one of some values in a column of the database."""
        distinct = list(dict.fromkeys(values))
        for first in range(0, len(distinct), _VALUES_AT_ONCE):
            some = distinct[first : first + _VALUES_AT_ONCE]
            marks = ", ".join("?" * len(some))
            yield from self._found(f"{column} IN ({marks})", some)

    def _found(self, condition: str, values: Sequence[Value] = ()) -> Iterator[RowRecord]:
        cursor = self._database.execute(f"SELECT * FROM {self.name} WHERE {condition}", values)
        while rows := cursor.fetchmany(_AT_ONCE):
            for row in rows:
                yield RowRecord._make((*row[:4], row[4:]))

    def _put(self, records: Iterable[RowRecord]) -> None:
        marks = ", ".join("?" * (4 + len(self.columns)))
        self._database.executemany(
            f"INSERT OR REPLACE INTO {self.name} VALUES ({marks})",
            ((*record[:4], *record.values) for record in records),
        )


def record_table(records: Iterable[RowRecord]) -> pa.Table:
    """Return records as a table of their keys, values, partitions and offsets."""
    rows = [record[:4] for record in records]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_RECORD)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _RECORD, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_RECORD)


def digest_of(record: RowRecord) -> bytes:
    """Return a digest of all that a record holds."""
    key, value, partition, offset, values = record
    head = b"%d %d %d %d " % (len(key), len(value), partition, offset)
    # SQLite has numbers for booleans.
    plain = [int(value) if isinstance(value, bool) else value for value in values]
    text = repr(plain).encode("utf-8", "surrogatepass")
    return blake2b(head + key + value + text, digest_size=_SUM_BITS // 8).digest()


def _sum(before: int, record: RowRecord, sign: int) -> int:
    return (before + sign * int.from_bytes(digest_of(record))) % (1 << _SUM_BITS)
