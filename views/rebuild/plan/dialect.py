"""Translate a view's query from Spark's SQL to DataFusion's, the engine of a follower.

Only SQL that means the same in both for its types is translated, subqueries included; any other
view is computed by Spark. A mistake here is found by the proof, which uses a third engine, before
any reader sees the rows.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.types import ColumnType, spark_type
from views.base.spark_sql import SparkSql, sources_of

_CLASSES = {
    **dict.fromkeys(
        (
            exp.DataType.Type.TINYINT,
            exp.DataType.Type.SMALLINT,
            exp.DataType.Type.INT,
            exp.DataType.Type.BIGINT,
            exp.DataType.Type.DECIMAL,
        ),
        "number",
    ),
    **dict.fromkeys((exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR), "text"),
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: "moment",
    exp.DataType.Type.TIMESTAMPLTZ: "moment",
    exp.DataType.Type.TIMESTAMP: "moment",
    exp.DataType.Type.TIMESTAMPNTZ: "clock",
}
"""Values of one class are compared and sorted the same way in both engines."""
_CLOCKS = {exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.TIMESTAMP}
_NUMBER = "number"
_NUMBER_TEXT = re.compile(r"\d+(\.\d+)?")
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "with_", "distinct"}
_JOINS = {
    ("", ""), ("", "INNER"), ("", "CROSS"),
    *((side, kind) for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")),
    ("LEFT", "SEMI"), ("LEFT", "ANTI"),
}  # fmt: skip
_IN_ORDER = (exp.ArrayAgg, exp.GroupConcat)
_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_OVER = (*_RANKS, exp.Sum, exp.Count, exp.Min, exp.Max, exp.Lag, exp.Lead)
_SPEC = {"kind", "start", "start_side", "end", "end_side"}
_PARTS = {"YEAR", "MONTH", "DAY"}
_QUOTIENT_ARGUMENTS = (5, 6)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_LONG = exp.DataType.Type.BIGINT
_MOST_DIGITS = 38
_INTEGERS = {
    exp.DataType.Type.TINYINT: 3,
    exp.DataType.Type.SMALLINT: 5,
    exp.DataType.Type.INT: 10,
    exp.DataType.Type.BIGINT: 20,
}
"""Digits that Spark counts for an integer in arithmetic with decimals."""
_FIELDS = (exp.PropertyEQ, exp.Column, exp.Alias)
_OF_ONE_CLASS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.Between,
    exp.In,
    exp.Coalesce,
    exp.Case,
    exp.If,
)
_BOOLEAN = {exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or"}
_TAKEN = (
    *_OF_ONE_CLASS,
    exp.Select,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Group,
    exp.Having,
    exp.Table,
    exp.TableAlias,
    exp.Identifier,
    exp.Column,
    exp.Alias,
    exp.Paren,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.Null,
    exp.Boolean,
    exp.Literal,
    exp.Star,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Filter,
    exp.PropertyEQ,
    exp.Struct,
    exp.Count,
    exp.Sum,
    exp.Min,
    exp.Max,
    exp.LogicalAnd,
    exp.LogicalOr,
    exp.ArrayAgg,
    exp.GroupConcat,
    exp.ArrayToString,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.DPipe,
    exp.Like,
    exp.Trim,
    exp.Avg,
    exp.Distinct,
    exp.ArraySort,
    exp.With,
    exp.CTE,
    exp.Subquery,
    exp.Exists,
    exp.SetOperation,
    exp.Window,
    exp.Order,
    exp.Ordered,
    exp.WindowSpec,
    exp.Lag,
    exp.Lead,
    exp.IntDiv,
    exp.Extract,
    exp.Var,
    exp.Round,
    *_RANKS,
)


class UnknownValueError(Exception):
    """A query may have other values in DataFusion than in Spark; the text says why."""


class _DataFusionSql(Dialect):
    """Writes the order of nulls explicitly where DataFusion's default differs."""

    NULL_ORDERING = "nulls_are_large"


