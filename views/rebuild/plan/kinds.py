"""The types of a query's values, as Spark has them, for its translation to a follower's engine."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date

from sqlglot import exp

CLASSES = {
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
"""Values of one class are compared and sorted the same way in both engines."""
NUMBER = "number"
NUMBER_TEXT = re.compile(r"\d+(\.\d+)?")
_QUOTIENT_ARGUMENTS = (5, 6)
LONG = exp.DataType.Type.BIGINT
MOST_DIGITS = 38
INTEGERS = {
    exp.DataType.Type.TINYINT: 3,
    exp.DataType.Type.SMALLINT: 5,
    exp.DataType.Type.INT: 10,
    exp.DataType.Type.BIGINT: 20,
}
"""Digits that Spark counts for an integer in arithmetic with decimals."""


def other_arguments(node: exp.Expr, expected: Collection[str]) -> str:
    """Return the names of the arguments of a node besides some, as text."""
    return ", ".join(
        sorted(name for name, value in node.args.items() if value and name not in expected)
    )


def is_whole(node: exp.Expr) -> bool:
    """Tell whether an expression is a whole number."""
    if isinstance(node, exp.Literal):
        return not node.is_string and node.name.isdigit()
    return node.type is not None and node.type.this in INTEGERS


def is_list(node: exp.Expr) -> bool:
    """Tell whether an expression is a list of texts or of whole numbers."""
    kind = node.type
    if kind is None or kind.this != exp.DataType.Type.ARRAY or len(kind.expressions) != 1:
        return False
    inner = kind.expressions[0]
    return inner.this in INTEGERS or CLASSES.get(inner.this) == "text"


def is_count(node: object) -> bool:
    """Tell whether an expression is a constant whole number from 0."""
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def is_constant_text(node: object) -> bool:
    """Tell whether an expression is a constant text."""
    return isinstance(node, exp.Literal) and node.is_string


def is_day(node: exp.Expr) -> bool:
    """Tell whether an expression is a constant date, as `DATE '2024-02-29'` is."""
    text = node.this
    if not isinstance(node, exp.Cast) or node.to.this != exp.DataType.Type.DATE:
        return False
    if not isinstance(text, exp.Literal):
        return False
    try:
        return date.fromisoformat(text.name).isoformat() == text.name
    except ValueError:
        return False


def is_double(node: exp.Expr, *, real: bool = False) -> bool:
    """Tell whether an expression is a double; with `real`, or a float of half its size."""
    node = node.unnest()
    match node:
        case exp.Literal():  # sqlglot has 1.5 for a double, Spark for a decimal
            return False
        case exp.Neg():
            return is_double(node.this, real=real)
        case exp.Add() | exp.Sub() | exp.Mul():
            return is_double(node.left, real=real) or is_double(node.right, real=real)
        case _:
            kinds = {exp.DataType.Type.DOUBLE, *((exp.DataType.Type.FLOAT,) if real else ())}
            return node.type is not None and node.type.this in kinds


def is_plain_round(node: exp.Expr) -> bool:
    """Tell whether a decimal is rounded to a constant number of places."""
    return (
        is_count(node.args.get("decimals"))
        and decimal_of(node.this) is not None
        and not other_arguments(node, {"this", "decimals"})
    )


def is_quotient(node: exp.Expr) -> bool:
    """Tell whether an expression is a call of PostgreSQL's division, `quotient`."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "quotient":
        return False
    one, other, *sizes = node.expressions
    return (
        len(node.expressions) in _QUOTIENT_ARGUMENTS
        and all(isinstance(size, exp.Literal) and size.name.isdigit() for size in sizes)
        and classes(one, other) == {NUMBER}
    )


def sizes_of(kind: exp.DataType) -> tuple[int, int] | None:
    """Return digits and scale of a type of decimals, or None."""
    sizes = [int(size.name) for size in kind.expressions]
    return (sizes[0], sizes[1]) if len(sizes) == len("ps") else None


def of_average(node: exp.Avg) -> tuple[int, int] | None:
    """Return digits and scale of the averaged values, (0, 0) for integers; None if unknown."""
    kind = node.this.type
    if kind is not None and kind.this in INTEGERS:
        return 0, 0
    digits = decimal_of(node.this)
    return None if digits is None or digits[0] + 5 > MOST_DIGITS else digits


