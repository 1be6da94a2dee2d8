"""Derives the origins of the columns and rows of a SQL view from its query. Pure.

sqlglot's `qualify` adds its table to each column, and `merge_subqueries` merges subqueries and WITH
clauses that only select and join into the outer query. If a single SELECT over tables remains, the
query for the places of the rows behind a key is that SELECT without its grouping: it has the same
joins and conditions. Otherwise the second half of this module follows the subqueries. It names
whatever it cannot follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer.eliminate_subqueries import eliminate_subqueries
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.relation import TableName
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN
from views.verify.values.names import folded, parsed, reading_name, schema_of

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table in a query, with its alias there."""

    alias: str
    table: TableName


@dataclass(frozen=True, slots=True)
class FieldOrigin:
    """The origin of a column of a view."""

    columns: tuple[tuple[str, str], ...]  # alias and name of each column that its expression reads
    expression: str = ""  # its expression, unless that is just a column
    note: str = ""  # a remark about a part that is not traced, or an empty text


class Computed(Enum):
    """The way in which a column follows from the columns of tables."""

    IDENTITY = "IDENTITY"
    TRANSFORMATION = "TRANSFORMATION"
    AGGREGATION = "AGGREGATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLineage:
    """The origin of a query's rows and columns."""

    sources: tuple[QueryTable, ...]  # the tables that its rows are made of
    fields: Mapping[str, FieldOrigin]  # the origin of each column
    # Spark SQL that returns the key's columns and the partition and offset of each source's row,
    # for each combination of rows that goes into a row of the view
    places: str
    notes: tuple[str, ...] = ()  # remarks about parts that are not traced


class UntraceableError(Exception):
    """The rows of a view cannot be traced; the message has the reason."""


def trace(sql: str, tables: Mapping[TableName, Sequence[str]], key: Sequence[str]) -> RowLineage:
    """Trace the rows of a view to its tables by its query.

    Raises UntraceableError: it uses something that is not followed.
    """
    try:
        query = _qualified(sql, tables)
        flat = merge_subqueries(eliminate_subqueries(query.copy()))
        if isinstance(flat, exp.Select) and _is_flat(flat):
            return _of_flat(flat, tables, key)
        return _of_nested(sql, query, tables, key)
    except (SqlglotError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UntraceableError(f"sqlglot cannot trace it: {first}") from error


def _is_flat(query: exp.Select) -> bool:
    items = (item.unalias() for item in query.selects)
    is_global = query.args.get("group") is None and any(map(_aggregates, items))
    return query.args.get("with_") is None and not is_global


def _of_flat(
    query: exp.Select, tables: Mapping[TableName, Sequence[str]], key: Sequence[str]
) -> RowLineage:
    if query.args.get("laterals"):
        raise UntraceableError("it generates rows (LATERAL VIEW)")
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
            raise _UnnestableError("it reads from something that is not a captured table")
        sources.append(QueryTable(node.alias_or_name, table))
        return len(sources) - 1

    notes = tuple(_notes(query, _written(tables))) if isinstance(query, exp.Select) else ()
    for clause in ("order", "limit", "offset"):
        query.set(clause, None)
    try:
        columns = (PARTITION_COLUMN, OFFSET_COLUMN)
        rows, _ = _with_places(inlined(query), leaf, columns)
    except _UnnestableError as error:
        raise UntraceableError(str(error)) from error
    spellings = {name.lower(): name for name in query.named_selects}
    for name in key:
        if name.lower() not in spellings:
            raise UntraceableError(f'it has no column "{name}"')
    keys = [
        exp.alias_(exp.column(spellings[name.lower()], table=_ROWS, quoted=True), f"k{number}")
        for number, name in enumerate(key)
    ]
    chosen = exp.select(*keys, *_passed_on(range(len(sources)), _ROWS))
    # Columns that the places do not need, such as large documents, are not computed.
    places = pushdown_projections(chosen.from_(_derived(rows, _ROWS)))
    return RowLineage(
        sources=tuple(sources),
        fields=columns_of(sql, tables),
        places=places.sql("spark"),
        notes=notes,
    )


def columns_of(sql: str, tables: Mapping[TableName, Sequence[str]]) -> dict[str, FieldOrigin]:
    """Return the table columns that each column of a query reads, where rows cannot be traced."""
    written = _written(tables)
    return {
        name: FieldOrigin(tuple((written.get(table, table), column) for table, column in leaves))
        for name, (leaves, _) in _all_leaves(sql, tables).items()
    }


def column_sources(
    sql: str, tables: Mapping[TableName, Sequence[str]]
) -> dict[str, tuple[list[tuple[TableName, str]], Computed]]:
    """Return the table columns that each column of a query is computed from, and how.

    `tables`: the columns of each table. Names of a query's columns are in small letters.
    """
    named = {reading_name(table): table for table in tables}
    spelled = {
        (reading_name(table), folded(column)): column
        for table, columns in tables.items()
        for column in columns
    }
    return {
        name: ([(named[leaf[0]], spelled[leaf]) for leaf in leaves if leaf in spelled], how)
        for name, (leaves, how) in _all_leaves(sql, tables).items()
    }


def _all_leaves(
    sql: str, tables: Mapping[TableName, Sequence[str]]
) -> dict[str, tuple[list[tuple[str, str]], Computed]]:
    schema = _schema(tables)
    try:
        query = _qualified(sql, tables)
        names = query.named_selects if isinstance(query, exp.Query) else []
        return {name: _leaves(query, name, schema) for name in names}
    except (SqlglotError, RecursionError, ValueError):
        return {}


def _written(tables: Collection[TableName]) -> dict[str, str]:
    """Return the tables' names for people, by their names in queries."""
    return {reading_name(table): table.table for table in tables}


def _leaves(
    query: exp.Expr, name: str, schema: MappingSchema
) -> tuple[list[tuple[str, str]], Computed]:
    """Return the columns, by the tables' names in the query, that a column is computed from."""
    leaves, how = dict[tuple[str, str], None](), Computed.IDENTITY
    for node in lineage(name, query, schema, dialect="spark").walk():
        if not node.downstream and isinstance(node.source, exp.Table):
            leaves[node.source.name, node.name.rpartition(".")[2].strip('"`')] = None
        elif node.expression.find(exp.AggFunc) is not None:
            how = Computed.AGGREGATION
        elif how is Computed.IDENTITY and not isinstance(node.expression.unalias(), exp.Column):
            how = Computed.TRANSFORMATION
    return list(leaves), how


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
            raise UntraceableError("it reads from something that is not a captured table")
        yield QueryTable(node.alias_or_name, captured)


def _origin(item: exp.Expr, aliases: set[str]) -> FieldOrigin:
    if item.find(exp.Query) is not None:
        return FieldOrigin((), item.sql("spark"), "from a subquery, whose rows are not traced")
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
        note = "a window function, which reads other rows too"
    elif not columns:
        note = "it depends on all rows and reads no column" if _aggregates(item) else "a constant"
    return FieldOrigin(columns, item.sql("spark"), note)


def _aggregates(item: exp.Expr) -> bool:
    """Return whether an expression has an aggregate, outside of windows and subqueries."""
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
            f"a condition or a subquery reads {', '.join(tables)}: "
            "the rows that it reads there are not listed"
        )
    if query.args.get("limit") is not None:
        yield "the view has a LIMIT: other rows decided too that this one is in it"


