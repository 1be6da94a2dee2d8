"""One process of ours: recognised by pid and start time, so that a pid used again is never ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# How far apart two readings of one process's start may be: psutil derives it from the boot time.
_START_TOLERANCE_SECONDS = 1.0
_POLL_SECONDS = 0.02

# Children stay here until they have ended: a forgotten Popen warns, and an ended child that nobody
# waits for stays in the process table.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The command line, directory and environment of a server."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    user: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process that was started: what its pid file holds."""

    pid: int
    started: float

    def process(self) -> psutil.Process | None:
        """Return the process if it still runs; None if it ended, also when its pid lives on."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _START_TOLERANCE_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def read_mark(path: Path) -> ProcessMark | None:
    """Read a pid file; None if there is none or it was torn by a crash."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return ProcessMark(int(content["pid"]), float(content["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_mark(path: Path, mark: ProcessMark) -> None:
    """Write a pid file in one step."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps({"pid": mark.pid, "started": mark.started}), "utf-8")
    draft.replace(path)


def spawn(launch: Launch, log: Path) -> ProcessMark:
    """Start a process that outlives us, in a session of its own, with its output in `log`."""
    uid, gid = launch.user or (None, None)
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - our own commands
            list(launch.argv),
            cwd=launch.cwd,
            env={**os.environ, **launch.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=uid,
            group=gid,
            extra_groups=[] if launch.user else None,
        )
    _children[child.pid] = child
    return ProcessMark(child.pid, psutil.Process(child.pid).create_time())


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return the process and all that descend from it."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(processes: Collection[psutil.Process], sign: signal.Signals) -> None:
    """Send a signal to each process that still runs."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(sign)


def ended(processes: Collection[psutil.Process], timeout_seconds: float) -> bool:
    """Wait until all `processes` have ended; say whether they did in time."""
    return wait_until(lambda: not any(_runs(process) for process in processes), timeout_seconds)


def stopped(processes: Collection[psutil.Process], timeout_seconds: float) -> bool:
    """Wait until SIGSTOP has stopped all `processes`; say whether it did in time.

    The signal only asks: a process of many threads stops some time after `kill` returned.
    """
    return wait_until(lambda: all(_is_stopped(process) for process in processes), timeout_seconds)


def stray(directories: Collection[Path], executable: str) -> list[psutil.Process]:
    """Return processes called `executable` that work in one of `directories`.

    They are ours: a server whose pid file was lost, or what a killed server left behind. The
    working directory tells, because servers overwrite their environment with their title.
    """
    ours = {str(directory) for directory in directories}
    strays = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == executable and process.cwd() in ours:
                strays.append(process)
    return strays


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Ask `condition` again and again until it holds; False when the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return True


def _runs(process: psutil.Process) -> bool:
    child = _children.get(process.pid)
    if child is not None:  # a killed JVM looks like a zombie while its threads still hold ports
        if child.poll() is None:
            return True
        del _children[process.pid]
        return False
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
