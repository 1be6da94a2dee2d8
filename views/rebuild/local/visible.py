"""Changes of rows that a query can see, in columns that it reads.

An update of another column leaves all that a view makes of the row as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changelog.avro.rows import AvroRowReader, DecodedBodies, UnreadableRecordError, Values
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.log.form import PLAIN
from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.project.spec import TableReference
from views.rebuild.local.table import RowRecord, Touched


class VisibleChanges:
    """Selects the changes of some tables that a query can see.

    `used`: the columns that it reads at each place, in lower case. `schemas`: of the tables.
    `decoded`: of records that other readers have read.
    """

    def __init__(
        self,
        used: Mapping[TableReference, Sequence[str]],
        schemas: Mapping[TableName, TopicSchemas],
        decoded: DecodedBodies | None = None,
    ) -> None:
        columns: dict[TableName, dict[str, None]] = {}
        for place, names in used.items():
            columns.setdefault(place.table, {}).update(dict.fromkeys(names))
        self._readers = {
            table: _reader(schemas[table], names, decoded)
            for table, names in columns.items()
            if schemas[table].form == PLAIN
        }

    def of(self, touched: Mapping[TableName, Touched]) -> Mapping[TableName, Touched]:
        """Return the changes that the query can see; of tables that it does not read, all."""
        return {
            table: self._seen(self._readers[table], changes) if table in self._readers else changes
            for table, changes in touched.items()
        }

    @staticmethod
    def _seen(reader: AvroRowReader, changes: Touched) -> Touched:
        newer = {record.key: record for record in changes.newer}
        same = {record.key for record in changes.older if record.key in newer}
        for record in changes.older:
            if record.key not in same:
                continue
            # Decoded rows are not kept: a burst has a hundred thousand of them.
            if not _is_same(_read(reader, newer[record.key]), _read(reader, record)):
                same.discard(record.key)
        return Touched(
            tuple(record for record in changes.older if record.key not in same),
            tuple(record for record in changes.newer if record.key not in same),
        )


def _reader(
    schemas: TopicSchemas, lower: Mapping[str, None], decoded: DecodedBodies | None
) -> AvroRowReader:
    columns = schemas.logged(schemas.reader_id).columns
    names = [column.column for column in columns if column.column.lower() in lower]
    return AvroRowReader(
        schemas.topic, schemas.writers, schemas.reader_id, PLAIN, names, decoded=decoded
    )


def _read(reader: AvroRowReader, record: RowRecord) -> Values | None:
    """Return the columns of a record, or None if it cannot be read."""
    try:
        return reader.row(record.value)
    except (UnreadableRecordError, CorruptRecordError):
        return None


def _is_same(now: Values | None, before: Values | None) -> bool:
    """Tell whether two rows are known to be the same, down to the sign of a zero."""
    # Python takes 0.0 and -0.0, and 1 and True, for equal: their texts differ.
    return now is not None and now == before and repr(now) == repr(before)
