"""Translates queries to Spark's SQL: FROM, subqueries, groups, set operations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.base.postgres_sql import name_of
from views.base.spark_sql import conjuncts
from views.postgres.expressions import Expressions
from views.postgres.functions import AGGREGATES, OF_ORDER
from views.postgres.parts import check_parts
from views.postgres.scopes import Scope, Source, columns_of
from views.postgres.types import BOOL, FLOATS, TEXT, PgType, common, in_spark, of_column
from views.postgres.values import Value, author_text, check_compared, implicit_cast, refusal
from views.project.query import quoted

_SETS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}
_GROUPS: dict[type[exp.Expr], str] = {
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING SETS",
}
_COMMA = "\0"
"""Between tables of a list, until it is known whether joins refer to all of them."""
_NOT_LATERAL = ("group", "having", "distinct", "with_", "offset")
"""Clauses of a LATERAL subquery that are not translated."""
_NO_LATERAL = "this form of LATERAL is not known"
_JOIN_INSTEAD = "write a join, or row_number() … = 1"
_INNER = ("group", "having", "limit", "offset", "distinct")
"""Clauses that a subquery cannot have if it becomes a join."""
_OTHER_COUNT = "the subquery has a different number of columns"
_WITH_GROUPS = "a subquery in a query with groups"


class Query(Protocol):
    """A translated query; a column's name is empty if PostgreSQL gives it none."""

    names: list[str]

    @property
    def kinds(self) -> list[PgType]:
        """Return the types of its columns."""

    def text(self, kinds: Sequence[PgType] | None = None) -> str:
        """Return its SQL in Spark, with columns of these types."""


@dataclass(slots=True)
class Selected:
    """A translated SELECT."""

    node: exp.Expr  # of PostgreSQL's query
    names: list[str]  # of its columns
    values: list[Value]  # its columns
    tail: str  # the clauses from FROM on
    with_clause: str = ""
    distinct: bool = False
    row_number: str = ""  # the row's number in its group of DISTINCT ON

    @property
    def kinds(self) -> list[PgType]:
        """Return the types of its columns."""
        return [value.kind for value in self.values]

    def text(self, kinds: Sequence[PgType] | None = None) -> str:
        """Return its SQL in Spark."""
        items = []
        for place, value in enumerate(self.values):
            kind = value.kind if kinds is None else kinds[place]
            built = implicit_cast(self.node, value, TEXT if kind.name == "unknown" else kind)
            if kinds is not None and kind.name == "numeric" and kind != value.kind:
                built = f"cast({built} AS {in_spark(kind)})"
            items.append(f"{built} AS {quoted(self.names[place])}")
        word = "SELECT DISTINCT" if self.distinct else "SELECT"
        if not self.row_number:
            return f"{self.with_clause}{word} {', '.join(items)}{self.tail}"
        items.append(f"{self.row_number} AS `row_of_its_group`")
        inner = f"{word} {', '.join(items)}{self.tail}"
        listed = ", ".join(map(quoted, self.names))
        chosen = f"SELECT {listed} FROM ({inner}) AS `q` WHERE `row_of_its_group` = 1"
        return f"{self.with_clause}{chosen}"


@dataclass(slots=True)
class Combined:
    """Two queries that UNION, INTERSECT or EXCEPT combines."""

    first: Query
    second: Query
    word: str
    types: list[PgType]
    tail: str = ""  # LIMIT and OFFSET
    with_clause: str = ""
    names: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> list[PgType]:
        """Return the types of its columns."""
        return self.types

    def text(self, kinds: Sequence[PgType] | None = None) -> str:
        """Return its SQL in Spark."""
        kinds = self.kinds if kinds is None else kinds
        self.first.names = self.names
        self.second.names = self.names
        sides = (self.first.text(kinds), self.second.text(kinds))
        return f"{self.with_clause}({sides[0]}) {self.word} ({sides[1]}){self.tail}"


