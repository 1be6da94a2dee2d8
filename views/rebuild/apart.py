"""Views that are followed apart: by a process of their own, beside this one.

A view that is written whole in each round, by Spark, would have the others wait for it, which go
forward by their changed keys within a second. Two processes share nothing but what two commands
share: the locks of views, the checkpoints, the sinks.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from changelog.runtime.imports import SAFE_PATH
from changelog.runtime.process.own_command import own_command
from views.base.failure import RebuildError

log = logging.getLogger("changelog.views")

_END_S = 60.0
"""How long one may take to end in good order: it removes what it was building."""


@dataclass(frozen=True, slots=True)
class FollowCommand:
    """What follows some views as this process follows its own.

    Attributes:
        words: of `rebuild-view`, for the views that are named.
        variables: the settings that were given to this command.
    """

    words: Callable[[Sequence[str]], Sequence[str]]
    variables: Mapping[str, str]


class Apart:
    """The processes that follow views beside this one; a context manager that ends them.

    The thread that starts one has to live as long as they do.
    """

    def __init__(self, command: FollowCommand | None) -> None:
        self._command = command
        self._waiting: list[tuple[str, ...]] = []
        self._running: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}

    @property
    def is_possible(self) -> bool:
        """Tell whether views can be followed apart."""
        return self._command is not None

    def add(self, names: Sequence[str]) -> None:
        """Have some views followed by a process of their own, from `begin` on."""
        self._waiting.append(tuple(names))

    def begin(self) -> None:
        """Start the processes that wait; nobody else has the locks of their views any more.

        The caller has made a round of its own before: those that begin with a round of Spark's hold
        checkpoints for its whole length, and the views that stay fresh are to need none by then.
        """
        while self._waiting:
            self._start(self._waiting.pop(0))

    def _start(self, names: tuple[str, ...]) -> None:
        assert self._command is not None  # noqa: S101 - the caller asked
        words = own_command(["rebuild-view", *self._command.words(names)])
        process = subprocess.Popen(  # noqa: S603 - our own command
            words,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **SAFE_PATH, **self._command.variables},
            start_new_session=True,  # Ctrl-C comes from us, once
        )
        self._running[names] = process
        log.info("process %d follows %s", process.pid, ", ".join(names))

    def check(self) -> None:
        """See that all are there.

        Raises:
            RebuildError: one has ended; its exit code is this one's.
        """
        for names, process in self._running.items():
            code = process.poll()
            if code is None:
                continue
            error = RebuildError(
                f"the process that followed {', '.join(names)} has ended with {code}",
                hint="its own last lines say why; the others end with it",
            )
            error.exit_code = code if code > 0 else error.exit_code
            raise error

    def __enter__(self) -> Self:
        """Begin with none."""
        return self

    def __exit__(self, *_: object) -> None:
        """End them, each at a safe place."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                log.warning("process %d does not end; it is killed", process.pid)
                process.kill()
                process.wait()
