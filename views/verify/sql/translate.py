"""A view's Spark SQL to DuckDB's: parsed and written by sqlglot, corrected where the two differ.

Only what is known to mean the same in both passes. A function that is not on the list, a cast
whose rounding differs, an order that Spark leaves open: each is an `UnverifiableError`, never a
query that happens to run. Where they differ and we correct it:

- `round` of a double: Spark rounds its shortest decimal text half up, DuckDB multiplies;
- `avg` and `/` of decimals: exact in Spark, doubles in DuckDB;
- a cast to an integer truncates in Spark and rounds in DuckDB;
- a cast of a double to a decimal goes by its shortest text in Spark;
- `dayofweek` starts at 1, and a null is no NaN;
- a list of no elements is empty in Spark and null in DuckDB; in which order a list is collected is
  open in Spark, so such lists are compared as bags (`views.verify.sql.bags`);
- timestamps with a zone: `views.verify.values.types` has them in UTC without one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from changelog.contract.base.errors import ChangelogError
from changelog.contract.rows.relation import TableName
from views.verify.sql.bags import LISTS, Bag, Bags
from views.verify.sql.constants import path_of, unchecked
from views.verify.sql.functions import ALLOWED, ANONYMOUS
from views.verify.sql.sqltypes import FLOATS, INTEGERS, TableTypes, Types, as_decimal, decimals_of
from views.verify.values.names import folded, parsed, reading_name, schema_of
from views.verify.values.types import Type

MACROS = (
    """CREATE OR REPLACE MACRO unscaled(d) AS
    CAST(replace(CAST(d AS VARCHAR), '.', '') AS HUGEINT)""",
    """CREATE OR REPLACE MACRO half_up(n, d) AS
    ((abs(n) * 2 + abs(d)) // (abs(d) * 2)) * sign(n)::HUGEINT * sign(d)::HUGEINT""",
    """CREATE OR REPLACE MACRO digits(q, s) AS
    lpad(abs(q)::VARCHAR, greatest(length(abs(q)::VARCHAR), s + 1)::INTEGER, '0')""",
    """CREATE OR REPLACE MACRO decimal_text(q, s) AS
    CASE WHEN q < 0 THEN '-' ELSE '' END
    || left(digits(q, s), length(digits(q, s)) - s) || '.' || right(digits(q, s), s)""",
    # Spark writes other numbers and nested values anew, by rules of its own.
    """CREATE OR REPLACE MACRO json_scalar(j, p) AS CASE WHEN json_valid(j) THEN
    CASE json_type(j, p) WHEN 'DOUBLE' THEN error('a number that is no integer in JSON')
    WHEN 'OBJECT' THEN error('an object in JSON') WHEN 'ARRAY' THEN error('a list in JSON')
    ELSE json_extract_string(j, p) END END""",
)
"""Functions that translated queries call; the database must have them first."""

_SEVERAL_ROWS = (
    *(exp.AggFunc, exp.Group, exp.Distinct, exp.Window, exp.Join, exp.Lateral, exp.Subquery),
    *(exp.With, exp.UDTF, exp.Explode, exp.SetOperation, exp.Order, exp.Limit, exp.Offset),
)
_ZONED = {exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ}


class UnverifiableError(ChangelogError):
    """A view cannot be recomputed independently; says why. Not a mismatch, and not a pass."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A query for DuckDB.

    Attributes:
        sql: its text.
        names: names of its columns.
        bare: columns that are captured columns as they stand, or structs of such.
        groups: whether equal values become one somewhere, so that 0.0 may stand for -0.0.
        by_row: whether each row comes from one row of one table.
        bags: columns that hold lists in an order that Spark leaves open, and where.
    """

    sql: str
    names: tuple[str, ...]
    bare: frozenset[str]
    groups: bool
    by_row: bool = False
    bags: Mapping[str, Bag] = field(default_factory=dict)


