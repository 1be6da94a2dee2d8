"""Notes on values of a view that differ from PostgreSQL's for the same query. Pure.

The language is Spark's, by which both engines of a proof compute: the plan names the values that a
reader who knows PostgreSQL's SQL would expect otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal

from sqlglot import exp

from views.base.spark_sql import sources_of
from views.meaning.captured_values import branches
from views.rebuild.plan.numbers import MOST, Sort, number_of
from views.rebuild.plan.parts import WITHOUT_ZONE, ZONED, DType, is_of, text_of

_INTEGERS = (DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT)
_WHOLE = (exp.Round, exp.Ceil, exp.Floor, exp.IntDiv, exp.Extract)
_FLOATS = (DType.FLOAT, DType.DOUBLE)
_REAL = (DType.FLOAT,)
_JOINED = (exp.Concat, exp.ConcatWs, exp.DPipe)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between)
_SORTS = {Sort.WHOLE: 0, Sort.DECIMAL: 1, Sort.FLOAT: 2}
_DOUBLES_DIGITS = 15
_OF_DAYS = ("YEAR", "MONTH", "WEEK", "DAY", "QUARTER")


def other_values(query: exp.Expr, sql: str, nulls: Nulls) -> Iterator[str]:
    """Yield a sentence for each value that differs in PostgreSQL."""
    for node in query.walk():
        yield from _sentences_of(node, sql, nulls)
    for order in nulls.orders():
        here, there, word = ("first", "last", "")
        if order.args.get("desc"):
            here, there, word = ("last", "first", " desc")
        yield (
            f"order by {text_of(order.this)}{word} has nulls {here}, where PostgreSQL has them "
            f"{there}: write {text_of(order.this)}{word} nulls {there}"
        )


def _sentences_of(node: exp.Expr, sql: str, nulls: Nulls) -> Iterator[str]:  # noqa: C901, PLR0912 - a table
    match node:
        case exp.Cast() if node.to.is_type(*_INTEGERS):
            yield from _cut(node)
        case exp.Cast() if node.to.is_type(DType.DECIMAL) and _is_float(node.this):
            yield from _digits(node)
        case exp.Cast() if node.to.is_type(*_REAL):
            is_real = is_of(node.this, _REAL) or isinstance(node.this, exp.Null)
            if not is_real and "float" in sql.lower():  # `real` is the same type to the parser
                yield (
                    f"{text_of(node)} is a real, where PostgreSQL's float is a double: write "
                    f"cast({text_of(node.this)} as double), or as real if one is meant"
                )
        case exp.Cast() if node.to.is_type(*exp.DataType.TEXT_TYPES):
            yield from _scaled(node, node.this)
        case exp.Extract() if node.name.lower() == "dow":
            yield (
                f"{text_of(node)} is 1 of a Sunday, where PostgreSQL's is 0: "
                f"write {text_of(node)} - 1"
            )
        case exp.Sqrt() | exp.Ln() | exp.Exp() | exp.Pow():
            yield from _of_numeric(node)
        case exp.ArrayAgg() if "array_agg" in sql.lower() and not isinstance(node.this, exp.Order):
            yield (
                f"{text_of(node)} is without the nulls and empty of no rows, where PostgreSQL's "
                f"has the nulls and is null of no rows: write collect_list({text_of(node.this)})"
            )
        case exp.Sign() if _is_float(node.this):
            yield f"{text_of(node)} is NaN of NaN, where PostgreSQL's is 0"
        case exp.Round() | exp.Floor() | exp.Ceil() if is_of(node.this, (DType.BIGINT,)):
            yield (
                f"{text_of(node)} is exact, where PostgreSQL's of an integer is a double, of "
                f"{_DOUBLES_DIGITS} digits"
            )
        case exp.Round() if _is_float(node.this) and node.args.get("decimals") is None:
            yield (
                f"{text_of(node)} rounds halves away from 0, where PostgreSQL rounds those of "
                "floats to the even number"
            )
        case exp.Floor() | exp.Ceil() if _is_float(node.this):
            yield (
                f"{text_of(node)} is a bigint, 0 of NaN and the last one of Infinity, where "
                "PostgreSQL's is a double"
            )
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            yield from _interval(node)
        case exp.Concat() | exp.ConcatWs() | exp.DPipe():
            yield from _joined(node, nulls)
        case exp.Lag() | exp.Lead():
            yield from _default(node)
        case exp.BitwiseXor():
            yield (
                f"{text_of(node)} is an exclusive or, where PostgreSQL's ^ is a power: write "
                f"power({text_of(node.this)}, {text_of(node.expression)})"
            )
        case exp.Bracket() if not node.args.get("offset") and is_of(node.this, (DType.ARRAY,)):
            yield f"{text_of(node)} counts elements from 0, where PostgreSQL counts them from 1"
        case _ if isinstance(node, _COMPARISONS):
            yield from _of_reals(node)
            yield from _of_doubles(node)
        case exp.Literal() if not node.is_string and "e" in node.name.lower():
            yield from _of_exponent(node)
        case exp.Literal() if node.is_string:
            yield from _escaped(node, sql)
        case _:
            yield from _widened(node)


def _is_float(node: exp.Expr) -> bool:
    """Tell whether a value is a float; a number with a point is a decimal, in Spark too."""
    number = number_of(node)
    return number is not None and number.sort is Sort.FLOAT


def _cut(node: exp.Cast) -> Iterator[str]:
    inner = node.this.unnest()
    number = number_of(inner)
    if number is None or isinstance(inner, _WHOLE) or (number.size and number.size[1] == 0):
        return
    if isinstance(inner, exp.Literal) and float(inner.name).is_integer():
        return
    text = f"{text_of(node)} cuts the fraction off, where PostgreSQL rounds it"
    if number.sort is Sort.FLOAT:
        yield f"{text}, halves to the even number"
    elif number.sort is Sort.DECIMAL:
        yield f"{text}: write cast(round({text_of(inner)}) as {node.to.sql('spark').lower()})"


def _digits(node: exp.Cast) -> Iterator[str]:
    sort, digits = ("real", 6) if is_of(node.this, _REAL) else ("double", 15)
    sizes = node.to.expressions
    if not sizes or int(sizes[0].name) > digits:
        yield (
            f"{text_of(node)} has all digits of a {sort}, where PostgreSQL's has the first "
            f"{digits} and zeros"
        )


def _interval(node: exp.Add | exp.Sub) -> Iterator[str]:
    if not is_of(node.this, (DType.DATE,)) or isinstance(node.parent, exp.Predicate):
        return
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    if isinstance(around, exp.Cast) and around.to.is_type(*WITHOUT_ZONE):
        return
    if node.expression.text("unit").upper().rstrip("S") in _OF_DAYS:
        yield (
            f"{text_of(node)} is a date, where PostgreSQL's is a timestamp: write "
            f"cast({text_of(node)} as timestamp_ntz)"
        )
    else:
        yield (
            f"{text_of(node)} has a time zone here, and none in PostgreSQL: write "
            f"cast({text_of(node)} as timestamp_ntz)"
        )


def _joined(node: exp.Expr, nulls: Nulls) -> Iterator[str]:
    parts = [part for part in node.iter_expressions() if isinstance(part, exp.Condition)]
    for part in parts:
        yield from _scaled(node, part)
        if is_of(part, ZONED):
            yield (
                f"{text_of(part)} in {text_of(node)} has no offset, "
                "which PostgreSQL's text of it has"
            )
        elif is_of(part, (DType.BOOLEAN,)) and not isinstance(node, exp.DPipe):
            yield (
                f"{text_of(part)} in {text_of(node)} is true or false, where PostgreSQL's is t or f"
            )
    if type(node) is exp.Concat and any(map(nulls.may_be, parts)):
        listed = ", ".join(map(text_of, parts))
        yield (
            f"{text_of(node)} is null where a part of it is, where PostgreSQL leaves that part "
            f"out: write concat_ws('', {listed})"
        )


def _scaled(node: exp.Expr, part: exp.Expr) -> Iterator[str]:
    """Yield a sentence for each number whose text gets the digits of another branch."""
    number = number_of(part)
    if number is None or number.sort is not Sort.DECIMAL:
        return
    for inner in part.walk():
        numbers = [number_of(branch) for branch in branches(inner)]
        if (
            len(
                {
                    number.size[1] if number.size else None
                    for number in numbers
                    if number is not None
                }
            )
            > 1
        ):
            yield (
                f"{text_of(inner)} in {text_of(node)} has as many digits after the point as the "
                "one with most of them, where PostgreSQL's text of it has its own"
            )


def _default(node: exp.Lag | exp.Lead) -> Iterator[str]:
    default = node.args.get("default")
    if default is None or not _is_narrower(node.this, default):
        return
    yield (
        f"{text_of(default)} in {text_of(node)} is cut to the type of {text_of(node.this)}, where "
        "PostgreSQL takes both to one that holds them: "
        f"cast {text_of(node.this)} to the type of {text_of(default)}"
    )


def _is_narrower(value: exp.Expr, default: exp.Expr) -> bool:
    """Tell whether the type of a value cannot hold its default."""
    if is_of(value, (DType.DATE,)):
        return is_of(default, (*ZONED, DType.TIMESTAMP, DType.TIMESTAMPNTZ))
    if is_of(value, _REAL) and is_of(default, (DType.DOUBLE,)):
        return not isinstance(default, exp.Literal)
    one, other = number_of(value), number_of(default)
    return one is not None and other is not None and _SORTS[one.sort] < _SORTS[other.sort]


def _of_reals(node: exp.Expr) -> Iterator[str]:
    """Yield a sentence for each constant that is a real in PostgreSQL, and a double in Spark."""
    if not is_of(node.this, _REAL):
        return
    values = [*node.expressions, *(node.args.get(word) for word in ("expression", "low", "high"))]
    for value in values:
        if not isinstance(value, exp.Literal):
            continue
        if value.is_string or (isinstance(node, exp.In) and not value.name.isdigit()):
            yield (
                f"{text_of(node)} compares doubles, where PostgreSQL compares reals: write "
                f"cast({value.name} as real) for {text_of(value)}"
            )


def _of_doubles(node: exp.Expr) -> Iterator[str]:
    """Yield a sentence for each list that is compared as doubles because of one value."""
    number = number_of(node.this)
    if not isinstance(node, exp.In) or number is None or number.sort is Sort.FLOAT:
        return
    values = node.expressions
    doubles = [is_of(value, _FLOATS) and not isinstance(value, exp.Literal) for value in values]
    is_exact = number.size is not None and number.size[0] <= _DOUBLES_DIGITS
    if any(doubles) and not all(doubles) and not is_exact:
        listed = " or ".join(f"{text_of(node.this)} = {text_of(value)}" for value in values)
        yield (
            f"{text_of(node)} compares doubles, of {_DOUBLES_DIGITS} digits, where PostgreSQL "
            f"compares exact numbers exactly: write {listed}"
        )


def _of_numeric(node: exp.Expr) -> Iterator[str]:
    """Yield a sentence for a function of a decimal, which is a numeric in PostgreSQL."""
    numbers = [number_of(part) for part in node.iter_expressions()]
    sorts = {number.sort for number in numbers if number is not None}
    if Sort.DECIMAL in sorts and Sort.FLOAT not in sorts and None not in numbers:
        yield (
            f"{text_of(node)} is a double, of 15 digits, where PostgreSQL's of a numeric is a "
            "numeric"
        )


def _of_exponent(node: exp.Literal) -> Iterator[str]:
    """Yield a sentence for a constant that PostgreSQL reads as a numeric, unless near a float."""
    around = node.parent
    while isinstance(around, exp.Paren | exp.Neg):
        around = around.parent
    beside = [] if around is None else list(around.iter_expressions())
    if any(is_of(value, _FLOATS) and value.find(exp.Column) for value in beside):
        return
    if isinstance(around, exp.Cast):
        return
    digits = format(Decimal(node.name), "f")
    instead = digits if len(digits) <= MOST else f"cast({text_of(node)} as double)"
    yield f"{text_of(node)} is a double, where PostgreSQL's is a numeric: write {instead}"


def _escaped(node: exp.Literal, sql: str) -> Iterator[str]:
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is None or end is None or sql[start : start + 1] != "'":
        return
    inner = sql[start + 1 : end].replace("''", "'")
    if "\\'" in inner:  # PostgreSQL's text ends there, so it has no answer at all
        return
    if "\\" in inner and inner != node.name:
        yield (
            f"{sql[start : end + 1]} has an escape, where PostgreSQL has a backslash: write "
            f"r{sql[start : end + 1]} for its text"
        )


def _widened(node: exp.Expr) -> Iterator[str]:
    values = [branch for branch in branches(node) if not isinstance(branch, exp.Null)]
    reals = [is_of(value, _REAL) for value in values]
    others = [number_of(value) for value, real in zip(values, reals, strict=True) if not real]
    doubles = [
        is_of(value, (DType.DOUBLE,)) and not isinstance(value, exp.Literal) for value in values
    ]
    if any(reals) and others and None not in others and not any(doubles):
        yield f"{text_of(node)} is a double, where PostgreSQL's is a real"


# Expressions that are never null; any that is not known may be null.
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
        """Prepare for a query.

        `filled`: names of the columns without nulls, by their tables' names in the query.
        """
        self._query, self._sql = query, sql
        self._filled = filled
        self._sources = sources_of(query)
        self._outer = any(join.side or join.kind == "FULL" for join in query.find_all(exp.Join))

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
        """Yield each ORDER BY that affects rows, by a value with nulls whose place is not given."""
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
        """Tell whether the text has NULLS FIRST or LAST; the parser adds it where it has not."""
        ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
        return bool(ends) and _PLACED.match(self._sql, max(ends) + 1) is not None
