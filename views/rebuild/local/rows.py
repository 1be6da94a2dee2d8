"""Rows of records as columns of Arrow: of a few records, or of all that a table has.

What a query reads of a whole table is decoded once and brought forward with the table, so that a
query over many rows takes milliseconds and not the time in which they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from changelog.avro.rows import DecodedBodies
from changelog.contract.base.errors import LogError
from replay.decode.schemas import TopicSchemas
from replay.local.rows import Placed, RowReader
from views.rebuild.plan.dialect import UnknownValueError

if TYPE_CHECKING:
    from views.rebuild.local.table import RowRecord

_AT = "__at"
"""The column that tells which record a row is of."""
_AT_ONCE = 20_000
_PARTITION_BITS = 48
_MOST_CHUNKS = 32


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


class WholeRows:
    """Some columns of all rows of a table.

    `records`: the value, partition and offset of each.

    Raises UnknownValueError: one cannot be read here.
    """

    def __init__(
        self,
        schemas: TopicSchemas,
        columns: Sequence[str],
        records: Iterable[Placed],
        decoded: DecodedBodies | None = None,
    ) -> None:
        self._reader = reader_of(schemas, columns, decoded)
        self._gone: list[int] = []
        self._new: list[Placed] = []
        self._rows = pa.concat_tables([self._placed(()), *self._read(records)])

    def advance(self, older: Iterable[RowRecord], newer: Iterable[RowRecord]) -> None:
        """Take note of what a step replaces."""
        self._gone += [_at(record[1:4]) for record in older]
        self._new += [record[1:4] for record in newer]

    def rows(self) -> pa.Table:
        """Return the rows; see the class for what it raises."""
        if self._gone:
            # A row may have come and gone since they were asked for last.
            gone = set(self._gone)
            self._new = [record for record in self._new if _at(record) not in gone]
            kept = pc.invert(pc.is_in(self._rows[_AT], pa.array(self._gone, pa.int64())))
            self._rows, self._gone = self._rows.filter(kept), []
        if self._new:
            self._rows = pa.concat_tables([self._rows, *self._read(self._new)])
            self._new = []
        if self._rows[_AT].num_chunks > _MOST_CHUNKS:
            self._rows = self._rows.combine_chunks()
        return self._rows

    def _read(self, records: Iterable[Placed]) -> Iterator[pa.Table]:
        remaining = iter(records)
        while some := list(islice(remaining, _AT_ONCE)):
            yield self._placed(some)

    def _placed(self, records: Sequence[Placed]) -> pa.Table:
        places = pa.array([_at(record) for record in records], pa.int64())
        return table_of(self._reader, records).append_column(_AT, places)


def _at(record: Placed) -> int:
    _, partition, offset = record
    return partition << _PARTITION_BITS | offset
