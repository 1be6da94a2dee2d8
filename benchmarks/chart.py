"""The chart of a rebuild's time over the number of records, beside its limit and refreshes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

_LINES = {
    "rebuild_s": "rebuild, published",
    "rebuild_verified_s": "rebuild, proved and published",
    "limit_s": "limit: bare read and bare write",
    "naive_s": "window over everything decoded",
    "rows_refresh_s": "refresh of 1 %, written whole",
    "rows_marked_refresh_s": "refresh of 1 % by deletion vectors",
}


def kept(path: Path, told: Mapping[str, Any]) -> dict[str, Any]:
    """Write figures to a file, and the chart of all sizes beside it; returns what the file holds.

    What is not measured now stays as it was.
    """
    before = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    sizes = dict(before.get("sizes", {}))
    for size, found in told["sizes"].items():
        sizes[size] = {**sizes.get(size, {}), **found}
    in_order = dict(sorted(sizes.items(), key=lambda each: float(each[0])))
    whole = {**before, **told, "sizes": in_order}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    draw(in_order, path.with_suffix(".svg"))
    return whole


def draw(sizes: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw the seconds of each size, given in millions of records, as SVG."""
    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    every = {size: {**found, **found.get("refresh", {})} for size, found in sizes.items()}
    for name, label in _LINES.items():
        points = [(float(size), found[name]) for size, found in every.items() if name in found]
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
