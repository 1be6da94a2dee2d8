"""Refuses values of two types that PostgreSQL neither compares nor converts to one type. Pure.

Spark silently casts a text that it compares with a number, a date or a boolean. PostgreSQL has no
operator for that, since `'05'` and `'5'` are one number and two texts. A constant text takes the
type of the other value in both. Values of unknown type are not refused.
"""

from __future__ import annotations

from enum import Enum
from itertools import zip_longest

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.types import ColumnType, Kind
from views.base.spark_sql import briefly
from views.meaning.captured_values import Tables, ValueOrigins, branches, is_open
from views.meaning.types import is_text, meaning_of


class Category(Enum):
    """A category of types among which PostgreSQL converts (`typcategory` of pg_type)."""

    TEXT = "text"
    NUMBER = "a number"
    BOOLEAN = "boolean"
    MOMENT = "a date or timestamp"


_OF_KINDS = {
    Kind.BOOLEAN: Category.BOOLEAN,
    Kind.INT: Category.NUMBER,
    Kind.LONG: Category.NUMBER,
    Kind.FLOAT: Category.NUMBER,
    Kind.DOUBLE: Category.NUMBER,
    Kind.DECIMAL: Category.NUMBER,
    Kind.DATE: Category.MOMENT,
    Kind.TIMESTAMP: Category.MOMENT,
    Kind.TIMESTAMPTZ: Category.MOMENT,
}
"""The categories of captured types other than texts."""
_SPARK = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "double",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
}
"""Spark's names of these types."""
_DType = exp.DataType.Type
_MOMENTS = (
    *(_DType.DATE, _DType.TIMESTAMP, _DType.TIMESTAMPTZ, _DType.TIMESTAMPLTZ),
    _DType.TIMESTAMPNTZ,
)
"""Types of dates and timestamps."""
_COMPARED = (
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    exp.Nullif,
)
"""Expressions that compare their two arguments."""
_FIRST = (
    *(exp.Alias, exp.Paren, exp.Filter, exp.Window, exp.Min, exp.Max, exp.First, exp.Last),
    *(exp.AnyValue, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.Nullif, exp.Distinct),
    *(exp.IgnoreNulls, exp.RespectNulls),
)
"""Expressions of the category of their first argument."""
_NUMBERS = (
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Length, exp.Abs, exp.Ceil, exp.Floor),
    *(exp.Round, exp.Sqrt, exp.Pow, exp.Ln, exp.Exp, exp.Sign, exp.Mul, exp.Div, exp.IntDiv),
    *(exp.Mod, exp.Neg, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.Extract),
    *(exp.Year, exp.Quarter, exp.Month, exp.Week, exp.WeekOfYear, exp.Day, exp.DayOfMonth),
    *(exp.DayOfWeek, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.DateDiff),
    *(exp.StrPosition, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
)
"""Functions that return a number."""
_TEXTS = (
    *(exp.Concat, exp.ConcatWs, exp.DPipe, exp.Upper, exp.Lower, exp.Trim, exp.Substring),
    *(exp.Left, exp.Right, exp.Replace, exp.Repeat, exp.Pad, exp.Translate, exp.TimeToStr),
    *(exp.MD5, exp.SHA2),
)
"""Functions that return a text."""
_OF_MOMENTS = (exp.DateTrunc, exp.TimestampTrunc, exp.LastDay, exp.TsOrDsAdd, exp.TsOrDsToDate)
"""Functions that return a date or a timestamp."""


def check_mixed(query: exp.Expr, tables: Tables, origins: ValueOrigins) -> None:
    """Refuse a query that compares values of two categories, or combines them in one result.

    Raises ViewError: it does.
    """
    categories = _Categories(tables, origins)
    for node in query.walk():
        categories.check(node, _compared(node), compared=True)
        categories.check(node, _branches(node), compared=False)
        if isinstance(node, exp.SetOperation):
            sides = categories.columns(node.left), categories.columns(node.right)
            for one, other in zip(*sides, strict=False):
                categories.check(node, [one, other], compared=False)


