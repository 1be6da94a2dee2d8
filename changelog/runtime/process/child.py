"""Child processes that speak pickle with us over pipes.

`multiprocessing` would import the caller's main module again, which a script or a notebook may not
survive. A child ends with its parent, and leaves Ctrl-C to it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.imports import SAFE_PATH
from changelog.runtime.process.garbage_collection import collect_rarely

_PR_SET_PDEATHSIG = 1
# Each thread of librdkafka would keep an arena of its own, and Arrow a pool, long after use.
_LEAN = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}


class Child:
    """One child process; one thread uses it at a time, but for `kill`."""

    def __init__(self, module: str, *, name: str, hint: str) -> None:
        """Start the child, which imports its modules in the background.

        The module is run as a program, which does its `requests`; `hint` says what to do when it
        dies.
        """
        self._name, self._hint = name, hint
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_LEAN, **os.environ, **SAFE_PATH},
        )

    def send(self, request: object) -> None:
        """Send one object; raises ChangelogError if the child died."""
        assert self._process.stdin is not None  # noqa: S101
        try:
            pickle.dump(request, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError as error:
            raise self._died() from error

    def receive(self) -> Any:  # noqa: ANN401 - whatever the child answers
        """Wait for one object; raises ChangelogError if the child died."""
        assert self._process.stdout is not None  # noqa: S101
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - our own child
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._died() from error

    def _died(self) -> ChangelogError:
        return ChangelogError(
            f"{self._name} died with code {self._process.wait()}", hint=self._hint
        )

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """Wait for its end."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def requests() -> Iterator[Any]:
    """Be a child that ends with its parent; returns what the parent asks, until it asks no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            return
    collect_rarely()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
        except EOFError:
            return
        yield request


def answer(reply: object) -> None:
    """Send one object to the parent."""
    pickle.dump(reply, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.flush()
