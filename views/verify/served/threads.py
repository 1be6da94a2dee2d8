"""Read several sources at once, each in a thread, with a bounded number of items in flight."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Generic, TypeVar

T = TypeVar("T")
_WAIT_S = 0.1


def read_at_once(sources: Sequence[Callable[[], Iterator[T]]]) -> Iterator[T]:
    """Yield the items of all sources, in no particular order.

    An error of one source ends all of them, and so does a caller that stops reading: each is closed
    by its own thread before this ends.

    Raises BaseException: the first error of a source.
    """
    with closing(_Readers(sources)) as readers:
        yield from readers.items()


class _Readers(Generic[T]):
    def __init__(self, sources: Sequence[Callable[[], Iterator[T]]]) -> None:
        # A source's item, its error, or None at its end.
        self._results: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(len(sources))
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_source, args=(source,), name="verify-served")
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def items(self) -> Iterator[T]:
        """Yield items until all sources have ended; raises the first error."""
        reading = len(self._threads)
        while reading:
            item = self._results.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                reading -= 1
            else:
                yield item[0]

    def _read_source(self, source: Callable[[], Iterator[T]]) -> None:
        try:
            items = source()
            for item in items:
                if not self._put((item,)):
                    break
            if (close := getattr(items, "close", None)) is not None:
                close()
        except BaseException as error:  # noqa: BLE001 - raised again in the reader's thread
            self._put(error)
        self._put(None)

    def _put(self, item: tuple[T] | BaseException | None) -> bool:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._results.put(item, timeout=_WAIT_S)
                return True
        return False

    def close(self) -> None:
        """Stop the sources and wait for their ends."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
