"""Progress of a read, shown on a terminal or in a notebook after two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Told = Callable[[int], None]
"""Is told how many records were read so far."""
_QUIET_S = 2.0


class _Rate(ProgressColumn):
    """Records a second."""

    def render(self, task: Task) -> Text:
        """Return the rate."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def shown(title: str, total: int) -> Iterator[Told]:
    """Yield a callback that shows the progress of a read on a terminal or in a notebook.

    Args:
        title: is read.
        total: of how many records, at most.
    """
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield _untold
        return
    columns = (TextColumn("{task.description}"), BarColumn(20), _Rate(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task, begun = bar.add_task(title, total=total), time.monotonic()

    def tell(done: int) -> None:
        if not bar.live.is_started and time.monotonic() - begun > _QUIET_S:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield tell
    finally:
        bar.stop()


def _untold(_done: int) -> None:
    """Show no progress."""
