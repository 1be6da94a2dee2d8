"""Views that read other views (pure).

A place that names another view reads that view's query, not what serves of it. So a view is still
a function of tables of the log at one frontier: nothing has to be built first, and its proof
stands on the log alone. Spark is given the other view's rows as a frame under a name, as it is
given a table's. What reads SQL alone (the verifier, `--explain`, a definition's fingerprint) is
given one query, in which the other view's stands in brackets where it is named.

The brackets must not change what a name means: inside of them, a WITH clause of the outer query
is visible. So the tables of the whole are compared with those of the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlglot
from sqlglot.tokenizer_core import TokenType

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import SparkSql
from views.project.query import quoted
from views.project.spec import SqlSource, ViewSpec, short_name
from views.project.sql import sql_source


def with_views(spec: ViewSpec, views: Mapping[str, ViewSpec]) -> ViewSpec:
    """Return a SQL view with the other views that it names.

    Args:
        spec: as its file declares it, where each name is taken for a table's.
        views: those that it names, with the views that they name in turn.

    Raises:
        ViewError: one is in Python, or reads a table that a WITH clause around it hides.
    """
    source = spec.source
    if not isinstance(source, SqlSource) or not views:
        return spec
    sources = {name: _source_of(spec, view) for name, view in views.items()}
    whole = replace(source, views=sources)
    whole = replace(whole, inlined=_inlined(whole))
    _check_names(spec, whole)
    parameters = {n: text for view in views.values() for n, text in view.parameters.items()}
    return replace(
        spec,
        source=whole,
        tables=tuple(dict.fromkeys(whole.tables())),
        parameters={**spec.parameters, **parameters},
    )


def named_views(spec: ViewSpec, views: Mapping[str, object]) -> list[str]:
    """Return the names of the other views that a SQL view names, each once.

    A view that names itself means the table of its name.

    Args:
        spec: as its file declares it.
        views: all of the project, by name.
    """
    if not isinstance(spec.source, SqlSource):
        return []
    bare = [
        reference.table.table for reference in spec.source.references if not reference.qualified
    ]
    return [name for name in dict.fromkeys(bare) if name in views and name != spec.name]


def _source_of(spec: ViewSpec, view: ViewSpec) -> SqlSource:
    if isinstance(view.source, SqlSource):
        return view.source
    raise ViewError(
        f'{spec.path.name} reads view "{view.name}", which is a function in Python',
        hint="SQL can read tables and views in SQL, which can be proved",
    )


def _inlined(source: SqlSource) -> str:
    text = source.text
    for place in reversed(source.references):
        view = source.view_at(place)
        if view is None:
            continue
        alias = f" AS {quoted(place.alias)}" if place.alias is not None else ""
        text = f"{text[: place.start]}(\n{_body(view.sql)}\n){alias}{text[place.end :]}"
    return text


def _body(text: str) -> str:
    """Return a query without the comments around it and without its semicolon."""
    tokens = [
        token
        for token in sqlglot.tokenize(text, read=SparkSql)
        if token.token_type is not TokenType.SEMICOLON
    ]
    return text[tokens[0].start : tokens[-1].end + 1]


def _check_names(spec: ViewSpec, source: SqlSource) -> None:
    """Require that each name means in the whole what it means in its own file."""
    meant = list(source.tables())
    tables = [reference.table for reference in sql_source(spec.path, source.inlined).references]
    if tables != meant:
        hidden = [short_name(table) for table in meant if table not in tables] or ["a table"]
        raise ViewError(
            f"{spec.path.name} reads views, {', '.join(source.all_views())}, and has a WITH "
            f"clause by the name of what they read: {', '.join(hidden)}",
            hint="give the WITH clause another name",
        )
