"""Translate a view's query from Spark's SQL to DataFusion's, the engine of a follower.

Only SQL that means the same in both for its types is translated, subqueries included; any other
view is computed by Spark. A mistake here is found by the proof, which uses a third engine, before
any reader sees the rows.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.types import ColumnType, spark_type
from views.base.spark_sql import SparkSql, sources_of
from views.rebuild.plan import calls
from views.rebuild.plan.kinds import (
    NUMBER,
    NUMBER_TEXT,
    branches_of,
    class_of,
    classes,
    is_constant_text,
    is_day,
    is_double,
    is_list,
    is_whole,
    of_average,
    other_arguments,
)

_CLOCKS = {exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.TIMESTAMP}
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
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_FIELDS = (exp.PropertyEQ, exp.Column, exp.Alias)
_OF_ONE_CLASS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
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
    exp.Var,
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
        query = annotate_types(query, schema, _types(), dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise UnknownValueError(f"it is not understood here: {first}") from error
    sources = sources_of(query)
    _fold_days(query)
    for cast in list(query.find_all(exp.TryCast)):
        # The parser reads Spark's CAST as this class; it is an error where a value does not fit.
        plain = exp.Cast(**cast.args)
        plain.type = cast.type
        cast.replace(plain)
    _align_days(query)
    _align_fractions(query)
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
    _translate_averages(query)
    _translate_sums(query)
    functions = _put_functions(query)
    _translate(query)
    text = query.sql(_DataFusionSql, comments=False)
    columns_used = {name: tuple(names) for name, names in used.items()}
    return LocalSql(text, columns_used, lists, tuple(functions))


def _types() -> dict[type[exp.Expr], Any]:
    return {**Dialect.get_or_raise("spark").EXPRESSION_METADATA, **calls.own_types()}


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
        case exp.Select() if others := other_arguments(node, _CLAUSES):
            return f"{others} is computed by Spark"
        case exp.Join() if not _is_plain_join(node):
            return "it is no join by ON"
        case exp.Group() if other_arguments(node, {"expressions"}):
            return "only plain grouping is taken"
        case exp.Group() if None in map(class_of, node.expressions):
            return "one of them is no value that engines group alike"
        case exp.Is() if not isinstance(node.expression, exp.Null | exp.Boolean):
            return "only IS NULL, IS TRUE and IS FALSE are taken"
        case exp.Literal() if not node.is_string and not NUMBER_TEXT.fullmatch(node.name):
            return "only whole numbers, decimals and texts are taken"
        case _ if calls.is_call(node):
            return calls.why_not(node)
        case exp.Lag() | exp.Lead() if not _is_plain_shift(node):
            return "only of numbers, texts, dates and moments, by a constant number of rows"
        case exp.Struct() if not all(isinstance(field, _FIELDS) for field in node.expressions):
            return "a field has no name"
        case exp.Count() if node.expressions:
            return "only count(*) and count of one value are taken"
        case exp.Distinct() if not isinstance(node.parent, exp.Select | exp.Count):
            return "DISTINCT is taken in SELECT and in count alone"
        case exp.Distinct() if isinstance(node.parent, exp.Select) and (
            node.args.get("on") or None in map(class_of, node.parent.selects)
        ):
            return "one of its columns is no value that engines compare alike"
        case exp.Distinct() if isinstance(node.parent, exp.Count) and (
            len(node.expressions) != 1 or class_of(node.expressions[0]) is None
        ):
            return "only one number, text, date or moment is taken"
        case exp.Sum() if class_of(node.this) != NUMBER and not _is_of_doubles(node):
            return "only numbers are taken"
        case exp.Neg() | exp.Add() | exp.Sub() | exp.Mul() if not _is_arithmetic(node):
            return "only numbers are taken"
        case exp.Min() | exp.Max() if class_of(node.this) is None or node.expressions:
            return "only of whole numbers, decimals, texts, dates and moments"  # not of NaN
        case exp.LogicalAnd() | exp.LogicalOr() if not node.this.is_type("boolean"):
            return "only booleans are taken"
        case exp.ArrayAgg() if isinstance(node.this, exp.Distinct):
            return "only a plain list, or one in an order, is taken"
        case exp.GroupConcat() if not (
            isinstance(node.this, exp.Order)
            and isinstance(node.args.get("separator"), exp.Literal)
            and classes(node.this.this) == {"text"}
        ):
            return "only texts in an order are taken, with a constant between them"
        case exp.Avg() if of_average(node) is None and not _is_of_doubles(node):
            return "only of doubles, whole numbers, and decimals of at most 33 digits"
        case exp.Like() if classes(node.this) != {"text"} or not _is_plain_pattern(node):
            return "only texts by a pattern without a backslash are taken"
        case exp.ArraySort() if not _is_plain_order(node):
            return "only collected numbers, texts, dates and moments, or structs of them, ascending"
        case exp.With() if node.args.get("recursive"):
            return "WITH RECURSIVE is computed by Spark"
        case exp.Subquery() | exp.CTE() if other_arguments(node, {"this", "alias"}):
            return f"{other_arguments(node, {'this', 'alias'})} is computed by Spark"
        case exp.Subquery() if not _is_source(node) and not _is_one_row(node.this):
            return "a query in the place of a value is taken where it aggregates all of its rows"
        case exp.SetOperation() if not _is_plain_union(node):
            return "its columns are of two kinds, or of one that engines compare otherwise"
        case exp.Window() if not _is_plain_window(node):
            return "only ranks, sums, counts, ends and neighbours, over frames of rows"
        case exp.ArrayToString() if not _is_list_of_texts(node) and not (
            isinstance(collected := _listed(node.this), exp.ArrayAgg)
            and _is_in_order(collected)
            and classes(collected.this.this) == {"text"}
            and isinstance(node.expression, exp.Literal)
            and not node.args.get("null")
        ):
            return "only texts in an order are taken, with a constant between them"
        case exp.Order() if not isinstance(node.parent, (exp.Window, *_IN_ORDER)):
            return "the order of rows is computed by Spark"
        case exp.Ordered() if class_of(node.this) is None or node.args.get("with_fill"):
            return "only by numbers, texts, dates and moments"
        case exp.DPipe() if classes(node.left, node.right) != {"text"}:
            return "only texts are taken"
        case exp.Case() if node.this is not None:
            return "only CASE WHEN is taken"
        case exp.In() if not node.expressions and node.args.get("query") is None:
            return "only a list of values, or a query, is taken"
        case exp.In() if not isinstance(node.this.unnest(), exp.Column) and any(
            value.find(exp.Column) for value in node.expressions
        ):
            # DataFusion 55 takes the list for one of constants, and has null for each row.
            return "in a list with columns only a column is looked for"
        case exp.In() if not node.expressions and not _is_condition(node):
            return "IN (SELECT ...) is taken as a whole condition of WHERE alone"
        case _ if isinstance(node, _OF_ONE_CLASS) and not _is_of_one_class(node):
            return "its values are of two kinds, or of one that engines sort otherwise"
        case _ if not isinstance(node, _TAKEN) and not calls.is_part(node):
            return "it is computed by Spark"
        case _:
            return None


def _is_list_of_texts(node: exp.ArrayToString) -> bool:
    """Tell whether the texts of a list are joined by a constant."""
    kind = node.this.type
    return (
        is_list(node.this)
        and kind is not None
        and [inner.this for inner in kind.expressions] == [exp.DataType.Type.TEXT]
        and is_constant_text(node.expression)
        and not node.args.get("null")
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
    return None not in map(class_of, fields)


def _is_plain_union(node: exp.SetOperation) -> bool:
    if other_arguments(node, {"this", "expression", "distinct", "with_"}):
        return False
    pairs = zip(node.left.selects, node.right.selects, strict=True)
    kinds = [classes(*pair) for pair in pairs]
    return all(len(pair) == 1 and None not in pair for pair in kinds)


def _is_plain_window(node: exp.Window) -> bool:
    expected = {"this", "partition_by", "order", "over", "spec"}
    if not isinstance(node.this, _OVER) or other_arguments(node, expected):
        return False
    if None in map(class_of, node.args.get("partition_by") or ()):
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
        and not other_arguments(spec, _SPEC)
        and all(
            end in {"UNBOUNDED", "CURRENT ROW"}
            or (isinstance(end, exp.Literal) and end.name.isdigit())
            for end in ends
        )
    )


def _is_plain_shift(node: exp.Lag | exp.Lead) -> bool:
    offset = node.args.get("offset")
    return (
        class_of(node.this) is not None
        and not other_arguments(node, {"this", "offset"})
        and (offset is None or (isinstance(offset, exp.Literal) and offset.name.isdigit()))
    )


def _fold_days(query: exp.Query) -> None:
    """Compute constant dates compared with a date: `DATE '...' + INTERVAL '1' MONTH`.

    In PostgreSQL the sum is a timestamp at midnight; a date compares with it as with its day.
    """
    for compared in list(query.find_all(*_COMPARISONS)):
        sides = list(compared.iter_expressions())
        days = [_moved_day(side) for side in sides]
        plain = [side for side, day in zip(sides, days, strict=True) if day is None]
        if all(class_of(side) == "date" for side in plain):
            for side, day in zip(sides, days, strict=True):
                if day is not None and not isinstance(side.unnest(), exp.Cast):
                    side.replace(_typed_day(day))


def _align_days(query: exp.Query) -> None:
    """Cast dates that are compared with timestamps to timestamps, as Spark does."""
    for compared in list(query.find_all(*_COMPARISONS)):
        sides = list(compared.iter_expressions())
        if classes(*sides) == {"date", "clock"}:
            for side in sides:
                if class_of(side) == "date":
                    _put_cast(side, side, "TIMESTAMPNTZ")


def _align_fractions(query: exp.Query) -> None:
    """Cast constants that are compared or computed with doubles to doubles, as Spark does."""
    for node in list(query.find_all(*_OF_ONE_CLASS, exp.Add, exp.Sub, exp.Mul)):
        sides = list(node.iter_expressions())
        if any(map(is_double, sides)):
            for side in sides:
                plain = side.unnest()
                literal = plain.this if isinstance(plain, exp.Neg) else plain
                if isinstance(literal, exp.Literal) and not literal.is_string:
                    _put_cast(literal, exp.Literal.string(literal.name), "DOUBLE")


def _put_cast(node: exp.Expr, value: exp.Expr, kind: str) -> None:
    cast = exp.Cast(to=exp.DataType.build(kind))
    cast.type = cast.to
    node.replace(cast)
    cast.set("this", value)


def _typed_day(day: date) -> exp.Expr:
    cast = exp.cast(exp.Literal.string(day.isoformat()), "DATE")
    cast.type = exp.DataType.build("DATE")
    return cast


def _moved_day(node: exp.Expr) -> date | None:
    """Return the value of a constant date with constant days, months or years added, or None."""
    node = node.unnest()
    match node:
        case exp.Cast() if is_day(node):
            return date.fromisoformat(node.this.name)
        case exp.Cast() if node.to.this in _CLOCKS and is_day(node.this.unnest()):
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
    """Replace calls by their texts in DataFusion; returns the names of our own functions."""
    for node in list(query.walk()):  # outer calls first: these ask for the types of inner ones
        if calls.is_call(node):
            node.replace(calls.written(node))
    names = (node.name for node in query.find_all(exp.Anonymous))
    return [*dict.fromkeys(name for name in names if calls.OWN.fullmatch(name))]


def _is_of_one_class(node: exp.Expr) -> bool:
    match node:
        case exp.Between():
            values = [node.this, node.args["low"], node.args["high"]]
        case exp.In() if (query := node.args.get("query")) is not None:
            values = [node.this, *query.this.selects]
        case exp.In() | exp.Coalesce() | exp.Case() | exp.If():
            values = branches_of(node)
        case _:
            values = [node.args["this"], node.args["expression"]]
    branches = [value for value in values if not isinstance(value, exp.Null)]
    if any(map(is_double, branches)):
        return all(is_double(value) or is_whole(value) for value in branches)
    kinds = classes(*branches)
    if isinstance(node, exp.Case | exp.If | exp.Coalesce) and kinds == {None}:
        # One is chosen, of whatever type they all have.
        types = {value.type for value in branches}
        return len(types) == 1 and not types & {None, exp.DataType.build("UNKNOWN")}
    return len(kinds) <= 1 and None not in kinds


def _is_of_doubles(node: exp.Sum | exp.Avg) -> bool:
    """Tell whether doubles are summed up by groups."""
    around = node.find_ancestor(exp.Window, exp.Select)
    return is_double(node.this) and not isinstance(around, exp.Window)


def _is_arithmetic(node: exp.Binary | exp.Neg) -> bool:
    """Tell whether numbers are computed with: whole ones and decimals, or doubles."""
    values = [node.this] if isinstance(node, exp.Neg) else [node.left, node.right]
    if any(map(is_double, values)):
        return all(is_double(value) or is_whole(value) for value in values)
    return classes(*values) == {NUMBER}


def _translate_averages(query: exp.Query) -> None:
    """Round averages as Spark does."""
    for average in list(query.find_all(exp.Avg)):
        digits, scale = of_average(average) or (0, 0)
        if digits:
            # Spark rounds, where DataFusion cuts: it computes one more place, and the cast rounds.
            average.set("this", exp.cast(average.this, f"DECIMAL({digits + 1}, {scale + 1})"))
            above = average.parent
            outer = above if isinstance(above, exp.Filter) else average
            outer.replace(exp.cast(outer.copy(), f"DECIMAL({digits + 4}, {scale + 4})"))


def _translate_sums(query: exp.Query) -> None:
    """Sum bigints as decimals and cast the sum back: bigints would overflow without an error."""
    for total in list(query.find_all(exp.Sum)):
        if total.this.type is not None and total.this.type.this == exp.DataType.Type.BIGINT:
            total.set("this", exp.cast(total.this, "DECIMAL(19, 0)"))
            outer: exp.Expr = total
            while isinstance(outer.parent, exp.Filter | exp.Window) and outer.arg_key == "this":
                outer = outer.parent
            outer.replace(exp.cast(outer.copy(), "BIGINT"))


def _translate(query: exp.Query) -> None:
    """Replace structs and lists by DataFusion's own calls."""
    _translate_booleans(query)
    for ordered in list(query.find_all(exp.ArraySort)):
        # Both sort nulls first, and structs field by field.
        ordered.replace(exp.Anonymous(this="array_sort", expressions=[ordered.this]))
    for node in reversed(list(query.find_all(exp.Struct))):  # those inside of others first
        words: list[exp.Expr] = []
        for field in node.expressions:
            words += [exp.Literal.string(_field_of(field)), _value_of(field)]
        node.replace(exp.Anonymous(this="named_struct", expressions=words))
    for same in list(query.find_all(exp.NullSafeEQ, exp.NullSafeNEQ)):
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
