"""Typed values of a query in Spark's SQL, with PostgreSQL's conversions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from views.postgres.literals import FORMS, constant, text
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
    element_of,
    in_spark,
    numeric,
)

_AT_MOST = 80
"""Letters of a part of a query in messages."""
_SIGNIFICANT = 16
"""Fewest significant digits of a quotient."""
_ROUNDED_PLACES = 7
"""A quotient with more than `QUOTIENT_PLACES` rounds to 0 at so many places."""
_CONSTANTS = ("DATE '", "TIMESTAMP_NTZ '")
"""Beginnings of constants in Spark's SQL."""
_SUBQUERY = re.compile(r"\((?:SELECT|WITH) ")
_CARRIED_AS_TEXT = ("uuid", "enum", "json", "jsonb")
"""Types that are carried as the result of PostgreSQL's cast to text."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a query.

    Attributes:
        text: its expression in Spark's SQL, in parentheses if it needs them.
        kind: its type.
        constant: the text of a constant without quotes; None for null and all other values.
        is_null: whether it is the word NULL.
        divided: for a quotient of numerics, the arguments of the division, and the digits before
            the point up to which its decimal places are known.
    """

    text: str
    kind: PgType
    constant: str | None = None
    is_null: bool = False
    divided: tuple[str, int] | None = None


_AT_THE_SOURCE = (
    "docs/sql.md has what a view may be written with; what a row has besides can be a column that "
    "a trigger fills, or on PostgreSQL 18 and newer a generated one"
)
"""The hint of a refusal that has none of its own."""
NULL = Value("NULL", UNKNOWN, is_null=True)


def refusal(node: exp.Expr, why: str, hint: str = "") -> ViewError:
    """Return the error that refuses a part of a query, with its place in the author's text."""
    return ViewError(f"{place(node)}{author_text(node)}: {why}", hint=hint or _AT_THE_SOURCE)


def place(node: exp.Expr) -> str:
    """Return `line:column: ` of a part of a query; empty if the parser knows no place in it.

    Of some parts, such as CURRENT_DATE, it knows none: then it is that of the part before, with
    `near`.
    """
    metas = [part.meta for part in node.walk() if _has_place(part)]
    if metas:
        return _shown(min(metas, key=lambda meta: int(meta["start"])))
    before = takewhile(lambda part: part is not node, node.root().walk(bfs=False))
    nearest = [part.meta for part in before if _has_place(part)]
    return f"near {_shown(nearest[-1])}" if nearest else ""


def _has_place(part: exp.Expr) -> bool:
    return "line" in part.meta and "start" in part.meta


def _shown(meta: Mapping[str, Any]) -> str:
    column = int(meta["col"]) - (int(meta["end"]) - int(meta["start"]))
    return f"{meta['line']}:{column}: "


def author_text(node: exp.Expr) -> str:
    """Return a part of a query in the words of its author, as far as the parser keeps them."""
    text = " ".join(node.sql("postgres", comments=False, normalize_functions="lower").split())
    return text if len(text) <= _AT_MOST else text[: _AT_MOST - 3] + "..."


def is_implicit(value: Value, kind: PgType) -> bool:
    """Tell whether PostgreSQL converts a value to a type implicitly."""
    name, to = value.kind.name, kind.name
    if name in {"unknown", to}:
        return True
    if name in INTEGERS and to in NUMBERS:
        return to not in INTEGERS or INTEGERS.index(name) <= INTEGERS.index(to)
    if name == "numeric" or (name, to) == FLOATS:
        return to in FLOATS
    return (name in TEXTS and to in TEXTS) or (name, to) == ("date", "timestamp")


