"""Rows at the edges of their types, over which expressions are computed by several engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from changelog.contract.rows.types import ColumnType, array_type, column_type

PLACE = Path(__file__).parents[1] / "fixtures" / "expressions.txt"
COLUMNS = {
    "k": ("int", "int"),
    "a": ("int", "int"),
    "g": ("bigint", "bigint"),
    "sm": ("smallint", "smallint"),
    "r": ("float", "real"),
    "d": ("double", "double precision"),
    "n": ("decimal(10,3)", "numeric(10,3)"),
    "m": ("decimal(38,10)", "numeric(38,10)"),
    "s": ("string", "text"),
    "dt": ("date", "date"),
    "ts": ("timestamp_ntz", "timestamp"),
    "tz": ("timestamp", "timestamptz"),
    "f": ("boolean", "boolean"),
    "b": ("binary", "bytea"),
    "l": ("array<int>", "int[]"),
}
"""Of each column its type in Spark and in PostgreSQL."""
PROVED = ("everywhere", "otherwise", "spark")
"""The sections of lines that the verifier computes as Spark does."""
_AT_ONCE = 40
_D, _T, _INF, _NAN = Decimal, datetime.fromisoformat, float("inf"), float("nan")


def _Z(text: str) -> datetime:  # noqa: N802
    return _T(text).replace(tzinfo=UTC)


# fmt: off
ROWS = [
    (1, 5, 2**62, 3, 0.1, 0.1, _D("1.250"), _D("1.5"), "O'Brien", date(2024, 2, 29),
     _T("2024-02-29T13:05:07.123456"), _Z("2024-02-29T13:05:07.123456"), True, b"ab", [3, 1]),
    (2, -7, -5, -3, -1.5, -1.5, _D("9999999.999"), _D("-2.55"), "\u00a0 x \u00a0",
     date(1999, 12, 31), _T("1969-12-31T23:00:00"), _Z("1969-12-31T23:00:00"), False, b"", []),
    (3, 2**31 - 1, 2**63 - 1, 2**15 - 1, _NAN, _NAN, _D("-9999999.999"), _D("1e27"), "",
     date(1, 1, 1), _T("2000-01-01T00:00:00"), _Z("2000-03-26T01:30:00"), None, None, None),
    (4, -(2**31), -(2**63), -(2**15), _INF, -_INF, _D("0.005"), _D(0), "\t a\\b%_\n",
     date(9999, 12, 31), _T("9999-12-31T23:59:59.999999"), _Z("2024-10-27T00:30:00"), True,
     b"\x00\xff", [0, 0, None]),
    (5, 0, 0, 0, -0.0, -0.0, _D(0), _D("-0.0000000001"), "ÄßI\u0131\u0130😀e\u0301",
     date(2020, 2, 29), _T("2024-12-30T00:00:00.500000"), _Z("1900-01-01T00:00:00"), False,
     b"\xc3\xa4", [7]),
    (6, *[None] * 14),
    (7, 12, 12, 12, 3.4028235e38, 1e308, _D("2.500"), _D("2.5"), "12", date(2021, 1, 3),
     _T("2021-01-03T00:00:01"), _Z("2021-01-03T00:00:01"), True, b"12", [12]),
    (8, 3, 3, 3, 2.5, 2.5, _D("-2.500"), _D("-2.5"), "2024-02-30", date(2020, 12, 28),
     _T("2020-12-28T00:00:00"), _Z("2020-12-28T00:00:00"), True, b"x", [1, 2]),
    (9, 4, 4, 4, 16777216.0, 0.1 + 0.2, _D("0.1"), _D("0.1"), "1e3", date(1970, 1, 1),
     _T("0001-01-01T00:00:00"), _Z("0001-01-01T00:00:00"), True, b"x", [1, 2]),
]
# fmt: on


def column_types() -> dict[str, ColumnType]:
    named = {"boolean": "bool", "real": "float4", "double precision": "float8"}
    named |= {"smallint": "int2", "int": "int4", "bigint": "int8"}
    formatted = {"int": "integer", "timestamp": "timestamp without time zone"}
    formatted |= {"timestamptz": "timestamp with time zone"}
    found = {}
    for name, (_, kind) in COLUMNS.items():
        one = kind.removesuffix("[]")
        base = column_type(named.get(one, one.partition("(")[0]), formatted.get(one, one))
        found[name] = array_type(base, kind) if kind.endswith("[]") else base
    return found


def expressions(section: str) -> list[str]:
    """Return the lines of a section of the file: an expression each, or a whole query."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in PLACE.read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("# "):
            lines.append(line)
    return found[section]


def query_of(line: str) -> str:
    """Return a query of columns `k` and `x0` for a line."""
    ((query, _),) = queries_of([line])
    return query


def queries_of(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield queries of `k` and the lines' values as `x0`, `x1`, …, some lines at a time."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(("SELECT", "WITH")):
            yield line, [line]
        else:
            groups.setdefault(line.partition(" ### ")[2], []).append(line)
    for condition, group in groups.items():
        for some in (group[first : first + _AT_ONCE] for first in range(0, len(group), _AT_ONCE)):
            values = (f"{each.partition(' ### ')[0]} AS x{n}" for n, each in enumerate(some))
            where = f" WHERE {condition}" if condition else ""
            yield f"SELECT k, {', '.join(values)} FROM t{where}", some
