"""Infer Spark's types of the parts of a query, as far as arithmetic depends on them.

sqlglot's own inference knows names of types but not the precision of decimals, on which the
scale of a quotient or an average depends. An unknown type is None, and a translation that needs it
is refused. The rules are those of Spark's `DecimalPrecision`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import leaves, sources_of
from views.verify.values.names import folded
from views.verify.values.types import Type, parse_type

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_ORDER = ["tinyint", "smallint", "int", "bigint"]
_MAX_PRECISION = 38
_LEAST_SCALE = 6
INTEGERS = frozenset(_INTEGER_DIGITS)
FLOATS = frozenset({"float", "double"})
_COUNTS = (
    *(exp.Count, exp.CountIf, exp.RowNumber, exp.Rank, exp.DenseRank, exp.IntDiv),
    exp.UnixMicros,
)
_SAME = (
    *(exp.Paren, exp.Alias, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.Filter, exp.Window),
    *(exp.FirstValue, exp.LastValue, exp.NthValue, exp.IgnoreNulls),
)
_DAYS = frozenset({"YEAR", "MONTH", "WEEK", "DAY"})
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)

TableTypes = Mapping[str, Mapping[str, Type]]
"""A table's reading name to the types of its columns, by their folded names."""


def adjusted(precision: int, scale: int) -> Type:
    """Return the decimal of a result; if it is too long, its scale is cut, but not below six."""
    if precision <= _MAX_PRECISION:
        return Type("decimal", precision, scale)
    whole = precision - scale
    return Type("decimal", _MAX_PRECISION, max(_MAX_PRECISION - whole, min(scale, _LEAST_SCALE)))


def as_decimal(kind: Type) -> Type | None:
    """Return the decimal of an integer type, a decimal as it is, None for other types."""
    if kind.name == "decimal":
        return kind
    digits = kind.precision or _INTEGER_DIGITS.get(kind.name, 0)
    return Type("decimal", digits, 0) if kind.name in INTEGERS else None


def widest(kinds: Iterable[Type | None]) -> Type | None:
    """Return the type that holds the values of all branches, None if it is not known."""
    branches = [kind for kind in kinds if kind is None or kind.name != "void"]
    types = [kind for kind in branches if kind is not None]
    if len(types) < len(branches) or not types:
        return None
    names = {kind.name for kind in types}
    if names <= INTEGERS:
        return Type(max(names, key=_ORDER.index))
    if names & FLOATS and names <= FLOATS | INTEGERS | {"decimal"}:
        return Type("float") if names == {"float"} else Type("double")
    if names <= INTEGERS | {"decimal"}:
        decimals = [decimal for kind in types if (decimal := as_decimal(kind)) is not None]
        scale = max(decimal.scale for decimal in decimals)
        return adjusted(max(d.precision - d.scale for d in decimals) + scale, scale)
    return types[0] if len(set(types)) == 1 else None


def fits(kinds: Iterable[Type | None]) -> bool:
    """Tell whether one decimal holds all of these types: otherwise the engines cut differently."""
    values = list(kinds)
    decimals = [decimal for kind in values if kind is not None and (decimal := as_decimal(kind))]
    if not any(kind is not None and kind.name == "decimal" for kind in values):
        return True
    if any(kind is not None and kind.name in FLOATS for kind in values):
        return True
    whole = max(decimal.precision - decimal.scale for decimal in decimals)
    scale = max(decimal.scale for decimal in decimals)
    return whole + scale <= _MAX_PRECISION and (
        None not in values or whole + scale < _MAX_PRECISION
    )


_OF_LISTS = frozenset({"list_joined", "list_part", "list_without"})
"""Calls whose result has the type of their first argument."""


