"""Infer numeric types of Spark's expressions: sort, precision and scale. Pure.

The rules for decimals are Spark's `DecimalPrecision` with `allowPrecisionLoss`: where a result
needs more than 38 digits, those after the point are cut, down to six.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

MOST = 38
LEAST_SCALE = 6
_DType = exp.DataType.Type
_WHOLE = {_DType.TINYINT: 3, _DType.SMALLINT: 5, _DType.INT: 10, _DType.BIGINT: 20}
"""Digits that Spark counts for an integer beside a decimal."""


class Sort(Enum):
    """The sort of a numeric type: integer, decimal or float."""

    WHOLE = "whole"
    DECIMAL = "decimal"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class SparkNumber:
    """A numeric type of Spark: sort, precision and scale."""

    sort: Sort  # integer, decimal or float
    # digits in all and after the point; None if they are not known
    size: tuple[int, int] | None = None
    cut: bool = False  # whether the result may lose digits after the point


def number_of(node: exp.Expr) -> SparkNumber | None:  # noqa: PLR0911 - one for each sort of node
    """Return the numeric type of an expression, or None if it is not a number or not known."""
    match node:
        case exp.Literal() if not node.is_string:
            return _literal(str(node.this))
        case exp.Paren() | exp.Neg() | exp.Window() | exp.Min() | exp.Max() | exp.Filter():
            return number_of(node.this)
        case exp.Alias():
            return number_of(node.this)
        case exp.Case():
            results = [branch.args.get("true") for branch in node.args["ifs"]]
            return _widest([*results, node.args.get("default")])
        case exp.If():
            return _widest([node.args.get("true"), node.args.get("false")])
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _widest([node.this, *node.expressions])
        case exp.Sum():
            return _sum(number_of(node.this))
        case exp.Avg():
            return _average(number_of(node.this))
        case exp.Mul() | exp.Add() | exp.Sub() | exp.Div():
            return _computed(node, number_of(node.left), number_of(node.right))
        case exp.Subquery() if isinstance(node.this, exp.Select) and len(node.this.selects) == 1:
            return number_of(node.this.selects[0])
        case _:
            return _typed(node.type)


def _literal(text: str) -> SparkNumber:
    if "e" in text.lower():
        return SparkNumber(Sort.FLOAT)
    whole, point, fraction = text.partition(".")
    if not point:
        return SparkNumber(Sort.WHOLE, (len(whole), 0))
    return SparkNumber(
        Sort.DECIMAL, (max(len(whole.lstrip("0")) + len(fraction), 1), len(fraction))
    )


def _typed(kind: exp.DataType | None) -> SparkNumber | None:
    if kind is None:
        return None
    if kind.this in _WHOLE:
        return SparkNumber(Sort.WHOLE, (_WHOLE[kind.this], 0))
    if kind.is_type(_DType.FLOAT, _DType.DOUBLE):
        return SparkNumber(Sort.FLOAT)
    if kind.is_type(_DType.DECIMAL):
        precision, scale, *_ = [*(int(parameter.name) for parameter in kind.expressions), 0, 0]
        return SparkNumber(Sort.DECIMAL, (precision, scale) if precision else None)
    return None


def _widest(branches: list[exp.Expr | None]) -> SparkNumber | None:
    """Return the type of the widest sort among several branches, as far as it is known."""
    numbers = [
        number for branch in branches if branch is not None and (number := number_of(branch))
    ]
    for sort in (Sort.FLOAT, Sort.DECIMAL, Sort.WHOLE):
        of_sort = [number for number in numbers if number.sort is sort]
        if of_sort:
            return (
                of_sort[0] if len(of_sort) == 1 or sort is not Sort.DECIMAL else SparkNumber(sort)
            )
    return None


def _sum(of: SparkNumber | None) -> SparkNumber | None:
    if of is None or of.sort is not Sort.DECIMAL or of.size is None:
        return of
    precision, scale = of.size
    return SparkNumber(Sort.DECIMAL, (min(precision + 10, MOST), scale))


def _average(of: SparkNumber | None) -> SparkNumber | None:
    if of is None or of.sort is not Sort.DECIMAL:
        return None if of is None else SparkNumber(Sort.FLOAT)
    return of if of.size is None else _fitted(of.size[0] + 4, of.size[1] + 4)


def _computed(
    node: exp.Mul | exp.Add | exp.Sub | exp.Div, left: SparkNumber | None, right: SparkNumber | None
) -> SparkNumber | None:
    if left is None or right is None:
        return None
    sorts = {left.sort, right.sort}
    if Sort.FLOAT in sorts or (sorts == {Sort.WHOLE} and isinstance(node, exp.Div)):
        return SparkNumber(Sort.FLOAT)
    if sorts == {Sort.WHOLE}:
        return left
    if left.size is None or right.size is None:
        return SparkNumber(Sort.DECIMAL)
    return _fitted(*_sizes(node, left.size, right.size))


def _sizes(
    node: exp.Mul | exp.Add | exp.Sub | exp.Div, left: tuple[int, int], right: tuple[int, int]
) -> tuple[int, int]:
    """Return the digits, in all and after the point, that an exact result needs."""
    (p1, s1), (p2, s2) = left, right
    match node:
        case exp.Mul():
            return p1 + p2 + 1, s1 + s2
        case exp.Div():
            scale = max(LEAST_SCALE, s1 + p2 + 1)
            return p1 - s1 + s2 + scale, scale
        case _:
            scale = max(s1, s2)
            return max(p1 - s1, p2 - s2) + scale + 1, scale


def _fitted(precision: int, scale: int) -> SparkNumber:
    if precision <= MOST:
        return SparkNumber(Sort.DECIMAL, (precision, scale))
    kept = max(MOST - (precision - scale), min(scale, LEAST_SCALE))
    return SparkNumber(Sort.DECIMAL, (MOST, kept), cut=kept < scale)
