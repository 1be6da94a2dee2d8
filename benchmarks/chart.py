"""The chart of a rebuild's time over the number of records, beside its limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

_LINES = {
    "rebuild_s": "rebuild, published",
    "limit_s": "limit: bare read and bare write",
    "naive_s": "window over everything decoded",
}


def draw(sizes: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw the seconds of each size, given in millions of records, as SVG."""
    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    for name, label in _LINES.items():
        points = [(float(size), found[name]) for size, found in sizes.items() if name in found]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label)
    axes.set(xlabel="million records, five for each key", ylabel="seconds")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    # The same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "replay"}):
        figure.savefig(path, metadata={"Date": None})