def decimal_of(  # noqa: C901, PLR0912 - one for each kind
    node: exp.Expr,
) -> tuple[int, int] | None:
    """Return digits and scale that Spark gives to a number, or None if they are unknown here."""
    digits: tuple[int, int] | None = None
    match node:
        case exp.Paren() | exp.Neg() | exp.Abs():
            digits = decimal_of(node.this)
        case exp.Literal() if not node.is_string:
            whole, _, part = node.name.partition(".")
            digits = len(whole.lstrip("0") + part) or 1, len(part)
        case exp.Column() if node.type is not None and node.type.this in INTEGERS:
            digits = INTEGERS[node.type.this], 0
        case exp.Column() if node.type is not None and len(node.type.expressions) == len("ps"):
            precision, scale = (int(size.name) for size in node.type.expressions)
            digits = precision, scale
        case exp.Add() | exp.Sub() | exp.Mul():
            one, other = decimal_of(node.left), decimal_of(node.right)
            if one is not None and other is not None:
                digits = computed(node, one, other)
        case exp.Count():
            digits = INTEGERS[LONG], 0
        case exp.Sum() if (inner := decimal_of(node.this)) is not None:
            digits = (
                (INTEGERS[LONG], 0) if is_whole(node.this) else fitting(inner[0] + 10, inner[1])
            )
        case exp.Filter() | exp.Window():
            digits = decimal_of(node.this)
        case exp.Cast() if node.to.this in INTEGERS:
            digits = INTEGERS[node.to.this], 0
        case exp.Cast() if node.to.this == exp.DataType.Type.DECIMAL:
            digits = sizes_of(node.to)
        case exp.Anonymous() if is_quotient(node):
            sizes = [int(size.name) for size in node.expressions[4:]]
            digits = 36 + len(sizes), sizes[-1]
        case exp.Round() if is_plain_round(node):
            inner = decimal_of(node.this) or (0, 0)
            places = min(inner[1], int(node.args["decimals"].name))
            digits = fitting(inner[0] - inner[1] + 1 + places, places)
        case exp.Case() | exp.Coalesce() | exp.If() | exp.Greatest() | exp.Least():
            digits = widest(branches_of(node))
        case exp.Ceil() | exp.Floor() if (inner := decimal_of(node.this)) is not None:
            digits = fitting(inner[0] - inner[1] + 1, 0)
        case exp.Mod() if not (is_whole(node.left) and is_whole(node.right)):
            one, other = decimal_of(node.left), decimal_of(node.right)
            if one is not None and other is not None:
                scale = max(one[1], other[1])
                digits = min(one[0] - one[1], other[0] - other[1]) + scale, scale
        case exp.Extract() if node.name.upper() == "SECOND":
            digits = 8, 6
        case exp.Func() if node.type is not None and node.type.this in INTEGERS:
            digits = INTEGERS[node.type.this], 0
        case _:
            pass
    return digits if digits is not None and digits[0] <= MOST_DIGITS else None


def fitting(precision: int, scale: int) -> tuple[int, int]:
    """Return digits and scale of a decimal, cut to the most digits that there are."""
    return min(precision, MOST_DIGITS), scale


def branches_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that an expression chooses from, without nulls."""
    match node:
        case exp.Case():
            values = [
                *(branch.args["true"] for branch in node.args["ifs"]),
                node.args.get("default"),
            ]
        case exp.If():
            values = [node.args["true"], node.args.get("false")]
        case _:
            values = [node.this, *node.expressions]
    return [value for value in values if value is not None and not isinstance(value, exp.Null)]


def widest(values: Sequence[exp.Expr]) -> tuple[int, int] | None:
    """Return the digits of the type that holds each of several numbers."""
    all_digits = []
    for value in values:
        digits = decimal_of(value)
        if digits is None:
            return None
        # As a branch an integer literal counts as an int, whatever its digits.
        is_int = isinstance(value, exp.Literal) and "." not in value.name
        all_digits.append((INTEGERS[exp.DataType.Type.INT], 0) if is_int else digits)
    if not all_digits:
        return None
    scale = max(one[1] for one in all_digits)
    return fitting(max(one[0] - one[1] for one in all_digits) + scale, scale)


def computed(node: exp.Expr, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return digits and scale of a sum, a difference or a product."""
    if isinstance(node, exp.Mul):
        return one[0] + other[0] + 1, one[1] + other[1]
    scale = max(one[1], other[1])
    return max(one[0] - one[1], other[0] - other[1]) + 1 + scale, scale


def classes(*values: exp.Expr) -> set[str | None]:
    """Return the classes of some values."""
    return {class_of(value) for value in values}


def class_of(node: exp.Expr) -> str | None:
    """Return the class of a value (`CLASSES`), or None if it is not known."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, exp.Neg):
        return NUMBER if class_of(node.this) == NUMBER else None
    kind = node.type
    return None if kind is None else CLASSES.get(kind.this)
