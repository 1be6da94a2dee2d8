"""Constant dates and moments: which ones the engines read alike, and what to write for others."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DAY}([ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?)?"
MOMENTS = {"date": _DAY, "timestamp": _MOMENT, "timestamp_ntz": _MOMENT}
"""The texts that both engines cast to the same day or moment."""
_OFFSET = re.compile(
    f"{_DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}(:[0-9]{{2}})?)"
)
"""A moment with its offset from UTC, as PostgreSQL shows one; Spark reads it, DuckDB drops it."""


def as_moment(text: str, kind: str) -> str | None:
    """Return a text that both engines read as the same moment; None if there is none."""
    if re.fullmatch(MOMENTS[kind], text):
        return text if is_real(text) else None
    if kind != "timestamp" or not _OFFSET.fullmatch(text):
        return None
    try:
        utc = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return utc.replace(tzinfo=None).isoformat(sep=" ")


def is_real(text: str) -> bool:
    """Tell whether a text is a real day and time: no 30th of February, no year 0, no hour 25."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def no_moment(text: str, kind: str) -> str:
    """Return the reason why a constant is not proved as a date or moment, and what to write."""
    past = re.fullmatch(rf"({_DAY})\s+BC", text.strip(), re.IGNORECASE)
    if past and kind == "date" and (day := _before_christ(past[1])):
        return (
            f"'{text}' is read otherwise by Spark, which counts years before the first as 0, -1 "
            f"and so on: write {day}"
        )
    if text.strip().lower() in {"infinity", "-infinity"}:
        end = "9999-12-31" if kind == "date" else "9999-12-31 23:59:59.999999"
        first = "0001-01-01" if kind == "date" else "0001-01-01 00:00:00"
        instead = first if text.strip().startswith("-") else end
        return (
            f"Spark knows no infinite {kind}: write '{instead}', or whichever {kind} lies beyond "
            "those that count"
        )
    if re.fullmatch(_MOMENT, text):
        return f"there is no such {kind} as '{text}'"
    form = "YYYY-MM-DD" if kind == "date" else "YYYY-MM-DD hh:mm:ss"
    return (
        f"'{text}' is no {kind} that both engines read: write it as {form}, with a year from 0001 "
        "to 9999" + ("" if kind == "date" else ", in UTC and without a zone")
    )


def _before_christ(text: str) -> str | None:
    """Return Spark's expression of a day BC, like `make_date(-43, 3, 15)`."""
    year, month, day = map(int, text.split("-"))
    try:
        date(2000 if year % 4 == 1 else 2001, month, day)
    except ValueError:
        return None
    return f"make_date({1 - year}, {month}, {day})" if year else None
