"""A view's query for the engine of a follower: Spark's SQL brought to that of DataFusion.

Taken is what means the same in both for the types that it is used on; all else is refused, and
Spark computes such a view. What is taken wrongly is found by the proof, which goes by a third
engine, before any reader sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.types import ColumnType, spark_type
from views.base.spark_sql import SparkSql
from views.rebuild.local.join_values import UnknownValueError

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
"""Values of one class compare, and are sorted, in both engines alike."""
_NUMBER = "number"
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having"}
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
    exp.Filter,
    exp.PropertyEQ,
    exp.Struct,
    exp.Count,
    exp.Sum,
    exp.Min,
    exp.Max,
    exp.ArrayAgg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.DPipe,
)


@dataclass(frozen=True, slots=True)
class LocalSql:
    """A query as DataFusion reads it."""

    text: str  # the query; its columns are in the order of the view's
    # of each table that it names, the columns that it reads, in lower case
    used: Mapping[str, Sequence[str]]
    lists: frozenset[int]  # places of the columns that hold a list which is never null


def local_sql(text: str, tables: Mapping[str, Mapping[str, ColumnType]]) -> LocalSql:
    """Return a query for DataFusion.

    `tables`: by the names that it has for tables, the columns of each in lower case and their
    types.
    """
    try:
        parsed = sqlglot.parse_one(text, dialect=SparkSql)
        if not isinstance(parsed, exp.Select):
            raise UnknownValueError("it is more than one SELECT")
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
    if len(list(query.find_all(exp.Select))) > 1:
        raise UnknownValueError("it holds a query inside of another")
    for node in query.walk():
        _check(node)
    lists = frozenset(
        place for place, selected in enumerate(query.selects) if _collected(selected.unalias())
    )
    used: dict[str, dict[str, None]] = {name: {} for name in tables}
    of_alias = {table.alias_or_name: table.name for table in query.find_all(exp.Table)}
    for column in query.find_all(exp.Column):
        if column.table in of_alias:
            used[of_alias[column.table]][column.name] = None
    _translate(query)
    return LocalSql(query.sql(), {name: tuple(names) for name, names in used.items()}, lists)


def _collected(node: exp.Expr) -> bool:
    node = node.this if isinstance(node, exp.Filter) else node
    return isinstance(node, exp.ArrayAgg)


def _check(node: exp.Expr) -> None:
    """Refuse what is not known to mean the same."""
    if (why := _obstacle(node)) is not None:
        raise UnknownValueError(f"{node.sql('spark')[:60]}: {why}")


def _obstacle(node: exp.Expr) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one for each kind
    match node:
        case exp.Select() if others := _others(node, _CLAUSES):
            return f"{others} is computed by Spark"
        case exp.Join() if not _is_plain_join(node):
            return "only INNER and LEFT JOIN ... ON are taken"
        case exp.Group() if _others(node, {"expressions"}):
            return "only plain grouping is taken"
        case exp.Group() if None in map(_class_of, node.expressions):
            return "one of them is no value that engines group alike"
        case exp.Is() if not isinstance(node.expression, exp.Null):
            return "only IS NULL is taken"
        case exp.Literal() if not node.is_string and not node.name.isdigit():
            return "only whole numbers and texts are taken"
        case exp.Struct() if not all(isinstance(field, _FIELDS) for field in node.expressions):
            return "a field has no name"
        case exp.Count() if node.expressions or isinstance(node.this, exp.Distinct):
            return "only count(*) and count(value) are taken"
        case exp.Sum() | exp.Neg() if _class_of(node.this) != _NUMBER:
            return "only whole numbers and decimals are taken"
        case exp.Min() | exp.Max() if _class_of(node.this) is None or node.expressions:
            return "only of numbers, texts, dates and moments"
        case exp.ArrayAgg() if isinstance(node.this, exp.Distinct | exp.Order):
            return "only a plain list is taken"
        case exp.Add() | exp.Sub() | exp.Mul() if _classes(node.left, node.right) != {_NUMBER}:
            return "only whole numbers and decimals are taken"
        case exp.DPipe() if _classes(node.left, node.right) != {"text"}:
            return "only texts are taken"
        case exp.Case() if node.this is not None:
            return "only CASE WHEN is taken"
        case exp.In() if not node.expressions:
            return "only a list of values is taken"
        case _ if isinstance(node, _OF_ONE_CLASS) and not _is_of_one_class(node):
            return "its values are of two kinds, or of one that engines sort otherwise"
        case _ if not isinstance(node, _TAKEN):
            return "it is computed by Spark"
        case _:
            return None


def _others(node: exp.Expr, expected: Collection[str]) -> str:
    return ", ".join(
        sorted(name for name, value in node.args.items() if value and name not in expected)
    )


def _is_plain_join(node: exp.Join) -> bool:
    kinds = {("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")}
    return (node.side.upper(), node.kind.upper()) in kinds and not (
        node.args.get("using") or node.method
    )


def _is_of_one_class(node: exp.Expr) -> bool:
    match node:
        case exp.Between():
            values = [node.this, node.args["low"], node.args["high"]]
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
    """Return the class of a value; None for one that is not known."""
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    kind = node.type
    return None if kind is None else _CLASSES.get(kind.this)


def _translate(query: exp.Select) -> None:
    """Put DataFusion's own calls for structs and lists."""
    for node in reversed(list(query.find_all(exp.Struct))):  # those inside of others first
        words: list[exp.Expr] = []
        for field in node.expressions:
            words += [exp.Literal.string(_field_of(field)), _value_of(field)]
        node.replace(exp.Anonymous(this="named_struct", expressions=words))
    for same in list(query.find_all(exp.NullSafeEQ)):
        # IS NOT DISTINCT FROM takes all that follows it.
        same.replace(exp.Paren(this=same.copy()))
    for collected in list(query.find_all(exp.ArrayAgg)):
        value, around = collected.this, collected.parent
        # Spark's lists leave out nulls.
        there: exp.Expr = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        if isinstance(around, exp.Filter):
            there = exp.And(this=exp.Paren(this=around.expression.this), expression=there)
        called = exp.Anonymous(this="array_agg", expressions=[value])
        filtered = exp.Filter(this=called, expression=exp.Where(this=there))
        (around if isinstance(around, exp.Filter) else collected).replace(filtered)


def _field_of(field: exp.Expr) -> str:
    return str(field.this.name if isinstance(field, exp.PropertyEQ) else field.alias_or_name)


def _value_of(field: exp.Expr) -> exp.Expr:
    value: exp.Expr = field.expression if isinstance(field, exp.PropertyEQ) else field.unalias()
    return value