def implicit_cast(node: exp.Expr, value: Value, kind: PgType) -> str:
    """Return the SQL of a value converted to a type as PostgreSQL does implicitly.

    Raises:
        ViewError: PostgreSQL does not.
    """
    if value.is_null:
        return "NULL" if kind.name == "bpchar" else f"cast(NULL AS {in_spark(kind)})"
    if value.kind.name == "unknown":
        built = constant(value.constant or "", kind)
        if built is None:
            form = FORMS.get(kind.name) or " or ".join(kind.labels)
            raise refusal(
                node, f"{value.constant!r} is not known to be a constant of type {kind}",
                f"write it as {form}" if form else "",
            )  # fmt: skip
        return built
    if not is_implicit(value, kind):
        raise refusal(node, f"{value.kind} is not converted to {kind}", f"cast it: …::{kind}")
    if kind.name in FLOATS and value.kind.name != kind.name:
        return f"cast({value.text} AS {in_spark(kind)})"
    if (value.kind.name, kind.name) == ("date", "timestamp"):
        return f"cast({value.text} AS timestamp_ntz)"
    return value.text


def as_text(node: exp.Expr, value: Value) -> str:
    """Return the SQL of PostgreSQL's cast of a value to text.

    Raises:
        ViewError: Spark writes such a value differently.
    """
    kind = value.kind
    if kind.name in {"unknown", "text"}:
        return implicit_cast(node, value, TEXT)
    if kind.name == "bpchar":
        return f"trim(TRAILING ' ' FROM {value.text})"
    if kind.name == "numeric" and not kind.even:
        raise refusal(
            node, "the number of decimal places of its text is not known",
            f"write (…)::numeric({MOST_DIGITS}, {min(kind.scale, MOST_DIGITS)})::text",
        )  # fmt: skip
    if kind.name in (*INTEGERS, "numeric", "bool", *_CARRIED_AS_TEXT):
        return f"cast({value.text} AS string)"
    if kind.name in {"date", "timestamp"}:
        return _day_as_text(value)
    hint = (
        "write (… AT TIME ZONE 'UTC')::text" if kind.name == "timestamptz" else "leave the cast out"
    )
    raise refusal(node, f"Spark writes the text of {kind} differently", hint)


def _day_as_text(value: Value) -> str:
    """Return the SQL of the text of a date or timestamp.

    Spark counts the years before year 1 as 0, -1, …, and writes a sign before years of five digits.
    """
    as_string = f"cast({value.text} AS string)"
    if value.text.startswith((*_CONSTANTS,)):
        return as_string
    year = f"lpad(cast((1 - extract(year FROM {value.text})) AS string), 4, '0')"
    return (
        f"CASE WHEN extract(year FROM {value.text}) < 1 "
        f"THEN concat({year}, substring(trim(LEADING '-' FROM {as_string}), 5), ' BC') "
        f"ELSE replace({as_string}, '+', '') END"
    )


def sortable(node: exp.Expr, value: Value) -> str:
    """Return the SQL of a value that sorts as the value does in PostgreSQL.

    Raises:
        ViewError: it is of an enum, and the log does not have the order of its labels; or it is a
            text that PostgreSQL sorts otherwise than by code points.
    """
    check_sorted(node, [value.kind])
    if value.kind.name == "bpchar":  # without its trailing blanks
        return f"trim(TRAILING ' ' FROM {value.text})"
    check_compared(node, [value.kind])
    if value.kind.name != "enum":
        return value.text
    return f"label_place({value.text}, {labels_of(node, value.kind)})"


_CTYPES = ("", "full", "C")
"""Rules by which letters change case that the engines can follow."""


def ctype_of(node: exp.Expr, values: Sequence[Value]) -> str:
    """Return the rule by which PostgreSQL changes the case of a text's letters: `Locale.ctype`.

    Raises:
        ViewError: its parts follow several rules, or one that the engines lack.
    """
    ctypes = {locale.ctype for value in values for locale in value.kind.locales}
    if len(ctypes) > 1:
        raise refusal(
            node, "its parts have collations that change case by different rules",
            "change the case of each part by itself: upper(x) || upper(y)",
        )  # fmt: skip
    ctype = next(iter(ctypes), "")
    if ctype not in _CTYPES:
        raise refusal(
            node, f"letters change case by the rules of {ctype} here, which other engines lack",
            "write them out: translate(x, 'abc…', 'ABC…'), or have it as a column of the table",
        )  # fmt: skip
    return ctype


