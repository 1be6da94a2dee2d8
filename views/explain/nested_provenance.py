"""Origins of the rows of a nested query, through subqueries, groups and unions (pure).

A query Q is made into one that gives Q's columns and, for each table that Q reads anywhere, the
place of one row of it; a row of Q comes once for each combination of rows that goes into it:

- a table gives its own places; a subquery is made into such a query first;
- a SELECT that only chooses hands on the places of what it reads;
- a SELECT that aggregates is joined, on what it groups by, with the same SELECT before it groups;
- a UNION gives of each branch the places, and null for the tables of the others.

What stands inside expressions and conditions (EXISTS, IN, a scalar subquery) decides about rows
and is not listed: `notes` of the lineage say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

_GROUPS, _ROWS = "__grouped", "__rows"

Leaf = Callable[[exp.Table], int]
"""Registers a table that a query reads; returns its number."""


class UnnestableError(Exception):
    """The places of a query's rows cannot be determined; says why."""


def inlined(query: exp.Query) -> exp.Query:
    """Return a query with each name of a WITH clause replaced by its query."""
    return _inlined(query.copy(), {})


def _inlined(query: exp.Query, named_queries: dict[str, exp.Query]) -> exp.Query:
    own = dict(named_queries)
    clause = query.args.get("with_")
    if clause is not None:
        if clause.args.get("recursive"):
            raise UnnestableError("it is recursive")
        for cte in clause.expressions:
            own[cte.alias] = _inlined(cte.this, own)
        query.set("with_", None)
    for inner in [node for node in query.find_all(exp.Query) if node is not query]:
        if inner.args.get("with_") is not None:
            inner.replace(_inlined(inner.copy(), own))
    for table in list(query.find_all(exp.Table)):
        body = own.get(table.name) if not table.db else None
        if body is not None:
            table.replace(exp.Subquery(this=body.copy(), alias=_alias(table.alias_or_name)))
    return query


def with_places(
    query: exp.Query, leaf: Leaf, columns: tuple[str, str]
) -> tuple[exp.Select, list[int]]:
    """Return the query that gives the places too, as `p0, o0, p1, …`, and the numbers it has.

    Args:
        query: qualified, without WITH.
        leaf: registers the tables that it reads.
        columns: what partition and offset are called in a table.

    Raises:
        UnnestableError: it does something that is not followed.
    """
    if isinstance(query, exp.Subquery):
        return with_places(query.this, leaf, columns)
    if isinstance(query, exp.Union):
        return _union(query, leaf, columns)
    if not isinstance(query, exp.Select):
        raise UnnestableError(f"it uses {query.key.upper()}")
    return _select(query, leaf, columns)


def _union(query: exp.Union, leaf: Leaf, columns: tuple[str, str]) -> tuple[exp.Select, list[int]]:
    names = query.named_selects
    left_query, lefts = with_places(query.left, leaf, columns)
    right, rights = with_places(query.right, leaf, columns)
    numbers = lefts + rights
    branches = []
    for branch, own in ((left_query, lefts), (right, rights)):
        own_columns = [
            exp.alias_(exp.column(old, table=_ROWS, quoted=True), new, quoted=True)
            for old, new in zip(branch.named_selects, names, strict=False)
        ]
        places = [
            exp.alias_(
                exp.column(f"{letter}{number}", table=_ROWS) if number in own else _nothing(letter),
                f"{letter}{number}",
            )
            for number in numbers
            for letter in "po"
        ]
        branches.append(exp.select(*own_columns, *places).from_(derived(branch, _ROWS)))
    both = exp.union(*branches, distinct=False)
    chosen = [exp.column(name, table=_GROUPS, quoted=True) for name in names]
    return _choosing(both, chosen, numbers, _GROUPS), numbers


def _nothing(letter: str) -> exp.Expr:
    return exp.cast(exp.null(), "int" if letter == "p" else "bigint")


def _select(
    query: exp.Select, leaf: Leaf, columns: tuple[str, str]
) -> tuple[exp.Select, list[int]]:
    if query.args.get("limit") is not None or query.args.get("offset") is not None:
        raise UnnestableError("a subquery of it is limited")
    rows = query.copy()
    numbers, places = _of_sources(rows, leaf, columns)
    if not _groups(query):
        rows.set("order", None)
        return rows.select(*places, copy=False), numbers
    group = query.args.get("group")
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        raise UnnestableError("it groups in several ways at once (ROLLUP, CUBE, GROUPING SETS)")
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
    joined = exp.select(*chosen).from_(derived(grouped, _GROUPS))
    same = [
        exp.NullSafeEQ(
            this=exp.column(f"__g{number}", table=_GROUPS),
            expression=exp.column(f"__g{number}", table=_ROWS),
        )
        for number in range(len(by))
    ]
    on = exp.and_(*same) if same else exp.true()
    joined = joined.join(derived(rows, _ROWS), on=on, join_type="left")
    return joined.select(*handed(numbers, _ROWS), copy=False), numbers


def _of_sources(
    rows: exp.Select, leaf: Leaf, columns: tuple[str, str]
) -> tuple[list[int], list[exp.Expr]]:
    """Make each source give its places; return their numbers and the columns that hold them."""
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
            inner, own = with_places(node.this, leaf, columns)
            node.set("this", inner)
            numbers += own
            places += handed(own, node.alias_or_name)
        else:
            raise UnnestableError("it reads from something that is no captured table")
    return numbers, places


def handed(numbers: Sequence[int], source: str) -> list[exp.Expr]:
    """Return the columns that hand on the places which a source has."""
    return [
        exp.alias_(exp.column(f"{letter}{n}", table=source, quoted=True), f"{letter}{n}")
        for n in numbers
        for letter in "po"
    ]


def _choosing(
    query: exp.Query, chosen: Sequence[exp.Expr], numbers: Sequence[int], alias: str
) -> exp.Select:
    return exp.select(*chosen, *handed(numbers, alias)).from_(derived(query, alias))


def derived(query: exp.Query, alias: str) -> exp.Subquery:
    """Return a query as a subquery for a FROM clause."""
    return exp.Subquery(this=query, alias=_alias(alias))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _groups(query: exp.Select) -> bool:
    """Tell whether a SELECT makes one row of many."""
    if query.args.get("group") is not None:
        return True
    return any(
        aggregate.find_ancestor(exp.Window, exp.Query) is query
        for item in query.selects
        for aggregate in item.find_all(exp.AggFunc)
    )
