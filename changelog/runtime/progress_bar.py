"""Progress of long work: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

log = logging.getLogger("changelog.progress")

LINE_EVERY_S = 5.0


class RowBar:
    """Counts rows towards an estimate; those that were `done` before count, but not as speed."""

    def __init__(
        self,
        console: Console,
        what: str,
        estimate: int = 0,
        *,
        done: int = 0,
        says_sum: bool = True,
    ) -> None:
        """Prepare; nothing is shown yet.

        Args:
            console: where the bar goes, if that is a terminal.
            what: is done.
            estimate: how many rows there are, `done` counted; 0 where nobody knows.
            done: so many were there before.
            says_sum: whether the end is told; a command that tells it itself leaves no bar behind.
        """
        self._what = what
        self._says_sum = says_sum
        self._estimate = estimate
        self._done = done
        self._rows = 0
        self._started = self._said = time.monotonic()
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows, {task.fields[rate]:,.0f}/s"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=not says_sum,
        )

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        total = self._estimate or None
        self._task = self._progress.add_task(self._what, total=total, rate=0)
        if self._done:
            self._progress.update(self._task, completed=self._done)
        return self

    def expect(self, rows: int) -> None:
        """Note that there are so many rows, as far as one can tell by now."""
        self._estimate = rows
        if self._task is not None:
            self._progress.update(self._task, total=rows)

    def add(self, rows: int) -> None:
        """Note that `rows` more are done."""
        self._rows += rows
        now = time.monotonic()
        rate = self._rows / max(now - self._started, 0.001)
        if self._task is not None:
            self._progress.update(self._task, completed=self._done + self._rows, rate=rate)
        if self._progress.disable and now - self._said > LINE_EVERY_S:
            self._said = now
            rows, left = self._done + self._rows, self._estimate - self._done - self._rows
            if not self._estimate:
                log.info("%s: %d rows, %d/s", self._what, rows, rate)
                return
            log.info(
                "%s: %d of about %d rows, %d/s, %d s left",
                self._what,
                rows,
                self._estimate,
                rate,
                max(0, left) / max(rate, 1),
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
            log.info("%s: %d rows in %.1f s, %d/s", self._what, self._rows, seconds, rate)
