"""Typed values of a query: their text in Spark's SQL, and PostgreSQL's conversions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from changelog.contract.base.errors import ViewError
from views.postgres.literals import FORMS, constant
from views.postgres.types import (
    BOOL,
    FLOATS,
    INTEGERS,
    MOST_DIGITS,
    NUMBERS,
    QUOTIENT_DIGITS,
    TEXT,
    TEXTS,
    UNKNOWN,
    PgType,
    as_numeric,
    in_spark,
    numeric,
)

_AT_MOST = 80
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
    """

    text: str
    kind: PgType
    constant: str | None = None
    is_null: bool = False


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
    if kind.name == "numeric" and (kind.sure is not None or not kind.even):
        raise refusal(
            node, "how many decimal places its text has is not known",
            f"write (…)::numeric({MOST_DIGITS}, {min(kind.scale, MOST_DIGITS)})::text",
        )  # fmt: skip
    if kind.name in (*INTEGERS, "numeric", "bool", "date", "timestamp", *_WRITTEN):
        return f"cast({value.text} AS string)"
    hint = (
        "write (… AT TIME ZONE 'UTC')::text" if kind.name == "timestamptz" else "leave the cast out"
    )
    raise refusal(node, f"the text of {kind} is written otherwise in Spark", hint)


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
    """Return a numeric divided by a numeric.

    PostgreSQL gives at least 16 significant digits, by the values; Spark as many as are asked for.

    Args:
        node: the division.
        one: what is divided.
        other: by what.
        whole: digits of the result before the point at most, where more is known than the types.
    """
    top, below = numeric_of(one), numeric_of(other)
    if top.sure is not None or below.sure is not None:
        raise refusal(
            node, "the digits of a quotient depend on its values, so it cannot be divided again",
            "round the inner one: round(…, 6)",
        )  # fmt: skip
    scale = max(top.scale, QUOTIENT_DIGITS - below.precision)
    room = MOST_DIGITS - QUOTIENT_DIGITS - below.scale
    if room < 1 or room + scale > MOST_DIGITS:
        raise refusal(
            node, "the quotient has no place for its digits in Spark",
            "cast both to fewer digits: …::numeric(18, 4)",
        )  # fmt: skip
    text = f"cast({one.text} AS decimal({min(room + scale, MOST_DIGITS)}, {scale}))"
    before = top.whole + below.scale if whole is None else whole
    sure = max(top.scale, below.scale, QUOTIENT_DIGITS - 4 * ((max(before, 1) - 1) // 4), 0)
    kind = replace(numeric(MOST_DIGITS, QUOTIENT_DIGITS), sure=min(sure, QUOTIENT_DIGITS - 4))
    return Value(f"({text} / {other.text})", kind)


def require_exact(node: exp.Expr, kind: PgType, use: str) -> None:
    """Check that all digits of a value are known before it is used: "compared", for one.

    Raises:
        ViewError: it is a quotient of numerics.
    """
    if kind.sure is not None:
        raise refusal(
            node, f"the digits of a quotient of numerics depend on its values: it cannot be {use}",
            f"write round(…, {min(kind.sure, 6)}), or (…)::double precision",
        )  # fmt: skip


def rounded(node: exp.Expr, value: Value, places: int) -> Value:
    """Return a numeric rounded to some decimal places, halves away from zero.

    Raises:
        ViewError: it is a quotient that has not as many in PostgreSQL.
    """
    kind = numeric_of(value)
    if places < 0:
        raise refusal(node, "a negative number of places", "write round(x / 100) * 100")
    if kind.sure is not None and places > kind.sure:
        raise refusal(
            node, f"PostgreSQL's quotient may have only {kind.sure} decimal places",
            f"write round(…, {kind.sure}), or cast what is divided: …::numeric(24, {places})",
        )  # fmt: skip
    scale = min(places, kind.scale)
    whole = min(kind.whole + 1, MOST_DIGITS - scale)
    text = value.text if value.kind.name in INTEGERS else f"round({value.text}, {places})"
    return Value(text, replace(numeric(whole + scale, scale), even=scale == places))


_SIMPLE = re.compile("[a-z_][a-z0-9_]*")


def name_of(identifier: exp.Expr) -> str:
    """Return a name as PostgreSQL folds it: in lower case without quotes."""
    quoted = identifier.args.get("quoted")
    return str(identifier.name) if quoted else str(identifier.name).lower()
