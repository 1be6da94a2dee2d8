"""Numbers of days and of parts of a second since 1970 as ISO 8601, of any year. Pure.

The forms are those of `changelog.contract.forms.document`: years of more than four digits stand as
they are, years BC have PostgreSQL's ` BC` behind, a fraction has no zeros at its end.
"""

from __future__ import annotations

from datetime import datetime, timedelta

_DAY_S = 86_400
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by ourselves
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_800  # seconds since 1970 of the years 1 to 9999
_ERA_DAYS = 146_097
_FIRST_DAY = 719_468  # from 0000-03-01 to 1970-01-01
_MARCH = 3


def date_text(days: int) -> str:
    """Return the date of a number of days since 1970.

    >>> date_text(19_753)
    '2024-01-31'
    """
    date, era = _date(days)
    return date + era


def moment_text(since: int, *, digits: int = 6, zoned: bool = True) -> str:
    """Return a moment in UTC.

    >>> moment_text(1_706_704_496_789_000)
    '2024-01-31T12:34:56.789+00:00'

    `since` counts parts of a second since 1970, with so many digits: 3 for milliseconds, 6 for
    microseconds.
    """
    seconds, fraction = divmod(since, 10**digits)
    zone = "+00:00" if zoned else ""
    if _FIRST_S <= seconds < _LAST_S:  # what Python knows it writes several times faster
        behind = _fraction(fraction, digits) if fraction else ""
        return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}{behind}{zone}"
    days, clock = divmod(seconds, _DAY_S)
    date, era = _date(days)
    return f"{date}T{_clock(clock, fraction, digits)}{zone}{era}"


def time_text(parts: int, *, digits: int) -> str:
    """Return a time of day; `parts` of a second since midnight."""
    seconds, fraction = divmod(parts, 10**digits)
    return _clock(seconds, fraction, digits)


def _clock(seconds: int, fraction: int, digits: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{_fraction(fraction, digits) if fraction else ''}"


def _fraction(fraction: int, digits: int) -> str:
    return f".{fraction:0{digits}d}".rstrip("0")


def _date(days: int) -> tuple[str, str]:
    """Return year, month and day with the era: the inverse of `days_from_civil`."""
    era, of_era = divmod(days + _FIRST_DAY, _ERA_DAYS)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    place = (5 * of_year + 2) // 153
    day = of_year - (153 * place + 2) // 5 + 1
    month = place + _MARCH if place < 10 else place - 9  # noqa: PLR2004 - March is the first one
    year = year_of_era + era * 400 + (month < _MARCH)
    shown, behind = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04d}-{month:02d}-{day:02d}", behind
