"""Which rows of a SQL view may change when some rows of its tables do. Pure.

What a view's key comes from is read off the query where that can be said for certain; where it
cannot, the reason is given and the view is computed whole.

**By key.** A query over one table, without grouping, whose key holds the table's primary key: each
row of the view comes from one row of the table, and from no other.

**By query.** The key's columns are plain columns of the tables, and the FROM clause joins tables by
INNER, CROSS and LEFT. A row of the view is made of tuples, one row of each table. When the tuples
behind a key differ between two states, one of them holds a row that changed. So the keys of all
tuples with a changed row, in either state, are all keys whose rows may differ: the FROM clause is
evaluated over the rows of both states, the changed ones marked, and tuples with a mark are kept.
That is a superset, which is as good.

A table behind LEFT JOIN may be absent from a tuple. So the key must not come from it, no later
INNER JOIN may look at it, and WHERE, which may ask whether it is absent, does not narrow the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from changelog.contract.rows.relation import TableName
from views.base.spark_sql import SparkSql, conjuncts
from views.project.query import quoted
from views.project.spec import SqlSource, TableReference
from views.project.sql import rewritten

MARK = "__changed"
"""The column that marks the changed rows of a table."""
NO_DELTA = "it has no Delta sink, so what serves cannot be carried over"
"""Why a view is computed whole whatever its query is."""


@dataclass(frozen=True, slots=True)
class KeyOrigin:
    """The origin of one column of a view's key."""

    view_column: str
    reference: TableReference
    column: str


@dataclass(frozen=True, slots=True)
class JoinEdge:
    """Two columns of two places that are equal in every tuple that has a row of both."""

    places: tuple[TableReference, TableReference]
    columns: tuple[str, str]

    def across(self, place: TableReference) -> tuple[str, TableReference, str] | None:
        """Return the column at a place, the other place and its column; None elsewhere."""
        if place not in self.places:
            return None
        here = self.places.index(place)
        return self.columns[here], self.places[1 - here], self.columns[1 - here]


@dataclass(frozen=True, slots=True)
class KeyLineage:
    """The derivation of a view's keys from rows of its tables."""

    source: SqlSource  # the query
    origins: tuple[KeyOrigin, ...]  # of each key column
    # under which the query speaks of each place that names a table
    names: Mapping[TableReference, str]
    # the FROM clause in the query's text, from its first to behind its last character
    clause: tuple[int, int]
    # the condition behind WHERE likewise, None when it does not narrow the keys
    where: tuple[int, int] | None
    # for a view by key, the column of the view that holds each column of the table's primary key;
    # None for a view by query
    by_key: Mapping[str, str] | None
    edges: tuple[JoinEdge, ...] = ()  # the equalities of plain columns that joins ask for

    @property
    def anchor(self) -> TableReference | None:
        """Return the one place that the whole key comes from, None when there are several."""
        places = {origin.reference for origin in self.origins}
        return places.pop() if len(places) == 1 else None

    @property
    def is_linked(self) -> bool:
        """Tell whether equalities of plain columns link all places with each other.

        Otherwise rows of both states of all tables may make far more tuples than touched ones do.
        """
        linked = {next(iter(self.names))}
        for _ in self.names:
            linked |= {p for edge in self.edges if linked & {*edge.places} for p in edge.places}
        return linked == self.names.keys()

    def keys_sql(
        self, changed: Sequence[TableReference], views: Mapping[TableReference, str]
    ) -> str:
        """Return the query for the keys of all tuples with a marked row at one of some places."""
        listed = ", ".join(
            f"{quoted(self.names[origin.reference])}.{quoted(origin.column)}"
            f" AS {quoted(origin.view_column)}"
            for origin in self.origins
        )
        marks = " OR ".join(f"{quoted(self.names[place])}.{quoted(MARK)}" for place in changed)
        text = f"SELECT DISTINCT {listed} {rewritten(self.source, views, *self.clause)}\n"
        text += f"WHERE ({marks})"
        if self.where is not None:
            text += f" AND (\n{rewritten(self.source, views, *self.where)}\n)"
        return text


@dataclass(frozen=True, slots=True)
class Untraceable:
    """The reason why the keys that a change touches cannot be derived."""

    why: str


