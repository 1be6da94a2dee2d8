"""Refuse queries whose answer is not a function of the tables alone.

A view is proved by computing it a second time with another engine. What is random, depends on
the clock or takes "some" row cannot come out the same, so the proof would fail for a view that
is right by its own words; saying so before the rebuild is kinder than a refuted generation.
"""

from __future__ import annotations

from pathlib import Path

from sqlglot import exp

from changelog.contract.base.errors import ViewError

_CLOCK = "depends on the clock"
_RANDOM = "is random"
_PLACE = "depends on where and how the query runs"
_ANY = "takes a row that no order determines"

_TYPES: dict[type[exp.Expr], str] = {
    exp.Rand: _RANDOM,
    exp.Randn: _RANDOM,
    exp.Randstr: _RANDOM,
    exp.Uniform: _RANDOM,
    exp.Shuffle: _RANDOM,
    exp.Uuid: _RANDOM,
    exp.TableSample: _RANDOM,
    exp.CurrentTimestamp: _CLOCK,
    exp.CurrentDate: _CLOCK,
    exp.CurrentTime: _CLOCK,
    exp.CurrentDatetime: _CLOCK,
    exp.Localtimestamp: _CLOCK,
    exp.CurrentUser: _PLACE,
    exp.SessionUser: _PLACE,
    exp.QueryTransform: "runs a program",
}
_NAMES = {
    "now": _CLOCK,
    "getdate": _CLOCK,
    "current_timezone": _PLACE,
    "monotonically_increasing_id": _PLACE,
    "spark_partition_id": _PLACE,
    "input_file_name": _PLACE,
    "input_file_block_start": _PLACE,
    "input_file_block_length": _PLACE,
    "current_catalog": _PLACE,
    "current_database": _PLACE,
    "current_schema": _PLACE,
    "user": _PLACE,
    "version": _PLACE,
    "identifier": "takes a name from a text, so that nobody knows what is read",
    "reflect": "calls Java",
    "java_method": "calls Java",
    "try_reflect": "calls Java",
}
_FIRST = (exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue)


def refuse_unprovable(path: Path, query: exp.Query) -> None:
    """Require that a query gives the same answer each time.

    Raises:
        ViewError: it does not; names the function and its line.
    """
    for node in query.walk():
        reason = _reason(node)
        if reason is None:
            continue
        line = next((part.meta["line"] for part in node.walk() if "line" in part.meta), None)
        place = f"{path.name}:{line}" if line else path.name
        raise ViewError(
            f"{place}: {_called(node)} {reason}, so the view cannot be proved",
            hint="compute it in the source, or select it from a column",
        )


def _reason(node: exp.Expr) -> str | None:
    for kind, reason in _TYPES.items():
        if isinstance(node, kind):
            return reason
    if isinstance(node, exp.Anonymous):
        return _NAMES.get(node.name.lower())
    if isinstance(node, _FIRST) and not _ordered(node):
        return _ANY
    if isinstance(node, exp.Limit | exp.Offset) and not _sorted(node.parent):
        return "without ORDER BY takes rows that no order determines"
    return None


def _ordered(node: exp.Expr) -> bool:
    """Tell whether a first or last value stands over a window with an order."""
    parent = node.parent
    while isinstance(parent, exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window) and parent.args.get("order") is not None


def _sorted(query: exp.Expr | None) -> bool:
    return query is not None and query.args.get("order") is not None


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Limit | exp.Offset | exp.TableSample):
        return type(node).__name__.upper()
    if isinstance(node, exp.QueryTransform):
        return "TRANSFORM … USING"
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    return f"{(node.sql_name() if isinstance(node, exp.Func) else node.key).lower()}()"
