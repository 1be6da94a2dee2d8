"""Tell what a rebuild is doing, and how long each stage took."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

log = logging.getLogger("changelog.views")
_LOGGED_S = 10.0
SHARED = ""
"""In place of a view's name: a stage that all views of a run have in common."""


def _nothing(_stage: str) -> None:
    """Do nothing between stages."""


class Stages:
    """The stages of one run: shown while they run, timed, announced to whoever wants to step in.

    `before` is called with the name of each stage before it begins and may raise, which is how
    a signal stops a rebuild at a safe place and how tests end one at a named point.
    """

    def __init__(self, console: Console, before: Callable[[str], None] = _nothing) -> None:
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._before = before
        self._console = console
        self._shown: Progress | None = None
        self._running: tuple[str, TaskID | None] = ("", None)
        self._logged = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the stages: moving lines on a terminal, log lines elsewhere."""
        if not self._console.is_terminal:
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as self._shown:
            yield
        self._shown = None

    @contextmanager
    def stage(self, name: str, text: str, view: str = SHARED) -> Iterator[None]:
        """Time a stage under `name` and show it as `text`."""
        self._before(name)
        begun = time.monotonic()
        task = self._shown.add_task(text, total=1) if self._shown is not None else None
        outer, self._running, self._logged = self._running, (text, task), begun
        try:
            yield
        finally:
            self._running = outer
            taken = time.monotonic() - begun
            self._seconds[view][name] += taken
            if self._shown is not None and task is not None:
                self._shown.update(task, description=text, completed=1)
        if self._shown is None:
            log.info("%s: %.1f s", text, taken)

    def tell(self, how_far: str) -> None:
        """Show how far the stage is that runs now; a log has a line of it every ten seconds."""
        text, task = self._running
        now = time.monotonic()
        if self._shown is not None and task is not None:
            self._shown.update(task, description=f"{text}: {how_far}")
        elif now - self._logged >= _LOGGED_S:
            self._logged = now
            log.info("%s: %s", text, how_far)

    def seconds(self, view: str) -> Mapping[str, float]:
        """Return the seconds of a view's own stages and of the shared ones."""
        both = {**self._seconds[SHARED], **self._seconds[view]}
        return {name: round(taken, 3) for name, taken in both.items()}
