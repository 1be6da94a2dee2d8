"""Numbers and moments as people read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_TIMES = (("d", 86_400), ("h", 3_600), ("min", 60))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float | None) -> str:
    """Return a time in the largest unit of which it is at least two.

    >>> duration(0.04), duration(90), duration(7200), duration(None)
    ('0.0 s', '90 s', '120 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    for unit, size in _TIMES:
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:,.1f} s"  # noqa: PLR2004


def size(count: int | None) -> str:
    """Return bytes in the largest unit of which they are at least two.

    >>> size(0), size(2048), size(None)
    ('0 bytes', '2.0 KiB', 'unknown')
    """
    if count is None:
        return "unknown"
    value, unit = float(count), 0
    while value >= 2048 and unit < len(_SIZES) - 1:  # noqa: PLR2004
        value, unit = value / 1024, unit + 1
    return f"{value:,.1f} {_SIZES[unit]}" if unit else f"{count:,} bytes"


def moment(at: datetime | str | None) -> str:
    """Return a moment in UTC, to the second.

    >>> moment("2026-01-31T12:00:00.5+00:00"), moment(None)
    ('2026-01-31 12:00:00 UTC', '')
    """
    if at is None:
        return ""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: datetime, now: datetime) -> str:
    """Return the time since a moment, as text."""
    return f"{duration(max((now - at).total_seconds(), 0.0))} ago"
