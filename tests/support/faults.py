"""Faults on purpose: a process that is killed at a named point.

The process prints a marker line and then waits, so that the kill always falls on the same point:

    print(MARKER + "committed", flush=True); threading.Event().wait()
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MARKER = "#point "
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Killed:
    """A process that reached its point and was killed there; `output` is what it printed last."""

    output: str


def kill_at(
    arguments: Sequence[str],
    point: str,
    *,
    deadline_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Killed:
    """Run `python ARGUMENTS…` until it prints `MARKER + point`, then end it by SIGKILL.

    Raises:
        AssertionError: the process ended by itself, or did not reach the point in time: a test
            of a crash must not pass without one.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environment) if environment is not None else None,
    )
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    late = threading.Timer(deadline_s, process.kill)
    late.start()
    try:
        reached = _read_to(process, MARKER + point, lines)
        process.send_signal(signal.SIGKILL)
    finally:
        late.cancel()
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    output = "".join(lines)
    assert reached, f"the process did not reach {point!r} within {deadline_s:g} s:\n{output}"
    return Killed(output)


def _read_to(process: subprocess.Popen[str], marker: str, lines: deque[str]) -> bool:
    for line in process.stdout or ():
        lines.append(line)
        if line.rstrip("\n") == marker:
            return True
    return False
