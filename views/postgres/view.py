"""Translates the query of a view from PostgreSQL's SQL to Spark's. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.base.postgres_sql import PostgresSql
from views.postgres.parts import check_constants
from views.postgres.queries import QueryTranslator


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
