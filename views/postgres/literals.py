"""Translates constants of PostgreSQL's SQL to Spark's. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from views.postgres.types import (
    FLOATS,
    INTEGERS,
    KNOWN,
    MOST_DIGITS,
    TEXTS,
    PgType,
    element_of,
    in_spark,
    numeric,
)

_BITS = {"int2": 15, "int4": 31, "int8": 63}
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DAY = r"\d{4}-\d\d-\d\d"
_MOMENT = re.compile(rf"{_DAY}(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?)?")
_ZONED = re.compile(rf"{_DAY}[ T]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?(?:Z|[+-]\d\d(?::?\d\d)?)")
_TRUE = {"true", "t", "yes", "y", "on", "1"}
_FALSE = {"false", "f", "no", "n", "off", "0"}
FORMS = {
    "date": "'2024-02-29'",
    "timestamp": "'2024-02-29 13:05:07'",
    "bool": "true or false",
    "timestamptz": "'2024-02-29 13:05:07+00'",
}
"""An example constant of some types, for hints."""


_LIST = re.compile(
    r"\s*\{((?:[^{}\"\\,]*[^{}\"\\,\s][^{}\"\\,]*,)*[^{}\"\\,]*[^{}\"\\,\s][^{}\"\\,]*)\}\s*"
)
_EMPTY_LIST = re.compile(r"\s*\{\s*\}\s*")


def elements(quoted_text: str) -> list[str | None] | None:
    """Return the elements of a list in PostgreSQL's notation, with None for NULL.

    None if it is no list, or has elements in quotes.

    >>> elements("{a, NULL}")
    ['a', None]
    """
    if _EMPTY_LIST.fullmatch(quoted_text):
        return []
    plain = _LIST.fullmatch(quoted_text)
    if plain is None:
        return None
    parts = [part.strip() for part in plain[1].split(",")]
    return [None if part.upper() == "NULL" else part for part in parts]


def text(value: str) -> str:
    """Return the SQL of a constant text."""
    return exp.Literal.string(value).sql("spark")


def plain_number(digits_text: str) -> tuple[str, PgType] | None:
    """Return a number without an exponent, and its type in Spark; None if it has too many digits.

    >>> plain_number("1e-1")
    ('0.1', PgType(name='numeric', precision=2, scale=1, even=True))
    """
    try:
        value = Decimal(digits_text.strip())
    except InvalidOperation:
        return None
    digits = f"{value:f}"
    _, _, fraction = digits.partition(".")
    whole = digits.partition(".")[0].lstrip("+-0")
    precision = max(len(whole) + len(fraction), 1)
    if precision > MOST_DIGITS or not value.is_finite():
        return None
    return digits.lstrip("+"), numeric(max(precision, len(fraction) + 1), len(fraction))


def is_in(number: int, name: str) -> bool:
    """Tell whether an integer is in the range of an integer type."""
    return -(1 << _BITS[name]) <= number < 1 << _BITS[name]


def constant(  # noqa: PLR0911 - one for each sort
    quoted_text: str, kind: PgType
) -> str | None:
    """Return the SQL of a constant in quotes as a value of a type; None if it may not be one.

    Args:
        quoted_text: the text between the quotes.
        kind: the type.
    """
    if (element := element_of(kind)) is not None:
        return _list(quoted_text, kind, element)
    if kind.name == "document":
        is_list = kind.parts[0][0] == "" and quoted_text.strip() == "[]"
        return f"cast(array() AS {in_spark(kind)})" if is_list else None
    if kind.labels and quoted_text not in kind.labels:
        return None
    if kind.name in TEXTS or kind.name not in KNOWN:
        return text(quoted_text)
    value = quoted_text.strip()
    match kind.name:
        case name if name in INTEGERS:
            ok = _INTEGER.fullmatch(value) and is_in(int(value), name)
            return _signed(str(int(value))) if ok else None
        case "numeric":
            number = plain_number(value) if _NUMBER.fullmatch(value) else None
            return None if number is None else _signed(number[0])
        case name if name in FLOATS:
            return _float(value, kind)
        case "bool":
            word = value.lower()
            return "true" if word in _TRUE else "false" if word in _FALSE else None
        case _:
            return _moment(value, kind)


def _list(quoted_text: str, kind: PgType, element: PgType) -> str | None:
    parts = elements(quoted_text)
    null = f"cast(NULL AS {in_spark(element)})"
    built = [null if part is None else constant(part, element) for part in parts or ()]
    listed = [part for part in built if part is not None]
    if parts is None or len(listed) < len(built) or element.name not in KNOWN:
        return None
    return f"cast(array({', '.join(listed)}) AS {in_spark(kind)})"


def _float(value: str, kind: PgType) -> str | None:
    if _NUMBER.fullmatch(value):
        built = text(value)
    elif value.lower() in {"nan", "infinity", "-infinity"}:
        built = text({"nan": "NaN"}.get(value.lower(), value.capitalize().replace("-i", "-I")))
    else:
        return None
    double = f"cast({built} AS double)"
    return double if kind.name == "float8" else f"cast({double} AS {in_spark(kind)})"


def _moment(value: str, kind: PgType) -> str | None:
    form = {"date": re.compile(_DAY), "timestamp": _MOMENT}.get(kind.name, _ZONED)
    if form.fullmatch(value) is None:
        return None
    try:
        if kind.name == "date":
            return f"DATE '{date.fromisoformat(value)}'"
        moment = datetime.fromisoformat(value)
        if kind.name == "timestamp":
            return f"TIMESTAMP_NTZ '{moment.isoformat(' ')}'"
        return f"TIMESTAMP '{moment.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}'"
    except (ValueError, OverflowError):
        return None


def _signed(number: str) -> str:
    return f"({number})" if number.startswith("-") else number