def check_sorted(node: exp.Expr, kinds: Iterable[PgType]) -> None:
    """Refuse texts that PostgreSQL sorts otherwise than by code points."""
    texts = [kind for kind in kinds if (element_of(kind) or kind).name in TEXTS]
    named = sorted({one.collation for kind in texts for one in kind.locales if one.collation})
    if named:
        raise refusal(
            node, f"the engines do not sort texts by the collation {named[0]}",
            'write x COLLATE "C" for the order of code points (a char(n) is cast first: x::text)',
        )  # fmt: skip


def check_compared(node: exp.Expr, kinds: Iterable[PgType]) -> None:
    """Refuse JSON that a query makes in a place where equal values are found: groups, DISTINCT."""
    if any(kind.name == "document" for kind in kinds):
        raise refusal(node, "JSON is not compared here", "compare what it is made of")


def labels_of(node: exp.Expr, kind: PgType) -> str:
    """Return the SQL of the list of an enum's labels in their order."""
    if not kind.labels:
        raise refusal(
            node, "the log does not have the order of the enum's labels",
            "start capture anew, which writes it, or write CASE x WHEN 'a' THEN 1 … END",
        )  # fmt: skip
    return f"array({', '.join(map(text, kind.labels))})"


def condition(node: exp.Expr, value: Value) -> str:
    """Return the SQL of a value that is used as a condition.

    Raises:
        ViewError: it is not a boolean.
    """
    if value.kind.name == "unknown":
        return implicit_cast(node, value, BOOL)
    if value.kind.name != "bool":
        raise refusal(node, f"a condition is needed here, and it is {value.kind}")
    return value.text


def numeric_of(value: Value) -> PgType:
    """Return the numeric type of an integer or a numeric; that of a constant has its digits."""
    return as_numeric(value.kind, value.constant)


def quotient(node: exp.Expr, one: Value, other: Value, *, whole: int | None = None) -> Value:
    """Return the quotient of two numerics, with the decimal places that it has in PostgreSQL.

    Args:
        node: the division.
        one: the dividend.
        other: the divisor.
        whole: for an average, its most digits before the point.

    Raises:
        ViewError: the number of decimal places in PostgreSQL cannot be known.
    """
    if any(map(_SUBQUERY.search, (one.text, other.text))):
        raise refusal(
            node, "Spark has no subqueries in a division",
            "divide in a query around it: SELECT x / y FROM (SELECT x, (SELECT …) AS y) AS q",
        )  # fmt: skip
    kinds = numeric_of(one), numeric_of(other)
    most, room = QUOTIENT_PLACES, MOST_DIGITS
    for kind in kinds:
        if not kind.even:  # fewer digits before the point leave more places in any case
            room = min(room, 4 * ((_SIGNIFICANT - kind.scale) // 4 + 1))
        if room < 1 or kind.scale > QUOTIENT_PLACES:
            raise refusal(
                node, "its number of decimal places depends on those of a value in the division",
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
        raise refusal(
            node,
            "a negative number of places",
            "write round(x / 10) * 10 for round(x, -1), / 100 and * 100 for -2",
        )
    scale = min(places, kind.scale)
    whole = min(kind.whole + 1, MOST_DIGITS - scale)
    text = value.text if value.kind.name in INTEGERS else f"round({value.text}, {places})"
    if value.divided and places <= _ROUNDED_PLACES:
        # Right for any number of digits before the point, and for quotients close to 0.
        divided, room = value.divided
        text = f"quotient({divided}, {QUOTIENT_PLACES}, {places})"
        whole = MOST_DIGITS - scale
        if room < whole:
            whole = room
            text = f"cast({text} AS decimal({whole + scale}, {scale}))"
    return Value(text, replace(numeric(whole + scale, scale), even=scale == places))