# A query Q is transformed into one that returns Q's columns and, for each table that Q reads
# anywhere, the place of one of its rows. It returns a row of Q once for each combination of rows
# that goes into it:
# - A table returns its own places; a subquery is transformed first.
# - A SELECT that only selects passes on the places of its sources.
# - A SELECT that aggregates is joined, by its grouping expressions, with the same SELECT before
#   the grouping.
# - A UNION returns the places of each branch, and null for the tables of the other branches.
# Subqueries in expressions and conditions (EXISTS, IN, scalar ones) only decide about rows. Their
# rows are not listed, and `notes` of the lineage says so.
_GROUPS, _NESTED_ROWS = "__grouped", "__rows"

_Leaf = Callable[[exp.Table], int]
"""Registers a table that a query reads; returns its number."""


class _UnnestableError(Exception):
    """The places of a query's rows cannot be determined; the message has the reason."""


def inlined(query: exp.Query) -> exp.Query:
    """Return a query with each reference to a WITH clause replaced by a subquery."""
    return _inlined(query.copy(), {})


def _inlined(query: exp.Query, named_queries: dict[str, exp.Query]) -> exp.Query:
    visible = dict(named_queries)
    clause = query.args.get("with_")
    if clause is not None:
        if clause.args.get("recursive"):
            raise _UnnestableError("it is recursive")
        for cte in clause.expressions:
            visible[cte.alias] = _inlined(cte.this, visible)
        query.set("with_", None)
    for inner in [node for node in query.find_all(exp.Query) if node is not query]:
        if inner.args.get("with_") is not None:
            inner.replace(_inlined(inner.copy(), visible))
    for table in list(query.find_all(exp.Table)):
        body = visible.get(table.name) if not table.db else None
        if body is not None:
            table.replace(exp.Subquery(this=body.copy(), alias=_alias(table.alias_or_name)))
    return query


def _with_places(
    query: exp.Query, leaf: _Leaf, columns: tuple[str, str]
) -> tuple[exp.Select, list[int]]:
    """Return a query that also returns places, as `p0, o0, p1, …`, and the sources' numbers.

    Raises _UnnestableError: it uses something that is not followed.
    """
    if isinstance(query, exp.Subquery):
        return _with_places(query.this, leaf, columns)
    if isinstance(query, exp.Union):
        return _union(query, leaf, columns)
    if not isinstance(query, exp.Select):
        raise _UnnestableError(f"it uses {query.key.upper()}")
    return _select(query, leaf, columns)


