"""Work in parallel: in threads, and in helper processes for code in Python.

Threads suit code that releases Python's lock: DuckDB, Arrow, our own C. Decoding in Python does
not, so the survivors of a large topic that have to be decoded row by row go to helper processes.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process.child import Child

Given = TypeVar("Given")
Made = TypeVar("Made")

_MOST_HELPERS = 8


def helpers() -> int:
    """Return the number of helpers that suits this machine's cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(_MOST_HELPERS, cores or 1)


def in_threads(
    work: Callable[[Given], Made], arguments: Iterable[Given], threads: int | None = None
) -> Iterator[Made]:
    """Call `work` with each argument in threads; without a number of them, one per core.

    Yields the results in order; the first error ends the iteration. Arguments are taken as threads
    become free. A single one needs no thread.
    """
    remaining = iter(arguments)
    first = list(islice(remaining, 2))
    if len(first) < 2:  # noqa: PLR2004
        yield from map(work, first)
        return
    count = threads or helpers()
    with ThreadPoolExecutor(count, "verify") as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for argument in chain(first, remaining):
                waiting.append(pool.submit(work, argument))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class Crew:
    """Helper processes, as many as `helpers`; several threads may ask."""

    def __init__(self) -> None:
        self._children = [
            Child(
                "views.verify.processes.helper",
                name="a helper of the verifier",
                hint="did the machine run out of memory? verify again",
            )
            for _ in range(helpers())
        ]
        self._free: queue.SimpleQueue[Child] = queue.SimpleQueue()
        for child in self._children:
            self._free.put(child)

    def ask(self, job: tuple[Callable[..., Any], *tuple[object, ...]]) -> Any:  # noqa: ANN401 - the job's
        """Call a function in a helper; raises the function's error, or that the helper died."""
        child = self._free.get()
        try:
            child.send(job)
            reply = child.receive()
        finally:
            self._free.put(child)
        if isinstance(reply, ChangelogError):
            raise reply
        return reply

    def close(self) -> None:
        """End the helpers, whatever they do."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.close()
