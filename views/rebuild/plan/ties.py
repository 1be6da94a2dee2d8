"""Find orders that leave ties: windows and LIMIT over values that several rows share. Pure.

Spark and DuckDB put rows that are equal by ORDER BY in any order, so results that depend on the
order of such rows differ: `row_number()`, `lag`, frames by rows, LIMIT. A query can be proved if
its order determines the row: by a primary key, by columns that a join, GROUP BY, DISTINCT or a
condition makes unique, or because tied rows are equal in all columns that are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from changelog.contract.rows.relation import TableName
from views.base.spark_sql import conjuncts
from views.rebuild.plan.parts import text_of
from views.verify.values.names import folded, reading_name

_Column = tuple[str, str]
"""The name of a source in a query, and of one of its columns."""

_BY_PLACE = (
    *(exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
    *(exp.First, exp.Last, exp.AnyValue),
)
"""Functions whose value depends on the order of tied rows; that of rank() does not."""
_IN_ORDER = (exp.GroupConcat, exp.ArrayAgg)
"""Aggregates over values in an order."""
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def open_order(
    query: exp.Expr | None,
    keys: Mapping[TableName, Sequence[str]],
    key: Collection[str],
) -> str | None:
    """Return the reason why an order of a query leaves rows open, or None.

    `query`: with qualified columns; None if it could not be parsed. `keys`: for each table the
    columns that determine its rows; empty if none do.
    """
    if query is None or query.find(exp.Window, exp.Limit, exp.Offset, *_IN_ORDER) is None:
        return None
    unique = {reading_name(table): {*map(folded, own)} for table, own in keys.items()}
    own_key = {name.lower() for name in key}
    try:
        places = (
            place
            for scope in traverse_scope(query)
            for place in _Rows(scope, unique).open_places(
                own_key if scope.expression is query else None
            )
        )
        return next(places, None)
    except (SqlglotError, RecursionError):
        return None  # reported elsewhere: the query cannot be proved, or does not parse


class _Rows:
    """The columns that determine the rows of one SELECT, or of a set operation."""

    def __init__(self, scope: Scope, unique: Mapping[str, Collection[str]]) -> None:
        self._scope = scope
        self._unique = unique
        self._query = scope.expression
        self._sources = {name: source for name, (_, source) in scope.selected_sources.items()}
        self._equal: list[tuple[_Column, _Column]] = []
        self._fixed: set[_Column] = set()
        self._joined: list[tuple[str, set[str], set[_Column]]] = []
        self._inner: dict[str, _Rows] = {}
        self._asked: dict[frozenset[str], bool] = {}
        if isinstance(self._query, exp.Select):
            self._conditions(self._query)

    def open_places(self, own_key: Collection[str] | None) -> Iterator[str]:
        """Yield the parts of a query that an order leaves open; `own_key` is the view's key."""
        query = self._query
        if isinstance(query, exp.Select):
            for window in self._scope.find_all(exp.Window):
                if isinstance(window.parent, exp.Select) and window.arg_key == "windows":
                    continue
                named = _named(window, query)
                order = [item.this for item in _ordered(named)]
                if _is_by_place(window, named) and not self._determined(
                    [*(named.args.get("partition_by") or ()), *order], own_key
                ):
                    yield self._refusal(text_of(window.this), order)
            for call in self._scope.find_all(*_IN_ORDER):
                if not isinstance(call.this, exp.Order):
                    continue
                order = [item.this for item in call.this.expressions]
                if not self._determines_within([*_groups(query), *order], call.this.this):
                    yield self._refusal(text_of(call), order, of_group=True)
        limit = query.args.get("limit") or query.args.get("offset")
        if limit is not None and not self._is_one_row():
            order = [item.this for item in _ordered(query)]
            if not self._determined([self._behind(part) for part in order], None, order=order):
                yield self._refusal("LIMIT" if query.args.get("limit") else "OFFSET", order)

    def determines(self, names: Collection[str]) -> bool:
        """Tell whether some of the query's output columns determine its row."""
        fixed = frozenset(names)
        if fixed not in self._asked:
            self._asked[fixed] = self._determine(fixed)
        return self._asked[fixed]

    def _determine(self, names: Collection[str]) -> bool:
        query, outputs = self._query, self._outputs()
        if outputs and {*outputs} <= {*names}:
            return True
        if not isinstance(query, exp.Select):
            return False
        values = [outputs[name] for name in names if name in outputs]
        return self._determined(values, None) or any(
            isinstance(value, exp.Window)
            and isinstance(value.this, exp.RowNumber)
            and self._covers(_named(value, query).args.get("partition_by") or (), values)
            for value in values
        )

    def _determined(
        self,
        values: Sequence[exp.Expr],
        own_key: Collection[str] | None,
        *,
        order: Sequence[exp.Expr] = (),
    ) -> bool:
        """Tell whether some values determine their row, or the used part of it."""
        query = self._query
        outputs = self._outputs()
        if {*outputs} <= {part.name.lower() for part in order if isinstance(part, exp.Column)}:
            return True
        if not isinstance(query, exp.Select):
            return False
        own = [outputs[name] for name in own_key or () if name in outputs]
        if (
            own
            and len(own) == len(own_key or ())
            and self._is_whole()
            and self._covers(own, values)
        ):
            return True
        group = query.args.get("group")
        if group is not None:
            has_sets = any(isinstance(part, _SETS) for part in group.expressions)
            return not has_sets and self._covers(group.expressions, values)
        if query.args.get("distinct") is not None and self._covers(outputs.values(), values):
            return True
        fixed = self._closed(values)
        used = {
            (column.table, column.name.lower())
            for part in (*query.selects, *_ordered(query))
            for column in part.find_all(exp.Column)
        }
        return all(
            self._is_determined(name, fixed)
            or {column for column in used if column[0] == name} <= fixed
            for name in self._sources
        )

    def _determines_within(self, values: Sequence[exp.Expr], of: exp.Expr) -> bool:
        """Tell whether rows of a group that agree in some values have the same value of `of`."""
        fixed = self._closed(values)
        parts = of.expressions[:1] if isinstance(of, exp.Distinct) else [of]
        return self._covers(parts, values) or all(
            self._is_determined(name, fixed) for name in self._sources
        )

    def _covers(self, parts: Collection[exp.Expr], values: Collection[exp.Expr]) -> bool:
        """Tell whether values determine other expressions."""
        fixed, texts = self._closed(values), {_bare(value).sql() for value in values}
        return all(
            part.sql() in texts
            or (
                part.find(exp.AggFunc, exp.Window) is None
                and {(c.table, c.name.lower()) for c in part.find_all(exp.Column)} <= fixed
            )
            for part in parts
        )

    def _closed(self, values: Collection[exp.Expr]) -> set[_Column]:
        """Return the columns that the values of some columns determine."""
        fixed = {(v.table, v.name.lower()) for v in map(_bare, values) if isinstance(v, exp.Column)}
        fixed |= self._fixed | {
            (column.table, column.name.lower())
            for column in self._scope.columns
            if column.table not in self._sources
        }
        before = -1
        while before != len(fixed):
            before = len(fixed)
            for one, two in self._equal:
                if one in fixed or two in fixed:
                    fixed |= {one, two}
            for name, equal, others in self._joined:
                if others <= fixed and self._is_determined(name, {(name, item) for item in equal}):
                    fixed |= self._all(name)
            for name in self._sources:
                if self._is_determined(name, fixed):
                    fixed |= self._all(name)
        return fixed

    def _is_determined(self, name: str, fixed: Collection[_Column]) -> bool:
        source = self._sources[name]
        names = {column for of, column in fixed if of == name}
        if isinstance(source, Scope):
            if name not in self._inner:
                self._inner[name] = _Rows(source, self._unique)
            return self._inner[name].determines(names)
        own = self._unique.get(source.name)
        return own is not None and {*own} <= names

    def _all(self, name: str) -> set[_Column]:
        return {
            (name, column.name.lower()) for column in self._scope.columns if column.table == name
        }

    def _conditions(self, query: exp.Select) -> None:
        """Collect the columns that are equal to each other, or constant, in each row."""
        where = query.args.get("where")
        for part in conjuncts(None if where is None else where.this):
            self._condition(part)
        for join in query.args.get("joins") or ():
            name, on = join.alias_or_name, join.args.get("on")
            if str(join.args.get("kind") or "").upper() in {"SEMI", "ANTI"}:
                self._sources.pop(name, None)
            elif on is not None and join.args.get("side") in {None, "", "LEFT"}:
                self._join(name, on, is_inner=not join.args.get("side"))

    def _join(self, name: str, on: exp.Expr, *, is_inner: bool) -> None:
        """Collect a joined source's columns that equal other expressions, and their columns."""
        own = set[str]()
        for part in conjuncts(on):
            if not isinstance(part, exp.EQ):
                continue
            sides = (part.left, part.right)
            if is_inner and all(isinstance(side, exp.Column) for side in sides):
                self._condition(part)
            for one, two in (sides, sides[::-1]):
                inside = {column.table for column in two.find_all(exp.Column)}
                if isinstance(one, exp.Column) and one.table == name and name not in inside:
                    own.add(one.name.lower())
        others = {(column.table, column.name.lower()) for column in on.find_all(exp.Column)}
        self._joined.append((name, own, {item for item in others if item[0] != name}))

    def _condition(self, part: exp.Expr) -> None:
        if not isinstance(part, exp.EQ):
            return
        sides = (part.left, part.right)
        columns = [(s.table, s.name.lower()) for s in sides if isinstance(s, exp.Column)]
        if len(columns) == 2:  # noqa: PLR2004 - both sides
            self._equal.append((columns[0], columns[1]))
        elif columns and any(isinstance(side, exp.Literal | exp.Boolean) for side in sides):
            self._fixed.add(columns[0])

    def _is_one_row(self) -> bool:
        """Tell whether the query gives one row: it aggregates without GROUP BY."""
        query = self._query
        return (
            isinstance(query, exp.Select)
            and query.args.get("group") is None
            and any(
                not isinstance(call.parent, exp.Window)
                for item in query.selects
                for call in item.find_all(exp.AggFunc)
                if call.find_ancestor(exp.Window, exp.Select) is query
            )
        )

    def _is_whole(self) -> bool:
        """Tell whether no row is removed after ORDER BY: no LIMIT, OFFSET, DISTINCT or QUALIFY."""
        names = ("limit", "offset", "distinct", "qualify")
        return all(self._query.args.get(name) is None for name in names)

    def _outputs(self) -> dict[str, exp.Expr]:
        query = self._query
        selects = query.selects if isinstance(query, exp.Query) else []
        return {item.alias_or_name.lower(): item.unalias() for item in selects}

    def _behind(self, part: exp.Expr) -> exp.Expr:
        """Return the value of an output that ORDER BY names, or the part itself."""
        if isinstance(part, exp.Column) and not part.table:
            return self._outputs().get(part.name.lower(), part)
        return part

    def _refusal(self, subject: str, order: Sequence[exp.Expr], *, of_group: bool = False) -> str:
        by = f"by ORDER BY {', '.join(map(text_of, order))}" if order else "without ORDER BY"
        return (
            f"{subject}: rows may be equal {by}, and the engines put those in different orders: "
            f"add to ORDER BY {self._missing(of_group=of_group)}"
        )

    def _missing(self, *, of_group: bool) -> str:
        """Return the columns to add to ORDER BY, for messages."""
        query = self._query
        if not isinstance(query, exp.Select):
            return "all columns"
        if query.args.get("group") is not None and not of_group:
            return "the columns of GROUP BY"
        several = len(self._sources) > 1
        listed = []
        for name, source in self._sources.items():
            own = None if isinstance(source, Scope) else self._unique.get(source.name)
            if own is None:
                return "columns that determine the row, such as a primary key"
            listed += [f"{name}.{column}" if several else column for column in sorted(own)]
        return f"the primary key: {', '.join(listed)}"