def _union(query: exp.Union, leaf: _Leaf, columns: tuple[str, str]) -> tuple[exp.Select, list[int]]:
    names = query.named_selects
    left_query, left_numbers = _with_places(query.left, leaf, columns)
    right_query, right_numbers = _with_places(query.right, leaf, columns)
    numbers = left_numbers + right_numbers
    branches = []
    for branch, branch_numbers in ((left_query, left_numbers), (right_query, right_numbers)):
        branch_columns = [
            exp.alias_(exp.column(old, table=_NESTED_ROWS, quoted=True), new, quoted=True)
            for old, new in zip(branch.named_selects, names, strict=False)
        ]
        places = [
            exp.alias_(
                exp.column(f"{letter}{number}", table=_NESTED_ROWS)
                if number in branch_numbers
                else _null_place(letter),
                f"{letter}{number}",
            )
            for number in numbers
            for letter in "po"
        ]
        branches.append(exp.select(*branch_columns, *places).from_(_derived(branch, _NESTED_ROWS)))
    both = exp.union(*branches, distinct=False)
    chosen = [exp.column(name, table=_GROUPS, quoted=True) for name in names]
    return _choosing(both, chosen, numbers, _GROUPS), numbers


def _null_place(letter: str) -> exp.Expr:
    return exp.cast(exp.null(), "int" if letter == "p" else "bigint")


def _select(
    query: exp.Select, leaf: _Leaf, columns: tuple[str, str]
) -> tuple[exp.Select, list[int]]:
    if query.args.get("limit") is not None or query.args.get("offset") is not None:
        raise _UnnestableError("it has a subquery with LIMIT or OFFSET")
    rows = query.copy()
    numbers, places = _of_sources(rows, leaf, columns)
    if not _groups(query):
        rows.set("order", None)
        return rows.select(*places, copy=False), numbers
    group = query.args.get("group")
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        raise _UnnestableError("it groups in several ways at once (ROLLUP, CUBE, GROUPING SETS)")
    by = list(group.expressions) if group is not None else []
    names = query.named_selects
    grouped = query.copy()
    grouped.set("order", None)
    keys = [exp.alias_(key.copy(), f"__g{n}") for n, key in enumerate(by)]
    grouped.select(*keys, copy=False)
    for clause in ("group", "having", "distinct", "order", "limit", "offset", "qualify"):
        rows.set(clause, None)
    rows.set("expressions", [key.copy() for key in keys] + places)
    chosen = [exp.column(name, table=_GROUPS, quoted=True) for name in names]
    joined = exp.select(*chosen).from_(_derived(grouped, _GROUPS))
    same = [
        exp.NullSafeEQ(
            this=exp.column(f"__g{number}", table=_GROUPS),
            expression=exp.column(f"__g{number}", table=_NESTED_ROWS),
        )
        for number in range(len(by))
    ]
    on = exp.and_(*same) if same else exp.true()
    joined = joined.join(_derived(rows, _NESTED_ROWS), on=on, join_type="left")
    return joined.select(*_passed_on(numbers, _NESTED_ROWS), copy=False), numbers


def _of_sources(
    rows: exp.Select, leaf: _Leaf, columns: tuple[str, str]
) -> tuple[list[int], list[exp.Expr]]:
    """Make each source return its places; return the sources' numbers and the places' columns."""
    numbers: list[int] = []
    places: list[exp.Expr] = []
    first = rows.args.get("from_")
    parts = [first.this] if first is not None else []
    for node in [*parts, *(join.this for join in rows.args.get("joins") or ())]:
        if isinstance(node, exp.Table):
            number = leaf(node)
            numbers.append(number)
            places += [
                exp.alias_(
                    exp.column(column, table=node.alias_or_name, quoted=True), f"{letter}{number}"
                )
                for letter, column in zip("po", columns, strict=True)
            ]
        elif isinstance(node, exp.Subquery):
            inner, inner_numbers = _with_places(node.this, leaf, columns)
            node.set("this", inner)
            numbers += inner_numbers
            places += _passed_on(inner_numbers, node.alias_or_name)
        else:
            raise _UnnestableError("it reads from something that is not a captured table")
    return numbers, places


def _passed_on(numbers: Sequence[int], source: str) -> list[exp.Expr]:
    """Return the columns that pass on the places of a source."""
    return [
        exp.alias_(exp.column(f"{letter}{n}", table=source, quoted=True), f"{letter}{n}")
        for n in numbers
        for letter in "po"
    ]


def _choosing(
    query: exp.Query, chosen: Sequence[exp.Expr], numbers: Sequence[int], alias: str
) -> exp.Select:
    return exp.select(*chosen, *_passed_on(numbers, alias)).from_(_derived(query, alias))


def _derived(query: exp.Query, alias: str) -> exp.Subquery:
    """Return a query as a subquery for a FROM clause."""
    return exp.Subquery(this=query, alias=_alias(alias))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _groups(query: exp.Select) -> bool:
    """Return whether a SELECT aggregates rows."""
    if query.args.get("group") is not None:
        return True
    return any(
        aggregate.find_ancestor(exp.Window, exp.Query) is query
        for item in query.selects
        for aggregate in item.find_all(exp.AggFunc)
    )
