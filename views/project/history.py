"""Histories: views with `-- history: scd2`, whose table has a row for each version of its rows.

The query is of one table and makes each row of one version, so that it means the same of a version
as of a row. What else SQL may say of several rows is refused here, with what to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from changelog.contract.log.versions import COMPLETE_FROM, FROM_LSN, TO_LSN, VERSION_COLUMNS
from changelog.contract.rows.schema import LoggedSchema
from views.project.spec import ViewSpec, short_name

SCD2 = "scd2"
SINKS = ("delta", "postgres")
"""The sinks that hold histories."""
REQUIRED = (FROM_LSN, TO_LSN, COMPLETE_FROM)
"""Columns that each history has under their own names: its readers need them."""
_ONE_TABLE = "a history is SELECT … FROM one captured table, with WHERE or without"
_OVER_IT = f"{_ONE_TABLE}: query the history for the rest"
_CLAUSES = {
    "with_": "WITH",
    "joins": "a join",
    "laterals": "LATERAL VIEW",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


def check_history(
    path: Path, kind: str, dialect: str, sinks: Sequence[str], query: exp.Query
) -> None:
    """Require that a view can be a history.

    `kind`: the text of its header. `query`: as it was parsed.

    Raises ViewError: it cannot; says what to write.
    """
    if kind != SCD2:
        raise ViewError(
            f'{path.name}: "{kind}" is no kind of history', hint="write `-- history: scd2`"
        )
    if dialect != "spark":
        raise ViewError(
            f"{path.name}: a history is in Spark's SQL",
            hint="leave out `-- dialect: postgres`, or the header `-- history`",
        )
    for sink in sinks:
        if sink.partition(":")[0] not in SINKS:
            raise ViewError(
                f"{path.name}: a history cannot be served by {sink}",
                hint="write `-- sinks: delta`, `postgres` or both",
            )
    for refused in _refused(query):
        raise ViewError(f"{path.name}: a history has no {refused}", hint=_OVER_IT)


def _refused(query: exp.Query) -> Iterator[str]:
    if not isinstance(query, exp.Select):
        yield "UNION, INTERSECT or EXCEPT, and stands in no brackets"
        return
    yield from (words for name, words in _CLAUSES.items() if query.args.get(name))
    source = query.args["from_"].this if query.args.get("from_") else None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        yield "table function, and no subquery in place of its table"
    for node in query.walk():
        match node:
            case exp.Select() if node is not query:
                yield "subquery"
            case exp.Window():
                yield "window function"
            case exp.AggFunc():
                yield f"aggregate such as {node.sql('spark')}"
            case exp.UDTF():
                yield f"{node.sql('spark')}, which makes several rows of one"
            case exp.TableSample():
                yield "TABLESAMPLE"
            case _:
                pass


def refuse_history(spec: ViewSpec, consequence: str, hint: str) -> None:
    """Raise ViewError if a view is a history; `consequence` completes "it is a history: …"."""
    if spec.history:
        raise ViewError(f'view "{spec.name}" is a history: {consequence}', hint=hint)


def check_columns(spec: ViewSpec, query: exp.Select, schema: LoggedSchema) -> None:
    """Require that a history's key tells its versions apart, and that it says when each is valid.

    `query`: its query. `schema`: of its table, without the columns of versions.

    Raises ViewError: it does not; says what to write.
    """
    plain = dict(_plain(query, [*(column.column for column in schema.columns), *VERSION_COLUMNS]))
    for name in REQUIRED:
        if plain.get(name) != name:
            raise ViewError(
                f'view "{spec.name}" is a history without the column {name}',
                hint=f"select {', '.join(REQUIRED)} as they are",
            )
    key = [*schema.key, FROM_LSN]
    own = {plain.get(name.lower()) for name in spec.key}
    if own != {name.lower() for name in key}:
        raise ViewError(
            f'view "{spec.name}" is a history of {short_name(schema.table)}, whose versions '
            f"{', '.join(spec.key)} does not tell apart",
            hint=f"select {', '.join(key)} as they are, and write `-- key: {', '.join(key)}`",
        )


def _plain(query: exp.Select, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the columns of a query that are columns of its table: name and table's name, lower."""
    for selected in query.expressions:
        value = selected.this if isinstance(selected, exp.Alias) else selected
        if value.is_star:
            yield from ((name.lower(), name.lower()) for name in columns)
        elif isinstance(value, exp.Column):
            yield selected.alias_or_name.lower(), value.name.lower()
