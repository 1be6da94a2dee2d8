"""Rewrites a view so that the engines compute what its query means in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.meaning.query import query_as_meant
from views.postgres.view import in_spark, require_only
from views.project.spec import SqlSource, ViewSpec
from views.project.sql import sql_source

_CAST = re.compile(r"cast\(((?:[^()]|\([^()]*\))+) AS (string|double|decimal)\b(\([^()]*\))?\)")
_FIELD = re.compile(r"get_json_object\(((?:[^(),]|\([^()]*\))+), '\$\.…'\)")
_PLAIN = re.compile(r'[\w."…]+')
_TYPES = {"string": "text", "double": "double precision", "decimal": "numeric"}


def in_postgres(hint: str) -> str:
    """Return a hint with PostgreSQL's spelling of the SQL in it.

    >>> in_postgres("cast(a.b AS string), or cast(x + 1 AS decimal(9, 2))")
    'a.b::text, or (x + 1)::numeric(9, 2)'
    """

    def operand(text: str) -> str:
        return text if _PLAIN.fullmatch(text) else f"({text})"

    hint = _CAST.sub(lambda m: f"{operand(m[1])}::{_TYPES[m[2]]}{m[3] or ''}", hint)
    return _FIELD.sub(lambda m: f"{operand(m[1])} ->> '…'", hint)


def check_inheritance(spec: ViewSpec, children: Mapping[TableName, tuple[TableName, ...]]) -> None:
    """Refuse a view in PostgreSQL's SQL of a table that has, at the source, other rows too.

    `children`: the tables that inherit from a table.

    Raises ViewError: its query reads the table without ONLY.
    """
    source = spec.source
    if not isinstance(source, SqlSource) or (source.written or source).dialect != "postgres":
        return
    try:
        require_only((source.written or source).sql, children)
    except ViewError as error:
        raise ViewError(f'view "{spec.name}": {error.args[0]}', hint=error.hint) from error


def as_meant(
    spec: ViewSpec,
    columns: Mapping[TableName, Mapping[str, ColumnType]],
    keys: Mapping[TableName, tuple[str, ...]],
) -> ViewSpec:
    """Return a view as the engines must compute it; the same view if nothing changes.

    A view in Python is never changed.

    `columns`: names and types of the columns of the captured tables.
    """
    source = spec.source
    if not isinstance(source, SqlSource) or source.written is not None:
        return spec
    try:
        if source.dialect == "postgres":
            whole = sql_source(spec.path, in_spark(source.sql, columns, keys))
        else:
            whole = source if not source.inlined else sql_source(spec.path, source.inlined)
        text = query_as_meant(
            whole,
            {(table.schema, table.table): own for table, own in columns.items()},
            spec.key,
            {(table.schema, table.table): own for table, own in keys.items()},
        )
    except ViewError as error:
        why = str(error.args[0])
        where = f"{spec.path.name}:" if why[:1].isdigit() else ""
        hint = in_postgres(error.hint) if source.dialect == "postgres" else error.hint
        raise ViewError(f'view "{spec.name}": {where}{why}', hint=hint) from error
    if text == source.sql:
        return spec
    return replace(spec, source=replace(sql_source(spec.path, text), written=source))
