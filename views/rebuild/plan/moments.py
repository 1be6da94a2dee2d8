"""Places of a query that compute with dates and timestamps: an infinite one ends a build. Pure.

Spark has no infinite date: it stores days and microseconds, and fails where one is converted to the
other, without naming the place. A comparison of two values of one type converts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType
from views.meaning.captured_values import branches
from views.rebuild.plan.parts import ZONED, DType, annotated, is_of, text_of

_MOMENTS = (DType.DATE, DType.TIMESTAMP, DType.TIMESTAMPNTZ, *ZONED)
# Functions that return or collect values unchanged.
_PASSING = (
    *(exp.AggFunc, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.Array),
    *(exp.Struct, exp.Count, exp.Concat, exp.Connector),
)


def computed_moments(
    sql: str, tables: Mapping[TableName, Mapping[str, ColumnType]]
) -> tuple[str, ...]:
    """Return the texts of the expressions that compute with dates and timestamps.

    `tables`: names and types of the columns of the captured tables.
    """
    query = annotated(sql, tables)
    return () if query is None else tuple(dict.fromkeys(_computed(query)))


def _computed(query: exp.Expr) -> Iterator[str]:
    for node in query.walk():
        if isinstance(node, exp.SetOperation):
            for one, other in zip(node.left.selects, node.right.selects, strict=False):
                if _are_mixed([one, other]):
                    yield f"{text_of(one)} {node.key} {text_of(other)}"
        elif _computes(node):
            yield text_of(node)


def _computes(node: exp.Expr) -> bool:  # noqa: PLR0911 - one for each form
    """Tell whether an expression computes another value from a date or timestamp."""
    parts = list(node.iter_expressions())
    match node:
        case exp.Window():
            return _is_by_range(node)
        case exp.Cast():
            return _are_mixed([node, node.this])
        case exp.Predicate() | exp.Nullif():
            return _are_mixed(parts)
        case exp.TsOrDsToDate() if is_of(node.this, (DType.DATE,)):
            return False  # the function around it is named instead
        case exp.If() if isinstance(node.parent, exp.Case):
            return False
        case _ if branches(node):
            return _are_mixed(branches(node))
        case exp.Add() | exp.Sub() | exp.Func() if not isinstance(node, _PASSING):
            return any(is_of(part, _MOMENTS) for part in parts)
        case _:
            return False


def _are_mixed(values: list[exp.Expr]) -> bool:
    """Tell whether values are dates and timestamps, so that one is converted to the other."""
    kinds = {is_of(value, (DType.DATE,)) for value in values if is_of(value, _MOMENTS)}
    return len(kinds) > 1


def _is_by_range(node: exp.Window) -> bool:
    """Tell whether a frame is a range round a date or timestamp, which adds and subtracts."""
    frame, order = node.args.get("spec"), node.args.get("order")
    if frame is None or order is None or frame.text("kind").upper() != "RANGE":
        return False
    counts = any(isinstance(frame.args.get(end), exp.Expression) for end in ("start", "end"))
    return counts and any(is_of(part.this, _MOMENTS) for part in order.expressions)