def _compared(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that an expression compares with one another."""
    match node:
        case _ if isinstance(node, _COMPARED):
            return [node.this, node.expression]
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.In():
            inner = node.args.get("query")
            return [node.this, *([inner] if inner is not None else node.expressions)]
        case exp.Case() if node.this is not None:
            return [node.this, *(branch.this for branch in node.args["ifs"])]
        case _:
            return []


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that an expression chooses from, also defaults of window functions."""
    if not isinstance(node, exp.Lag | exp.Lead):
        return branches(node)
    default = node.args.get("default")
    return [node.this] if default is None else [node.this, default]


class _Categories:
    """The categories of the values in a query."""

    def __init__(self, tables: Tables, origins: ValueOrigins) -> None:
        self._tables, self._origins = tables, origins
        self._cache: dict[int, Category | None] = {}

    def check(self, node: exp.Expr, values: list[exp.Expr], *, compared: bool) -> None:
        """Refuse values of several categories, as far as these are known.

        Raises ViewError: there are two.
        """
        categorised = [(value, own) for value in values if (own := self.of(value)) is not None]
        for value, category in categorised[1:]:
            if category is not categorised[0][1]:
                raise self._refusal(node, categorised[0][0], value, compared=compared)

    def of(self, node: exp.Expr | None) -> Category | None:
        """Return the category of a value; None for a constant text, null and an unknown type."""
        if node is None or is_open(node):
            return None
        if id(node) not in self._cache:
            self._cache[id(node)] = None
            self._cache[id(node)] = self._category(node)
        return self._cache[id(node)]

    def columns(self, query: exp.Expr) -> list[exp.Expr]:
        """Return a value of each column of a query; of a set operation, one with a category."""
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.SetOperation):
            sides = zip_longest(self.columns(query.left), self.columns(query.right))
            return [one if other is None or self.of(one) else other for one, other in sides]
        return list(query.selects) if isinstance(query, exp.Select) else []

    def _category(self, node: exp.Expr) -> Category | None:  # noqa: C901, PLR0911, PLR0912 - a table
        match node:
            case exp.Column():
                return self._of_column(node)
            case exp.Literal():
                return Category.NUMBER
            case exp.Cast():
                return _of_type(node.to)
            case exp.Boolean() | exp.Not() | exp.Connector() | exp.Is() | exp.Exists():
                return Category.BOOLEAN
            case exp.Query():
                return self._first(self.columns(node)[:1])
            case exp.Nullif():
                return self.of(node.this)
            case exp.Predicate() | exp.LogicalAnd() | exp.LogicalOr():
                return Category.BOOLEAN
            case exp.Add() | exp.Sub():
                both = {self.of(node.left), self.of(node.right)}
                return Category.NUMBER if both == {Category.NUMBER} else None
            case _ if _branches(node):
                return self._first(_branches(node))
            case _ if isinstance(node, _FIRST):
                return self._first([node.this] if node.this is not None else node.expressions)
            case _ if isinstance(node, _NUMBERS):
                return Category.NUMBER
            case _ if isinstance(node, _TEXTS):
                return Category.TEXT
            case _ if isinstance(node, _OF_MOMENTS):
                return Category.MOMENT
            case _:
                return None

    def _first(self, values: list[exp.Expr]) -> Category | None:
        return next(
            (category for value in values if (category := self.of(value)) is not None), None
        )

    def _of_column(self, node: exp.Column) -> Category | None:
        kind = self._kind(node)
        if kind is not None:
            return _of_kind(kind)
        source = self._origins.source(node)
        if not isinstance(source, Scope) or not isinstance(source.expression, exp.Query):
            return None
        names = [name.lower() for name in source.expression.named_selects]
        if names.count(node.name.lower()) != 1:
            return None
        values = self.columns(source.expression)
        place = names.index(node.name.lower())
        if place >= len(values):
            return None
        # In an inner query a constant text has the type text.
        return Category.TEXT if _is_text(values[place]) else self.of(values[place])

    def _kind(self, node: exp.Expr) -> ColumnType | None:
        source = self._origins.source(node) if isinstance(node, exp.Column) else None
        if not isinstance(source, exp.Table):
            return None
        return self._tables.get(source.name, {}).get(node.name.lower())

    def _refusal(
        self, node: exp.Expr, one: exp.Expr, other: exp.Expr, *, compared: bool
    ) -> ViewError:
        pair = sorted((one, other), key=lambda value: self.of(value) is not Category.TEXT)
        texts = [briefly(value) for value in pair]
        quoted = [
            f'"{text}"' if isinstance(value.unalias(), exp.Column) else text
            for value, text in zip(pair, texts, strict=True)
        ]
        kinds = [self._kind(value.unalias()) for value in pair]
        categories = [self.of(value) for value in pair]
        named = [
            f"{text} is {kind.name if kind is not None else category and category.value}"
            for text, kind, category in zip(quoted, kinds, categories, strict=True)
        ]
        refusal = "does not compare" if compared else "does not convert to one type"
        if Category.BOOLEAN in categories and Category.TEXT not in categories:
            hint = "write IS TRUE or IS FALSE after the boolean"
        elif categories[0] is not Category.TEXT:
            hint = "write a number of the date, such as year(x)"
        elif kinds[1] is not None and kinds[1].kind in {Kind.FLOAT, Kind.DOUBLE}:
            hint = f"write cast({texts[0]} AS double)"  # a cast of a float to text cannot be proved
        elif isinstance(pair[1], exp.Literal):
            hint = f"write '{pair[1].name}'"
        else:
            target = _cast_of(kinds[1], pair[1])
            hint = f"write cast({texts[1]} AS string)" + (
                f", or cast({texts[0]} AS {target})" if target else ""
            )
        return ViewError(
            f"{briefly(node)}: {' and '.join(named)}, which PostgreSQL {refusal}", hint=hint
        )


def _of_kind(kind: ColumnType) -> Category | None:
    meaning = meaning_of(kind)
    if meaning is not None:
        return Category.TEXT if is_text(meaning) or meaning.is_char else None
    return Category.TEXT if kind.kind is Kind.STRING else _OF_KINDS.get(kind.kind)


def _of_type(kind: exp.DataType) -> Category | None:
    if kind.is_type(*exp.DataType.TEXT_TYPES):
        return Category.TEXT
    if kind.is_type(*exp.DataType.NUMERIC_TYPES):
        return Category.NUMBER
    if kind.is_type(*_MOMENTS):
        return Category.MOMENT
    return Category.BOOLEAN if kind.is_type(_DType.BOOLEAN) else None


def _is_text(value: exp.Expr) -> bool:
    inner = value.unalias()
    return isinstance(inner, exp.Literal) and inner.is_string


def _cast_of(kind: ColumnType | None, value: exp.Expr) -> str:
    """Return Spark's name of the type that a text is cast to; empty if it is not known."""
    if kind is None:
        return value.to.sql("spark").lower() if isinstance(value, exp.Cast) else ""
    if kind.kind is Kind.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    return _SPARK.get(kind.kind, "")
