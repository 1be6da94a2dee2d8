"""The growth of a view's rebuilds: small charts, and a comparison of time with data.

Only rebuilds that read the log from its start are compared; those that failed and refreshes took
another way. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from views.generations.history import SEALED, HistoryRow

MOST = 24
"""Rebuilds that a chart shows."""
_FEWEST = 6
_GROWN = 1.5
_BARS = "▁▂▃▄▅▆▇█"
_START = "start"


@dataclass(frozen=True, slots=True)
class Trend:
    """The last full rebuilds of one view, oldest first."""

    view: str  # its name
    rows: tuple[int, ...]  # that each had
    records: tuple[int, ...]  # that each read
    seconds: tuple[float, ...]  # that each took

    @property
    def growth(self) -> float | None:
        """Return the growth of seconds a record, from the medians of the first and the last third.

        None where there are too few rebuilds to say.
        """
        if len(self.seconds) < _FEWEST:
            return None
        seconds_a_record = [s / max(r, 1) for s, r in zip(self.seconds, self.records, strict=True)]
        third = len(seconds_a_record) // 3
        before, now = median(seconds_a_record[:third]), median(seconds_a_record[-third:])
        return now / before if before > 0 else None

    @property
    def outgrows(self) -> bool:
        """Tell whether the duration of rebuilds grows faster than their data."""
        return self.growth is not None and self.growth >= _GROWN

    def line(self) -> str:
        """Return it for people."""
        text = (
            f"{self.view}: rows {sparkline(self.rows)} {self.rows[-1]:,}, "
            f"seconds {sparkline(self.seconds)} {self.seconds[-1]:,.1f}"
        )
        if self.growth is not None and self.outgrows:
            text += (
                f"; warning: {self.growth:.1f} times the time for a record of the first of these"
            )
        return text


def trends(rows: Iterable[HistoryRow]) -> list[Trend]:
    """Return the trend of each view that was rebuilt at least twice."""
    by_view: dict[str, list[HistoryRow]] = {}
    for row in rows:
        if row.state == SEALED and row.origin == _START and "total" in row.seconds:
            by_view.setdefault(row.view, []).append(row)
    return [
        _trend(view, view_rows[-MOST:])
        for view, view_rows in sorted(by_view.items())
        if len(view_rows) > 1
    ]


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, from nothing to the largest."""
    most = max(values, default=0)
    if most <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(int(value / most * len(_BARS)), len(_BARS) - 1)] for value in values)


def _trend(view: str, rows: Sequence[HistoryRow]) -> Trend:
    return Trend(
        view,
        tuple(row.rows or 0 for row in rows),
        tuple(row.records_read or 0 for row in rows),
        tuple(float(row.seconds["total"]) for row in rows),
    )
