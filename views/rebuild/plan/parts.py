"""Queries with inferred types, and their parts as texts for the notes of a plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType, spark_type
from views.base.spark_sql import shown
from views.verify.values.names import folded, parsed, reading_name, schema_of

DType = exp.DataType.Type
ZONED = (DType.TIMESTAMPTZ, DType.TIMESTAMPLTZ)
WITHOUT_ZONE = (DType.TIMESTAMP, DType.TIMESTAMPNTZ, DType.DATE)
_TEXTS = re.compile(r"('(?:[^']|'')*')")


def annotated(sql: str, tables: Mapping[TableName, Mapping[str, ColumnType]]) -> exp.Expr | None:
    """Return a query with qualified columns and inferred types, or None if it is not understood.

    `tables`: names and types of the columns of the captured tables.
    """
    schema = schema_of(
        {
            reading_name(table): {folded(name): spark_type(kind) for name, kind in columns.items()}
            for table, columns in tables.items()
        }
    )
    try:
        query = qualify(parsed(sql, tables), schema=schema, dialect="spark")
        return annotate_types(query, schema=schema, dialect="spark")
    except (SqlglotError, RecursionError):
        return None


def captured_columns(
    query: exp.Expr, types: Mapping[tuple[str, str], ColumnType]
) -> Iterator[tuple[exp.Column, ColumnType]]:
    """Yield each place where a query names a column of a captured table, with its type.

    `types`: of the captured columns, by the names of table and column.
    """
    for scope in traverse_scope(query):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            kind = types.get((source.name, column.name)) if isinstance(source, exp.Table) else None
            if kind is not None:
                yield column, kind


def is_of(node: exp.Expr | None, types: tuple[Any, ...]) -> bool:
    """Tell whether a value has one of some types."""
    return node is not None and node.type is not None and node.type.is_type(*types)


def text_of(node: exp.Expr) -> str:
    """Return the text of an expression for a sentence, in lower case except for its constants."""
    parts = _TEXTS.split(shown(node))
    return "".join(part if place % 2 else part.lower() for place, part in enumerate(parts))
