"""Changes of rows that a query can see, in columns that it reads.

An update of another column leaves all that a view makes of the row as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changelog.avro.rows import AvroRowReader, UnreadableRecordError
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.log.form import PLAIN
from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.project.spec import TableReference
from views.rebuild.local.table import RowRecord, Touched


class VisibleChanges:
    """Selects the changes of some tables that a query can see.

    `used`: the columns that it reads at each place, in lower case. `schemas`: of the tables.
    """

    def __init__(
        self,
        used: Mapping[TableReference, Sequence[str]],
        schemas: Mapping[TableName, TopicSchemas],
    ) -> None:
        columns: dict[TableName, dict[str, None]] = {}
        for place, names in used.items():
            columns.setdefault(place.table, {}).update(dict.fromkeys(names))
        self._readers = {
            table: _reader(schemas[table], names)
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
        rows: dict[bytes, str | None] = {}
        same = {record.key for record in changes.older if record.key in newer}
        for record in changes.older:
            if record.key not in same:
                continue
            if record.key not in rows:
                rows[record.key] = _shown(reader, newer[record.key])
            now = rows[record.key]
            if now is None or _shown(reader, record) != now:
                same.discard(record.key)
        return Touched(
            tuple(record for record in changes.older if record.key not in same),
            tuple(record for record in changes.newer if record.key not in same),
        )


def _reader(schemas: TopicSchemas, lower: Mapping[str, None]) -> AvroRowReader:
    columns = schemas.logged(schemas.reader_id).columns
    names = [column.column for column in columns if column.column.lower() in lower]
    return AvroRowReader(schemas.topic, schemas.writers, schemas.reader_id, PLAIN, names)


def _shown(reader: AvroRowReader, record: RowRecord) -> str | None:
    """Return the columns of a record as text in which only equal values are equal, or None."""
    try:
        return repr(reader.row(record.value))
    except (UnreadableRecordError, CorruptRecordError):
        return None
