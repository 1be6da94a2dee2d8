"""Work in threads, for what lets other threads run: DuckDB, Arrow, our own C."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from views.verify.processes.pool import helpers

Given = TypeVar("Given")
Made = TypeVar("Made")


def in_threads(
    work: Callable[[Given], Made], arguments: Iterable[Given], threads: int | None = None
) -> Iterator[Made]:
    """Apply the work to each argument in threads; yield the results in order.

    An error of one ends all: nothing of what comes behind it is returned.

    Args:
        work: called with one argument.
        arguments: taken as threads get free.
        threads: their number; None for one a core.
    """
    count = threads or helpers()
    with ThreadPoolExecutor(count, "verify") as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for argument in arguments:
                waiting.append(pool.submit(work, argument))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