class Types:
    """Knows the type of each part of a query whose columns are qualified."""

    def __init__(self, query: exp.Expr, tables: TableTypes) -> None:
        self._tables = tables
        self._sources = sources_of(query)
        self._known: dict[int, Type | None] = {}

    def of(self, node: exp.Expr | None) -> Type | None:
        """Return a node's type, or None when it is not known."""
        if node is None:
            return None
        if id(node) not in self._known:
            self._known[id(node)] = None
            self._known[id(node)] = self._infer(node)
        return self._known[id(node)]

    def is_bare(self, node: exp.Expr) -> bool:
        """Tell whether a value is a captured column unchanged, rather than computed."""
        match node:
            case exp.Alias() | exp.Paren() | exp.PropertyEQ():
                return self.is_bare(
                    node.expression if isinstance(node, exp.PropertyEQ) else node.this
                )
            case exp.Struct():
                return all(self.is_bare(field) for field in node.expressions)
            case exp.Literal() | exp.Null() | exp.Boolean():
                return True
            case exp.Column():
                source = self._sources.get(id(node))
                if isinstance(source, exp.Table):
                    return True
                item = _projection(source, node.name)
                return item is not None and self.is_bare(item)
            case _:
                return False

    def _infer(self, node: exp.Expr) -> Type | None:  # noqa: C901, PLR0911, PLR0912 - a table
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return _literal(node)
            case exp.Null():
                return Type("void")
            case exp.Lag() | exp.Lead():
                kind, default = self.of(node.this), node.args.get("default")
                # Spark cuts the default to the type of the value.
                return kind if default is None or widest([kind, self.of(default)]) == kind else None
            case exp.Cast():
                return _named(node.to)
            case _ if isinstance(node, _COUNTS):
                return Type("bigint")
            case exp.Extract():
                is_second = node.name.lower() == "second"
                return Type("decimal", 8, 6) if is_second else Type("int")
            case exp.Sum() | exp.Avg():
                return self._aggregate(node)
            case exp.Round():
                return self._round(node)
            case exp.Anonymous() if node.name.lower() == "quotient":
                sizes = [int(part.name) for part in node.expressions[4:]]
                return Type("decimal", 36 + len(sizes), sizes[-1])
            case exp.Anonymous() if node.name.lower() in _OF_LISTS:
                return self.of(node.expressions[0])
            case exp.Anonymous() if node.name.lower() in {
                "octet_length",
                "label_place",
                "list_place",
            }:
                return Type("int")
            case exp.Anonymous() if node.name.lower() in {"has_all", "arrays_overlap"}:
                return Type("boolean")
            case exp.Anonymous() if node.name.lower() == "get":
                listed = self.of(node.expressions[0])
                is_list = listed is not None and listed.name == "array"
                return listed.fields[0][1] if listed is not None and is_list else None
            case exp.Anonymous() if node.name.lower() == "significant":
                precision, scale = (int(part.name) for part in node.expressions[2:])
                return Type("decimal", precision, scale)
            case exp.ArrayToString():
                return Type("string")
            case exp.Anonymous() if node.name.lower() == "json_element":
                return Type("string")
            case exp.ArrayAgg():
                element = self.of(node.this)
                return None if element is None else Type("array", fields=(("", element),))
            case exp.Order():
                return self.of(node.this)
            case exp.Distinct() if len(node.expressions) == 1:
                return self.of(node.expressions[0])
            case exp.Subquery() if isinstance(inner := node.unnest(), exp.Select):
                # Of a value, not of FROM.
                return self.of(inner.selects[0]) if len(inner.selects) == 1 else None
            case exp.ArrayContains():
                return Type("boolean")
            case exp.Ascii():
                return Type("int")
            case exp.Reverse():
                return Type("string")
            case exp.Log():
                return Type("double")
            case _ if isinstance(node, _ARITHMETIC):
                return self._arithmetic(node)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                return widest([self.of(node.this), *map(self.of, node.expressions)])
            case exp.If():
                return widest([self.of(node.args.get("true")), self.of(node.args.get("false"))])
            case exp.Case():
                branches = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
                default = node.args.get("default")
                return widest(branches + ([self.of(default)] if default else []))
            case exp.Nullif():
                return self.of(node.this)
            case exp.Rint() | exp.Quantile():
                return Type("double")
            case exp.Grouping():
                return Type("tinyint")
            case exp.GroupConcat():
                return Type("string")
            case _ if isinstance(node, _SAME):
                return self.of(node.this)
            case _:
                kind = _named(node.type) if node.type is not None else None
                if kind is not None and kind.name in {"tinyint", "smallint"}:
                    return Type("int")  # as Spark's functions have it, of weeks too
                return None if kind is None or kind.name == "decimal" else kind

    def _column(self, node: exp.Column) -> Type | None:
        source = self._sources.get(id(node))
        if isinstance(source, exp.Table):
            return self._tables.get(source.name, {}).get(folded(node.name))
        if isinstance(source, Scope) and isinstance(source.expression, exp.SetOperation):
            return self._combined(source.expression, node.name)
        item = _projection(source, node.name)
        return None if item is None else self.of(item)

    def _combined(self, query: exp.SetOperation, name: str) -> Type | None:
        """Return the type of a column of UNION, INTERSECT or EXCEPT: the widest of its queries'."""
        names = [item.alias_or_name.lower() for item in query.selects]
        selects = [leaf.selects for leaf in leaves(query) if isinstance(leaf, exp.Query)]
        if name.lower() not in names or any(len(items) != len(names) for items in selects):
            return None
        kinds = [self.of(items[names.index(name.lower())]) for items in selects]
        # In a set operation a constant counts with all digits of its type.
        return widest(Type(k.name) if k is not None and k.name in INTEGERS else k for k in kinds)

    def _aggregate(self, node: exp.Sum | exp.Avg) -> Type | None:
        inner = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        kind = self.of(inner)
        if kind is None:
            return None
        if kind.name != "decimal":
            integer = isinstance(node, exp.Sum) and kind.name in INTEGERS
            return Type("bigint") if integer else Type("double")
        more, deeper = (10, 0) if isinstance(node, exp.Sum) else (4, 4)
        precision = min(kind.precision + more, _MAX_PRECISION)
        return Type("decimal", precision, min(kind.scale + deeper, _MAX_PRECISION))

    def _round(self, node: exp.Round) -> Type | None:
        kind, places = self.of(node.this), decimals_of(node)
        if kind is None or kind.name != "decimal":
            return kind
        if places is None or places < 0:
            return None
        scale = min(places, kind.scale)
        return Type("decimal", min(kind.precision - kind.scale + 1 + scale, _MAX_PRECISION), scale)

    def _moved(self, node: exp.Expr) -> Type | None:
        """Return the type of a date or timestamp plus an interval; a date plus days is a date."""
        kind, unit = self.of(node.args["this"]), node.args["expression"].text("unit")
        if kind is None or kind.name not in {"date", "timestamp", "timestamp_ntz"}:
            return None
        by_days = unit.upper().rstrip("S") in _DAYS
        return kind if by_days or kind.name != "date" else Type("timestamp")

    def _arithmetic(self, node: exp.Expr) -> Type | None:
        if isinstance(node.args["expression"], exp.Interval):
            return self._moved(node)
        left, right = self.of(node.args["this"]), self.of(node.args["expression"])
        if left is None or right is None:
            return None
        if "decimal" not in {left.name, right.name} or {left.name, right.name} & FLOATS:
            if isinstance(node, exp.Div) and widest([left, right]) is not None:
                return Type("double")
            return widest([left, right])
        one, two = as_decimal(left), as_decimal(right)
        return None if one is None or two is None else _decimal_result(node, one, two)


