"""Compute a view's rows from few rows of its tables, in this process, by DataFusion.

A plan of Spark takes a tenth of a second and more whatever it computes; a follower makes one for
each view and each round. DataFusion computes the same from some thousand rows in milliseconds.
The proof of what is computed goes by DuckDB, so neither proves itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from datafusion import ScalarUDF, SessionConfig, SessionContext

from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from views.base.arrow_types import arrow_schema
from views.project.spec import SqlSource, TableReference
from views.project.sql import rewritten
from views.rebuild.local.functions import function_of
from views.rebuild.local.rows import RecordColumns
from views.rebuild.plan.dialect import UnknownValueError, local_sql

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ONE_CORE = {
    # The rows are few: what would be shared out costs more than it brings.
    "datafusion.execution.target_partitions": "1",
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.sql_parser.parse_float_as_decimal": "true",
}


class RowsQuery(Protocol):
    """A view's query over rows."""

    # the columns of each place that it reads, in lower case; none where it takes records
    used: Mapping[TableReference, Sequence[str]]

    def rows(self, rows: Mapping[TableReference, pa.Table]) -> pa.Table:
        """Return the view's rows, in the types that they have in Spark.

        `rows`: at each place that names a table those that take part, or all of them: the columns
        that it reads and perhaps others, or the records where it takes these.

        Raises UnknownValueError: they cannot be computed here.
        """
        ...


class LocalQuery:
    """A view's query over rows.

    Raises:
        UnknownValueError: the query is not known to mean the same here.
    """

    def __init__(
        self,
        source: SqlSource,
        schemas: Mapping[TableName, TopicSchemas],
        schema: StructType,
    ) -> None:
        self._names = {place: f"place_{number}" for number, place in enumerate(source.references)}
        tables = {
            name: {
                column.column.lower(): column.type for column in schemas[place.table].viewed.columns
            }
            for place, name in self._names.items()
        }
        local = local_sql(rewritten(source, self._names), tables)
        self._text, self._lists = local.text, local.lists
        self._functions = [function_of(name) for name in local.functions]
        # the columns of each place that it reads; without any there would be no rows to count
        self.used: Mapping[TableReference, Sequence[str]] = {
            place: local.used[name] or list(tables[name])[:1] for place, name in self._names.items()
        }
        self._schema = arrow_schema(schema)
        # What DataFusion does not know, or gives other types, is known before the first round.
        self.rows(
            {
                place: RecordColumns(schemas[place.table], used).table(())
                for place, used in self.used.items()
            }
        )

    def rows(self, rows: Mapping[TableReference, pa.Table]) -> pa.Table:
        """Return the view's rows; see `RowsQuery`."""
        tables = {name: rows[place].select(self.used[place]) for place, name in self._names.items()}
        return self._typed(_answer(tables, self._text, self._functions))

    def _typed(self, result: pa.Table) -> pa.Table:
        """Cast the columns to the types of the view; what does not fit exactly is refused."""
        arrays = []
        for number, field in enumerate(self._schema):
            column = result.column(number).combine_chunks()
            column = _filled(column) if number in self._lists else column
            _check_names(column.type, field.type)
            try:
                arrays.append(column.cast(field.type, safe=True))
            except pa.ArrowException as error:
                raise UnknownValueError(str(error)) from error
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _answer(
    tables: Mapping[str, pa.Table], sql: str, functions: Sequence[ScalarUDF] = ()
) -> pa.Table:
    """Return the rows of a query over tables."""
    context = SessionContext(SessionConfig(_ONE_CORE))
    for function in functions:
        context.register_udf(function)
    for name, table in tables.items():
        context.register_record_batches(name, [table.to_batches() or [_empty(table)]])
    try:
        return context.sql(sql).to_arrow_table()
    except Exception as error:  # DataFusion raises what it has
        raise UnknownValueError(f"{str(error).splitlines()[0][:200]}") from error


def differing(before: pa.Table, after: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the keys of the rows that only one of two results has, each once.

    Raises UnknownValueError: they have values that are not compared here.
    """
    named = ", ".join('"' + name.replace('"', '""') + '"' for name in key)
    sides = (("before", "after"), ("after", "before"))
    texts = [
        f"SELECT {named} FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other}) AS rows"
        for one, other in sides
    ]
    return _answer({"before": before, "after": after}, " UNION ".join(texts)).cast(
        pa.schema([after.schema.field(name) for name in key])
    )


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
