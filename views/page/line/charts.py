"""Small bar charts of a view's rebuilds, as values that a template draws. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from views.generations.history import SEALED, HistoryRow

MOST = 40
"""Most rebuilds that a chart shows."""
HEIGHT, STEP, WIDE = 72, 12, 8


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of one rebuild in a chart."""

    x: int  # left edge
    y: int  # upper edge
    height: int  # at least 1
    title: str  # generation, time and value


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart, whose scale reaches from 0 to the largest value."""

    title: str  # the name of the values
    last: str  # the newest value, as text
    most: str  # the largest value, as text
    bars: tuple[Bar, ...]  # a bar for each rebuild, oldest first

    @property
    def width(self) -> int:
        """Return the width of the chart."""
        return max(len(self.bars) * STEP, STEP)


def charts(rows: Sequence[HistoryRow]) -> list[Chart]:
    """Return charts of a view's rebuilds: rows, seconds, records read; none for one rebuild."""
    built = [row for row in rows if row.state == SEALED][-MOST:]
    if len(built) < 2:  # noqa: PLR2004 - a single bar compares nothing
        return []
    return [
        _chart("rows", built, [float(row.rows or 0) for row in built], ""),
        _chart("seconds", built, [float(row.seconds.get("total", 0)) for row in built], " s"),
        _chart("records read", built, [float(row.records_read or 0) for row in built], ""),
    ]


def _chart(title: str, built: Sequence[HistoryRow], values: Sequence[float], unit: str) -> Chart:
    most = max(values)

    def formatted(value: float) -> str:
        return f"{value:,.1f}{unit}" if unit else f"{value:,.0f}"

    bars = []
    for number, (row, value) in enumerate(zip(built, values, strict=True)):
        height = max(round(value / most * HEIGHT), 1) if most else 1
        text = f"generation {row.generation}, {row.at:%Y-%m-%d %H:%M}: {formatted(value)}"
        bars.append(Bar(number * STEP, HEIGHT - height, height, text))
    return Chart(title, formatted(values[-1]), formatted(most), tuple(bars))