def _decimal_result(node: exp.Expr, one: Type, two: Type) -> Type | None:
    whole = (one.precision - one.scale, two.precision - two.scale)
    scale = max(one.scale, two.scale)
    match node:
        case exp.Add() | exp.Sub():
            exact = Type("decimal", max(whole) + scale + 1, scale)
        case exp.Mul():
            exact = Type("decimal", one.precision + two.precision + 1, one.scale + two.scale)
        case exp.Div():
            scale = max(_LEAST_SCALE, one.scale + two.precision + 1)
            return adjusted(whole[0] + two.scale + scale, scale)
        case _:
            exact = Type("decimal", min(whole) + scale, scale)
    result = adjusted(exact.precision, exact.scale)
    # Where Spark has to round a result, DuckDB's may differ.
    return result if result.scale == exact.scale else None


def decimals_of(node: exp.Round) -> int | None:
    """Return the constant number of places of a `round`, or None when it is no constant."""
    places = node.args.get("decimals")
    if places is None:
        return 0
    negative = isinstance(places, exp.Neg)
    literal = places.this if negative else places
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    return -int(literal.name) if negative else int(literal.name)


def _literal(node: exp.Literal) -> Type | None:
    text = node.name
    if node.is_string:
        return Type("string")
    if text.isdigit():
        # Beside a decimal, Spark counts a literal by its own digits, which `precision` has.
        name = "int" if int(text) < 1 << 31 else "bigint"
        return Type(name, precision=len(text)) if int(text) < 1 << 63 else None
    whole, point, fraction = text.partition(".")
    if not point or not (whole + fraction).isdigit():
        return Type("double")
    digits = len((whole + fraction).lstrip("0"))
    return Type("decimal", max(digits, len(fraction)), len(fraction))


def _named(kind: exp.Expr | None) -> Type | None:
    if kind is None or kind.is_type(exp.DataType.Type.UNKNOWN):
        return None  # most parts of a query; parsing them all would take most of the time
    try:
        return parse_type(kind.sql("spark").lower().replace(": ", ":"))
    except ViewError:
        return None


def _projection(source: exp.Table | Scope | None, name: str) -> exp.Expr | None:
    if not isinstance(source, Scope) or not isinstance(source.expression, exp.Select):
        return None
    for item in source.expression.selects:
        if item.alias_or_name.lower() == name.lower():
            return item
    return None
