"""Infer the columns of a view before Spark starts: names, and types as far as they are known.

The types are DuckDB's for the query; where it has none, and for intervals, on which it differs from
Spark, they are inferred from the query's text. An unknown type is taken for a text, which every
sink accepts: so a view is refused here only if a sink would refuse it for certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)
from sqlglot import exp

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema
from changelog.contract.rows.types import Kind
from views.base.spark_sql import leaves
from views.project.output import OutputColumn

_Type = exp.DataType.Type
_MOMENTS = {Kind.DATE: "date", Kind.TIMESTAMP: "moment", Kind.TIMESTAMPTZ: "moment"}
_OF_ARGUMENTS = (
    *(exp.Paren, exp.Neg, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif, exp.Case, exp.If),
    *(exp.Min, exp.Max, exp.Sum, exp.Avg, exp.First, exp.Last, exp.AnyValue, exp.Median),
)
_MADE = {"make_interval", "make_dt_interval", "make_ym_interval", "try_make_interval"}
_TO_DATE = (exp.TsOrDsToDate, exp.Date, exp.DateAdd, exp.TsOrDsAdd, exp.LastDay)
_TO_MOMENT = (exp.TimestampTrunc, exp.StrToTime)
_FLOATS = {"FLOAT", "DOUBLE"}


def shape_of(
    columns: Sequence[OutputColumn],
    described: Sequence[str],
    query: exp.Expr,
    schemas: Mapping[TableName, LoggedSchema],
) -> StructType:
    """Return the columns of a view.

    `described`: DuckDB's name of each type; empty if DuckDB could not be asked. `schemas`: of the
    tables that it reads.
    """
    kinds = _Kinds(query, schemas)
    types: Sequence[str] = described if len(described) == len(columns) else [""] * len(columns)
    is_one = len(list(leaves(query))) == 1
    return StructType(
        [
            StructField(column.name or column.text, _type(column, kind, kinds, is_one=is_one))
            for column, kind in zip(columns, types, strict=True)
        ]
    )


def _type(column: OutputColumn, described: str, kinds: _Kinds, *, is_one: bool) -> DataType:
    if column.value is not None:
        if isinstance(column.value, exp.Null) and is_one:
            return NullType()
        if kinds.of(column.value) == "interval":
            return DayTimeIntervalType()
    if described.endswith("]") or described.startswith(("STRUCT", "MAP")):
        return _nested(exp.DataType.build(described, dialect="duckdb"))
    return DoubleType() if described in _FLOATS else StringType()


def _nested(kind: exp.Expr) -> DataType:
    """Return a type with the names of its fields, which options of a sink may speak of."""
    if not isinstance(kind, exp.DataType):
        return StringType()
    if kind.is_type(_Type.ARRAY, _Type.LIST):
        return ArrayType(_nested(kind.expressions[0]))
    if kind.is_type(_Type.STRUCT):
        return StructType(
            [StructField(field.name, _nested(field.args["kind"])) for field in kind.expressions]
        )
    if kind.is_type(_Type.MAP):
        return MapType(StringType(), StringType())
    return DoubleType() if kind.is_type(_Type.FLOAT, _Type.DOUBLE) else StringType()


class _Kinds:
    """Tells dates, moments and intervals in a query from everything else."""

    def __init__(self, query: exp.Expr, schemas: Mapping[TableName, LoggedSchema]) -> None:
        self._names: dict[str, set[str]] = {}
        for schema in schemas.values():
            for column in schema.columns:
                kind = _MOMENTS.get(column.type.kind, "")
                self._names.setdefault(column.column.lower(), set()).add(kind)
        self._aliases: dict[str, list[exp.Expr]] = {}
        for alias in query.find_all(exp.Alias):
            self._aliases.setdefault(alias.alias.lower(), []).append(alias.this)
        self._open: set[str] = set()

    def of(self, node: exp.Expr) -> str:  # noqa: PLR0911 - one for each form
        """Return `date`, `moment`, `interval`, or an empty text."""
        match node:
            case exp.Column():
                return self._of_name(node.name.lower())
            case exp.Interval():
                return "interval"
            case exp.Cast():
                return self._of_cast(node)
            case exp.Sub():
                return self._difference(self.of(node.left), self.of(node.right))
            case exp.Add():
                sides = {self.of(node.left), self.of(node.right)}
                return max(sides - {"interval"}, default="interval")
            case exp.Mul() | exp.Div():
                is_one = "interval" in {self.of(node.left), self.of(node.right)}
                return "interval" if is_one else ""
            case exp.Anonymous():
                return "interval" if node.name.lower() in _MADE else ""
            case exp.MakeInterval():
                return "interval"
            case _ if isinstance(node, _TO_DATE):
                return "date"
            case _ if isinstance(node, _TO_MOMENT):
                return "moment"
            case _ if isinstance(node, _OF_ARGUMENTS):
                return self._of_arguments(node)
            case _:
                return ""

    @staticmethod
    def _difference(left: str, right: str) -> str:
        if left in {"date", "moment"}:
            return left if right == "interval" else "interval" if right else ""
        return "interval" if left == right == "interval" else ""

    @staticmethod
    def _of_cast(node: exp.Cast) -> str:
        name = node.to.sql(dialect="spark").lower()
        if name.startswith("interval"):
            return "interval"
        return "date" if name == "date" else "moment" if name.startswith("timestamp") else ""

    def _of_arguments(self, node: exp.Expr) -> str:
        values = list(node.iter_expressions())
        if isinstance(node, exp.Case):
            values = [branch.args["true"] for branch in node.args["ifs"]]
            values += [node.args["default"]] if node.args.get("default") else []
        elif isinstance(node, exp.If):
            values = [result for result in (node.args["true"], node.args.get("false")) if result]
        kinds = {self.of(value) for value in values} - {""}
        return kinds.pop() if len(kinds) == 1 else ""

    def _of_name(self, name: str) -> str:
        """Return the kind of a column; empty if two columns of the name differ."""
        if name in self._open:
            return ""
        self._open.add(name)
        kinds = set(self._names.get(name, ()))
        for node in self._aliases.get(name, ()):
            is_itself = isinstance(node, exp.Column) and node.name.lower() == name
            kinds |= set() if is_itself else {self.of(node)}
        self._open.discard(name)
        return kinds.pop() if len(kinds) == 1 else ""
