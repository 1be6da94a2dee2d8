"""Start commands of ours as forks of a process that has imported them already.

Most commands of a test import for longer than they work. A fork is a process of its own all the
same: it has its own arguments, environment, folder and streams, and can be killed. It is a child
of the tests' process, as `subprocess` expects: the process that forked it ends at once, and the
tests adopt it (PR_SET_CHILD_SUBREAPER of prctl(2)).

`python -m tests.support.warm NUMBER` is the process that forks, on the socket of that number.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_CAPTURES = "tests.support.crashing_capture"
_RUN = ("changelog", _CAPTURES)
"""Modules that are run with `-m`; those that start Spark gain little."""
_LOADED = (
    _CAPTURES,
    "changelog.commands",
    "changelog.capture.inspect.status",
    "changelog.sink.registry",
)
_READ_ONCE = ("CHANGELOG_", "PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "TERM", "FORCE_COLOR")
"""Variables that are read when a module is imported; with others a command starts cold."""
_ROOT = Path(__file__).parents[2]
_SUBREAPER = 36
_MOST = 1 << 20

_prctl = ctypes.CDLL(None).prctl
_cold = subprocess._fork_exec  # type: ignore[attr-defined]
_lock = threading.Lock()
_sockets: dict[int, socket.socket] = {}
"""The socket of each process that has asked: a fork of the tests needs its own."""


def install() -> None:
    """Let `subprocess` start our commands warm in this process."""
    subprocess._fork_exec = _fork_exec  # type: ignore[attr-defined]


def _fork_exec(
    args: Sequence[Any],
    executables: Any,
    close_fds: bool,
    keep: Any,
    cwd: Any,
    env: Any,
    *more: Any,
) -> int:
    """Do as `_posixsubprocess.fork_exec` does, which says what each argument is."""
    words = [os.fsdecode(word) for word in args]
    (stdin, _, _, stdout, _, stderr, _, error_write, _, *unusual, umask, preexec, _) = more
    environment = dict(os.environ)
    if env is not None:
        environment = dict(os.fsdecode(each).split("=", 1) for each in env)
    is_plain = (
        words[:2] == [sys.executable, "-m"]
        and words[2:3]
        and words[2] in _RUN
        and [*keep] == [error_write]
        and unusual == [False, -1, None, None, None]
        and umask == -1
        and preexec is None
        and _read_once(environment) == _read_once(os.environ)
    )
    streams = [own if own != -1 else at for at, own in enumerate((stdin, stdout, stderr))]
    # A console measures its terminal when it is made.
    if not is_plain or any(map(os.isatty, streams)):
        pid: int = _cold(args, executables, close_fds, keep, cwd, env, *more)
        return pid
    folder = str(Path.cwd()) if cwd is None else os.fsdecode(cwd)
    job = json.dumps([words, folder, environment]).encode()
    with _lock:
        connected = _sockets.get(os.getpid()) or _start()
        # Only for this moment: servers that make themselves orphans belong to nobody here.
        _prctl(_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(connected, [job], streams)
            return int(connected.recv(_MOST))
        finally:
            _prctl(_SUBREAPER, 0, 0, 0, 0)


def _read_once(environment: Any) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_READ_ONCE)}


def _start() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        os.set_inheritable(theirs.fileno(), True)
        # A test may have gone to another folder, where Python does not find this module.
        run = (
            f"import runpy, sys; sys.path.insert(0, {str(_ROOT)!r});"
            f" runpy.run_module({__name__!r}, run_name='__main__')"
        )
        words = [sys.executable, "-c", run, str(theirs.fileno())]
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        os.posix_spawn(sys.executable, words, os.environ, file_actions=[nothing])
    _sockets[os.getpid()] = ours
    return ours


def _serve(connected: socket.socket) -> tuple[list[str], str, dict[str, str]] | None:
    """Fork for each job; returns the job in a fork, and None in the end."""
    while True:
        job, streams, _, _ = socket.recv_fds(connected, _MOST, 3)
        if not job:
            return None
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            parent = os.getpid()
            child = os.fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            while os.getppid() == parent:
                time.sleep(0.0002)
            for each in (reader, writer, connected.detach()):
                os.close(each)
            for number, each in enumerate(streams):
                os.dup2(each, number)
                os.close(each)
            words, folder, environment = json.loads(job)
            return words, folder, environment
        os.waitpid(middle, 0)
        connected.send(os.read(reader, 100))
        for each in (reader, writer, *streams):
            os.close(each)


def _become(words: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be the process that `python -m …` would be at its start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.orig_argv, sys.path[0] = words[2:], words, folder
    sys.stdin = open(0, encoding=sys.stdin.encoding)  # noqa: SIM115 - for good
    for number, name in ((1, "stdout"), (2, "stderr")):
        old, buffering = getattr(sys, name), 1 if number == 2 or os.isatty(number) else -1
        new = open(number, "w", buffering, old.encoding, old.errors)  # noqa: PTH123, SIM115 - for good
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def main() -> None:
    """Import, wait for jobs, and in each fork go on as the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _LOADED:
        importlib.import_module(name)
    # It is run as the main module, which was not imported before.
    del sys.modules[_CAPTURES]
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    job = _serve(socket.socket(fileno=int(sys.argv[1])))
    if job is not None:
        _become(*job)
        runpy.run_module(job[0][2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