class _Joins(list[str]):
    """Joins in place of subqueries of one SELECT.

    `values`: by the subquery's text, the value in its place. `outer`: the outer columns that the
    subquery names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Value] = {}
        self.outer: dict[str, list[str]] = {}


class QueryTranslator:
    """Translates the queries of one view."""

    def __init__(
        self,
        tables: Mapping[TableName, Mapping[str, ColumnType]],
        keys: Mapping[TableName, tuple[str, ...]],
    ) -> None:
        self._tables, self._keys = tables, keys
        self.locales = frozenset(
            kind.database for columns in tables.values() for kind in columns.values()
        )
        """Of the database's own collation, by each of the tables."""
        self._columns_of_tables = {name for columns in tables.values() for name in columns}
        self._queries: list[dict[str, dict[str, Value]]] = [{}]
        self._joins: list[_Joins] = []
        self._number = 0

    def read(self, query: exp.Expr) -> str:
        """Translate a view's query to Spark's SQL.

        Raises:
            ViewError: a part of it has no known equal there.
        """
        check_parts(query)
        built = self.query(query, None)
        for item, name in zip(_items(query), built.names, strict=False):
            _require_name(item, name)
        return built.text()

    # Queries

    def query(self, node: exp.Expr, parent: Scope | None) -> Query:
        """Translate a query and the queries of its WITH."""
        while isinstance(node, exp.Subquery) and not node.args.get("alias"):
            node = node.this
        self._queries.append(dict(self._queries[-1]))
        try:
            with_clause = self._with(node.args.get("with_"), parent)
            if isinstance(node, exp.Select):
                return self._select(node, Scope(parent), with_clause)
            if type(node) in _SETS:
                return self._combined(node, parent, with_clause)
            if isinstance(node, exp.Values):
                return self._values(node, parent)
            raise refusal(node, "it is not a query")
        finally:
            self._queries.pop()

    def _with(self, clause: exp.Expr | None, parent: Scope | None) -> str:
        if clause is None:
            return ""
        if clause.args.get("recursive"):
            raise refusal(clause, "WITH RECURSIVE is not known", "compute it at the source")
        built = []
        for cte in clause.expressions:
            name = name_of(cte.args["alias"].this)
            inner = self.query(cte.this, parent)
            self._named(inner, cte.args["alias"])
            columns = self._columns(cte, inner)
            built.append(f"{quoted(name)} AS ({inner.text()})")
            self._queries[-1][name] = columns
        return f"WITH {', '.join(built)} "

    @staticmethod
    def _named(query: Query, alias: exp.TableAlias | None) -> None:
        """Rename a query's columns as its alias lists them."""
        listed = [name_of(column) for column in (alias.columns if alias is not None else [])]
        query.names = [*listed, *query.names[len(listed) :]]

    @staticmethod
    def _columns(node: exp.Expr, query: Query) -> dict[str, Value]:
        for item, name in zip(_items(node.this), query.names, strict=False):
            _require_name(item, name)
        if len({*query.names}) < len(query.names):
            raise refusal(node, "two of its columns have the same name", "rename one: … AS name")
        kinds = [TEXT if kind.name == "unknown" else kind for kind in query.kinds]
        return {n: Value("", kind) for n, kind in zip(query.names, kinds, strict=True)}

    def _combined(self, node: exp.Expr, parent: Scope | None, with_clause: str) -> Query:
        first, second = self.query(node.this, parent), self.query(node.expression, parent)
        if len(first.kinds) != len(second.kinds):
            raise refusal(node, "its two queries have different numbers of columns")
        kinds = []
        for one, other in zip(first.kinds, second.kinds, strict=True):
            kind = common([one, other])
            if kind is None:
                hint = "cast one" + (": …::text" if "text" in (one.name, other.name) else "")
                raise refusal(node, f"{one} and {other} are not converted to one type", hint)
            kinds.append(kind)
        word = _SETS[type(node)] + ("" if node.args.get("distinct") else " ALL")
        if word != "UNION ALL":
            check_compared(node, kinds)
        built = Combined(
            first, second, word, kinds, with_clause=with_clause, names=list(first.names)
        )
        built.tail = self._tail(node, None, built)
        return built

    def _values(self, node: exp.Expr, parent: Scope | None) -> Query:
        rows: Query | None = None
        for row in node.expressions:
            reader = Expressions(Scope(parent), self)
            fields = row.expressions if isinstance(row, exp.Tuple) else [row]
            values = [reader.value(one) for one in fields]
            names = [f"column{n}" for n in range(1, len(values) + 1)]
            one: Query = Selected(node, names, values, "")
            if rows is not None:
                kinds = [common(pair) for pair in zip(rows.kinds, one.kinds, strict=True)]
                listed = [kind for kind in kinds if kind is not None]
                if len(listed) < len(kinds):
                    why = "a column has values of several types"
                    raise refusal(node, why, "cast them to one")
                one = Combined(rows, one, "UNION ALL", listed, names=names)
            rows = one
        assert rows is not None  # noqa: S101 - the parser requires a row
        return rows

    def _select(self, node: exp.Select, scope: Scope, with_clause: str) -> Query:
        self._joins.append(_Joins())
        reader = Expressions(scope, self, node.args.get("windows") or ())
        origin = self._from(node, scope, reader)
        wheres = [
            built
            for part in conjuncts(_this(node, "where"))
            if (built := self._conjunct(part, scope, reader)) not in {"", "true"}
        ]
        items = list(self._expanded(node, scope))
        reader.plain_columns.clear()
        values = [reader.value(item.unalias()) for item in items]
        names = [_name(item) for item in items]
        result = Selected(node, names, values, "", with_clause)
        having = _this(node, "having")
        if having is not None and _has_grouping_sets(node):
            _check_having(having, node)
        having_text = "" if having is None else f" HAVING {reader.condition(having)}"
        tail = self._select_tail(node, result, reader)
        group = self._group(node, reader)
        joins = self._joins.pop()
        if joins:
            origin = origin.replace(_COMMA, " CROSS JOIN ") + "".join(joins)
        origin = origin.replace(_COMMA, ", ")
        where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
        result.tail = f"{origin}{where}{group}{having_text}{tail}"
        return result

    def _select_tail(self, node: exp.Select, built: Selected, reader: Expressions) -> str:
        distinct = node.args.get("distinct")
        on = None if distinct is None else distinct.args.get("on")
        if on is None:
            built.distinct = distinct is not None
            if built.distinct:
                check_compared(node, built.kinds)
            return self._tail(node, reader, built)
        order = node.args.get("order")
        if order is None or node.args.get("limit") or node.args.get("offset"):
            raise refusal(
                node, "DISTINCT ON needs ORDER BY, and no LIMIT in the same query",
                "write ORDER BY by its columns and the primary key, and LIMIT in a query around it",
            )  # fmt: skip
        keys = on.expressions if isinstance(on, exp.Tuple) else [on]
        groups = {reader.key(self._output(key, node)).text for key in keys}
        first = order.expressions[: len(keys)]
        if {reader.value(self._output(key.this, node)).text for key in first} - groups:
            raise refusal(
                node, "in PostgreSQL, ORDER BY must begin with the expressions of DISTINCT ON",
                "begin it with them, in any order",
            )  # fmt: skip
        parts = ", ".join(reader.value(self._output(key, node)).text for key in keys)
        sorts = [reader.ordered(self._sort(key, node)) for key in order.expressions[len(keys) :]]
        if not sorts:
            raise refusal(node, "the first row of a group is not determined", "add to ORDER BY")
        built.row_number = f"row_number() OVER (PARTITION BY {parts} ORDER BY {', '.join(sorts)})"
        return ""

    def _tail(self, node: exp.Expr, reader: Expressions | None, built: Query) -> str:
        """Translate ORDER BY, LIMIT and OFFSET; empty for an order alone, which changes no row."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        order = node.args.get("order")
        if limit is None and offset is None:
            return ""
        text = ""
        if order is not None:
            keys = []
            for key in order.expressions:
                place = _place_of(key.this, built.names)
                if reader is None or (isinstance(built, Selected) and built.distinct):
                    if place is None:
                        raise refusal(
                            key, "here, rows can be ordered only by a column of the result"
                        )
                    column = Value(quoted(built.names[place]), built.kinds[place])
                    keys.append(Expressions(Scope(), self).ordered(key, column))
                else:
                    keys.append(reader.ordered(self._sort(key, node)))
            text = f" ORDER BY {', '.join(keys)}"
        for clause, word in ((limit, "LIMIT"), (offset, "OFFSET")):
            if clause is None:
                continue
            if isinstance(clause, exp.Fetch):
                options = clause.args.get("limit_options")
                if options is not None and options.args.get("with_ties"):
                    raise refusal(node, "WITH TIES is not known", "compare rank() with a number")
                number = clause.args.get("count")
            else:
                number = clause.expression
            if not isinstance(number, exp.Literal) or not number.name.isdigit():
                raise refusal(node, f"{word} is known only with a constant number")
            text += f" {word} {number.name}"
        return text

    @staticmethod
    def _output(key: exp.Expr, node: exp.Select) -> exp.Expr:
        """Return the expression of a result column that a number or a name refers to."""
        items: list[exp.Expr] = node.expressions
        if isinstance(key, exp.Literal) and key.name.isdigit() and not key.is_string:
            if not 1 <= int(key.name) <= len(items) or any(item.is_star for item in items):
                raise refusal(key, "there is no column with this number, or it is not known which")
            return items[int(key.name) - 1].unalias()
        if isinstance(key, exp.Column) and not key.args.get("table"):
            name = name_of(key.this)
            for item in items:
                if isinstance(item, exp.Alias) and name_of(item.args["alias"]) == name:
                    return item.unalias()
        return key

    def _sort(self, key: exp.Expr, node: exp.Expr) -> exp.Expr:
        assert isinstance(node, exp.Select)  # noqa: S101 - a set operation has no such order
        built = key.copy()
        built.set("this", self._output(key.this, node).copy())
        return built

    # FROM

    def _from(self, node: exp.Select, scope: Scope, reader: Expressions) -> str:
        origin = node.args.get("from_")
        if origin is None:
            return ""
        text = f" FROM {self._source(origin.this, scope)}"
        commas = False
        for join in node.args.get("joins") or ():
            side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
            on, using = join.args.get("on"), join.args.get("using")
            method = str(join.args.get("method") or "").upper()
            if method not in {"", "NATURAL"} or (commas and side in {"RIGHT", "FULL"}):
                why = "such a join is not known: RIGHT or FULL after a comma"
                raise refusal(join, why, "write JOIN … ON, with each of its conditions")
            if isinstance(join.this, exp.Lateral):
                text += self._lateral(join, scope, reader)
                continue
            before = list(scope.sources)
            built = self._source(join.this, scope)
            if join.args.get("method"):
                using = [exp.to_identifier(n, quoted=True) for n in _shared(scope, before)]
                kind = "" if using or side else "CROSS"
                on = exp.true() if side and not using else None
            if not side and not kind and on is None and not using:
                commas = True
                text += f"{_COMMA}{built}"
                continue
            word = f"{side} JOIN".strip() if side else "CROSS JOIN" if kind == "CROSS" else "JOIN"
            text += f" {word} {built}"
            if using:
                on_text = self._using(join, using, scope, before, side)
            elif on is not None:
                if on.find(exp.Query) is not None:
                    raise refusal(join, "ON has a subquery", "write it in WHERE")
                on_text = reader.condition(on)
            else:
                continue
            text += f" ON {on_text}"
        return text

    def _lateral(self, join: exp.Expr, scope: Scope, reader: Expressions) -> str:
        """Translate a join with a subquery that names columns of earlier tables."""
        node, side = join.this, str(join.args.get("side") or "")
        alias, query = node.args.get("alias"), node.this.unnest()
        if (
            not isinstance(query, exp.Select)
            or side not in {"", "LEFT"}
            or alias is None
            or alias.columns
            or any(query.args.get(part) for part in _NOT_LATERAL)
        ):
            raise refusal(node, _NO_LATERAL, _JOIN_INSTEAD)
        on = join.args.get("on")
        name, names = name_of(alias.this), [_name(item) for item in query.expressions]
        for item, own in zip(query.expressions, names, strict=True):
            _require_name(item, own)
        if any(map(_aggregates, query.expressions)):
            if on is not None and on != exp.true():
                raise refusal(node, _NO_LATERAL, "write ON true, and WHERE")
            columns = {}
            for item, own in zip(query.expressions, names, strict=True):
                one = query.copy()
                one.set("expressions", [item.copy()])
                columns[own] = self.scalar(node, scope, one)
            scope.add(node, Source(name, columns))
            return ""
        computed = not any(query.args.get(part) for part in ("from_", "where", "limit"))
        if computed and on in {None, exp.true()} and query.find(exp.Window) is None:
            values = [reader.value(item.unalias()) for item in query.expressions]
            values = [
                Value(implicit_cast(node, value, TEXT), TEXT)
                if value.kind.name == "unknown"
                else value
                for value in values
            ]
            scope.add(node, Source(name, dict(zip(names, values, strict=True))))
            return ""
        return self._joined_rows(join, query, scope, reader)

    def _joined_rows(
        self, join: exp.Expr, query: exp.Select, scope: Scope, reader: Expressions
    ) -> str:
        """Translate LATERAL to a join on the columns that must equal values of the outer query."""
        node, on = join.this, join.args.get("on")
        name = name_of(node.args["alias"].this)
        subquery, tests, source, _ = self._numbered(node, query, name, scope)
        scope.add(node, source)
        if on is not None and on != exp.true():
            tests.append(reader.condition(on))
        self._joins[-1].append("")  # the join may refer to every table of a list before it
        word = "LEFT JOIN" if join.args.get("side") else "JOIN"
        return f" {word} {subquery} ON {' AND '.join(tests) or 'true'}"

    def _numbered(
        self, node: exp.Expr, query: exp.Select, name: str, scope: Scope
    ) -> tuple[str, list[str], Source, Scope]:
        """Translate a subquery that names columns of the query around it, perhaps with a LIMIT.

        Returns the subquery as a source of a join, the conditions of the join, the columns that it
        gives, and the names inside of it.
        """
        names = [_name(item) for item in query.expressions]
        inner = Scope(scope, alias=name)
        rows = Expressions(inner, self, query.args.get("windows") or ())
        self._joins.append(_Joins())
        origin = self._from(query, inner, rows)
        wheres, tests = self._split(query, inner, rows, equal=True)
        inner.outer = False
        rows.within = [value.text for value, _ in inner.exported.values()]
        values = [rows.value(item.unalias()) for item in query.expressions]
        order = query.args.get("order")
        sorts = [rows.ordered(self._sort(key, query)) for key in order.expressions] if order else []
        joins = self._joins.pop()
        limit = query.args.get("limit")
        number = None if limit is None else limit.expression
        constant = number is None or (isinstance(number, exp.Literal) and number.name.isdigit())
        others = {own for _, own in inner.exported.values()}
        if not origin or inner.outer or joins or not constant or others & {*names, "place"}:
            raise refusal(node, _NO_LATERAL, _JOIN_INSTEAD)
        listed = [f"{value.text} AS {quoted(own)}" for value, own in inner.exported.values()]
        if number is not None:
            parts = ", ".join(value.text for value, _ in inner.exported.values())
            by = f"PARTITION BY {parts} " if parts else ""
            if not sorts:
                raise refusal(node, "the order of the rows is not determined", "write ORDER BY")
            listed.append(f"row_number() OVER ({by}ORDER BY {', '.join(sorts)}) AS `place`")
            tests.append(f"({quoted(name)}.`place` <= {number.name})")
        kinds = [TEXT if value.kind.name == "unknown" else value.kind for value in values]
        for value, own, kind in zip(values, names, kinds, strict=True):
            listed.append(f"{implicit_cast(node, value, kind)} AS {quoted(own)}")
        columns = {own: Value("", kind) for own, kind in zip(names, kinds, strict=True)}
        where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
        subquery = f"(SELECT {', '.join(listed)}{origin.replace(_COMMA, ', ')}{where})"
        source = Source(name, columns_of(name, columns))
        return f"{subquery} AS {quoted(name)}", tests, source, inner

    def _split(
        self, query: exp.Expr, inner: Scope, reader: Expressions, *, equal: bool = False
    ) -> tuple[list[str], list[str]]:
        """Return the conditions on a subquery alone, and the conditions on the outer query too.

        `equal`: each of the latter must be an equation of a column of the subquery and a value of
        the outer query.
        """
        wheres, tests = [], []
        for part in conjuncts(_this(query, "where")):
            inner.outer = False
            built = self._conjunct(part, inner, reader)
            if not inner.outer:
                wheres += [built] if built else []
                continue
            if part.find(exp.Query) is not None:
                raise refusal(part, "a condition on the query around it has a subquery")
            if equal and not _is_equal_column(part.unnest(), inner, reader):
                hint = "write a join, or LATERAL with columns that are equal to those around it"
                raise refusal(part, "such a condition of LATERAL is not known", hint)
            tests.append(self._outside(inner, reader, part))
        return wheres, tests

    def _using(
        self,
        join: exp.Expr,
        using: Sequence[exp.Expr],
        scope: Scope,
        before: Sequence[Source],
        side: str,
    ) -> str:
        tests = []
        right = Scope(sources=[scope.sources[-1]])
        earlier = Scope(sources=list(before), merged=dict(scope.merged))
        reader = Expressions(scope, self)
        for identifier in using:
            column = exp.Column(this=identifier)
            one, other = earlier.column(column), right.column(column)
            tests.append(reader.compared(join, one, other, "="))
            name = name_of(identifier)
            if side == "FULL":
                kind, texts = reader.unified(join, [one, other])
                scope.merged[name] = Value(f"coalesce({', '.join(texts)})", kind)
            else:
                scope.merged[name] = other if side == "RIGHT" else one
        return " AND ".join(tests)

    def _source(self, node: exp.Expr, scope: Scope) -> str:
        """Translate a table or a subquery of FROM, and add it to the scope."""
        alias = node.args.get("alias")
        name = "" if alias is None else name_of(alias.this) if alias.this else ""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._table(node, name, alias, scope)
        if isinstance(node, exp.Lateral):
            raise refusal(node, "LATERAL is not known here", _JOIN_INSTEAD)
        if not isinstance(node, exp.Subquery | exp.Values) or isinstance(node.this, exp.Table):
            raise refusal(node, "it is not known in FROM", "write a table, a subquery or VALUES")
        if not name:
            raise refusal(node, "a subquery of FROM has no name", "write (…) AS name")
        inner = node.this if isinstance(node, exp.Subquery) else node
        built = self.query(inner, None)
        self._named(built, alias)
        columns = self._columns(exp.Subquery(this=inner), built)
        scope.add(node, Source(name, columns_of(name, columns)))
        return f"({built.text()}) AS {quoted(name)}"

    def _table(self, node: exp.Table, name: str, alias: exp.TableAlias | None, scope: Scope) -> str:
        own = name_of(node.this)
        schema = name_of(node.args["db"]) if node.args.get("db") else ""
        listed = [name_of(column) for column in (alias.columns if alias is not None else [])]
        name = name or own
        if not schema and own in self._queries[-1]:
            columns = self._queries[-1][own]
            text = quoted(own)
            key: tuple[str, ...] = ()
        else:
            table = TableName(schema or "public", own)
            if table not in self._tables:
                raise refusal(node, f'"{own}" is not captured', "name it in capture.tables")
            columns = {n: Value("", of_column(kind)) for n, kind in self._tables[table].items()}
            text = f"{quoted(table.schema)}.{quoted(table.table)}"
            key = () if listed else self._keys.get(table, ())
        if listed:
            raise refusal(
                node,
                "column names after an alias are not known here",
                "give them by AS in a subquery",
            )
        # Inside a subquery Spark reads `t.id` as a field of a column t, if there is one.
        own_name = f"{name}_table" if name in self._columns_of_tables else name
        scope.add(node, Source(name, columns_of(own_name, columns), key))
        return f"{text} AS {quoted(own_name)}"

    def _expanded(self, node: exp.Select, scope: Scope) -> Iterator[exp.Expr]:
        for item in node.expressions:
            if not item.is_star:
                yield item
                continue
            table = item.args.get("table") if isinstance(item, exp.Column) else None
            star = item.this if isinstance(item, exp.Column) else item
            if any(star.args.values()) or not scope.sources:
                raise refusal(item, "such a * is not known", "name the columns")
            merged = [] if table is not None else list(scope.merged)
            for name in merged:
                yield exp.Column(this=exp.to_identifier(name, quoted=True))
            for source in scope.sources:
                if table is not None and source.alias != name_of(table):
                    continue
                for name in source.columns:
                    if name not in merged:
                        yield exp.column(name, source.alias, quoted=True)

    # Conditions with subqueries

    def _conjunct(self, node: exp.Expr, scope: Scope, reader: Expressions) -> str:
        """Translate a part of WHERE; empty if it became a join."""
        inner, inverted = node.unnest(), False
        while isinstance(inner, exp.Not):
            inner, inverted = inner.this.unnest(), not inverted
        if isinstance(inner, exp.Exists):
            self._joins[-1].append(self._semi(inner, inner.this, scope, None, inverted=inverted))
            return ""
        return reader.condition(node)

    def is_in(self, node: exp.In, word: str, reader: Expressions) -> str:
        """Translate `IN (SELECT …)` in WHERE or HAVING."""
        clause = node.parent
        while isinstance(clause, exp.And | exp.Or | exp.Paren | exp.Not):
            clause = clause.parent
        if not isinstance(clause, exp.Where | exp.Having):
            raise refusal(node, "IN with a subquery is known only in WHERE and HAVING",
                          "write it as a condition of WHERE")  # fmt: skip
        scope = reader.scope
        one = node.this.unnest()
        fields = one.expressions if isinstance(one, exp.Tuple) else [one]
        values = [reader.value(part) for part in fields]
        probe = Scope(scope, is_probe=True)
        query = node.args["query"].unnest()
        built = self.query(query, probe)
        if probe.outer:
            if not _is_conjunct(node.parent if isinstance(node.parent, exp.Not) else node):
                why = "the subquery of IN names a column of the query around it"
                raise refusal(node, why, "write EXISTS, or NOT EXISTS")
            join = self._semi(node, query, scope, values, inverted=word == "NOT IN")
            self._joins[-1].append(join)
            return "true"
        if len(built.kinds) != len(values):
            raise refusal(node, _OTHER_COUNT)
        kinds = []
        for value, kind in zip(values, built.kinds, strict=True):
            reader.compared(node, value, Value("", kind), "=")
            kinds.append(value.kind if kind.name == "unknown" else kind)
        built.names = [f"c{place}" for place in range(len(values))]
        texts = ", ".join(
            implicit_cast(node, v, k) if v.kind.name == "unknown" else v.text
            for v, k in zip(values, kinds, strict=True)
        )
        texts = f"({texts})" if len(values) > 1 else texts
        return f"{texts} {word} ({built.text(kinds)})"

    def _semi(
        self,
        node: exp.Expr,
        query: exp.Expr,
        scope: Scope,
        values: list[Value] | None,
        *,
        inverted: bool,
    ) -> str:
        """Translate EXISTS or IN to a join that adds no column."""
        query = query.unnest()
        if not isinstance(query, exp.Select) or query.args.get("with_"):
            raise refusal(node, "such a subquery is not known here", "write SELECT … FROM … WHERE")
        grouped = [part for part in _INNER if query.args.get(part)]
        if (values is None and grouped == ["distinct"]) or any(map(_aggregates, query.expressions)):
            grouped = ["aggregates"] if any(map(_aggregates, query.expressions)) else []
        if grouped:
            why = "a subquery with groups or a limit names a column of the query around it"
            raise refusal(node, why, "join a subquery with GROUP BY")
        self._number += 1
        inner = Scope(scope, alias=f"sub_{self._number}")
        reader = Expressions(inner, self)
        self._joins.append(_Joins())
        origin = self._from(query, inner, reader)
        if not origin or inner.outer:
            raise refusal(node, "such a subquery is not known here", "write its condition in WHERE")
        wheres, tests = self._split(query, inner, reader)
        if values is not None:
            items = query.expressions
            if len(items) != len(values):
                raise refusal(node, _OTHER_COUNT)
            if any(item.find(exp.Window) for item in items):
                raise refusal(node, "a window in such a subquery is not known", "write EXISTS")
            for value, item in zip(values, items, strict=True):
                inner.is_outside = True
                other = reader.value(item.unalias())
                inner.is_outside = False
                test = reader.compared(node, value, other, "=")
                if inverted:  # null is not known to differ
                    test = f"({test} OR {value.text} IS NULL OR {other.text} IS NULL)"
                tests.append(test)
        joins = self._joins.pop()
        origin = origin.replace(_COMMA, " CROSS JOIN " if joins else ", ") + "".join(joins)
        listed = [f"{value.text} AS {quoted(name)}" for value, name in inner.exported.values()]
        where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
        built = f"SELECT {', '.join(listed) or '1 AS `c0`'}{origin}{where}"
        word = "LEFT ANTI JOIN" if inverted else "LEFT SEMI JOIN"
        return f" {word} ({built}) AS {quoted(inner.alias)} ON {' AND '.join(tests) or 'true'}"

    @staticmethod
    def _outside(inner: Scope, reader: Expressions, part: exp.Expr) -> str:
        """Translate a condition on a subquery and the outer query, to use it outside."""
        inner.is_outside = True
        try:
            return reader.condition(part)
        finally:
            inner.is_outside = False

    def exists(self, node: exp.Exists, scope: Scope) -> Value:
        """Translate EXISTS among other conditions, where it cannot be a join, by counting rows."""
        query = node.this.unnest()
        plain = isinstance(query, exp.Select) and not any(
            query.args.get(part) for part in (*_INNER[:-1], "with_")
        )
        if not plain or any(map(_aggregates, query.expressions)):
            hint = "write it as a condition of WHERE that AND joins to the others"
            raise refusal(
                node, "EXISTS of such a subquery is known only as a condition of its own", hint
            )
        counted = query.copy()
        counted.set("distinct", None)
        counted.set("order", None)
        counted.set("expressions", [exp.Anonymous(this="count", expressions=[exp.Star()])])
        return Value(f"({self.scalar(node, scope, counted).text} > 0)", BOOL)

    def scalar(self, node: exp.Expr, scope: Scope, query: exp.Expr | None = None) -> Value:
        """Translate a subquery of one row and one column."""
        if query is None:
            query = node.unnest() if isinstance(node, exp.Subquery) else node
        if (joined := self._by_key(node, query, scope)) is not None:
            return joined
        probe = Scope(scope, is_probe=True)
        built = self.query(query, probe)
        if len(built.kinds) != 1:
            raise refusal(node, "a subquery that is used as a value must have one column")
        if probe.outer:
            if (joined := self._first(node, query, scope)) is not None:
                return joined
            self._check_correlated(node, query)
        elif isinstance(node.find_ancestor(exp.Div, exp.Query), exp.Div):
            value = self._crossed(node, query, built, scope)
            if value is not None:
                return value
        built.names = ["c0"]
        kind = TEXT if built.kinds[0].name == "unknown" else built.kinds[0]
        return Value(f"({built.text()})", kind)

    def _by_key(self, node: exp.Expr, query: exp.Expr, scope: Scope) -> Value | None:
        """Translate a subquery that selects at most one row by a primary key to a join.

        None for other subqueries. Spark has no correlated subquery without an aggregate; PostgreSQL
        has, and fails at several rows.
        """
        origin = query.args.get("from_")
        if (
            not scope.sources
            or not isinstance(query, exp.Select)
            or len(query.expressions) != 1
            or origin is None
            or not isinstance(origin.this, exp.Table)
            or any(query.args.get(part) for part in (*_INNER, "joins", "with_"))
            or _aggregates(query.expressions[0])
            or any(part.find(exp.Query, exp.Window) for part in query.iter_expressions())
        ):
            return None
        inner, joins, query_text = Scope(scope), self._joins[-1], query.sql()
        if query_text not in joins.values:
            table, _, _ = self._source(origin.this, inner).rpartition(" AS ")
            alias, (source,) = f"sub_{self._number + 1}", inner.sources
            source.columns = columns_of(alias, source.columns)
            reader = Expressions(inner, self)
            parts = [part.unnest() for part in conjuncts(_this(query, "where"))]
            tests = [reader.condition(part) for part in parts]
            fixed = {
                name_of(side.this)
                for part in parts
                if isinstance(part, exp.EQ) and _is_equal_column(part, inner, reader)
                for side in (part.left.unnest(), part.right.unnest())
                if isinstance(side, exp.Column) and inner.own(side) is not None
            }
            if not source.key or not fixed.issuperset(source.key) or not inner.outer:
                return None
            self._number += 1
            item = query.expressions[0].unalias()
            value = reader.value(item)
            if value.kind.name == "unknown":
                value = Value(implicit_cast(node, value, TEXT), TEXT)
            if not isinstance(item, exp.Column) or value.text not in {
                column.text for column in source.columns.values()
            }:
                key = source.columns[source.key[0]].text
                value = Value(f"CASE WHEN {key} IS NOT NULL THEN {value.text} END", value.kind)
            joins.append(f" LEFT JOIN {table} AS {quoted(alias)} ON {' AND '.join(tests)}")
            joins.values[query_text] = value
            joins.outer[query_text] = _outer_columns(query, inner, scope)
        return self._in_groups(node, joins.values[query_text], scope, joins.outer[query_text])

    def _first(self, node: exp.Expr, query: exp.Expr, scope: Scope) -> Value | None:
        """Translate a correlated subquery with ORDER BY and LIMIT 1 to a join; None for others."""
        limit = query.args.get("limit")
        if (
            not scope.sources
            or not isinstance(query, exp.Select)
            or not isinstance(limit, exp.Limit)
            or limit.expression != exp.Literal.number(1)
            or _aggregates(query.expressions[0])
            or any(query.args.get(part) for part in _NOT_LATERAL)
        ):
            return None
        joins, query_text = self._joins[-1], query.sql()
        if query_text not in joins.values:
            self._number += 1
            one = query.copy()
            item = exp.alias_(one.expressions[0].unalias(), "value", quoted=True)
            one.set("expressions", [item])
            name = f"sub_{self._number}"
            subquery, tests, source, inner = self._numbered(node, one, name, scope)
            joins.append(f" LEFT JOIN {subquery} ON {' AND '.join(tests)}")
            joins.values[query_text] = source.columns["value"]
            joins.outer[query_text] = _outer_columns(query, inner, scope)
        return self._in_groups(node, joins.values[query_text], scope, joins.outer[query_text])

    def _crossed(self, node: exp.Expr, query: exp.Expr, built: Query, scope: Scope) -> Value | None:
        """Translate a subquery of one row to a join, or return None for other subqueries.

        Spark has no subqueries in the expression that a division is translated to.
        """
        one_row = (
            isinstance(query, exp.Select)
            and _aggregates(query.expressions[0])
            and not any(query.args.get(part) for part in _INNER)
        )
        if not one_row or not scope.sources:
            return None
        joins, query_text = self._joins[-1], query.sql()
        if query_text not in joins.values:
            self._number += 1
            alias = f"sub_{self._number}"
            built.names = [f"value_{self._number}"]
            joins.append(f" CROSS JOIN ({built.text()}) AS {quoted(alias)}")
            joins.values[query_text] = Value(
                f"{quoted(alias)}.{quoted(built.names[0])}", built.kinds[0]
            )
        return self._in_groups(node, joins.values[query_text], scope, [])

    def _in_groups(self, node: exp.Expr, value: Value, scope: Scope, outer: Sequence[str]) -> Value:
        """Return a joined value for a query with groups; it has one value in each group."""
        select = node.find_ancestor(exp.Select)
        if select is None or isinstance(_clause(node, select), exp.Where):
            return value
        group = select.args.get("group")
        total = any(map(_aggregates, select.expressions)) or select.args.get("having") is not None
        if (group is None and not total) or _in_aggregate(node, select):
            return value
        clause = _clause(node, select)
        plain = group is not None and not _has_grouping_sets(select)
        if group is None or not plain or isinstance(clause, exp.Group):
            hint = "join its table, and group by its value"
            if group is None:
                hint = "write it in a query around this one, FROM (SELECT sum(…) AS x FROM …) AS q"
            raise refusal(node, _WITH_GROUPS, hint)
        reader = Expressions(scope, self)
        expressions = [
            self._grouping(one, select, reader)
            for key in group.expressions
            for one in (key.expressions if isinstance(key, exp.Tuple) else [key])
        ]
        if any(part is node for key in expressions for part in key.walk()):
            return value
        keys = {reader.value(key).text for key in expressions}
        if {*outer} - keys:
            why = "a subquery names a column that is not grouped by"
            raise refusal(node, why, "join its table, and group by its value")
        return Value(f"max({value.text})", value.kind)

    @staticmethod
    def _check_correlated(node: exp.Expr, query: exp.Expr) -> None:
        plain = isinstance(query, exp.Select) and len(query.expressions) == 1
        if (
            not plain
            or not _aggregates(query.expressions[0])
            or any(query.args.get(part) for part in (*_INNER, "with_"))
        ):
            why = "a subquery names a column of the query around it, and may have several rows"
            raise refusal(
                node, why,
                "write it by the primary key of its table, an aggregate such as max(…) in it, "
                "ORDER BY … LIMIT 1, or a join with a subquery with GROUP BY",
            )  # fmt: skip
        select = node.find_ancestor(exp.Select)
        if select is None or isinstance(_clause(node, select), exp.Where):
            return
        if select.args.get("group") or any(map(_aggregates, select.expressions)):
            raise refusal(node, _WITH_GROUPS, "join a subquery with GROUP BY")

    # Groups

    def _group(self, node: exp.Select, reader: Expressions) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        used = list(reader.plain_columns)
        parts, plain = [], []
        for key in group.expressions:
            if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
                parts.append(self._sets(key, node, reader))
                continue
            for one in key.expressions if isinstance(key, exp.Tuple) else [key]:
                expression = self._grouping(one, node, reader)
                value = reader.key(expression)
                if not expression.find(exp.Column):
                    raise refusal(key, "GROUP BY has a constant", "leave it out")
                plain.append(value.text)
        if not parts:
            plain += self._determined(plain, used, reader)
        return f" GROUP BY {', '.join(dict.fromkeys([*plain, *parts]))}"

    def _grouping(self, key: exp.Expr, node: exp.Select, reader: Expressions) -> exp.Expr:
        """Return the expression of a group; a name is first sought in FROM, then in the result."""
        if isinstance(key, exp.Column) and not key.args.get("table"):
            scope = reader.scope
            if scope.own(key) is not None:
                return key
        return self._output(key, node)

    def _sets(self, key: exp.Expr, node: exp.Select, reader: Expressions) -> str:
        def listed(part: exp.Expr) -> str:
            if isinstance(part, exp.Tuple):
                return f"({', '.join(map(listed, part.expressions))})"
            if isinstance(part, exp.Paren):
                return f"({listed(part.this)})"
            if isinstance(part, exp.Rollup | exp.Cube):
                raise refusal(
                    key, "nested grouping sets are not known", "write the sets one by one"
                )
            return reader.key(self._grouping(part, node, reader)).text

        return f"{_GROUPS[type(key)]} ({', '.join(map(listed, key.expressions))})"

    @staticmethod
    def _determined(plain: list[str], used: list[exp.Column], reader: Expressions) -> list[str]:
        """Return the used columns that a primary key in GROUP BY determines."""
        scope = reader.scope
        whole = [
            source
            for source in scope.sources
            if source.key and all(source.columns[name].text in plain for name in source.key)
        ]
        own = {value.text for source in whole for value in source.columns.values()}
        texts = [value.text for column in used if (value := scope.own(column)) is not None]
        return [text for text in dict.fromkeys(texts) if text in own and text not in plain]


def _this(node: exp.Expr, name: str) -> exp.Expr | None:
    clause = node.args.get(name)
    return None if clause is None else clause.this


def _clause(node: exp.Expr, select: exp.Expr) -> exp.Expr:
    """Return the clause of a SELECT that has a part."""
    while node.parent is not None and node.parent is not select:
        node = node.parent
    return node


def _is_equal_column(part: exp.Expr, inner: Scope, reader: Expressions) -> bool:
    """Tell whether a condition is `column = value`, where the value is of the outer query alone.

    A column is not grouped by if it is compared with a float, which several integers may equal.
    """
    if not isinstance(part, exp.EQ):
        return False
    sides = [part.left.unnest(), part.right.unnest()]
    own = [
        any(inner.own(column) is not None for column in side.find_all(exp.Column)) for side in sides
    ]
    if sum(own) != 1 or not isinstance(sides[own.index(True)], exp.Column):
        return False
    names = {reader.value(side).kind.name for side in sides}
    return len(names) == 1 or not names & {*FLOATS}


def _in_aggregate(node: exp.Expr, select: exp.Expr) -> bool:
    """Tell whether a part of a SELECT is inside an aggregate."""
    while node is not select and node.parent is not None:
        node = node.parent
        if isinstance(node, exp.Filter) or (
            isinstance(node, exp.Anonymous) and _is_aggregate(node)
        ):
            return True
    return False


def _shared(scope: Scope, before: Sequence[Source]) -> list[str]:
    """Return the columns that the last table of FROM shares with the earlier ones."""
    names = dict.fromkeys([*scope.merged, *(name for source in before for name in source.columns)])
    return [name for name in names if name in scope.sources[-1].columns]


def _outer_columns(query: exp.Expr, inner: Scope, scope: Scope) -> list[str]:
    """Return the SQL of the columns of the query around a subquery that the subquery names."""
    return [
        outside.text
        for column in query.find_all(exp.Column)
        if inner.own(column) is None and (outside := scope.own(column)) is not None
    ]


def _is_conjunct(node: exp.Expr) -> bool:
    """Tell whether a condition must be true for every row that WHERE keeps."""
    outer = node.parent
    while isinstance(outer, exp.And | exp.Paren):
        outer = outer.parent
    # FILTER has a WHERE, too: it keeps all rows, and one aggregate goes without some.
    return isinstance(outer, exp.Where) and not isinstance(outer.parent, exp.Filter)


def _has_grouping_sets(select: exp.Expr) -> bool:
    group = select.args.get("group")
    return group is not None and any(
        isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in group.expressions
    )


def _check_having(having: exp.Expr, select: exp.Expr) -> None:
    """Refuse a column in HAVING, which Spark does not have there after grouping sets."""
    for column in having.find_all(exp.Column):
        call = column.find_ancestor(exp.Anonymous)
        is_grouping = call is not None and call.name.lower() == "grouping"
        if not (is_grouping or _in_aggregate(column, select)):
            raise refusal(
                column, "HAVING names a column beside grouping sets",
                "write it as WHERE of a query around this one, FROM (SELECT …) AS q",
            )  # fmt: skip


def _aggregates(node: exp.Expr) -> bool:
    """Tell whether an expression has an aggregate that is not a window function."""
    return any(
        isinstance(call, exp.Anonymous) and _is_aggregate(call)
        for call in node.walk(prune=lambda part: isinstance(part, exp.Query))
    )


def _is_aggregate(call: exp.Anonymous) -> bool:
    outer = call.parent.parent if isinstance(call.parent, exp.Filter) else call.parent
    return call.name.lower() in (*AGGREGATES, *OF_ORDER) and not isinstance(outer, exp.Window)


def _items(query: exp.Expr | None) -> list[exp.Expr]:
    """Return the expressions of a query's columns, for messages; empty if one is a star."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    items = list(query.expressions) if isinstance(query, exp.Select) else []
    return [] if any(item.is_star for item in items) else items


def _place_of(key: exp.Expr, names: Sequence[str]) -> int | None:
    if isinstance(key, exp.Literal) and key.name.isdigit() and 1 <= int(key.name) <= len(names):
        return int(key.name) - 1
    if isinstance(key, exp.Column) and names.count(name := name_of(key.this)) == 1:
        return list(names).index(name)
    return None


def _name(item: exp.Expr) -> str:  # noqa: PLR0911 - one for each form
    """Return the name that PostgreSQL gives a column; empty if it gives none."""
    match item:
        case exp.Alias():
            return name_of(item.args["alias"])
        case exp.Column():
            return name_of(item.this)
        case exp.Cast() if isinstance(item.this, exp.Column):
            return name_of(item.this.this)
        case exp.Window() | exp.Filter():
            return _name(item.this)
        case exp.Anonymous():
            return str(item.name).lower()
        case exp.Case():
            return "case"
        case exp.Array():
            return "array"
        case exp.Paren() | exp.Bracket():
            return _name(item.this)
        case _:
            return ""


def _require_name(item: exp.Expr, name: str) -> None:
    if not name:
        raise refusal(item, "it has no name of its own", f"write {author_text(item)} AS name")