def trace(
    source: SqlSource,
    key: Sequence[str],
    columns: Mapping[TableName, Sequence[str]],
    keys: Mapping[TableName, Sequence[str]],
    parsed: exp.Expr | None = None,
) -> KeyLineage | Untraceable:
    """Return the origin of a query's key."""
    if unkeyed := [table for table, own in keys.items() if not own]:
        names = ", ".join(str(table) for table in unkeyed)
        return Untraceable(f"it reads {names}, which has no primary key")
    if source.views:
        return Untraceable(f"it reads the view {', '.join(source.views)}")
    query = parsed or sqlglot.parse_one(source.text, dialect=SparkSql)
    if not isinstance(query, exp.Select):
        return Untraceable("it is not one plain SELECT")
    why = next(_obstacles(query), None)
    if why is not None:
        return Untraceable(why)
    return _Tracer(source, query, columns, keys).traced(key)


_REFUSED: dict[str, str] = {
    "with_": "it has a WITH clause",
    "limit": "it has LIMIT",
    "offset": "it has OFFSET",
    "laterals": "it has LATERAL VIEW",
    "qualify": "it has QUALIFY",
    "pivots": "it has PIVOT",
    "connect": "it has CONNECT BY",
    "windows": "it has WINDOW",
    "match": "it has MATCH_RECOGNIZE",
}


def _obstacles(query: exp.Select) -> Iterator[str]:
    for name, why in _REFUSED.items():
        if query.args.get(name):
            yield why
    for node in query.walk():
        if isinstance(node, exp.Query) and node is not query:
            yield "it has a query inside"
        if isinstance(node, exp.Window):
            yield "it has a window function"
    group = query.args.get("group")
    if group is not None and not _is_plain(group):
        yield "it groups by more than a list of columns"
    if group is None and query.find(exp.AggFunc) is not None:
        yield "it aggregates without GROUP BY"
    for join in query.args.get("joins") or ():
        kind, side = (str(join.args.get(part) or "").upper() for part in ("kind", "side"))
        if join.args.get("method") or side not in {"", "LEFT"}:
            yield f"it has a {join.args.get('method') or side} JOIN"
        if kind not in {"", "INNER", "CROSS", "OUTER"}:
            yield f"it has a {kind} JOIN"


def _is_plain(group: exp.Group) -> bool:
    others = [argument for name, argument in group.args.items() if name != "expressions"]
    sets = (exp.Rollup, exp.Cube, exp.GroupingSets)
    return not any(others) and not any(
        isinstance(expression, sets) for expression in group.expressions
    )


