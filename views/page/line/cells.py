"""Texts of the page that change while it is open, by name.

A template writes each cell into the page; the stream then sends the cells that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from views.page.line.sources import Line
from views.page.line.standing import LineStanding, ViewLine


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, with the severity of its subject."""

    text: str
    state: str = ""  # `ok`, `note`, `unknown` or `problem`; empty for none


def cells(line: Line) -> dict[str, Cell]:
    """Return all cells of a line's page, by name."""
    return dict(_all(line))


def _all(line: Line) -> Iterator[tuple[str, Cell]]:
    yield "at", Cell(moment(line.seen_at))
    yield "worst", Cell(line.worst.word, line.worst.word)
    yield from _standing("source", line.source)
    yield from _standing("log", line.log)
    yield from _capture(line)
    for view in line.views:
        yield from _view(view, line)


def _standing(name: str, standing: LineStanding) -> Iterator[tuple[str, Cell]]:
    yield f"{name}.state", Cell(standing.level.word, standing.level.word)
    yield f"{name}.said", Cell(standing.text)
    yield f"{name}.mend", Cell(standing.mend)


def _capture(line: Line) -> Iterator[tuple[str, Cell]]:
    status = line.capture.value
    if status is None:
        for name in ("lag", "behind", "frontier", "wal", "retained", "slot", "room"):
            yield f"capture.{name}", Cell("unknown")
        return
    yield "capture.slot", Cell(_slot(status))
    yield "capture.lag", Cell(duration(status["lag_s"]))
    yield "capture.behind", Cell(size(status["lag_bytes"]))
    yield "capture.frontier", Cell(_frontier(status))
    yield "capture.wal", Cell(status["wal_lsn"] or "unknown")
    yield "capture.retained", Cell(size(status["retained_bytes"]))
    yield "capture.room", Cell(_room(status["reserves"]))


def _slot(status: Mapping[str, Any]) -> str:
    if status["exists"] is None:
        return "unknown"
    active = {True: "active", False: "idle", None: "missing"}[status["active"]]
    return f"{active}, WAL {status['wal_status'] or 'none'}"


def _frontier(status: Mapping[str, Any]) -> str:
    """Return the frontier's LSN, and its age if its lag is unknown because the source is away."""
    frontier = status["frontier"]
    if frontier is None:
        return "unknown" if "log" in status["unanswered"] else "none yet"
    age = f", {duration(frontier['age_s'])} old" if "source" in status["unanswered"] else ""
    return f"{frontier['lsn']}{age}"


def _room(reserves: list[dict[str, object]] | None) -> str:
    if reserves is None:
        return "unknown"
    if not reserves:
        return "no limit is set"
    nearest = reserves[0]
    bytes_left, seconds = nearest.get("bytes_left"), nearest.get("seconds_left")
    room = size(bytes_left if isinstance(bytes_left, int) else None)
    text = f"{room} until {nearest.get('limit')}"
    if isinstance(seconds, int | float):
        text += f", {duration(float(seconds))} at this rate"
    return text


def _view(view: ViewLine, line: Line) -> Iterator[tuple[str, Cell]]:
    name = f"view.{view.declared.name}"
    yield from _standing(name, view.worst)
    yield f"{name}.lag", Cell(_lag(view))
    yield f"{name}.behind", Cell("" if view.serving is None else size(view.lag_bytes))
    yield f"{name}.lsn", Cell(view.lsn or "")
    yield f"{name}.generation", Cell(_generation(view))
    yield f"{name}.proof", Cell(view.proof)
    last = view.last
    yield f"{name}.last", Cell("" if last is None else f"{last.state} {_ago(last.at, line.at)}")
    yield f"{name}.next", Cell("not scheduled" if view.next is None else moment(view.next))


def _lag(view: ViewLine) -> str:
    if view.serving is None:
        return ""
    return "unknown" if view.lag_s is None else f"at most {duration(view.lag_s)}"


def _generation(view: ViewLine) -> str:
    if view.serving is None:
        return ""
    rows = "" if view.rows is None else f", {view.rows:,} rows"
    return f"generation {view.serving}{rows}"


_TIMES = (("d", 86_400), ("h", 3_600), ("min", 60))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float | None) -> str:
    """Return a duration in the largest unit of which it has at least two.

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
    """Return a number of bytes in the largest unit of which it has at least two.

    >>> size(0), size(2048), size(None)
    ('0 bytes', '2.0 KiB', 'unknown')
    """
    if count is None:
        return "unknown"
    value, unit = float(count), 0
    while value >= 2048 and unit < len(_SIZES) - 1:  # noqa: PLR2004
        value, unit = value / 1024, unit + 1
    return f"{value:,.1f} {_SIZES[unit]}" if unit else f"{count:,} bytes"


def moment(time: datetime | str | None) -> str:
    """Return a moment as text in UTC, to the second; empty for None.

    >>> moment("2026-01-31T12:00:00.5+00:00"), moment(None)
    ('2026-01-31 12:00:00 UTC', '')
    """
    if time is None:
        return ""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ago(time: datetime, now: datetime) -> str:
    """Return the time since a moment, as text."""
    return f"{duration(max((now - time).total_seconds(), 0.0))} ago"