def translate(sql: str, tables: Mapping[TableName, Mapping[str, Type]]) -> Translation:
    """Translate a view's query.

    Args:
        sql: Spark SQL, with or without its header of comments.
        tables: the captured tables and the types of their columns. The translation reads them
            under the names of `views.verify.values.names`.

    Raises:
        UnverifiableError: a part of it has no known equal in DuckDB.
    """
    types = {
        reading_name(table): {folded(column): kind for column, kind in columns.items()}
        for table, columns in tables.items()
    }
    try:
        query = _qualified(sql, tables, types)
        inferred = Types(query, types)
        selects = query.selects if isinstance(query, exp.Query) else []
        bare = frozenset(
            item.alias_or_name
            for item in selects
            if isinstance(query, exp.Select) and inferred.is_bare(item)
        )
        groups = query.find(exp.Group, exp.Distinct, exp.SetOperation) is not None
        by_row = isinstance(query, exp.Select) and query.find(*_SEVERAL_ROWS) is None
        found = Bags(query)
        _check(query, inferred, found)
        bags = {item.alias_or_name: bag for item in selects if (bag := found.of(item)) is not None}
        _correct(query, inferred)
        text = query.sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (SqlglotError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UnverifiableError(f"cannot verify this SQL: sqlglot: {first}") from error
    names = tuple(item.alias_or_name for item in selects)
    return Translation(text, names, bare, groups, by_row, bags)


def _qualified(sql: str, tables: Collection[TableName], types: TableTypes) -> exp.Expr:
    query = parsed(sql, tables).transform(_without_zone)
    if not isinstance(query, exp.Query):
        raise UnverifiableError("cannot verify this SQL: it is not a query")
    schema = schema_of(
        {
            table: {name: _sqlglot_type(kind) for name, kind in columns.items()}
            for table, columns in types.items()
        }
    )
    return annotate_types(
        qualify(query, schema=schema, dialect="spark"), schema=schema, dialect="spark"
    )


def _without_zone(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.ToChar):  # of dates and times the same; of numbers DuckDB refuses it
        text = f"date_format({node.this.sql('spark')}, {node.args['format'].sql('spark')})"
        return sqlglot.parse_one(text, read="spark")
    if isinstance(node, exp.DataType) and node.this in _ZONED:
        return exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return node


def _sqlglot_type(kind: Type) -> str:
    if kind.name == "array":
        return f"array<{_sqlglot_type(kind.fields[0][1])}>"
    if kind.name == "timestamp":
        return "timestamp_ntz"
    return f"decimal({kind.precision},{kind.scale})" if kind.name == "decimal" else kind.name


def _refuse(node: exp.Expr, why: str) -> UnverifiableError:
    text = node.sql(dialect="spark")
    short = text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - for people
    return UnverifiableError(f"cannot verify this SQL: {short}: {why}")


def _check(query: exp.Expr, types: Types, bags: Bags) -> None:
    """Refuse each part that is not known to mean the same in both engines."""
    for node in query.walk():
        if (why := bags.misread(node)) is not None:
            raise _refuse(node, why)
        match node:
            case exp.Anonymous() if node.name.lower() not in ANONYMOUS:
                raise _refuse(node, f"function {node.name} is not known")
            case exp.Func() if not isinstance(node, exp.Connector):
                if isinstance(node, LISTS):
                    continue
                if type(node).__name__ not in ALLOWED:
                    raise _refuse(node, f"function {type(node).__name__} is not checked")
                _check_function(node, types)
            case exp.Like() | exp.ILike() if "\\" in node.expression.name:
                raise _refuse(node, "the two engines escape differently")
            case exp.RegexpLike() | exp.RegexpILike() | exp.Lateral() | exp.TableSample():
                raise _refuse(node, "the two engines differ here")
            case exp.Mul() | exp.Add() | exp.Sub() if _is_unknown_decimal(node, types):
                raise _refuse(node, "the decimal's precision is not known")


def _is_unknown_decimal(node: exp.Binary, types: Types) -> bool:
    kinds = [types.of(node.left), types.of(node.right)]
    decimal = any(kind is not None and kind.name == "decimal" for kind in kinds)
    return decimal and types.of(node) is None


def _check_function(node: exp.Func, types: Types) -> None:
    if (why := unchecked(node)) is not None:
        raise _refuse(node, why)
    match node:
        case exp.Concat() | exp.ConcatWs():
            for part in node.expressions:
                _check_text(node, types.of(part))
        case exp.Cast() if node.to.is_type(*exp.DataType.TEXT_TYPES):
            _check_text(node, types.of(node.this))
        case exp.Round() if decimals_of(node) is None or types.of(node.this) is None:
            raise _refuse(node, "its number of places, or the type of its argument, is not known")
        case _:
            return


def _check_text(node: exp.Expr, kind: Type | None) -> None:
    if kind is None or kind.name in FLOATS | {"binary", "array", "struct", "map"}:
        raise _refuse(node, "the two engines write such a value differently")


def _correct(query: exp.Expr, types: Types) -> None:
    """Replace, innermost first, what the engines compute differently."""
    nodes = list(query.walk(bfs=True))
    kinds = {id(node): types.of(node) for node in nodes}
    for node in nodes[::-1]:
        new = _corrected(node, kinds)
        if new is not None:
            node.replace(new)
            nodes.append(new)  # kept alive, so that no later node takes its id
            kinds[id(new)] = kinds.get(id(node))


def _corrected(  # noqa: C901, PLR0911, PLR0912 - one for each correction
    node: exp.Expr, kinds: Mapping[int, Type | None]
) -> exp.Expr | None:
    kind = kinds.get(id(node))
    match node:
        case exp.Avg():
            return _average(node, kind, kinds)
        case exp.Div():
            return _quotient(node, kind, kinds)
        case exp.Round():
            return _rounded(node, kinds.get(id(node.this)))
        case exp.Cast():
            return _cast(node, kinds.get(id(node.this)))
        case exp.Ceil() | exp.Floor():
            return exp.cast(node.copy(), "BIGINT")
        case exp.ArrayAgg() | exp.ArrayUniqueAgg() if not isinstance(node.parent, exp.Filter):
            return _list(node)
        case exp.Filter() if isinstance(node.this, LISTS):
            return _list(node)
        case exp.IsNan():
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.RegexpSplit():
            return exp.func("string_split", node.this.copy(), node.expression.copy())
        case exp.JSONExtract() | exp.JSONExtractScalar():
            path = exp.Literal.string(path_of(node))
            return exp.func("json_scalar", node.this.copy(), path)
        case exp.TsOrDsAdd():
            return exp.cast(node.copy(), "DATE")
        case exp.DayOfWeek():
            return exp.Paren(this=exp.Add(this=node.copy(), expression=exp.Literal.number(1)))
        case exp.Anonymous() if node.name.lower() == "pmod":
            one, two = (f"({part.sql('duckdb')})" for part in node.expressions)
            return _raw(f"((({one} % {two}) + {two}) % {two})")
        case _:
            return None


def _list(node: exp.Expr) -> exp.Expr:
    """Make the list of no elements an empty one, as in Spark, where DuckDB has null."""
    return exp.Coalesce(this=node.copy(), expressions=[exp.Array()])


def _raw(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, read="duckdb")


def _scaled(numerator: str, denominator: str, kind: Type) -> exp.Expr:
    text = f"decimal_text(half_up({numerator}, {denominator}), {kind.scale})"
    return _raw(f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))")


