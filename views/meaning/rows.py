"""Comparisons of rows, `(a, b) = (1, 2)`, which Spark decides where PostgreSQL has null. Pure.

PostgreSQL compares rows field by field, and one null field leaves open what the others do not
decide (9.25.5, Row-wise Comparison). To Spark a row is one value, whose null fields are equal to
each other and to nothing else. `IN (SELECT ...)` compares field by field in both.
"""

from __future__ import annotations

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import shown

_ORDERS = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def check_rows(query: exp.Expr) -> None:
    """Check that a query compares no rows.

    Raises:
        ViewError: it does; the hint has the comparison of their fields.
    """
    for node in query.walk():
        match node:
            case exp.EQ() | exp.NEQ() if _is_row(node.this) or _is_row(node.expression):
                raise _refusal(node, _by_field(node))
            case _ if isinstance(node, _ORDERS) and (
                _is_row(node.this) or _is_row(node.expression)
            ):
                raise _refusal(node, "compare the first fields, and the next where they are equal")
            case exp.Between() if _is_row(node.this):
                raise _refusal(node, "compare the first fields, and the next where they are equal")
            case exp.In() if _is_row(node.this) and node.args.get("query") is None:
                raise _refusal(node, _by_list(node))


def _is_row(value: exp.Expr | None) -> bool:
    value = value.unnest() if isinstance(value, exp.Paren) else value
    return isinstance(value, exp.Tuple) and len(value.expressions) > 1


def _by_field(node: exp.EQ | exp.NEQ) -> str:
    one, other = node.this.unnest(), node.expression.unnest()
    if not (_is_row(one) and _is_row(other) and len(one.expressions) == len(other.expressions)):
        return "compare their fields one by one"
    sign, word = ("=", " AND ") if isinstance(node, exp.EQ) else ("<>", " OR ")
    return f"write ({_fields(one, other, sign, word)})"


def _by_list(node: exp.In) -> str:
    row = node.this.unnest()
    rows = [item.unnest() for item in node.expressions]
    if not all(_is_row(other) and len(other.expressions) == len(row.expressions) for other in rows):
        return "compare their fields one by one"
    return "write " + " OR ".join(f"({_fields(row, other, '=', ' AND ')})" for other in rows)


def _fields(one: exp.Expr, other: exp.Expr, sign: str, word: str) -> str:
    pairs = zip(one.expressions, other.expressions, strict=True)
    return word.join(f"{shown(mine)} {sign} {shown(theirs)}" for mine, theirs in pairs)


def _refusal(node: exp.Expr, hint: str) -> ViewError:
    return ViewError(
        f"{shown(node)}: where a field is null, Spark has false or true for what PostgreSQL "
        "leaves open",
        hint=hint,
    )
