"""What the machine did: CPU time and memory of process trees, the noise of others."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import psutil


def cpu_s(pid: int) -> float:
    """Give the CPU seconds of a process, of its children, and of those that it has reaped."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        total = 0.0
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total
    return 0.0


def peak_mb(pid: int) -> float:
    """Give the peak resident memory of a process and of the children that live now, summed."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(OSError):
                status = Path(f"/proc/{each.pid}/status").read_text(encoding="ascii")
                if found := re.search(r"VmHWM:\s+(\d+)", status):
                    total += int(found[1]) / 1024
    return total


def forget_peak(pid: int) -> None:
    """Start the peak of a process anew."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


class Noise:
    """How much of the machine others took, between two moments."""

    def __init__(self, ours: list[int]) -> None:
        """Start; `ours` are the processes that belong to the measurement."""
        self._ours = [*ours, os.getpid()]
        self._started = self._now()

    def share(self) -> float:
        """Give the share of all cores that others took since the start."""
        at, busy, ours = self._now()
        began, busy_then, ours_then = self._started
        others = (busy - busy_then) - (ours - ours_then)
        return max(0.0, others / (at - began) / (os.cpu_count() or 1))

    def _now(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return time.monotonic(), busy, sum(map(cpu_s, self._ours))
