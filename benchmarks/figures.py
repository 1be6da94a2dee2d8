"""What was measured over several runs: each figure's median."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path


class Figures:
    """What was measured, over the runs."""

    def __init__(self) -> None:
        self._all: dict[str, list[float]] = defaultdict(list)
        self.peak_mb = 0.0

    def add(self, name: str, value: float) -> None:
        """Keep one figure."""
        self._all[name].append(value)

    def medians(self) -> dict[str, float]:
        """Return the median of each."""
        return {name: round(statistics.median(found), 4) for name, found in self._all.items()}


def say(text: str) -> None:
    """Write a line of progress."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def tell(told: Mapping[str, object], out: Path | None) -> None:
    """Print the figures as one line, the last one; and write them to a file that is asked for."""
    if out is not None:
        out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told))
