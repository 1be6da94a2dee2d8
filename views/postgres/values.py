"""Typed values of a query: their text in Spark's SQL, and PostgreSQL's conversions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from views.postgres.literals import FORMS, constant
from views.postgres.types import (
    AVERAGE_PLACES,
    BOOL,
    FLOATS,
    INTEGERS,
    MOST_DIGITS,
    NUMBERS,
    QUOTIENT_DIGITS,
    QUOTIENT_PLACES,
    TEXT,
    TEXTS,
    UNKNOWN,
    PgType,
    as_numeric,
    in_spark,
    numeric,
)

_AT_MOST = 80
_SIGNIFICANT = 16
"""Digits that a quotient has at least."""
_ROUNDED_PLACES = 7
"""To so many places a quotient is 0 that has more than `QUOTIENT_PLACES`."""
_CONSTANTS = ("DATE '", "TIMESTAMP_NTZ '")
_SUBQUERY = re.compile(r"\((?:SELECT|WITH) ")
_WRITTEN = ("uuid", "enum", "json", "jsonb")
"""Types that are carried as what PostgreSQL's cast to text gives."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a query.

    Attributes:
        text: its expression in Spark's SQL, which stands alone: with parentheses where it needs.
        kind: its type.
        constant: of a constant its text without quotes; None of null and of all others.
        is_null: whether it is the word NULL.
        divided: of a quotient of numerics the arguments that make it, and the digits before the
            point up to which its decimal places are known.
    """

    text: str
    kind: PgType
    constant: str | None = None
    is_null: bool = False
    divided: tuple[str, int] | None = None


NULL = Value("NULL", UNKNOWN, is_null=True)


def refusal(node: exp.Expr, why: str, hint: str = "") -> ViewError:
    """Return the refusal of a part of a query, with its place in the author's text."""
    return ViewError(f"{place(node)}{written(node)}: {why}", hint=hint)


def place(node: exp.Expr) -> str:
    """Return `line:column: ` of a part of a query, or nothing if the parser does not tell it."""
    metas = [part.meta for part in node.walk() if "line" in part.meta and "start" in part.meta]
    if not metas:
        return ""
    first = min(metas, key=lambda meta: int(meta["start"]))
    column = int(first["col"]) - (int(first["end"]) - int(first["start"]))
    return f"{first['line']}:{column}: "


def written(node: exp.Expr) -> str:
    """Return a part of a query as its author may have written it."""
    text = " ".join(node.sql("postgres", comments=False, normalize_functions="lower").split())
    return text if len(text) <= _AT_MOST else text[: _AT_MOST - 3] + "..."


def takes(value: Value, kind: PgType) -> bool:
    """Tell whether PostgreSQL takes a value to a type by itself."""
    name, to = value.kind.name, kind.name
    if name in {"unknown", to}:
        return True
    if name in INTEGERS and to in NUMBERS:
        return to not in INTEGERS or INTEGERS.index(name) <= INTEGERS.index(to)
    if name == "numeric" or (name, to) == FLOATS:
        return to in FLOATS
    return (name in TEXTS and to in TEXTS) or (name, to) == ("date", "timestamp")


def taken(node: exp.Expr, value: Value, kind: PgType) -> str:
    """Return the text of a value that PostgreSQL takes to a type by itself.

    Raises:
        ViewError: it does not.
    """
    if value.is_null:
        return "NULL" if kind.name == "bpchar" else f"cast(NULL AS {in_spark(kind)})"
    if value.kind.name == "unknown":
        built = constant(value.constant or "", kind)
        if built is None:
            form = FORMS.get(kind.name)
            raise refusal(
                node, f"{value.constant!r} is not known to be a constant of type {kind}",
                f"write it as {form}" if form else "",
            )  # fmt: skip
        return built
    if not takes(value, kind):
        raise refusal(node, f"{value.kind} is not taken to {kind}", f"cast it: …::{kind}")
    if kind.name in FLOATS and value.kind.name != kind.name:
        return f"cast({value.text} AS {in_spark(kind)})"
    if (value.kind.name, kind.name) == ("date", "timestamp"):
        return f"cast({value.text} AS timestamp_ntz)"
    return value.text


