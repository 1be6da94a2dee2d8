"""What another program reached on the same work, from the lines that its own measurement wrote.

One JSON object a line, with `phase` and `profile`: a drain has `drain_rate` (rows a second after
the first message), `rss_mb` and `cpu_us` (a row); the phase `latency` has `p50` and `p99` in
milliseconds, and `cores`.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path

DRAINS = {
    "snapshot": "snapshot",
    "update500k-1txn": "stream",
    "update200k-200ktxn": "single",
    "delete50k-1txn": "deletes",
}
_LATENCY = {"p50": "latency_p50_ms", "p99": "latency_p99_ms", "cores": "latency_cores"}


def debezium(path: Path, profile: str) -> dict[str, float]:
    """Return the medians of Debezium's runs, each name after `debezium_`.

    Args:
        path: the lines; latency is told of every profile that was measured.
        profile: the settings whose drains count.
    """
    found: dict[str, list[float]] = defaultdict(list)
    peaks = [0.0]
    for line in path.read_text("utf-8").splitlines():
        run = json.loads(line)
        phase, name = run["phase"], run["profile"]
        if phase == "latency":
            for key, told in _LATENCY.items():
                found[f"{told}_{name.replace('-', '_')}"].append(run[key])
        elif name == profile and phase in DRAINS:
            drain = DRAINS[phase]
            found[f"{drain}_per_s"].append(run["drain_rate"])
            found[f"{drain}_cpu_us_per_row"].append(run["cpu_us"])
            peaks.append(run["rss_mb"])
    medians = {f"debezium_{key}": statistics.median(runs) for key, runs in found.items()}
    return {**medians, "debezium_peak_mb": max(peaks)} if medians else {}


def beside(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """Return how many times as fast as Debezium each drain was."""
    return {
        f"{drain}_vs_debezium": round(ours[f"{drain}_per_s"] / theirs[name], 2)
        for drain in DRAINS.values()
        if (name := f"debezium_{drain}_per_s") in theirs
    }