@dataclass(frozen=True, slots=True)
class LocalSql:
    """A query in DataFusion's SQL."""

    text: str  # the query; its columns are in the order of the view's
    # for each table that it names, the columns that it reads, in lower case
    used: Mapping[str, Sequence[str]]
    lists: frozenset[int]  # numbers of the columns with a collected list, which is never null
    functions: tuple[str, ...]  # our own functions that it calls (`views.rebuild.local.functions`)


def local_sql(text: str, tables: Mapping[str, Mapping[str, ColumnType]]) -> LocalSql:
    """Translate a query to DataFusion's SQL.

    `tables`: by the query's names for tables, the columns of each in lower case with their types.

    Raises UnknownValueError: its values are not known to be the same there.
    """
    try:
        parsed = sqlglot.parse_one(text, dialect=SparkSql)
        if not isinstance(parsed, exp.Query):
            raise UnknownValueError("it is no query")
        schema = MappingSchema(
            {
                name: {c: spark_type(k) for c, k in columns.items()}
                for name, columns in tables.items()
            },
            dialect="spark",
        )
        query = qualify(
            parsed, schema=schema, dialect="spark", validate_qualify_columns=True,
            quote_identifiers=True, identify=True,
        )  # fmt: skip
        query = annotate_types(query, schema=schema, dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise UnknownValueError(f"it is not understood here: {first}") from error
    sources = sources_of(query)
    _fold_days(query)
    _type_quotients(query)
    for node in query.walk():
        _check_node(node)
    listed = [_listed(selected.unalias()) for selected in query.selects]
    outer = {*map(id, listed)}
    collected = [node for node in query.find_all(exp.ArrayAgg) if not _is_in_order(node)]
    if any(id(node) not in outer for node in collected):
        raise UnknownValueError("a list that is collected inside is null here where it is empty")
    lists = frozenset(place for place, node in enumerate(listed) if node in collected)
    used: dict[str, dict[str, None]] = {name: {} for name in tables}
    for column in query.find_all(exp.Column):
        source = sources.get(id(column))
        if isinstance(source, exp.Table):
            used[source.name][column.name] = None
    for cast in list(query.find_all(exp.TryCast)):
        # The parser reads Spark's CAST as this class; it is an error where a value does not fit.
        cast.replace(exp.Cast(this=cast.this, to=cast.to))
    functions = _put_functions(query)
    _translate(query)
    text = query.sql(_DataFusionSql, comments=False)
    columns_used = {name: tuple(names) for name, names in used.items()}
    return LocalSql(text, columns_used, lists, tuple(functions))


def _listed(node: exp.Expr) -> exp.Expr:
    """Return the call that collects a list, without its sort and its filter."""
    node = node.this if isinstance(node, exp.ArraySort) else node
    return node.this if isinstance(node, exp.Filter) else node


def _is_in_order(node: exp.ArrayAgg) -> bool:
    return isinstance(node.this, exp.Order)


def _check_node(node: exp.Expr) -> None:
    """Refuse a query with a part that is not known to mean the same in DataFusion."""
    if (why := _obstacle(node)) is not None:
        raise UnknownValueError(f"{node.sql('spark')[:60]}: {why}")


def _obstacle(node: exp.Expr) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one for each kind
    match node:
        case exp.Select() if others := _others(node, _CLAUSES):
            return f"{others} is computed by Spark"
        case exp.Join() if not _is_plain_join(node):
            return "it is no join by ON"
        case exp.Group() if _others(node, {"expressions"}):
            return "only plain grouping is taken"
        case exp.Group() if None in map(_class_of, node.expressions):
            return "one of them is no value that engines group alike"
        case exp.Is() if not isinstance(node.expression, exp.Null):
            return "only IS NULL is taken"
        case exp.Literal() if not node.is_string and not _NUMBER_TEXT.fullmatch(node.name):
            return "only whole numbers, decimals and texts are taken"
        case exp.Cast() if not (_is_day(node) or _is_exact_cast(node)):
            return "it is computed by Spark"
        case exp.Anonymous() if _is_quotient(node):
            return None
        case exp.IntDiv() if not all(_is_whole(side) for side in (node.left, node.right)):
            return "only whole numbers are taken"
        case exp.Round() if not _is_plain_round(node):
            return "only decimals, to a constant number of places, are taken"
        case exp.Extract() if (
            node.name.upper() not in _PARTS or _class_of(node.expression) != "date"
        ):
            return "only year, month and day of a date are taken"
        case exp.Lag() | exp.Lead() if not _is_plain_shift(node):
            return "only of numbers, texts, dates and moments, by a constant number of rows"
        case exp.Struct() if not all(isinstance(field, _FIELDS) for field in node.expressions):
            return "a field has no name"
        case exp.Count() if node.expressions:
            return "only count(*) and count of one value are taken"
        case exp.Distinct() if not isinstance(node.parent, exp.Select | exp.Count):
            return "DISTINCT is taken in SELECT and in count alone"
        case exp.Distinct() if isinstance(node.parent, exp.Select) and (
            node.args.get("on") or None in map(_class_of, node.parent.selects)
        ):
            return "one of its columns is no value that engines compare alike"
        case exp.Distinct() if isinstance(node.parent, exp.Count) and (
            len(node.expressions) != 1 or _class_of(node.expressions[0]) is None
        ):
            return "only one number, text, date or moment is taken"
        case exp.Sum() | exp.Neg() if _class_of(node.this) != _NUMBER:
            return "only whole numbers and decimals are taken"
        case exp.Min() | exp.Max() if _class_of(node.this) is None or node.expressions:
            return "only of numbers, texts, dates and moments"
        case exp.LogicalAnd() | exp.LogicalOr() if not node.this.is_type("boolean"):
            return "only booleans are taken"
        case exp.ArrayAgg() if isinstance(node.this, exp.Distinct):
            return "only a plain list, or one in an order, is taken"
        case exp.GroupConcat() if not (
            isinstance(node.this, exp.Order)
            and isinstance(node.args.get("separator"), exp.Literal)
            and _classes(node.this.this) == {"text"}
        ):
            return "only texts in an order are taken, with a constant between them"
        case exp.Add() | exp.Sub() | exp.Mul() if _classes(node.left, node.right) != {_NUMBER}:
            return "only whole numbers and decimals are taken"
        case exp.Avg() if _of_average(node) is None:
            return "only of whole numbers, and of decimals of at most 33 digits"
        case exp.Trim() if not _is_right_trim(node):
            return "only TRIM(TRAILING ' ' FROM text) is taken"
        case exp.Like() if _classes(node.this) != {"text"} or not _is_plain_pattern(node):
            return "only texts by a pattern without a backslash are taken"
        case exp.ArraySort() if not _is_plain_order(node):
            return "only collected numbers, texts, dates and moments, or structs of them, ascending"
        case exp.With() if node.args.get("recursive"):
            return "WITH RECURSIVE is computed by Spark"
        case exp.Subquery() | exp.CTE() if _others(node, {"this", "alias"}):
            return f"{_others(node, {'this', 'alias'})} is computed by Spark"
        case exp.Subquery() if not _is_source(node) and not _is_one_row(node.this):
            return "a query in the place of a value is taken where it aggregates all of its rows"
        case exp.SetOperation() if not _is_plain_union(node):
            return "its columns are of two kinds, or of one that engines compare otherwise"
        case exp.Window() if not _is_plain_window(node):
            return "only ranks, sums, counts, ends and neighbours, over frames of rows"
        case exp.ArrayToString() if not (
            isinstance(collected := _listed(node.this), exp.ArrayAgg)
            and _is_in_order(collected)
            and _classes(collected.this.this) == {"text"}
            and isinstance(node.expression, exp.Literal)
            and not node.args.get("null")
        ):
            return "only texts in an order are taken, with a constant between them"
        case exp.Order() if not isinstance(node.parent, (exp.Window, *_IN_ORDER)):
            return "the order of rows is computed by Spark"
        case exp.Ordered() if _class_of(node.this) is None or node.args.get("with_fill"):
            return "only by numbers, texts, dates and moments"
        case exp.DPipe() if _classes(node.left, node.right) != {"text"}:
            return "only texts are taken"
        case exp.Case() if node.this is not None:
            return "only CASE WHEN is taken"
        case exp.In() if not node.expressions and node.args.get("query") is None:
            return "only a list of values, or a query, is taken"
        case exp.In() if not node.expressions and not _is_condition(node):
            return "IN (SELECT ...) is taken as a whole condition of WHERE alone"
        case _ if isinstance(node, _OF_ONE_CLASS) and not _is_of_one_class(node):
            return "its values are of two kinds, or of one that engines sort otherwise"
        case _ if not isinstance(node, _TAKEN):
            return "it is computed by Spark"
        case _:
            return None


def _is_day(node: exp.Expr) -> bool:
    """Tell whether an expression is a constant date, as `DATE '2024-02-29'` is."""
    text = node.this
    if not isinstance(node, exp.Cast) or node.to.this != exp.DataType.Type.DATE:
        return False
    if not isinstance(text, exp.Literal):
        return False
    try:
        return date.fromisoformat(text.name).isoformat() == text.name
    except ValueError:
        return False


def _others(node: exp.Expr, expected: Collection[str]) -> str:
    return ", ".join(
        sorted(name for name, value in node.args.items() if value and name not in expected)
    )


def _is_plain_join(node: exp.Join) -> bool:
    return (node.side.upper(), node.kind.upper()) in _JOINS and not (
        node.args.get("using") or node.method
    )


def _is_source(node: exp.Subquery) -> bool:
    return isinstance(node.parent, exp.From | exp.Join | exp.In | exp.SetOperation | exp.CTE)


def _is_one_row(query: exp.Expr) -> bool:
    """Tell whether a query always gives exactly one row."""
    if not isinstance(query, exp.Select) or query.args.get("group"):
        return False
    return all(selected.find(exp.AggFunc) is not None for selected in query.selects)


def _is_condition(node: exp.In) -> bool:
    """Tell whether an IN or NOT IN is a whole condition of WHERE, so that null counts as false."""
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    if isinstance(above, exp.Not):
        above = above.parent
    while isinstance(above, exp.And | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where)


def _is_right_trim(node: exp.Trim) -> bool:
    spaces = node.expression
    return (
        str(node.args.get("position")).upper() == "TRAILING"
        and isinstance(spaces, exp.Literal)
        and spaces.name == " "
        and _class_of(node.this) == "text"
    )


def _is_plain_pattern(node: exp.Like) -> bool:
    pattern = node.expression
    return isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name


def _is_plain_order(node: exp.ArraySort) -> bool:
    collected = _listed(node)
    if node.expression or not isinstance(collected, exp.ArrayAgg):
        return False
    if not isinstance(nulls := node.args.get("nulls_first"), exp.Boolean) or not nulls.this:
        return False
    value = collected.this
    fields = map(_value_of, value.expressions) if isinstance(value, exp.Struct) else [value]
    return None not in map(_class_of, fields)


def _is_plain_union(node: exp.SetOperation) -> bool:
    if _others(node, {"this", "expression", "distinct", "with_"}):
        return False
    pairs = zip(node.left.selects, node.right.selects, strict=True)
    classes = [_classes(*pair) for pair in pairs]
    return all(len(pair) == 1 and None not in pair for pair in classes)


def _is_plain_window(node: exp.Window) -> bool:
    expected = {"this", "partition_by", "order", "over", "spec"}
    if not isinstance(node.this, _OVER) or _others(node, expected):
        return False
    if None in map(_class_of, node.args.get("partition_by") or ()):
        return False
    spec, is_ordered = node.args.get("spec"), node.args.get("order") is not None
    if isinstance(node.this, (*_RANKS, exp.Lag, exp.Lead)):
        return is_ordered and spec is None
    return spec is None or (is_ordered and _is_plain_frame(spec))


def _is_plain_frame(spec: exp.WindowSpec) -> bool:
    """Tell whether a frame counts rows: the engines differ on ranges of values."""
    ends = [spec.args.get("start"), spec.args.get("end")]
    return (
        spec.args.get("kind") == "ROWS"
        and not _others(spec, _SPEC)
        and all(
            end in {"UNBOUNDED", "CURRENT ROW"}
            or (isinstance(end, exp.Literal) and end.name.isdigit())
            for end in ends
        )
    )


def _is_plain_shift(node: exp.Lag | exp.Lead) -> bool:
    offset = node.args.get("offset")
    return (
        _class_of(node.this) is not None
        and not _others(node, {"this", "offset"})
        and (offset is None or (isinstance(offset, exp.Literal) and offset.name.isdigit()))
    )


def _is_whole(node: exp.Expr) -> bool:
    if isinstance(node, exp.Literal):
        return not node.is_string and node.name.isdigit()
    return node.type is not None and node.type.this in _INTEGERS


def _is_exact_cast(node: exp.Cast) -> bool:
    """Tell whether a cast of a number keeps its value, or is an error if it does not fit."""
    target = node.to.this
    if node.args.get("safe"):  # TRY_CAST: null where it does not fit
        return False
    if target in _INTEGERS:
        return _is_whole(node.this)
    if target != exp.DataType.Type.DECIMAL or node.args.get("format"):
        return False
    sizes, digits = _sizes_of(node.to), _decimal_of(node.this)
    return sizes is not None and digits is not None and digits[1] <= sizes[1]


def _is_plain_round(node: exp.Round) -> bool:
    places = node.args.get("decimals")
    is_constant = isinstance(places, exp.Literal) and places.name.isdigit()
    return (
        is_constant
        and _decimal_of(node.this) is not None
        and not _others(node, {"this", "decimals"})
    )


def _is_quotient(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "quotient":
        return False
    one, other, *sizes = node.expressions
    return (
        len(node.expressions) in _QUOTIENT_ARGUMENTS
        and all(isinstance(size, exp.Literal) and size.name.isdigit() for size in sizes)
        and _classes(one, other) == {_NUMBER}
    )


def _sizes_of(kind: exp.DataType) -> tuple[int, int] | None:
    sizes = [int(size.name) for size in kind.expressions]
    return (sizes[0], sizes[1]) if len(sizes) == len("ps") else None


def _type_quotients(query: exp.Query) -> None:
    """Set the types of quotients and rounded numbers, which sqlglot does not infer."""
    for node in reversed(list(query.find_all(exp.Anonymous, exp.Round))):
        if isinstance(node, exp.Round):
            if _is_plain_round(node) and (digits := _decimal_of(node)) is not None:
                node.type = exp.DataType.build(f"DECIMAL({digits[0]}, {digits[1]})")
        elif node.name.lower() == "quotient" and len(node.expressions) in _QUOTIENT_ARGUMENTS:
            sizes = [size.name for size in node.expressions[4:]]
            node.type = exp.DataType.build(f"DECIMAL({36 + len(sizes)}, {sizes[-1]})")


def _fold_days(query: exp.Query) -> None:
    """Compute constant dates compared with a date: `DATE '...' + INTERVAL '1' MONTH`.

    In PostgreSQL the sum is a timestamp at midnight; a date compares with it as with its day.
    """
    for compared in list(query.find_all(*_COMPARISONS)):
        sides = list(compared.iter_expressions())
        days = [_moved_day(side) for side in sides]
        plain = [side for side, day in zip(sides, days, strict=True) if day is None]
        if all(_class_of(side) == "date" for side in plain):
            for side, day in zip(sides, days, strict=True):
                if day is not None and not isinstance(side.unnest(), exp.Cast):
                    side.replace(_typed_day(day))


def _typed_day(day: date) -> exp.Expr:
    cast = exp.cast(exp.Literal.string(day.isoformat()), "DATE")
    cast.type = exp.DataType.build("DATE")
    return cast


def _moved_day(node: exp.Expr) -> date | None:
    """Return the value of a constant date with constant days, months or years added, or None."""
    node = node.unnest()
    match node:
        case exp.Cast() if _is_day(node):
            return date.fromisoformat(node.this.name)
        case exp.Cast() if node.to.this in _CLOCKS and _is_day(node.this.unnest()):
            return _moved_day(node.this)
        case exp.Add() | exp.Sub() if isinstance(step := node.right.unnest(), exp.Interval):
            day, count = _moved_day(node.left), step.name
            if day is None or not count.isdigit():
                return None
            return _stepped(day, int(count) * (-1 if isinstance(node, exp.Sub) else 1), step)
        case _:
            return None


def _stepped(day: date, count: int, step: exp.Interval) -> date | None:
    unit = str(step.args.get("unit")).upper().removesuffix("S")
    try:
        if unit == "DAY":
            return day + timedelta(days=count)
        months = {"MONTH": count, "YEAR": 12 * count}[unit]
        year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
        last = monthrange(year, month + 1)[1]
        return date(year, month + 1, min(day.day, last))
    except (KeyError, ValueError, OverflowError):
        return None


def _put_functions(query: exp.Query) -> list[str]:
    """Replace calls by our own functions, inner calls first; returns the functions' names."""
    names: dict[str, None] = {}
    for node in reversed(list(query.find_all(exp.Anonymous, exp.Round, exp.Extract, exp.IntDiv))):
        match node:
            case exp.Anonymous() if _is_quotient(node):
                one, other, *sizes = node.expressions
                name = "_".join(["quotient", *(size.name for size in sizes)])
                arguments = [_decimal_cast(one, sizes[0].name), _decimal_cast(other, sizes[1].name)]
            case exp.Round():
                digits = _decimal_of(node.this) or (0, 0)
                name = f"rounded_{digits[1]}_{node.args['decimals'].name}"
                arguments = [_decimal_cast(node.this, str(digits[1]))]
            case exp.Extract():
                name, arguments = f"{node.name.lower()}_of", [node.expression.copy()]
            case exp.IntDiv():
                kind = exp.DataType.build("BIGINT")
                sides = [exp.Cast(this=side.copy(), to=kind) for side in (node.left, node.right)]
                node.replace(
                    exp.Paren(this=exp.Div(this=sides[0], expression=sides[1], typed=True))
                )
                continue
            case _:
                continue
        names[name] = None
        node.replace(exp.Anonymous(this=name, expressions=arguments))
    return list(names)


def _decimal_cast(node: exp.Expr, scale: str) -> exp.Expr:
    kind = exp.DataType.build(f"DECIMAL({_MOST_DIGITS}, {scale})")
    return exp.Cast(this=node.copy(), to=kind)


def _of_average(node: exp.Avg) -> tuple[int, int] | None:
    """Return digits and scale of the averaged values, (0, 0) for integers; None if unknown."""
    kind = node.this.type
    if kind is not None and kind.this in _INTEGERS:
        return 0, 0
    digits = _decimal_of(node.this)
    return None if digits is None or digits[0] + 5 > _MOST_DIGITS else digits


def _decimal_of(  # noqa: C901, PLR0912 - one for each kind
    node: exp.Expr,
) -> tuple[int, int] | None:
    """Return digits and scale that Spark gives to a number, or None if they are unknown here."""
    digits: tuple[int, int] | None = None
    match node:
        case exp.Paren() | exp.Neg():
            digits = _decimal_of(node.this)
        case exp.Literal() if not node.is_string:
            whole, _, part = node.name.partition(".")
            digits = len(whole.lstrip("0") + part) or 1, len(part)
        case exp.Column() if node.type is not None and node.type.this in _INTEGERS:
            digits = _INTEGERS[node.type.this], 0
        case exp.Column() if node.type is not None and len(node.type.expressions) == len("ps"):
            precision, scale = (int(size.name) for size in node.type.expressions)
            digits = precision, scale
        case exp.Add() | exp.Sub() | exp.Mul():
            one, other = _decimal_of(node.left), _decimal_of(node.right)
            if one is not None and other is not None:
                digits = _computed(node, one, other)
        case exp.Count():
            digits = _INTEGERS[_LONG], 0
        case exp.Sum() if (inner := _decimal_of(node.this)) is not None:
            is_whole = _is_whole(node.this)
            digits = (_INTEGERS[_LONG], 0) if is_whole else _fitting(inner[0] + 10, inner[1])
        case exp.Filter() | exp.Window():
            digits = _decimal_of(node.this)
        case exp.Cast() if node.to.this in _INTEGERS:
            digits = _INTEGERS[node.to.this], 0
        case exp.Cast() if node.to.this == exp.DataType.Type.DECIMAL:
            digits = _sizes_of(node.to)
        case exp.Anonymous() if _is_quotient(node):
            sizes = [int(size.name) for size in node.expressions[4:]]
            digits = 36 + len(sizes), sizes[-1]
        case exp.Round() if _is_plain_round(node):
            inner = _decimal_of(node.this) or (0, 0)
            places = min(inner[1], int(node.args["decimals"].name))
            digits = _fitting(inner[0] - inner[1] + 1 + places, places)
        case exp.Case() | exp.Coalesce() | exp.If():
            digits = _widest(_branches_of(node))
        case _:
            pass
    return digits if digits is not None and digits[0] <= _MOST_DIGITS else None


def _fitting(precision: int, scale: int) -> tuple[int, int]:
    return min(precision, _MOST_DIGITS), scale


def _branches_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that an expression chooses from, without nulls."""
    match node:
        case exp.Case():
            values = [
                *(branch.args["true"] for branch in node.args["ifs"]),
                node.args.get("default"),
            ]
        case exp.If():
            values = [node.args["true"], node.args.get("false")]
        case _:
            values = [node.this, *node.expressions]
    return [value for value in values if value is not None and not isinstance(value, exp.Null)]


def _widest(values: Sequence[exp.Expr]) -> tuple[int, int] | None:
    """Return the digits of the type that holds each of several numbers."""
    all_digits = []
    for value in values:
        digits = _decimal_of(value)
        if digits is None:
            return None
        # As a branch an integer literal counts as an int, whatever its digits.
        is_int = isinstance(value, exp.Literal) and "." not in value.name
        all_digits.append((_INTEGERS[exp.DataType.Type.INT], 0) if is_int else digits)
    if not all_digits:
        return None
    scale = max(one[1] for one in all_digits)
    return _fitting(max(one[0] - one[1] for one in all_digits) + scale, scale)


def _computed(node: exp.Expr, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    if isinstance(node, exp.Mul):
        return one[0] + other[0] + 1, one[1] + other[1]
    scale = max(one[1], other[1])
    return max(one[0] - one[1], other[0] - other[1]) + 1 + scale, scale


def _is_of_one_class(node: exp.Expr) -> bool:
    match node:
        case exp.Between():
            values = [node.this, node.args["low"], node.args["high"]]
        case exp.In() if (query := node.args.get("query")) is not None:
            values = [node.this, *query.this.selects]
        case exp.In() | exp.Coalesce():
            values = [node.this, *node.expressions]
        case exp.Case():
            values = [
                *(branch.args["true"] for branch in node.args["ifs"]),
                node.args.get("default"),
            ]
        case exp.If():
            values = [node.args["true"], node.args.get("false")]
        case _:
            values = [node.args["this"], node.args["expression"]]
    others = [value for value in values if value is not None and not isinstance(value, exp.Null)]
    classes = _classes(*others)
    return len(classes) <= 1 and None not in classes


def _classes(*values: exp.Expr) -> set[str | None]:
    return {_class_of(value) for value in values}


def _class_of(node: exp.Expr) -> str | None:
    """Return the class of a value (`_CLASSES`), or None if it is not known."""
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    kind = node.type
    return None if kind is None else _CLASSES.get(kind.this)


def _translate(query: exp.Query) -> None:
    """Replace structs, lists and averages by DataFusion's own calls."""
    _translate_booleans(query)
    for average in list(query.find_all(exp.Avg)):
        digits, scale = _of_average(average) or (0, 0)
        if digits:
            # Spark rounds, where DataFusion cuts: it computes one more place, and the cast rounds.
            average.set("this", exp.cast(average.this, f"DECIMAL({digits + 1}, {scale + 1})"))
            above = average.parent
            outer = above if isinstance(above, exp.Filter) else average
            outer.replace(exp.cast(outer.copy(), f"DECIMAL({digits + 4}, {scale + 4})"))
    for trimmed in list(query.find_all(exp.Trim)):
        parts = [trimmed.this.copy(), trimmed.expression.copy()]
        trimmed.replace(exp.Anonymous(this="rtrim", expressions=parts))
    for ordered in list(query.find_all(exp.ArraySort)):
        # Both sort nulls first, and structs field by field.
        ordered.replace(exp.Anonymous(this="array_sort", expressions=[ordered.this]))
    for node in reversed(list(query.find_all(exp.Struct))):  # those inside of others first
        words: list[exp.Expr] = []
        for field in node.expressions:
            words += [exp.Literal.string(_field_of(field)), _value_of(field)]
        node.replace(exp.Anonymous(this="named_struct", expressions=words))
    for same in list(query.find_all(exp.NullSafeEQ)):
        # Without parentheses IS NOT DISTINCT FROM would take the whole rest as its operand.
        same.replace(exp.Paren(this=same.copy()))
    for joined in list(query.find_all(exp.GroupConcat)):
        order = joined.this
        between = exp.Order(this=joined.args["separator"], expressions=order.expressions)
        joined.replace(exp.Anonymous(this="string_agg", expressions=[order.this, between]))
    for collected in list(query.find_all(exp.ArrayAgg)):
        value, around = collected.this, collected.parent
        if isinstance(value, exp.Order):  # with the nulls, and null of no rows, in both
            collected.replace(exp.Anonymous(this="array_agg", expressions=[value]))
            continue
        # Spark's lists leave out nulls.
        there: exp.Expr = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        if isinstance(around, exp.Filter):
            there = exp.And(this=exp.Paren(this=around.expression.this), expression=there)
        called = exp.Anonymous(this="array_agg", expressions=[value])
        filtered = exp.Filter(this=called, expression=exp.Where(this=there))
        (around if isinstance(around, exp.Filter) else collected).replace(filtered)


def _translate_booleans(query: exp.Query) -> None:
    """Replace aggregates of booleans, which have other names in DataFusion."""
    for node in list(query.find_all(*_BOOLEAN)):
        node.replace(exp.Anonymous(this=_BOOLEAN[type(node)], expressions=[node.this]))


def _field_of(field: exp.Expr) -> str:
    return str(field.this.name if isinstance(field, exp.PropertyEQ) else field.alias_or_name)


def _value_of(field: exp.Expr) -> exp.Expr:
    value: exp.Expr = field.expression if isinstance(field, exp.PropertyEQ) else field.unalias()
    return value
