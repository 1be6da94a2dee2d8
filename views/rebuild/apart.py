"""Views that are followed apart, by a process of their own.

A view that is written whole in each round, by Spark, would have the others wait for it, which go
forward by their changed keys within a second. One that fails would end them. Two processes share
nothing but what two commands share: the locks of views, the checkpoints, the sinks.

A process that ends is started again, later each time: what ended it may be mended meanwhile, and
the others do not depend on it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from changelog.runtime.imports import SAFE_PATH
from changelog.runtime.process.own_command import own_command
from views.base.failure import RebuildError

log = logging.getLogger("changelog.views")

_END_S = 60.0
"""How long one may take to end in good order: it removes what it was building."""
_AGAIN_S = (5.0, 30.0, 120.0, 300.0)
"""From the end of one to its next start; the last one again and again."""
_WELL_S = 600.0
"""One that has lived for so long was well: its waits begin anew."""


@dataclass(frozen=True, slots=True)
class FollowCommand:
    """Command line of a process that follows some of the views."""

    # of `rebuild-view`, for the views that are named
    words: Callable[[Sequence[str]], Sequence[str]]
    variables: Mapping[str, str]  # the settings that were given to this command


@dataclass(slots=True, kw_only=True)
class _Ended:
    """A process that has ended, and when the next one is started in its place."""

    error: RebuildError
    count: int
    due: float


class Apart:
    """The processes that follow views apart; a context manager that ends them.

    The thread that starts one has to live as long as they do.
    """

    def __init__(
        self, command: FollowCommand | None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._command = command
        self._now = now
        self._begun: dict[tuple[str, ...], float] = {}
        self._ended: dict[tuple[str, ...], _Ended] = {}
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
        """Start the waiting processes, once no other process holds the locks of their views.

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
        self._running[names], self._begun[names] = process, self._now()
        log.info("process %d follows %s", process.pid, ", ".join(names))

    def check(self) -> None:
        """Check that all processes run, and restart the ended ones."""
        for names, process in [*self._running.items()]:
            code = process.poll()
            if code is not None:
                del self._running[names]
                self._note_end(names, code)
        for names, ended in self._ended.items():
            if names not in self._running and self._now() >= ended.due:
                self._start(names)

    def _note_end(self, names: tuple[str, ...], code: int) -> None:
        error = RebuildError(
            f"the process that followed {', '.join(names)} has ended with {code}",
            hint="its own last lines say why",
        )
        error.exit_code = code if code > 0 else error.exit_code
        before = self._ended.get(names)
        was_well = before is None or self._now() - self._begun[names] >= _WELL_S
        count = 0 if was_well or before is None else before.count + 1
        wait_s = _AGAIN_S[min(count, len(_AGAIN_S) - 1)]
        log.error("%s; started again in %.0f s, the others go on", error, wait_s)
        self._ended[names] = _Ended(error=error, count=count, due=self._now() + wait_s)

    def failures(self) -> list[RebuildError]:
        """Return the errors of the views that no process follows at this moment."""
        return [view.error for names, view in self._ended.items() if names not in self._running]

    @property
    def is_empty(self) -> bool:
        """Tell whether no view is followed apart."""
        return not (self._running or self._waiting or self._ended)

    def __enter__(self) -> Self:
        """Begin with none."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes, each at a safe place."""
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
