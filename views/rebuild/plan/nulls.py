"""The values of a query that can be null, and its orders that depend on the place of nulls. Pure.

What is not known counts as null at times.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

_NEVER = (exp.Count, exp.CountIf, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.Boolean)
_AS_ITS_PARTS = (
    *(exp.Paren, exp.Alias, exp.Neg, exp.Abs, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
    *(exp.IntDiv, exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.DPipe, exp.Concat, exp.Round),
    *(exp.Year, exp.Month, exp.Day, exp.Extract, exp.DateTrunc, exp.TimestampTrunc, exp.Ceil),
    *(exp.Floor, exp.Window, exp.Predicate, exp.Connector),
)
_AGGREGATES = (exp.Sum, exp.Avg, exp.Min, exp.Max)
_PLACED = re.compile(r"[\s)`\"]*(asc|desc)?\s*nulls\s+(first|last)\b", re.IGNORECASE)


class Nulls:
    """The nullability of the values of one query."""

    def __init__(self, query: exp.Expr, sql: str, filled: Mapping[str, Collection[str]]) -> None:
        """Look at a query.

        Args:
            query: with qualified columns.
            sql: its text.
            filled: names of the columns that hold no null, by their tables' names in the query.
        """
        self._query, self._sql = query, sql
        self._filled = filled
        self._sources: dict[int, exp.Table | Scope] = {}
        self._outer = any(join.side or join.kind == "FULL" for join in query.find_all(exp.Join))
        for scope in traverse_scope(query):
            for column in scope.columns:
                source = scope.sources.get(column.table)
                if isinstance(source, exp.Table | Scope):
                    self._sources.setdefault(id(column), source)

    def may_be(self, node: exp.Expr | None) -> bool:  # noqa: PLR0911 - one for each sort of node
        """Tell whether a value can be null."""
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return False
            case exp.Cast():
                return bool(node.args.get("safe")) or self.may_be(node.this)
            case exp.Coalesce():
                return all(map(self.may_be, [node.this, *node.expressions]))
            case _ if isinstance(node, _NEVER):
                return False
            case _ if isinstance(node, _AGGREGATES):
                grouped = node.find_ancestor(exp.Select)
                groups = grouped is not None and grouped.args.get("group") is not None
                return not groups or self.may_be(node.this)
            case exp.Window():
                return self.may_be(node.this)
            case _ if isinstance(node, _AS_ITS_PARTS):
                parts = node.iter_expressions()
                return any(self.may_be(part) for part in parts if isinstance(part, exp.Condition))
            case _:
                return True

    def orders(self) -> Iterator[exp.Ordered]:
        """Yield each order that changes rows, is by a nullable value, and leaves its place open."""
        for node in self._query.find_all(exp.Ordered):
            order = node.parent
            around = None if order is None else order.parent
            counts = isinstance(around, exp.Window) or (
                isinstance(around, exp.Query)
                and any(around.args.get(word) for word in ("limit", "offset"))
            )
            if counts and self.may_be(node.this) and not self._is_placed(node):
                yield node

    def _column(self, node: exp.Column) -> bool:
        source = self._sources.get(id(node))
        if self._outer:
            return True
        if isinstance(source, exp.Table):
            return node.name not in self._filled.get(source.name, ())
        # An order may name a column of its own query.
        selected = node.find_ancestor(exp.Select) if source is None else source.expression
        if not isinstance(selected, exp.Select) or (source is None and node.table):
            return True
        query = [column for column in selected.selects if column.alias_or_name == node.name]
        return not query or self.may_be(query[0])

    def _is_placed(self, node: exp.Ordered) -> bool:
        """Tell whether the text says where nulls stand, which the parser fills in otherwise."""
        ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
        return bool(ends) and _PLACED.match(self._sql, max(ends) + 1) is not None
