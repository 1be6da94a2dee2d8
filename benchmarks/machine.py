"""What the machine did: CPU time and memory of process trees, the noise of others."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_LOOK_S = 0.05
LONG_LOOK_S = 0.5
"""For large processes that keep what they have taken."""


def about() -> dict[str, str | int | None]:
    """Return what the figures of a benchmark say of the machine."""
    return {"machine": platform.processor() or platform.machine(), "cores": psutil.cpu_count()}


def cpu_s(*pids: int) -> float:
    """Return the CPU seconds of processes, of their children, and of those that they have reaped.

    One that is a child of another one counts once.
    """
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found |= {each.pid: each for each in [process, *process.children(recursive=True)]}
    total = 0.0
    for each in found.values():
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class Memory:
    """The greatest memory of a process and its children, as far as it was looked at."""

    def __init__(self, pid: int, *, every_s: float = _LOOK_S, alone: bool = False) -> None:
        """Start to look, not more often than every so many seconds.

        A look walks through all pages: 10 ms for 2 GB. `alone` leaves the children out.
        """
        self.pid = pid
        self._alone = alone
        self._every_s = every_s
        self.peak_mb = 0.0
        self._next = 0.0

    def look(self) -> bool:
        """Look, if it is time to; always false, for use in a condition.

        A page that several of them share counts once (PSS of proc(5), `smaps_rollup`).
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.pid)
                children = [] if self._alone else process.children(recursive=True)
                all_of_them = [process, *children]
                self.peak_mb = max(self.peak_mb, sum(_pss_mb(each.pid) for each in all_of_them))
        return False


def _pss_mb(pid: int) -> float:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        if found := re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE):
            return int(found[1]) / 1024
    return 0.0


class Noise:
    """How much of the machine others took, between two moments."""

    def __init__(self, ours: list[int]) -> None:
        """Start; `ours` are the processes that belong to the measurement."""
        self._ours = [*ours, os.getpid()]
        self._started = self._now()

    def share(self) -> float:
        """Return the share of all cores that others took since the start."""
        at, busy, ours = self._now()
        began, busy_then, ours_then = self._started
        others = (busy - busy_then) - (ours - ours_then)
        return max(0.0, others / (at - began) / (os.cpu_count() or 1))

    def _now(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return time.monotonic(), busy, cpu_s(*self._ours)


@dataclass
class Spent:
    """What something took: seconds of wall time and of CPU, and the greatest memory.

    `own_mb` is what this process took more at its peak than it had before.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    own_mb: float = 0.0


@contextmanager
def measured(pid: int) -> Iterator[Spent]:
    """Measure what runs inside, in this process and in another with its children."""
    spent, memory, done = Spent(), Memory(pid, every_s=LONG_LOOK_S), threading.Event()
    own, own_before = Memory(os.getpid(), alone=True), _pss_mb(os.getpid())

    def watch() -> None:
        memory.look()
        while not done.wait(_LOOK_S):
            memory.look()
            own.look()

    watcher = threading.Thread(target=watch, name="memory")
    began, cpu_before = time.monotonic(), cpu_s(pid) + time.process_time()
    watcher.start()
    try:
        yield spent
    finally:
        spent.seconds = time.monotonic() - began
        done.set()
        watcher.join()
        spent.cpu_s = cpu_s(pid) + time.process_time() - cpu_before
        own.look()
        spent.peak_mb = memory.peak_mb + _pss_mb(os.getpid())
        spent.own_mb = own.peak_mb - own_before