def _named(window: exp.Expr, query: exp.Select) -> exp.Expr:
    """Return the window that OVER names, or the window itself."""
    if window.args.get("alias") is None:
        return window
    named = query.args.get("windows") or []
    return next((item for item in named if item.name.lower() == window.alias.lower()), window)


def _bare(value: exp.Expr) -> exp.Expr:
    """Return a value without the calls that remove trailing blanks of a char(n)."""
    while isinstance(value, exp.Trim) and value.text("position").upper() == "TRAILING":
        value = value.this
    return value


def _groups(query: exp.Select) -> list[exp.Expr]:
    group = query.args.get("group")
    return [] if group is None else list(group.expressions)


def _ordered(query: exp.Expr) -> list[exp.Expr]:
    order = query.args.get("order")
    return [] if order is None else list(order.expressions)


def _is_by_place(window: exp.Window, named: exp.Expr) -> bool:
    """Tell whether a function over a window depends on the order of equal rows."""
    of = window.this
    while isinstance(of, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        of = of.this
    if isinstance(of, _BY_PLACE):
        return True
    frame = named.args.get("spec")
    if frame is None or str(frame.args.get("kind")).upper() != "ROWS":
        return False
    ends = [frame.args.get(end) for end in ("start", "end")]
    return isinstance(of, exp.AggFunc) and ends != ["UNBOUNDED", "UNBOUNDED"]