def as_text(node: exp.Expr, value: Value) -> str:
    """Return the text that PostgreSQL's cast to text gives.

    Raises:
        ViewError: Spark writes such a value otherwise.
    """
    kind = value.kind
    if kind.name in {"unknown", "text"}:
        return taken(node, value, TEXT)
    if kind.name == "bpchar":
        return f"trim(TRAILING ' ' FROM {value.text})"
    if kind.name == "numeric" and not kind.even:
        raise refusal(
            node, "how many decimal places its text has is not known",
            f"write (…)::numeric({MOST_DIGITS}, {min(kind.scale, MOST_DIGITS)})::text",
        )  # fmt: skip
    if kind.name in (*INTEGERS, "numeric", "bool", *_WRITTEN):
        return f"cast({value.text} AS string)"
    if kind.name in {"date", "timestamp"}:
        return _day_as_text(value)
    hint = (
        "write (… AT TIME ZONE 'UTC')::text" if kind.name == "timestamptz" else "leave the cast out"
    )
    raise refusal(node, f"the text of {kind} is written otherwise in Spark", hint)


def _day_as_text(value: Value) -> str:
    """Return the text of a date or timestamp.

    Spark counts the years before the first as 0, -1, …, and has a sign before those of five digits.
    """
    written_so = f"cast({value.text} AS string)"
    if value.text.startswith((*_CONSTANTS,)):
        return written_so
    year = f"lpad(cast((1 - extract(year FROM {value.text})) AS string), 4, '0')"
    return (
        f"CASE WHEN extract(year FROM {value.text}) < 1 "
        f"THEN concat({year}, substring(trim(LEADING '-' FROM {written_so}), 5), ' BC') "
        f"ELSE replace({written_so}, '+', '') END"
    )


def condition(node: exp.Expr, value: Value) -> str:
    """Return the text of a value that stands where a condition should.

    Raises:
        ViewError: it is no boolean.
    """
    if value.kind.name == "unknown":
        return taken(node, value, BOOL)
    if value.kind.name != "bool":
        raise refusal(node, f"it is {value.kind}, and stands where a condition should")
    return value.text


def numeric_of(value: Value) -> PgType:
    """Return the numeric type of an integer or a numeric; a constant has its own digits."""
    return as_numeric(value.kind, value.constant)


def quotient(node: exp.Expr, one: Value, other: Value, *, whole: int | None = None) -> Value:
    """Return a numeric divided by a numeric, with the decimal places that PostgreSQL gives it.

    Args:
        node: the division.
        one: what is divided.
        other: by what.
        whole: of an average its digits before the point at most.

    Raises:
        ViewError: how many decimal places PostgreSQL's has cannot be told.
    """
    if any(map(_SUBQUERY.search, (one.text, other.text))):
        raise refusal(
            node, "a subquery stands in a division, where Spark has none",
            "divide in a query around it: SELECT x / y FROM (SELECT x, (SELECT …) AS y) AS q",
        )  # fmt: skip
    kinds = numeric_of(one), numeric_of(other)
    most, room = QUOTIENT_PLACES, MOST_DIGITS
    for kind in kinds:
        if not kind.even:  # a quotient of fewer digits before the point has more places anyhow
            room = min(room, 4 * ((_SIGNIFICANT - kind.scale) // 4 + 1))
        if room < 1 or kind.scale > QUOTIENT_PLACES:
            raise refusal(
                node, "how many decimal places it has depends on those of a value that is divided",
                "round that value: round(…, 6), or cast it: …::numeric(18, 6)",
            )  # fmt: skip
    if whole is not None and whole > QUOTIENT_DIGITS - most:
        most = max(AVERAGE_PLACES, kinds[0].scale)
    before = max(kinds[0].whole + kinds[1].scale if whole is None else whole, 1)
    kind = numeric(min(min(before, room) + most, QUOTIENT_DIGITS), most)
    divided = f"{one.text}, {other.text}, {kinds[0].scale}, {kinds[1].scale}"
    text = f"quotient({divided}, {most})"
    if kind.precision < QUOTIENT_DIGITS:
        text = f"cast({text} AS {in_spark(kind)})"
    return Value(text, replace(kind, even=False), divided=(divided, room))


def rounded(node: exp.Expr, value: Value, places: int) -> Value:
    """Return a numeric rounded to some decimal places, halves away from zero.

    Raises:
        ViewError: the number of places is negative.
    """
    kind = numeric_of(value)
    if places < 0:
        raise refusal(node, "a negative number of places", "write round(x / 100) * 100")
    scale = min(places, kind.scale)
    whole = min(kind.whole + 1, MOST_DIGITS - scale)
    text = value.text if value.kind.name in INTEGERS else f"round({value.text}, {places})"
    if value.divided and places <= _ROUNDED_PLACES:
        # However many digits it has before the point, and if it is next to nothing.
        divided, room = value.divided
        text = f"quotient({divided}, {QUOTIENT_PLACES}, {places})"
        whole = MOST_DIGITS - scale
        if room < whole:
            whole = room
            text = f"cast({text} AS decimal({whole + scale}, {scale}))"
    return Value(text, replace(numeric(whole + scale, scale), even=scale == places))
