"""Translates the query of a view from PostgreSQL's SQL to Spark's. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.base.postgres_sql import PostgresSql
from views.postgres.parts import check_constants
from views.postgres.queries import QueryTranslator


def require_only(text: str, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
    """Require that tables with children are read by `ONLY`: their topics have their own rows alone.

    `text`: a query in PostgreSQL's SQL. `children`: the tables that inherit from a table.

    Raises:
        ViewError: one is read with the rows of its children.
    """
    query = sqlglot.parse_one(text, dialect=PostgresSql)
    names = {cte.alias for cte in query.find_all(exp.CTE)}
    for node in query.find_all(exp.Table):
        for table, others in children.items():
            is_it = node.name == table.table and node.db in {"", table.schema}
            if is_it and not node.args.get("only") and not (node.name in names and not node.db):
                raise ViewError(
                    f"{table} has the rows of {', '.join(map(str, sorted(others)))} too, which "
                    "inherit from it, and the log has its own rows alone",
                    hint=f"write FROM ONLY {table.table}, and add the others by UNION ALL",
                )


def in_spark(
    text: str,
    tables: Mapping[TableName, Mapping[str, ColumnType]],
    keys: Mapping[TableName, tuple[str, ...]],
) -> str:
    """Translate a query over captured tables to Spark's SQL.

    Args:
        text: the query in PostgreSQL's SQL.
        tables: the columns of the captured tables, and their types.
        keys: their primary keys.

    Raises:
        ViewError: it has a part that is not known to have an equal in Spark's SQL.
    """
    check_constants(text)
    return QueryTranslator(tables, keys).read(sqlglot.parse_one(text, dialect=PostgresSql))
