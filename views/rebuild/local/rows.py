"""Rows of records as columns of Arrow: of a few records, or of all that a table has.

What a query reads of a whole table is decoded once and brought forward with the table, so that a
query over many rows takes milliseconds and not the time in which they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from changelog.avro.rows import DecodedBodies
from changelog.contract.base.errors import LogError
from replay.decode.schemas import TopicSchemas
from replay.local.rows import Placed, RowReader
from views.rebuild.local.join_values import is_one_of
from views.rebuild.plan.dialect import UnknownValueError

if TYPE_CHECKING:
    from views.rebuild.local.table import RowRecord

AT = "\0at"
"""The column that tells which record a row is of; no column of a table has such a name."""
KEY = "\0key"
"""The column of the bytes of each record's key."""
_AT_ONCE = 20_000
_PARTITION_BITS = 48
_MOST_CHUNKS = 32
_MOST_GONE = 20_000
"""Rows that were replaced and are still held."""


def reader_of(
    schemas: TopicSchemas, lower: Iterable[str], decoded: DecodedBodies | None = None
) -> RowReader:
    """Return the reader of columns that are named in lower case."""
    columns = schemas.logged(schemas.reader_id).columns
    names = {column.column.lower(): column.column for column in columns}
    return RowReader(schemas, [names[name] for name in lower], decoded)


def table_of(reader: RowReader, records: Sequence[Placed]) -> pa.Table:
    """Return the rows of records; names are in lower case.

    Raises UnknownValueError: one cannot be read here.
    """
    try:
        table = reader.table(records)
    except LogError as error:
        raise UnknownValueError("a record cannot be read here") from error
    return table.rename_columns([name.lower() for name in table.column_names])


class RecordColumns:
    """Reads records as columns of Arrow.

    `columns`: in lower case, and `KEY` for the bytes of a record's key. `decoded`: of records that
    other readers have read.
    """

    def __init__(
        self, schemas: TopicSchemas, columns: Iterable[str], decoded: DecodedBodies | None = None
    ) -> None:
        self.names = tuple(dict.fromkeys(columns))  # those that its tables have, besides `AT`
        self._reader = reader_of(schemas, [name for name in self.names if name != KEY], decoded)

    def table(self, records: Sequence[RowRecord]) -> pa.Table:
        """Return the columns of records, and `AT`.

        Raises UnknownValueError: one cannot be read here.
        """
        rows = table_of(self._reader, [record[1:4] for record in records])
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        if KEY in self.names:
            columns[KEY] = pa.array([record[0] for record in records], pa.binary())
        columns[AT] = pa.array([place_of(record) for record in records], pa.int64())
        return pa.table(columns)


class WholeRows:
    """Some columns of all rows of a table.

    `records`: the one of each row.

    Raises UnknownValueError: one cannot be read here.
    """

    def __init__(
        self,
        schemas: TopicSchemas,
        columns: Sequence[str],
        records: Iterable[RowRecord],
        decoded: DecodedBodies | None = None,
    ) -> None:
        self._columns = RecordColumns(schemas, columns, decoded)
        self.names = frozenset(columns)
        self._gone: list[int] = []
        self._is_live: pa.ChunkedArray | None = None  # which of the rows are, if it is known
        self._new: list[RowRecord] = []
        # All records are read once: none of them is worth keeping for others.
        first = RecordColumns(schemas, columns)
        remaining, tables = iter(records), [first.table(())]
        while some := list(islice(remaining, _AT_ONCE)):
            tables.append(first.table(some))
        self._rows = pa.concat_tables(tables).combine_chunks()

    def advance(self, older: Iterable[RowRecord], newer: Iterable[RowRecord]) -> None:
        """Take note of the rows that a step replaces."""
        self._gone += map(place_of, older)
        self._new += newer
        self._is_live = None

    def rows(self) -> pa.Table:
        """Return the rows; see the class for what it raises."""
        is_live = self._live()
        if is_live is not None:
            self._rows, self._gone, self._is_live = self._rows.filter(is_live), [], None
        return self._rows

    def having(self, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows with one of some values in a column.

        Raises UnknownValueError: a new row cannot be read here.
        """
        if len(self._gone) > _MOST_GONE:
            self.rows()
        is_live = self._live()
        is_wanted = is_one_of(self._rows[column], values)
        if is_live is not None:
            is_wanted = pc.and_(is_wanted, is_live)
        return self._rows.select(list(dict.fromkeys(columns))).filter(is_wanted).select(columns)

    def _take_new(self) -> None:
        if not self._new:
            return
        # A row may have come and gone since rows were asked for last.
        gone = set(self._gone)
        new = [record for record in self._new if place_of(record) not in gone]
        self._rows, self._new = pa.concat_tables([self._rows, self._columns.table(new)]), []
        if self._rows[AT].num_chunks > _MOST_CHUNKS:
            self._rows = self._rows.combine_chunks()

    def _live(self) -> pa.ChunkedArray | None:
        """Return which of the rows are not replaced, or None where none is."""
        self._take_new()
        if self._gone and self._is_live is None:
            gone = pa.array(self._gone, pa.int64())
            self._is_live = pc.invert(pc.is_in(self._rows[AT], value_set=gone))
        return self._is_live


def place_of(record: RowRecord) -> int:
    """Return a number for the place of a record in its topic."""
    return record[2] << _PARTITION_BITS | record[3]
