"""Progress of long work: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from changelog.runtime.progress.steps import Steps

log = logging.getLogger("changelog.progress")

LINE_EVERY_S = 5.0
_WIDE = 100  # columns of a terminal that has room for a long bar
_TIME_LEFT = 7


def _columns(console: Console, counted: str, most: int) -> tuple[ProgressColumn, ...]:
    """Return the columns of a bar: the name, the amount done, the time left; all in one line.

    The name of what is done gives way where a terminal is narrow. `counted` is how much is done, by
    rich's format, in `most` columns at most.
    """
    bar = 40 if console.width >= _WIDE else 12
    name_width = max(console.width - bar - most - _TIME_LEFT - 3, 8)
    name = Column(no_wrap=True, overflow="ellipsis", max_width=name_width)
    return (
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(bar),
        TextColumn(counted, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
    )


class RowBar:
    """Counts rows towards an estimate; rows done before count, but not for the rate."""

    def __init__(
        self,
        console: Console,
        title: str,
        estimate: int = 0,
        *,
        done: int = 0,
        says_sum: bool = True,
    ) -> None:
        """Prepare; nothing is shown yet.

        The estimate counts `done` too; 0 where nobody knows. A command that tells the sum itself
        leaves no bar behind.
        """
        self._title = title
        self._says_sum = says_sum
        self._estimate = estimate
        self._done = done
        self._rows = 0
        self._started = self._logged_s = time.monotonic()
        self._task: TaskID | None = None
        self._progress = Progress(
            *_columns(console, "{task.completed:,.0f} rows, {task.fields[rate]:,.0f}/s", 26),
            console=console,
            disable=not console.is_terminal,
            transient=not says_sum,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        total = self._estimate or None
        self._task = self._progress.add_task(self._title, total=total, rate=0)
        if self._done:
            self._progress.update(self._task, completed=self._done)
        return self

    def expect(self, rows: int) -> None:
        """Set the estimated total."""
        self._estimate = rows
        if self._task is not None:
            self._progress.update(self._task, total=rows)

    def add(self, rows: int) -> None:
        """Add finished rows."""
        self._rows += rows
        now = time.monotonic()
        rate = self._rows / max(now - self._started, 0.001)
        if self._task is not None:
            self._progress.update(self._task, completed=self._done + self._rows, rate=rate)
        if self._progress.disable and now - self._logged_s > LINE_EVERY_S:
            self._logged_s = now
            rows, remaining = self._done + self._rows, self._estimate - self._done - self._rows
            if not self._estimate:
                log.info("%s: %d rows, %d/s", self._title, rows, rate)
                return
            log.info(
                "%s: %d of about %d rows, %d/s, %d s left",
                self._title,
                rows,
                self._estimate,
                rate,
                max(0, remaining) / max(rate, 1),
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away and say the sum."""
        self._progress.stop()
        seconds = time.monotonic() - self._started
        if error is None and self._says_sum:
            rate = self._rows / max(seconds, 0.001)
            log.info("%s: %d rows in %.1f s, %d/s", self._title, self._rows, seconds, rate)


class StepBar(Steps):
    """Counts things that are looked at or done one by one: on a terminal alone, gone at the end.

    Elsewhere nothing is said: whoever counts tells of each thing, or has it in a table at the end.
    """

    def __init__(self, console: Console, title: str, steps: int = 0) -> None:
        self._title = title
        self._progress = Progress(
            *_columns(
                console, "{task.completed:.0f} of {task.total:.0f}, {task.fields[rate]:.1f}/s", 18
            ),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            # Results may go to another place than the bar: to a file, or to a program.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(title, total=max(steps, 1), rate=0)
        self._started = time.monotonic()
        self._expected = steps
        self._done = 0

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._progress.start()
        return self

    def more(self, steps: int) -> None:
        """Add expected steps."""
        self._expected += steps
        self._progress.update(self._task, total=max(self._expected, 1))

    def begin(self, step: str) -> None:
        """Show the step at work."""
        self._progress.update(self._task, description=f"{self._title}: {step}")

    def done(self, steps: int = 1) -> None:
        """Add finished steps."""
        self._done += steps
        rate = self._done / max(time.monotonic() - self._started, 0.001)
        self._progress.update(self._task, completed=self._done, rate=rate)

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._progress.stop()
