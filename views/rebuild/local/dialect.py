"""A view's query for the engine of a follower: Spark's SQL brought to that of DataFusion.

Taken is what means the same in both for the types that it is used on; all else is refused, and
Spark computes such a view. What is taken wrongly is found by the proof, which goes by a third
engine, before any reader sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from changelog.contract.rows.types import ColumnType, Kind
from views.rebuild.local.join_values import UnknownValueError

_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INT",
    Kind.LONG: "BIGINT",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "STRING",
    Kind.UUID: "STRING",
    Kind.BYTES: "BINARY",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP_NTZ",
    Kind.TIMESTAMPTZ: "TIMESTAMP",
}
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
_PLAIN: tuple[type[exp.Expr], ...] = (
    exp.Select,
    exp.From,
    exp.Where,
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
    exp.Null,
    exp.Boolean,
    exp.Star,
    exp.Filter,
    exp.PropertyEQ,
    exp.DataType,
)
_SAME_CLASS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Between, exp.In,
    exp.Coalesce, exp.Case, exp.If,
)  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)
_AGGREGATES = (exp.Count, exp.Sum, exp.Min, exp.Max, exp.ArrayAgg)


@dataclass(frozen=True, slots=True)
class LocalSql:
    """A query as DataFusion reads it.

    Attributes:
        text: the query; its columns are in the order of the view's.
        used: of each table that it names, the columns that it reads.
        lists: places of the columns that hold a list which is never null.
    """

    text: str
    used: Mapping[str, Sequence[str]]
    lists: frozenset[int]


def local_sql(text: str, tables: Mapping[str, Mapping[str, ColumnType]]) -> LocalSql:
    """Return a query for DataFusion.

    Args:
        text: in Spark's SQL.
        tables: by the names that it has for tables, the columns of each and their types.

    Raises:
        UnknownValueError: it is not known to mean the same there; the text says why.
    """
    try:
        parsed = sqlglot.parse_one(text, dialect="spark")
        if not isinstance(parsed, exp.Select):
            raise UnknownValueError("it is more than one SELECT")
        schema = MappingSchema(
            {name: {c: _named(k) for c, k in each.items()} for name, each in tables.items()},
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
    if not isinstance(query, exp.Select) or len(list(query.find_all(exp.Select))) > 1:
        raise UnknownValueError("it holds a query inside of another")
    for node in query.walk():
        _check(node)
    lists = frozenset(
        place for place, each in enumerate(query.selects) if _collected(each.unalias())
    )
    used: dict[str, dict[str, None]] = {name: {} for name in tables}
    of_alias = {table.alias_or_name: table.name for table in query.find_all(exp.Table)}
    for each in query.find_all(exp.Column):
        if each.table in of_alias:
            used[of_alias[each.table]][each.name] = None
    made = query.transform(_transformed)
    return LocalSql(made.sql(), {name: tuple(each) for name, each in used.items()}, lists)


def _named(kind: ColumnType) -> str:
    if kind.kind is Kind.DECIMAL:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return f"ARRAY<{_named(kind.element)}>" if kind.element is not None else _TYPES[kind.kind]


def _collected(node: exp.Expr) -> bool:
    node = node.this if isinstance(node, exp.Filter) else node
    return isinstance(node, exp.ArrayAgg)


def _check(node: exp.Expr) -> None:  # noqa: C901, PLR0912 - one for each kind of node
    """Refuse what is not known to mean the same.

    Raises:
        UnknownValueError: it is not.
    """
    match node:
        case exp.Select():
            known = {"expressions", "from_", "joins", "where", "group", "having", "kind", "hint"}
            others = {name for name, value in node.args.items() if value and name not in known}
            if others:
                raise _refused(node, f"{', '.join(sorted(others))} is computed by Spark")
        case exp.Join():
            side, kind = node.side.upper(), node.kind.upper()
            if (side, kind) not in {("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")} or (
                node.args.get("using") or node.method
            ):
                raise _refused(node, "only INNER and LEFT JOIN ... ON are taken")
        case exp.Group():
            if set(name for name, value in node.args.items() if value) - {"expressions"}:
                raise _refused(node, "only plain grouping is taken")
            for each in node.expressions:
                if _class_of(each) is None:
                    raise _refused(each, "it is no value that groups alike")
        case exp.Is():
            if not isinstance(node.expression, exp.Null):
                raise _refused(node, "only IS NULL is taken")
        case exp.Literal():
            if not node.is_string and not node.name.isdigit():
                raise _refused(node, "only whole numbers and texts are taken")
        case exp.Struct():
            for each in node.expressions:
                if not isinstance(each, exp.PropertyEQ | exp.Column | exp.Alias):
                    raise _refused(node, "a field has no name")
        case exp.Count():
            if len(node.expressions) > 0 or isinstance(node.this, exp.Distinct):
                raise _refused(node, "only count(*) and count(value) are taken")
        case exp.Sum():
            if _class_of(node.this) != "number":
                raise _refused(node, "only sums of whole numbers and decimals are taken")
        case exp.Min() | exp.Max():
            if _class_of(node.this) is None or node.expressions:
                raise _refused(node, "only of numbers, texts, dates and moments")
        case exp.ArrayAgg():
            if isinstance(node.this, exp.Distinct | exp.Order):
                raise _refused(node, "only a plain list is taken")
        case _ if isinstance(node, _ARITHMETIC):
            if {_class_of(node.left), _class_of(node.right)} != {"number"}:
                raise _refused(node, "only whole numbers and decimals are taken")
        case exp.Neg():
            if _class_of(node.this) != "number":
                raise _refused(node, "only whole numbers and decimals are taken")
        case exp.DPipe():
            if {_class_of(node.left), _class_of(node.right)} != {"text"}:
                raise _refused(node, "only texts are taken")
        case _ if isinstance(node, _SAME_CLASS):
            _check_class(node)
        case _ if isinstance(node, _PLAIN):
            pass
        case _:
            raise _refused(node, "it is computed by Spark")


def _check_class(node: exp.Expr) -> None:
    """Refuse a comparison of values of two classes, or of one that engines sort differently."""
    match node:
        case exp.Between():
            values = [node.this, node.args["low"], node.args["high"]]
        case exp.In():
            if not node.expressions:
                raise _refused(node, "only a list of values is taken")
            values = [node.this, *node.expressions]
        case exp.Case():
            if node.this is not None:
                raise _refused(node, "only CASE WHEN is taken")
            values = [each.args["true"] for each in node.args["ifs"]]
            values += [node.args["default"]] if node.args.get("default") is not None else []
        case exp.If():
            values = [node.args["true"]]
            values += [node.args["false"]] if node.args.get("false") is not None else []
        case exp.Coalesce():
            values = [node.this, *node.expressions]
        case _:
            values = [node.args["this"], node.args["expression"]]
    known = [each for each in values if not isinstance(each, exp.Null)]
    classes = {_class_of(each) for each in known}
    if len(classes) > 1 or None in classes:
        raise _refused(node, "its values are of two kinds, or of one that engines sort otherwise")


def _class_of(node: exp.Expr) -> str | None:
    """Return the class of a value; None for one that is not known."""
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    kind = node.type
    return None if kind is None else _CLASSES.get(kind.this)


def _refused(node: exp.Expr, why: str) -> UnknownValueError:
    return UnknownValueError(f"{node.sql('spark')[:60]}: {why}")


def _transformed(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Struct():
            words: list[exp.Expr] = []
            for each in node.expressions:
                words += [exp.Literal.string(_field_of(each)), _value_of(each)]
            return exp.Anonymous(this="named_struct", expressions=words)
        case exp.ArrayAgg() if not isinstance(node.parent, exp.Filter):
            return _without_nulls(node, None)
        case exp.Filter() if isinstance(node.this, exp.ArrayAgg):
            return _without_nulls(node.this, node.expression.this)
        case _:
            return node


def _without_nulls(node: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """Let a list leave out nulls, as Spark's does."""
    there: exp.Expr = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    if condition is not None:
        there = exp.And(this=exp.Paren(this=condition.copy()), expression=there)
    called = exp.Anonymous(this="array_agg", expressions=[node.this.copy()])
    return exp.Filter(this=called, expression=exp.Where(this=there)).transform(_structs)


def _structs(node: exp.Expr) -> exp.Expr:
    return _transformed(node) if isinstance(node, exp.Struct) else node


def _field_of(each: exp.Expr) -> str:
    if isinstance(each, exp.PropertyEQ):
        return each.this.name
    return each.alias_or_name


def _value_of(each: exp.Expr) -> exp.Expr:
    if isinstance(each, exp.PropertyEQ):
        return each.expression
    return each.unalias()
