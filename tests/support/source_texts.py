"""Values as PostgreSQL writes them, by type: nothing that it could not send.

`tests/integration/test_source_texts.py` asks PostgreSQL itself.
"""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from changelog.contract.rows.types import ColumnType, column_type
from tests.support.builders import BIGINT, INTEGER, INTEGERS, TEXT, TEXTS, decimal_type

TEXTS_OF = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)
_LEAST_EXPONENT = -4
_DOUBLE_DIGITS, _REAL_DIGITS = 15, 6


def double_text(value: float) -> str:
    sides = [math.nextafter(value, side) for side in (-math.inf, math.inf)]
    return _arranged(value, _inside(value, repr(value), sides), _DOUBLE_DIGITS)


def real_text(value: float) -> str:
    single = np.float32(value)
    with np.errstate(over="ignore", under="ignore"):  # a neighbour may be an infinity
        sides = [float(np.nextafter(single, np.float32(side))) for side in (-np.inf, np.inf)]
    return _arranged(value, _inside(value, str(single), sides), _REAL_DIGITS)


def _inside(value: float, digits: str, sides: list[float]) -> str:
    """Return the digits, with one more where they stand half way to a neighbour.

    Such a text is read as the even one of the two, so Python takes it; PostgreSQL does not.
    """
    if any(math.isinf(each) or math.isnan(each) for each in (value, *sides)):
        return digits
    half_ways = [(Fraction(value) + Fraction(side)) / 2 for side in sides]
    if Fraction(digits) not in half_ways:
        return digits
    return f"{value:.{len(Decimal(digits).as_tuple().digits)}e}"


def _arranged(value: float, digits: str, places: int) -> str:
    """Return the digits of a number as PostgreSQL's `ryu` arranges them."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    exact = Decimal(digits)
    exponent = exact.adjusted()
    shown = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    if _LEAST_EXPONENT <= exponent < places:
        plain = format(exact, "f")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    sign, rest = "-" * (value < 0), shown[1:]
    return f"{sign}{shown[0]}{'.' * bool(rest)}{rest}e{exponent:+03}"


def numeric_texts(digits: int, scale: int) -> st.SearchStrategy[str]:
    """Make texts of a `numeric(digits,scale)`: it has NaN, but no infinity."""
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: _pointed(n, scale)) | st.just("NaN")


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, Decimal]:
    """Make a precision, a scale, and a value that a numeric of these has."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    return precision, scale, Decimal(_pointed(unscaled, scale))


def _pointed(number: int, scale: int) -> str:
    """Return a number with a point before its last digits; no context rounds it."""
    shown = str(abs(number)).zfill(scale + 1)
    whole, fraction = shown[: len(shown) - scale], shown[len(shown) - scale :]
    return f"{'-' * (number < 0)}{whole}{'.' * bool(scale)}{fraction}"


_MOMENTS = st.datetimes().map(
    lambda moment: moment.isoformat(" ").rstrip("0") if moment.microsecond else str(moment)
) | st.sampled_from(
    [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00 BC",
        "20000-01-01 00:00:00.5",
        "2000-01-01 00:00:00.12",
    ]
)


def _zoned(text: str) -> str:
    if text.endswith("infinity"):
        return text
    return text[:-3] + "+00 BC" if text.endswith(" BC") else text + "+00"


_DATES = st.dates(date(1, 1, 1)).map(str) | st.sampled_from(
    ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"]
)
CASES: list[tuple[ColumnType, st.SearchStrategy[str]]] = [
    (column_type("bool", "boolean"), st.sampled_from("tf")),
    (column_type("int2", "smallint"), st.integers(-(2**15), 2**15 - 1).map(str)),
    (INTEGER, st.integers(-(2**31), 2**31 - 1).map(str)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1).map(str)),
    (column_type("float8", "double precision"), st.floats().map(double_text)),
    (column_type("float4", "real"), st.floats(width=32).map(real_text)),
    (decimal_type(10, 2), numeric_texts(10, 2)),
    (decimal_type(18, 0), numeric_texts(18, 0)),
    (decimal_type(18, 18), numeric_texts(18, 18)),
    (decimal_type(38, 10), numeric_texts(38, 10)),
    (
        column_type("numeric", "numeric"),
        numeric_texts(30, 7) | st.sampled_from(["Infinity", "-Infinity"]),
    ),
    (TEXT, TEXTS_OF),
    (column_type("bytea", "bytea"), st.binary(max_size=20).map(lambda raw: "\\x" + raw.hex())),
    (column_type("date", "date"), _DATES),
    (column_type("timestamp", "timestamp without time zone"), _MOMENTS),
    (column_type("timestamptz", "timestamp with time zone"), _MOMENTS.map(_zoned)),
    (column_type("uuid", "uuid"), st.uuids().map(str)),
    (INTEGERS, st.lists(st.integers(-9, 999).map(str)).map(lambda v: "{" + ",".join(v) + "}")),
    (TEXTS, st.sampled_from(['{a,"b,c",NULL}', "{}", "{{a},{b}}", "[2:3]={x,y}"])),
]
