"""The query of a view in PostgreSQL's SQL, as one in Spark's. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.base.postgres_sql import PostgresSql
from views.postgres.parts import check_constants
from views.postgres.queries import Reader


def in_spark(
    text: str,
    tables: Mapping[TableName, Mapping[str, ColumnType]],
    keys: Mapping[TableName, tuple[str, ...]],
) -> str:
    """Return a query over captured tables in Spark's SQL.

    Args:
        text: in PostgreSQL's.
        tables: the columns of the captured tables, and their types.
        keys: their primary keys.

    Raises:
        ViewError: it has a part that is not known to have an equal in Spark's SQL.
    """
    check_constants(text)
    return Reader(tables, keys).read(sqlglot.parse_one(text, dialect=PostgresSql))
