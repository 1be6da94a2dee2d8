"""Compute a view's rows from few rows of its tables, in this process, by DataFusion.

A plan of Spark takes a tenth of a second and more whatever it computes; a follower makes one for
each view and each round. DataFusion computes the same from some thousand rows in milliseconds.
The proof of what is computed goes by DuckDB, so neither proves itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from changelog.contract.base.errors import LogError
from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from replay.local.rows import RowReader
from views.project.lineage import KeyLineage
from views.project.spec import TableReference
from views.project.sql import rewritten
from views.rebuild.local.dialect import local_sql
from views.rebuild.local.join_values import UnknownValueError
from views.rebuild.local.table import Record

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ONE_CORE = {
    # The rows are few: what would be shared out costs more than it brings.
    "datafusion.execution.target_partitions": "1",
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_ZONED = "timezone" in signature(to_arrow_schema).parameters
_UTC: dict[str, Any] = {"timezone": "UTC"} if _ZONED else {}
"""Of moments as Arrow has them; before Spark 4.2 they have it unasked."""


class RowsQuery(Protocol):
    """A view's query over records."""

    def rows(self, records: Mapping[TableReference, Sequence[Record]]) -> pa.Table:
        """Return the view's rows, in the types that they have in Spark.

        `records`: at each place that names a table those that take part.

        Raises UnknownValueError: they cannot be computed here.
        """
        ...


class LocalQuery:
    """A view's query over records.

    Raises:
        UnknownValueError: the query is not known to mean the same here.
    """

    def __init__(
        self, lineage: KeyLineage, schemas: Mapping[TableName, TopicSchemas], schema: StructType
    ) -> None:
        self._names = {place: f"place_{number}" for number, place in enumerate(lineage.names)}
        tables = {
            name: {
                column.column.lower(): column.type for column in schemas[place.table].viewed.columns
            }
            for place, name in self._names.items()
        }
        local = local_sql(rewritten(lineage.source, self._names), tables)
        self._text, self._lists = local.text, local.lists
        self._readers = {
            # Without any column there would be no rows to count.
            place: _reader(schemas[place.table], local.used[name] or list(tables[name])[:1])
            for place, name in self._names.items()
        }
        self._schema = to_arrow_schema(schema, **_UTC)
        # What DataFusion does not know, or gives other types, is known before the first round.
        self.rows(dict.fromkeys(self._names, ()))

    def rows(self, records: Mapping[TableReference, Sequence[Record]]) -> pa.Table:
        """Return the view's rows; see `RowsQuery`."""
        context = SessionContext(SessionConfig(_ONE_CORE))
        for place, name in self._names.items():
            table = _table(self._readers[place], records[place])
            context.register_record_batches(name, [table.to_batches() or [_empty(table)]])
        try:
            return self._typed(context.sql(self._text).to_arrow_table())
        except UnknownValueError:
            raise
        except Exception as error:  # DataFusion raises what it has
            raise UnknownValueError(f"{str(error).splitlines()[0][:200]}") from error

    def _typed(self, result: pa.Table) -> pa.Table:
        """Cast the columns to the types of the view; what does not fit exactly is refused."""
        arrays = []
        for number, field in enumerate(self._schema):
            column = result.column(number).combine_chunks()
            column = _filled(column) if number in self._lists else column
            _check_names(column.type, field.type)
            arrays.append(column.cast(field.type, safe=True))
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _reader(schemas: TopicSchemas, lower: Iterable[str]) -> RowReader:
    """Return the reader of columns that are named in lower case."""
    columns = schemas.logged(schemas.reader_id).columns
    names = {column.column.lower(): column.column for column in columns}
    return RowReader(schemas, [names[name] for name in lower])


def _table(reader: RowReader, records: Sequence[Record]) -> pa.Table:
    """Return the rows of records; names are in lower case."""
    try:
        table = reader.table([record[1:4] for record in records])
    except LogError as error:
        raise UnknownValueError("a record cannot be read here") from error
    return table.rename_columns([name.lower() for name in table.column_names])


def _check_names(actual: pa.DataType, expected: pa.DataType) -> None:
    """Refuse structs whose fields are called otherwise: a cast would go by their names."""
    if actual.num_fields != expected.num_fields:
        raise UnknownValueError(f"{actual} is not {expected}")
    for number in range(actual.num_fields):
        one, other = actual.field(number), expected.field(number)
        if pa.types.is_struct(actual) and one.name != other.name:
            raise UnknownValueError(f'"{one.name}" of a struct is "{other.name}" in Spark')
        _check_names(one.type, other.type)


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _filled(lists: pa.Array) -> pa.Array:
    """Make the list of no values empty; this engine has null for it."""
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    if not lists.null_count:
        return lists
    ends = pa.array([0, *lists.value_lengths().fill_null(0).to_numpy().cumsum()], pa.int32())
    return pa.ListArray.from_arrays(ends, lists.flatten())


# The session has plans for few rows. It still takes some tenths of a second a view.
