"""Origins of the columns and rows of a SQL view, read from its query (pure).

`qualify` gives each column its table, and `merge_subqueries` dissolves the subqueries and WITH
clauses that only select and join. Where one SELECT over tables is left, a query for the places of
the rows that make up a key follows from it: the same joins and conditions, without the grouping.
Otherwise `views/explain/nested_provenance.py` follows the subqueries; what it does not follow is
said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer.eliminate_subqueries import eliminate_subqueries
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.relation import TableName
from views.explain.nested_provenance import UnnestableError, derived, handed, inlined, with_places
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN
from views.verify.values.names import folded, parsed, reading_name, schema_of

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table in a query, under the name by which the query speaks of it."""

    alias: str
    table: TableName


@dataclass(frozen=True, slots=True)
class FieldOrigin:
    """The origin of a column of a view.

    Attributes:
        columns: alias and column of what its expression reads.
        expression: the expression, where it is more than one column as it stands.
        note: what cannot be told, or nothing.
    """

    columns: tuple[tuple[str, str], ...]
    expression: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLineage:
    """The origin of a query's rows and columns.

    Attributes:
        sources: the tables that its rows are made of.
        fields: where each column comes from.
        places: Spark SQL that gives the key's columns, then partition and offset of each
            source's row, for each combination of rows that goes into a row of the view.
        notes: what is not traced.
    """

    sources: tuple[QueryTable, ...]
    fields: Mapping[str, FieldOrigin]
    places: str
    notes: tuple[str, ...] = ()


class UntraceableError(Exception):
    """The rows of a view cannot be traced; says why."""


