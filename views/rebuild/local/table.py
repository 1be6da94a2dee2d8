"""The last record of each live key of one table, with indexes on the columns that joins use.

A scratch database of SQLite holds them, below the folder for temporary files; it goes with the
process. Nothing in it is the truth: it is filled from checkpoints and brought forward by their
layers, and what is found in it is decoded, computed and proved like all else.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import pyarrow as pa

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.base.record_place import FetchedRecord
from replay.decode.schemas import TopicSchemas
from views.rebuild.local.join_values import JoinValues, Value
from views.rebuild.local.rows import WholeRows

_AT_ONCE = 10_000


class Record(NamedTuple):
    """A record of a row; thousands of them are made in each round."""

    key: bytes  # its bytes
    value: bytes  # its bytes
    partition: int  # where it lies
    offset: int  # of it there
    values: tuple[Value, ...]  # of the columns that are looked up


@dataclass(frozen=True, slots=True)
class Touched:
    """Changes of a table between two frontiers."""

    older: tuple[Record, ...] = ()  # what the touched keys held; nothing of a new one
    newer: tuple[Record, ...] = ()  # what they hold now; nothing of a deleted one

    @property
    def is_any(self) -> bool:
        """Tell whether any record was touched."""
        return bool(self.older or self.newer)


class LocalTable:
    """One table.

    Raises:
        UnknownValueError: one of them cannot be.
    """

    def __init__(
        self, folder: str, name: str, schemas: TopicSchemas, columns: Sequence[str]
    ) -> None:
        self.schemas, self.columns = schemas, tuple(columns)
        self._values = JoinValues(schemas, columns)
        self._database = sqlite3.connect(f"{folder}/{name}.sqlite", isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;"
            "PRAGMA temp_store = MEMORY; CREATE TEMP TABLE wanted (value);"
        )
        names = "".join(f", c{number}" for number in range(len(self.columns)))
        self._database.execute(
            "CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB, partition INT, offset INT"
            f"{names}) WITHOUT ROWID"
        )
        self.until = Position(0, Lsn(0), 0)
        """The first position whose changes are not in it."""
        self.count = 0
        """Of its rows."""
        self._wanted: dict[str, None] = {}
        self._whole: WholeRows | None = None
        self._whole_columns: frozenset[str] = frozenset()

    def close(self) -> None:
        """Close the database, and with it the table."""
        self._database.close()

    def fill(self, records: Iterable[tuple[bytes, bytes, int, int]], position: Position) -> None:
        """Take the records of all live keys, once.

        Raises UnknownValueError: one cannot be read.
        """
        self._database.execute("BEGIN")
        self._put(Record(*record, self._values.of(record[1])) for record in records)
        for number in range(len(self.columns)):
            self._database.execute(f"CREATE INDEX i{number} ON records (c{number})")
        self._database.execute("COMMIT")
        ((self.count,),) = self._database.execute("SELECT count(*) FROM records")
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
            Record(key, value, partition, offset, self._values.of(value))
            for key, value, partition, offset in records
            if value is not None
        ]
        keys = [key for key, *_ in records]
        self._database.execute("BEGIN")
        self._want(keys)
        older = list(self._found("key IN (SELECT value FROM wanted)"))
        self._database.execute("DELETE FROM records WHERE key IN (SELECT value FROM wanted)")
        self._put(newer)
        self._database.execute("COMMIT")
        self.count += len(newer) - len(older)
        if self._whole is not None:
            self._whole.advance(older, newer)
        return Touched(tuple(older), tuple(newer))

    def want(self, columns: Iterable[str]) -> None:
        """Take note of columns, in lower case, that may be asked for of all rows."""
        self._wanted |= dict.fromkeys(columns)

    def whole(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows, as they are now.

        Raises UnknownValueError: a record cannot be read.
        """
        if self._whole is None or not self._whole_columns.issuperset(columns):
            self.want(columns)
            self._whole_columns = frozenset(self._wanted)
            records = self._database.execute("SELECT value, partition, offset FROM records")
            self._whole = WholeRows(self.schemas, list(self._wanted), records)
        return self._whole.rows().select(columns)

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key's record, or None if there is none."""
        row = self._database.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def having(self, column: str, values: Iterable[Value]) -> Iterator[Record]:
        """Return the rows with one of some values in a column, as they are now."""
        self._want(values)
        number = self.columns.index(column)
        yield from self._found(f"c{number} IN (SELECT value FROM wanted)")

    def _want(self, values: Iterable[Value]) -> None:
        self._database.execute("DELETE FROM wanted")
        self._database.executemany("INSERT INTO wanted VALUES (?)", ((value,) for value in values))

    def _found(self, condition: str) -> Iterator[Record]:
        cursor = self._database.execute(f"SELECT * FROM records WHERE {condition}")
        while rows := cursor.fetchmany(_AT_ONCE):
            for row in rows:
                yield Record._make((*row[:4], row[4:]))

    def _put(self, records: Iterable[Record]) -> None:
        marks = ", ".join("?" * (4 + len(self.columns)))
        self._database.executemany(
            f"INSERT OR REPLACE INTO records VALUES ({marks})",
            ((*record[:4], *record.values) for record in records),
        )


log = logging.getLogger("changelog.views")


class LocalTables:
    """Keeps tables between the rounds of a follower; a context manager."""

    def __init__(self) -> None:
        self._tables: dict[TableName, LocalTable] = {}
        self._folder = TemporaryDirectory(prefix="changelog-follow-", ignore_cleanup_errors=True)
        self._files = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget all tables."""
        self.forget()
        self._folder.cleanup()

    @property
    def held(self) -> Mapping[TableName, LocalTable]:
        """Return the tables."""
        return self._tables

    def forget(self) -> None:
        """Forget all tables."""
        for table in self._tables.values():
            table.close()
        self._tables = {}

    def fill(
        self,
        table: TableName,
        records: Iterable[FetchedRecord],
        schemas: TopicSchemas,
        columns: Sequence[str],
        position: Position,
    ) -> None:
        """Fill a new local table.

        `records`: those of its live keys. `columns`: by which rows are to be found. `position`: the
        first that the records do not hold.

        Raises UnknownValueError: it cannot be here.
        """
        self._files += 1
        local_table = LocalTable(self._folder.name, f"table{self._files}", schemas, columns)
        self._tables[table] = local_table
        with translated():
            live = ((k, v, p, o) for k, v, p, o in records if v is not None)
            local_table.fill(live, position)

    def advance(
        self, changed: Mapping[TableName, Sequence[FetchedRecord]], position: Position
    ) -> dict[TableName, Touched]:
        """Apply the new records; returns the touched records of each table.

        Raises UnknownValueError: a record cannot be read; the tables are of no use any more.
        """
        return {
            table: self._tables[table].advance(records, position)
            for table, records in changed.items()
        }
