"""Show a download on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from changelog.stack.download.fetch import FetchProgress

_LINE_EVERY_SECONDS = 5.0


@contextmanager
def download_display(console: Console | None = None) -> Iterator[Callable[[FetchProgress], None]]:
    """Return a function that shows the progress it is called with."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.fields[count]} files"),
        BarColumn(10),  # all of it fits on 60 columns
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("download", total=None, count="")

        def show(progress: FetchProgress) -> None:
            count = f"{progress.artifacts}/{progress.artifacts_total}"
            bar.update(task, completed=progress.bytes, total=progress.bytes_total, count=count)

        yield show


class _Lines:
    """A line at the start, every few seconds, and at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def __call__(self, progress: FetchProgress) -> None:
        done = progress.artifacts == progress.artifacts_total
        now = time.monotonic()
        if not done and now - self._last < _LINE_EVERY_SECONDS:
            return
        self._last = now
        self._console.print(
            f"downloading {progress.artifacts}/{progress.artifacts_total} files,"
            f" {progress.bytes / 1e6:.1f} of {progress.bytes_total / 1e6:.1f} MB",
            highlight=False,
        )
