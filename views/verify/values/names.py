"""Convert a query's names to names that DuckDB and sqlglot tell apart.

PostgreSQL tells names apart by every character. DuckDB ignores the case of ASCII letters, and
sqlglot folds the case of all letters, as Spark does. So a table is read under a name made from its
bytes, and its columns under the names that sqlglot folds them to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from changelog.contract.rows.relation import TableName
from views.base.spark_sql import SparkSql


def reading_name(table: TableName) -> str:
    """Return the name under which queries read a table's state."""
    return f"t_{table.schema.encode().hex()}_{table.table.encode().hex()}"


def folded(column: str) -> str:
    """Return the name under which queries read a column."""
    return column.lower()


def schema_of(types: Mapping[str, Mapping[str, str]]) -> MappingSchema:
    """Return the columns of tables, by their reading names, for sqlglot.

    It must not fold or parse them once more: `{x}` and `a;b` are no identifiers of its grammar.
    """
    return MappingSchema(
        {table: dict(columns) for table, columns in types.items()},
        dialect="spark",
        normalize=False,
    )


def parsed(sql: str, tables: Collection[TableName]) -> exp.Expr:
    """Parse a query in Spark's SQL; each place that names one of the tables reads it."""
    query = sqlglot.parse_one(sql, read=SparkSql)
    for scope in traverse_scope(query):
        named = _rename(scope, tables)
        for column in scope.columns:
            if (column.db, column.table) in named:
                column.set("db", None)
    return query


def _rename(scope: Scope, tables: Collection[TableName]) -> set[tuple[str, str]]:
    """Rename the tables of one scope; return schema and name of the ones without an alias."""
    queries = {name.lower() for name in scope.cte_sources}
    unaliased = set()
    for source in scope.sources.values():
        if not isinstance(source, exp.Table) or (not source.db and source.name.lower() in queries):
            continue
        table = TableName(source.db or "public", source.name)
        if table not in tables:
            continue
        if not source.alias:
            source.set("alias", exp.TableAlias(this=exp.to_identifier(source.name, quoted=True)))
            unaliased.add((table.schema, table.table))
        source.set("this", exp.to_identifier(reading_name(table), quoted=True))
        source.set("db", None)
    return unaliased
