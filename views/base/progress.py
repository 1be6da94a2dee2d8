"""Progress of a rebuild: its stage, and the seconds of each stage."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from changelog.runtime.progress.steps import Steps
from changelog.runtime.telemetry import span
from views.base.pace import Tell, duration_text, rate_text

log = logging.getLogger("changelog.views")
_LOGGED_S = 10.0
SHARED = ""
"""In place of a view's name: a stage that all views of a run have in common."""


def _nothing(_stage: str) -> None:
    """Do nothing between stages."""


class StageSteps(Steps):
    """Reports the steps of a stage that are done, the time left, the rate, and the present step.

    The numbers come first: a narrow terminal cuts off the end of a line.
    """

    def __init__(
        self, tell: Tell, expected: int = 0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin now.

        `expected`: how many there are, as far as one knows by now.
        """
        self._tell, self._expected = tell, expected
        self._clock, self._begun = clock, clock()
        self._step, self._done = "", 0

    def more(self, steps: int) -> None:
        """Expect this number of further steps."""
        self._expected += steps

    def begin(self, step: str) -> None:
        """Say which stage runs now."""
        self._step = step
        self._tell(self._text())

    def done(self, steps: int = 1) -> None:
        """Count this number of steps as done."""
        self._done += steps
        self._tell(self._text())

    def _text(self) -> str:
        numbers = f"{self._done} of {self._expected}"
        if self._done:
            rate = self._done / max(self._clock() - self._begun, 0.001)
            seconds_left = max(0, self._expected - self._done) / rate
            numbers += f", {duration_text(seconds_left)} left, {rate_text(rate)}/s"
        return f"{numbers}: {self._step}"


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
            with span(name, view=view):
                yield
        finally:
            self._running = outer
            taken = time.monotonic() - begun
            self._seconds[view][name] += taken
            if self._shown is not None and task is not None:
                self._shown.update(task, description=text, completed=1)
        if self._shown is None:
            log.info("%s: %.1f s", text, taken)

    @contextmanager
    def looking(self, text: str) -> Iterator[None]:
        """Show a look before a stage, while it lasts; a log has no line of its end."""
        task = self._shown.add_task(text, total=1) if self._shown is not None else None
        outer, self._running, self._logged = self._running, (text, task), time.monotonic()
        try:
            yield
        finally:
            self._running = outer
            if self._shown is not None and task is not None:
                self._shown.remove_task(task)

    def steps(self, expected: int = 0) -> StageSteps:
        """Return the counter of the steps of this stage and of the following ones.

        `expected`: how many there are, as far as one knows by now.
        """
        return StageSteps(self.tell, expected)

    def tell(self, how_far: str) -> None:
        """Show the progress of the running stage; a log has a line of it every ten seconds."""
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
