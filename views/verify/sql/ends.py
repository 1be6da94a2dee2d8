"""Values that end a proof, because PostgreSQL has an error or another value where Spark gives one.

The translated query raises an error at such a value, with the expression as it was written, what is
wrong, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp

from views.verify.sql.sqltypes import INTEGERS
from views.verify.values.types import Type, literal

OWN = "view: "
"""Begins the errors that the translated query raises itself."""
TEXT = "text"
"""The key in a node's `meta` under which its original text is kept for messages."""
FAILING_AT = (
    *(exp.Sqrt, exp.Exp, exp.Pow, exp.Ln, exp.Log, exp.Ceil, exp.Floor, exp.Substring, exp.Cast),
    *(exp.Upper, exp.Lower, exp.Levenshtein, exp.Like, exp.ILike, exp.TimeToStr),
    *(exp.JSONExtract, exp.JSONExtractScalar),
)
"""Classes of expressions whose original text is kept."""
NO_DECIMAL = (
    "of NaN or an infinity, which no decimal is: leave such rows out, or write "
    "CASE WHEN abs(x) < 9e18 THEN … END, which gives null for them"
)
_OVERFLOW = "is beyond a double"
_MOST_WHOLE = (1 << 63) - 1024
"""The largest double that is a bigint."""
_NO_BIGINT = (
    "of NaN, an infinity or a number beyond a bigint: leave such rows out, or write "
    "CASE WHEN abs(x) < 9e18 THEN … END, which gives null for them"
)
_BACKSLASH = (
    "has a pattern with a backslash, which the engines read differently: leave such rows out, or "
    "write contains(x, y), startswith(x, y) or endswith(x, y)"
)
_TOTAL = (
    "GROUP BY with ROLLUP, CUBE or an empty grouping set over no rows: PostgreSQL gives a row for "
    "the total, Spark none; write the total as a query of its own, without GROUP BY, with UNION ALL"
)
_BIGINT_DIGITS = 18
"""Every integer of so many digits is a bigint."""


def ended(  # noqa: PLR0911 - one for each function
    node: exp.Expr, kinds: Mapping[int, Type | None]
) -> exp.Expr | None:
    """Return a function that ends the proof where PostgreSQL has an error; None for another."""
    match node:
        case exp.Ceil() | exp.Floor():
            return _whole(node, kinds.get(id(node.this)))
        case exp.Substring():
            return _part_of_text(node)
        case exp.Sqrt():
            return unless(f"({node.this.sql('duckdb')}) < 0", node, "is of a negative number")
        case exp.Ln():
            return unless(f"({node.this.sql('duckdb')}) <= 0", node, "is of 0 or less")
        case exp.Log() if node.expression is not None and node.this.name == "10":
            value = node.expression.sql("duckdb")
            return unless(f"({value}) <= 0", node, "is of 0 or less", as_duckdb(f"log10({value})"))
        case exp.Exp():
            value = f"({node.this.sql('duckdb')})::DOUBLE"
            return unless(f"isfinite({value}) AND isinf({node.sql('duckdb')})", node, _OVERFLOW)
        case exp.Pow():
            return _power(node)
        case exp.Like() | exp.ILike() if not isinstance(node.expression, exp.Literal):
            pattern = node.expression.sql("duckdb")
            return unless(f"contains({pattern}, '\\')", node, _BACKSLASH)
        case _:
            return None


def _part_of_text(node: exp.Substring) -> exp.Expr | None:
    """End the proof at a start before the first letter, where the engines differ."""
    start, length = node.args.get("start"), node.args.get("length")
    if start is not None and not isinstance(start, exp.Literal):
        part = unless(f"({start.sql('duckdb')}) < 1", node, "has a start before the first letter")
    else:
        part = node
    if length is None:
        return None if part is node else part
    return unless(f"({length.sql('duckdb')}) < 0", node, "has a negative length", part)


def _whole(node: exp.Ceil | exp.Floor, inner: Type | None) -> exp.Expr:
    if inner is not None and inner.name in INTEGERS:  # DuckDB's is a double
        return as_duckdb(f"CAST({node.this.sql('duckdb')} AS BIGINT)")
    whole = as_duckdb(f"CAST({node.sql('duckdb')} AS BIGINT)")
    if _fits_bigint(inner):
        return whole
    beyond = f"NOT (({node.sql('duckdb')}) BETWEEN {-_MOST_WHOLE} AND {_MOST_WHOLE})"
    return unless(beyond, node, _NO_BIGINT, whole)


def _fits_bigint(kind: Type | None) -> bool:
    """Tell whether each number of a type, without its fraction, is a bigint."""
    if kind is None or kind.name != "decimal":
        return kind is not None and kind.name in INTEGERS
    return kind.precision - kind.scale <= _BIGINT_DIGITS


def unless(wrong: str, node: exp.Expr, why: str, right: exp.Expr | None = None) -> exp.Expr:
    """End the proof at a value for which PostgreSQL has an error, or another value.

    `wrong`: the condition for that, in DuckDB's SQL. `why`: what is wrong with the value, for
    people. `right`: the expression for other values; None for `node` itself.
    """
    value = (node if right is None else right).sql("duckdb")
    return as_duckdb(f"CASE WHEN {wrong} THEN error({message(node, why)}) ELSE {value} END")


def message(node: exp.Expr, why: str) -> str:
    """Return the message about a value that ends a proof, as a literal of DuckDB."""
    return literal(f"{OWN}{node.meta.get(TEXT) or node.sql('spark')} {why}")


def _power(node: exp.Pow) -> exp.Expr:
    """End the proof at an undefined power: Spark has NaN or Infinity, PostgreSQL an error."""
    one, two = (f"({part.sql('duckdb')})::DOUBLE" for part in (node.this, node.expression))
    value = f"power({one}, {two})"
    undefined = f"isnan({value}) AND NOT isnan({one}) AND NOT isnan({two})"
    beyond = f"isinf({value}) AND isfinite({one}) AND isfinite({two})"
    return unless(f"({undefined}) OR ({beyond})", node, "is undefined or beyond a double")


def with_total(select: exp.Select, having: exp.Having) -> exp.Expr | None:
    """End the proof at a total over no rows, for which Spark returns no row.

    In PostgreSQL and in DuckDB an empty grouping set has a row even without input.
    """
    group = select.args.get("group")
    if group is None or not has_total(group):
        return None
    text = literal(f"{OWN}{_TOTAL}")
    condition = having.this.sql("duckdb")
    return exp.Having(
        this=as_duckdb(
            f"CASE WHEN {condition} THEN "
            f"CASE WHEN count(*) = 0 THEN error({text}) ELSE TRUE END ELSE FALSE END"
        )
    )


def has_total(group: exp.Group) -> bool:
    """Tell whether a group has an empty grouping set in each part, so a total over all rows."""
    return bool(group.expressions) and all(map(_has_empty, group.expressions))


def _has_empty(part: exp.Expr) -> bool:
    match part:
        case exp.Rollup() | exp.Cube():
            return True
        case exp.GroupingSets():
            return any(map(_has_empty, part.expressions))
        case _:
            return isinstance(part, exp.Tuple) and not part.expressions


def as_duckdb(sql: str) -> exp.Expr:
    """Parse an expression that is written for DuckDB."""
    return sqlglot.parse_one(sql, read="duckdb")