class _Tracer:
    """The places of one query, and the origins of its columns."""

    def __init__(
        self,
        source: SqlSource,
        query: exp.Select,
        columns: Mapping[TableName, Sequence[str]],
        keys: Mapping[TableName, Sequence[str]],
    ) -> None:
        self._source = source
        self._query = query
        self._columns = columns
        self._keys = keys
        self._joins: list[exp.Join] = list(query.args.get("joins") or ())
        self._tables = [query.args["from_"].this, *(join.this for join in self._joins)]
        self._using = {
            name.name.lower() for join in self._joins for name in join.args.get("using") or ()
        }

    def traced(self, key: Sequence[str]) -> KeyLineage | Untraceable:
        places = list(self._source.references)
        tables = [table for table in self._tables if isinstance(table, exp.Table)]
        if len(tables) != len(self._tables) or len(places) != len(tables):
            return Untraceable("it reads something else than tables")
        self._places = places
        self._names = {
            place: table.alias or table.name for place, table in zip(places, tables, strict=True)
        }
        optional = {
            place
            for place, join in zip(places[1:], self._joins, strict=True)
            if str(join.args.get("side") or "").upper() == "LEFT"
        }
        if optional and self._looks_at(optional):
            return Untraceable("an INNER JOIN looks at a table behind LEFT JOIN")
        origins = []
        for name in key:
            origin = self._origin(name)
            if origin is None:
                return Untraceable(f'its key column "{name}" is not a plain column of one table')
            if origin.reference in optional:
                return Untraceable(f'its key column "{name}" comes from behind a LEFT JOIN')
            origins.append(origin)
        clause, where = _slices(self._source)
        return KeyLineage(
            source=self._source,
            origins=tuple(origins),
            names=self._names,
            clause=clause,
            where=None if optional else where,
            by_key=self._by_key(origins),
            edges=tuple(self._edges(narrows=not optional)),
        )

    def _edges(self, *, narrows: bool) -> Iterator[JoinEdge]:
        """Find equalities of columns of two places, in WHERE too where it narrows the tuples."""
        conditions = [join.args["on"] for join in self._joins if join.args.get("on") is not None]
        where = self._query.args.get("where")
        if narrows and where is not None:
            conditions.append(where.this)
        for condition in conditions:
            for conjunct in conjuncts(condition):
                if isinstance(conjunct, exp.EQ) and (
                    edge := self._edge(conjunct.this, conjunct.expression)
                ):
                    yield edge
        for place, join in zip(self._places[1:], self._joins, strict=True):
            for name in join.args.get("using") or ():
                first = next(p for p in self._places if self._real(p, name.name) is not None)
                own, real = self._real(first, name.name), self._real(place, name.name)
                if first is not place and own is not None and real is not None:
                    yield JoinEdge((first, place), (own, real))

    def _edge(self, one: exp.Expr, other: exp.Expr) -> JoinEdge | None:
        if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
            return None
        places = self._place(one), self._place(other)
        if places[0] is None or places[1] is None or places[0] is places[1]:
            return None
        columns = self._real(places[0], one.name), self._real(places[1], other.name)
        if columns[0] is None or columns[1] is None:
            return None
        return JoinEdge((places[0], places[1]), (columns[0], columns[1]))

    def _looks_at(self, optional: set[TableReference]) -> bool:
        """Tell whether an INNER JOIN's condition may see a table that a LEFT JOIN has left out."""
        seen = False
        for place, join in zip(self._places[1:], self._joins, strict=True):
            on = join.args.get("on")
            if place in optional:
                seen = True
            elif seen and join.args.get("using"):
                return True
            elif seen and on is not None:
                places = [self._place(column) for column in on.find_all(exp.Column)]
                if any(origin is None or origin in optional for origin in places):
                    return True
        return False

    def _place(self, column: exp.Column) -> TableReference | None:
        """Return the place that a column is of, None when that is not certain."""
        if column.args.get("db") or column.args.get("table"):
            alias = column.table.lower()
            candidates = [place for place, name in self._names.items() if name.lower() == alias]
        else:
            candidates = [
                place for place in self._places if self._real(place, column.name) is not None
            ]
            if column.name.lower() in self._using:
                candidates = candidates[:1]  # of two equal columns it is the left one's
        if len(candidates) != 1 or self._real(candidates[0], column.name) is None:
            return None
        return candidates[0]

    def _real(self, place: TableReference, column: str) -> str | None:
        return next(
            (name for name in self._columns[place.table] if name.lower() == column.lower()), None
        )

    def _origin(self, name: str) -> KeyOrigin | None:
        """Return the origin of a column of the result; only a plain column has one."""
        for item in self._query.expressions:
            if item.alias_or_name != name:
                continue
            inner = item.unalias()
            if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
                return None
            place = self._place(inner)
            real = self._real(place, inner.name) if place is not None else None
            return KeyOrigin(name, place, real) if place is not None and real is not None else None
        stars = [expression for expression in self._query.expressions if expression.is_star]
        if len(stars) == 1 and len(self._places) == 1:
            real = self._real(self._places[0], name)
            return KeyOrigin(name, self._places[0], real) if real is not None else None
        return None

    def _by_key(self, origins: Sequence[KeyOrigin]) -> dict[str, str] | None:
        if len(self._places) != 1 or self._query.args.get("group"):
            return None
        if self._query.args.get("distinct") or self._query.args.get("having"):
            return None
        view_columns = {origin.column: origin.view_column for origin in origins}
        primary = self._keys[self._places[0].table]
        if not set(primary) <= set(view_columns):
            return None
        return {column: view_columns[column] for column in primary}


_ENDS = {
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.SORT_BY,
    TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY,
    TokenType.SEMICOLON,
}


def _slices(source: SqlSource) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Find the FROM clause and the condition of WHERE in the text, outside of all brackets."""
    tokens = list(_outer(sqlglot.tokenize(source.text, read=SparkSql)))
    first = source.references[0].start
    start = max(t.start for t in tokens if t.token_type is TokenType.FROM and t.start < first)
    last = max(reference.end for reference in source.references)
    ends = [t for t in tokens if t.start >= last and t.token_type in _ENDS]
    if not ends:
        return (start, len(source.text)), None
    clause = (start, ends[0].start)
    if ends[0].token_type is not TokenType.WHERE:
        return clause, None
    behind = ends[1].start if len(ends) > 1 else len(source.text)
    return clause, (ends[0].end + 1, behind)


def _outer(tokens: Sequence[Token]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        if token.token_type is TokenType.R_PAREN:
            depth -= 1
        if depth == 0:
            yield token
        if token.token_type is TokenType.L_PAREN:
            depth += 1