def trace(sql: str, tables: Mapping[TableName, Sequence[str]], key: Sequence[str]) -> RowLineage:
    """Read a query.

    Args:
        sql: the view's, in Spark's SQL.
        tables: the columns of each table that it reads.
        key: the view's key.

    Raises:
        UntraceableError: its rows cannot be traced; says why.
    """
    try:
        query = _qualified(sql, tables)
        flat = merge_subqueries(eliminate_subqueries(query.copy()))
        if isinstance(flat, exp.Select) and _is_flat(flat):
            return _of_flat(flat, tables, key)
        return _of_nested(sql, query, tables, key)
    except (SqlglotError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UntraceableError(f"sqlglot does not follow it: {first}") from error


def _is_flat(query: exp.Select) -> bool:
    items = (item.unalias() for item in query.selects)
    is_global = query.args.get("group") is None and any(map(_aggregates, items))
    return query.args.get("with_") is None and not is_global


def _of_flat(
    query: exp.Select, tables: Mapping[TableName, Sequence[str]], key: Sequence[str]
) -> RowLineage:
    if query.args.get("laterals"):
        raise UntraceableError("it makes rows of its own (LATERAL VIEW)")
    group = query.args.get("group")
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        raise UntraceableError("it groups in several ways at once (ROLLUP, CUBE, GROUPING SETS)")
    sources = tuple(_sources(query, tables))
    items = {item.alias_or_name.lower(): item.unalias() for item in query.selects}
    fields = {
        item.alias_or_name: _origin(item.unalias(), {source.alias for source in sources})
        for item in query.selects
    }
    return RowLineage(
        sources=sources,
        fields=fields,
        places=_places(query, sources, [_key_item(items, name) for name in key]),
        notes=tuple(_notes(query, _written(tables))),
    )


def _of_nested(
    sql: str,
    query: exp.Expr,
    tables: Mapping[TableName, Sequence[str]],
    key: Sequence[str],
) -> RowLineage:
    if not isinstance(query, exp.Query):
        raise UntraceableError("it is not a query")
    names = {reading_name(table): table for table in tables}
    sources: list[QueryTable] = []

    def leaf(node: exp.Table) -> int:
        table = names.get(node.name)
        if table is None:
            raise UnnestableError("it reads from something that is no captured table")
        sources.append(QueryTable(node.alias_or_name, table))
        return len(sources) - 1

    notes = tuple(_notes(query, _written(tables))) if isinstance(query, exp.Select) else ()
    for clause in ("order", "limit", "offset"):
        query.set(clause, None)
    try:
        columns = (PARTITION_COLUMN, OFFSET_COLUMN)
        rows, _ = with_places(inlined(query), leaf, columns)
    except UnnestableError as error:
        raise UntraceableError(str(error)) from error
    spellings = {name.lower(): name for name in query.named_selects}
    for name in key:
        if name.lower() not in spellings:
            raise UntraceableError(f'it has no column "{name}"')
    keys = [
        exp.alias_(exp.column(spellings[name.lower()], table=_ROWS, quoted=True), f"k{number}")
        for number, name in enumerate(key)
    ]
    chosen = exp.select(*keys, *handed(range(len(sources)), _ROWS))
    # What is not needed for the places, such as the documents themselves, is not computed.
    places = pushdown_projections(chosen.from_(derived(rows, _ROWS)))
    return RowLineage(
        sources=tuple(sources),
        fields=columns_of(sql, tables),
        places=places.sql("spark"),
        notes=notes,
    )


def columns_of(sql: str, tables: Mapping[TableName, Sequence[str]]) -> dict[str, FieldOrigin]:
    """Return the table and column that each column of a query reads, where no row is traced."""
    schema = _schema(tables)
    try:
        query = _qualified(sql, tables)
        names = query.named_selects if isinstance(query, exp.Query) else []
        return {
            name: FieldOrigin(tuple(_leaves(query, name, schema, _written(tables))))
            for name in names
        }
    except (SqlglotError, RecursionError, ValueError):
        return {}


def _written(tables: Collection[TableName]) -> dict[str, str]:
    """Return the table names for people, by the names that queries read them under."""
    return {reading_name(table): table.table for table in tables}


def _leaves(
    query: exp.Expr, name: str, schema: MappingSchema, written: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    column_lineage = lineage(name, query, schema, dialect="spark")
    seen = set()
    for node in column_lineage.walk():
        table = written.get(node.source.name, node.source.name)
        leaf = (table, node.name.rpartition(".")[2].strip('"`'))
        if not node.downstream and isinstance(node.source, exp.Table) and leaf not in seen:
            seen.add(leaf)
            yield leaf


def _schema(tables: Mapping[TableName, Sequence[str]]) -> MappingSchema:
    return schema_of(
        {
            reading_name(table): dict.fromkeys(map(folded, columns), "string")
            for table, columns in tables.items()
        }
    )


def _qualified(sql: str, tables: Mapping[TableName, Sequence[str]]) -> exp.Expr:
    return qualify(parsed(sql, tables), schema=_schema(tables), dialect="spark")


def _sources(query: exp.Select, tables: Mapping[TableName, Sequence[str]]) -> Iterator[QueryTable]:
    names = {reading_name(table): table for table in tables}
    first = query.args.get("from_")
    parts = [first.this] if first is not None else []
    for node in [*parts, *(join.this for join in query.args.get("joins") or ())]:
        captured = names.get(node.name) if isinstance(node, exp.Table) else None
        if captured is None:
            raise UntraceableError("it reads from something that is no captured table")
        yield QueryTable(node.alias_or_name, captured)


def _origin(item: exp.Expr, aliases: set[str]) -> FieldOrigin:
    if item.find(exp.Query) is not None:
        return FieldOrigin((), item.sql("spark"), "a subquery gives it: its rows are not traced")
    columns = tuple(
        dict.fromkeys(
            (column.table, column.name)
            for column in item.find_all(exp.Column)
            if column.table in aliases
        )
    )
    if isinstance(item, exp.Column):
        return FieldOrigin(columns)
    note = ""
    if item.find(exp.Window) is not None:
        note = "a window looks at other rows too"
    elif not columns:
        note = "every row counts, no column is read" if _aggregates(item) else "a constant"
    return FieldOrigin(columns, item.sql("spark"), note)


def _aggregates(item: exp.Expr) -> bool:
    """Tell whether an expression makes one value of many rows, windows and subqueries apart."""
    owner = item.find_ancestor(exp.Query)
    return any(
        aggregate.find_ancestor(exp.Window, exp.Query) is owner
        for aggregate in item.find_all(exp.AggFunc)
    )


def _key_item(items: Mapping[str, exp.Expr], name: str) -> exp.Expr:
    item = items.get(name.lower())
    if item is None:
        raise UntraceableError(f'it has no column "{name}"')
    if _aggregates(item) or item.find(exp.Window, exp.Query) is not None:
        raise UntraceableError(f'its key "{name}" is computed from many rows')
    return item


def _places(query: exp.Select, sources: Sequence[QueryTable], key: Sequence[exp.Expr]) -> str:
    placing = query.copy()
    for clause in ("group", "having", "distinct", "order", "limit", "offset", "qualify"):
        placing.set(clause, None)
    keys = [exp.alias_(item.copy(), f"k{number}") for number, item in enumerate(key)]
    places = [
        exp.alias_(exp.column(column, table=source.alias, quoted=True), f"{letter}{number}")
        for number, source in enumerate(sources)
        for letter, column in (("p", PARTITION_COLUMN), ("o", OFFSET_COLUMN))
    ]
    placing.set("expressions", [*keys, *places])
    return placing.sql("spark")


def _notes(query: exp.Select, written: Mapping[str, str]) -> Iterator[str]:
    inner = [node for node in query.find_all(exp.Query) if node is not query]
    inner_tables = {table.name for node in inner for table in node.find_all(exp.Table)}
    tables = sorted(written.get(name, name) for name in inner_tables)
    if tables:
        yield (
            f"a condition or a subquery looks at {', '.join(tables)}: "
            "what it finds there is not listed"
        )
    if query.args.get("limit") is not None:
        yield "the view is limited: the other rows decided that this one is in it"
