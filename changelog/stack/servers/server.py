"""The life of every embedded server: prepare, start, wait until ready, stop, recover.

A server owns one directory: its data, its log and its pid file. Its port is given and kept. A
subclass says what to run and how to ask whether it is ready.
"""

from __future__ import annotations

import errno
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import httpx
import psutil

from changelog.contract.base.errors import StackError
from changelog.contract.base.secret import redacted
from changelog.runtime.installed.extras import pip_command
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.places import make_directory
from changelog.stack.base.ports import is_free, owner_of
from changelog.stack.base.process import (
    Launch,
    ProcessMark,
    ended,
    family,
    read_mark,
    send,
    spawn,
    stopped,
    stray,
    wait_until,
    write_mark,
)

_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_KILL_SECONDS = 10.0
_PAUSE_SECONDS = 10.0
_PORT_SECONDS = 3.0  # the kernel may close the sockets of a killed JVM a little later
_TAIL_LINES = 12
_FACT_LINES = 1_000
_ERROR_LINES = 4
_ERROR = re.compile(r"\b(ERROR|FATAL|PANIC|Exception|Caused by)\b|Exception: ")
_LOG_LIMIT_BYTES = 32 << 20
_LEAST_FREE_BYTES = 256 << 20


class Server(ABC):
    """One embedded server on 127.0.0.1."""

    name: ClassVar[str]
    executable: ClassVar[str] = "java"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory.absolute()
        self.port = port

    @property
    def log_path(self) -> Path:
        """The file that holds the server's output."""
        return self.directory / "server.log"

    @property
    def work_directory(self) -> Path:
        """The directory the server runs in."""
        return self.directory

    @property
    @abstractmethod
    def url(self) -> str:
        """The address that clients use."""

    @abstractmethod
    def prepare(self) -> None:
        """Fetch and write what the server needs before it starts; called at every start."""

    @abstractmethod
    def launch(self) -> Launch:
        """Return the command that starts the server."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Ask the server whether it serves; False when it does not answer."""

    def complete(self) -> None:  # noqa: B027 - nothing to do is a good default
        """Set up what a first start lacks, once the server is ready; called at every start."""

    @property
    def pid(self) -> int | None:
        """The process id if the server runs."""
        process = self._process()
        return process.pid if process else None

    @property
    def running(self) -> bool:
        """Whether the server's process lives; it may not be ready yet."""
        return self._process() is not None

    @property
    def crashed(self) -> bool:
        """Whether the server was started and ended without being stopped."""
        return self._mark_path.exists() and not self.running

    def state(self) -> str:
        """Return the server's state: ready, starting, paused, crashed or stopped."""
        process = self._process()
        if process is None:
            return "crashed" if self.crashed else "stopped"
        if process.status() == psutil.STATUS_STOPPED:
            return "paused"
        return "ready" if self.is_ready() else "starting"

    def memory_bytes(self) -> int:
        """Return the resident memory of the server and its children."""
        process = self._process()
        total = 0
        for member in family(process) if process else ():
            try:
                total += member.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total

    def start(self) -> float:
        """Start the server unless it runs, wait until it is ready; return the seconds it took."""
        begun = time.monotonic()
        try:
            if self.running:
                self.resume()
                self._wait_ready(None)
            else:
                self._wait_ready(self._start_process())
            self.complete()
        except OSError as error:
            raise self._refused(error) from error
        return time.monotonic() - begun

    def stop(self) -> None:
        """Stop the server in its own way, or kill it if it takes too long."""
        process = self._process()
        if process:
            members = family(process)
            send(members, signal.SIGCONT)  # one that is paused could not end
            send([process], self.stop_signal)
            if not ended(members, _STOP_SECONDS):
                send(members, signal.SIGKILL)
                ended(members, _KILL_SECONDS)
        self._remove_strays()
        self._mark_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End the server and its children at once, as a crash does: the pid file stays."""
        process = self._process()
        if process:
            members = family(process)
            send(members, signal.SIGKILL)
            ended(members, _KILL_SECONDS)

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing answers. It is frozen on return."""
        members = self._members()
        send(members, signal.SIGSTOP)
        if not stopped(members, _PAUSE_SECONDS):
            raise StackError(f"{self.name} did not stop on SIGSTOP in {_PAUSE_SECONDS} s")

    def resume(self) -> None:
        """Continue a paused server."""
        send(self._members(), signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tail(self, lines: int = _TAIL_LINES, start_of_log: int = 0) -> str:
        """Return the last lines of the log, passwords removed."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, 2)
                log.seek(max(start_of_log, log.tell() - lines * 2048))
                text = log.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return redacted("\n".join(text.splitlines()[-lines:]))

    @property
    def _mark_path(self) -> Path:
        return self.directory / "process.json"

    def _process(self) -> psutil.Process | None:
        mark = read_mark(self._mark_path)
        return mark.process() if mark else None

    def _members(self) -> list[psutil.Process]:
        process = self._process()
        if process is None:
            raise StackError(f"{self.name} does not run")
        return family(process)

    def _start_process(self) -> int:
        make_directory(self.directory)
        self._remove_strays()
        self._check_space()
        if not wait_until(lambda: is_free(self.port), _PORT_SECONDS):
            owner = owner_of(self.port)
            raise StackError(
                f"port {self.port} for {self.name} is taken{f' by {owner}' if owner else ''}",
                hint="choose another port, or end the other server if it is yours",
            )
        self.prepare()
        start_of_log = self._rotate_log()
        write_mark(self._mark_path, self._spawn())
        return start_of_log

    def _spawn(self) -> ProcessMark:
        launch = self.launch()
        if not Path(launch.argv[0]).is_file():
            raise StackError(
                f"{self.name}: the executable {launch.argv[0]} is missing",
                hint=pip_command("stack"),
            )
        return spawn(launch, self.log_path)

    def _wait_ready(self, start_of_log: int | None) -> None:
        """Wait until the server serves; one that this call started is stopped if it does not."""
        settled = wait_until(lambda: not self.running or self.is_ready(), _READY_SECONDS)
        if settled and self.running:
            return
        outcome = "ended while it started" if settled else f"not ready after {_READY_SECONDS:.0f} s"
        tail = _telling(self.tail(_FACT_LINES, start_of_log=start_of_log or 0))
        if start_of_log is not None:
            self.stop()
        hint = f"the whole log: {self.log_path}"
        if "No space left on device" in tail:
            outcome, hint = "ended: no space left on its disk", f"make room on {self.directory}"
        raise StackError(f"{self.name} {outcome}; its last lines:\n{tail}\n", hint=hint)

    def _rotate_log(self) -> int:
        try:
            size = self.log_path.stat().st_size
        except FileNotFoundError:
            return 0
        if size < _LOG_LIMIT_BYTES:
            return size
        self.log_path.replace(self.log_path.with_name("server.log.1"))
        return 0

    def _remove_strays(self) -> None:
        strays = stray((self.directory, self.work_directory), self.executable)
        if strays:
            send(strays, signal.SIGKILL)
            ended(strays, _KILL_SECONDS)

    def _check_space(self) -> None:
        if shutil.disk_usage(self.directory).free < _LEAST_FREE_BYTES:
            raise self._full()

    def _full(self) -> StackError:
        return StackError(
            f"{self.name}: no space left on the disk of {self.directory}",
            hint=f"at least {_LEAST_FREE_BYTES >> 20} MiB must be free; make room or use --dir",
        )

    def _refused(self, error: OSError) -> StackError:
        if error.errno == errno.ENOSPC:
            return self._full()
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        return StackError(f"{self.name} cannot be started: {reason}")


def _telling(text: str) -> str:
    """Return the lines of a log that explain an end: its first errors and its last lines.

    An orderly end prints much after the reason. Java's stack frames are left out: they hide it.
    """
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
    before, last = lines[:-_TAIL_LINES], lines[-_TAIL_LINES:]
    errors = [line for line in before if _ERROR.search(line)]
    return "\n".join([*errors[:_ERROR_LINES], *last])


def probe(url: str, timeout_s: float) -> httpx.Response | None:
    """Return the answer to a GET, or None while the server gives none."""
    try:
        return httpx.get(url, timeout=timeout_s, trust_env=False, verify=authorities())
    except httpx.HTTPError:
        return None