def _average(node: exp.Avg, kind: Type | None, kinds: Mapping[int, Type | None]) -> exp.Expr | None:
    if kind is None:
        raise _refuse(node, "the type of its argument is not known")
    if kind.name != "decimal":
        return None
    inner = kinds.get(id(node.this))
    if inner is None or isinstance(node.parent, exp.Window | exp.Filter):
        raise _refuse(node, "an average of decimals is verified without DISTINCT, OVER, FILTER")
    text = node.this.sql("duckdb")
    up = 10 ** (kind.scale - inner.scale)
    return _scaled(f"unscaled(sum({text})) * {up}::HUGEINT", f"count({text})::HUGEINT", kind)


def _quotient(
    node: exp.Div, kind: Type | None, kinds: Mapping[int, Type | None]
) -> exp.Expr | None:
    if kind is None:
        raise _refuse(node, "the types of its two sides are not known")
    if kind.name != "decimal":
        return None
    sides = [as_decimal(k) for n in (node.left, node.right) if (k := kinds.get(id(n)))]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:  # noqa: PLR2004 - two sides
        raise _refuse(node, "the types of its two sides are not known")
    up = 10 ** (kind.scale + sides[1].scale - sides[0].scale)
    left, right = node.left.sql("duckdb"), node.right.sql("duckdb")
    return _scaled(f"unscaled({left}) * {up}::HUGEINT", f"unscaled({right})", kind)


def _rounded(node: exp.Round, inner: Type | None) -> exp.Expr | None:
    places = decimals_of(node) or 0
    if inner is None or inner.name not in FLOATS:
        return None
    if not 0 <= places <= 18:  # noqa: PLR2004 - the macro's scale
        raise _refuse(node, "its number of places is out of the range that is checked")
    text = node.this.sql("duckdb")
    value = f"({text})::DOUBLE"
    decimal = f"CAST(CAST({value} AS VARCHAR) AS DECIMAL(38, {places}))::DOUBLE"
    return _raw(
        f"CASE WHEN isfinite({value}) AND abs({value}) < 1e16 THEN {decimal} ELSE {value} END"
    )


def _cast(node: exp.Cast, inner: Type | None) -> exp.Expr | None:
    target = node.to.sql("spark").lower()
    name = target.partition("(")[0]
    if name in INTEGERS and inner is None:
        raise _refuse(node, "the type of its argument is not known")
    if name in INTEGERS and inner is not None and inner.name in FLOATS | {"decimal"}:
        return _raw(f"CAST(trunc({node.this.sql('duckdb')}) AS {node.to.sql('duckdb')})")
    if name == "decimal":
        if inner is None:
            raise _refuse(node, "the type of its argument is not known")
        if inner.name in FLOATS:
            value = node.this.sql("duckdb")
            return _raw(f"CAST(CAST({value} AS VARCHAR) AS {node.to.sql('duckdb')})")
    return None
