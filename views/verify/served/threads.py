"""Several sources read at once, each by a thread, with a bounded number of results in flight."""

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

    A source that raises ends all of them, and so does a caller that stops reading: each is closed
    by its own thread before this ends.

    Raises BaseException: the first that a source raised.
    """
    with closing(_Readers(sources)) as readers:
        yield from readers.found()


class _Readers(Generic[T]):
    def __init__(self, sources: Sequence[Callable[[], Iterator[T]]]) -> None:
        self._found: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(len(sources))
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(source,), name="verify-served")
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def found(self) -> Iterator[T]:
        """Yield items until all sources have ended; raises the first error."""
        reading = len(self._threads)
        while reading:
            item = self._found.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                reading -= 1
            else:
                yield item[0]

    def _read(self, source: Callable[[], Iterator[T]]) -> None:
        try:
            items = source()
            for item in items:
                if not self._put((item,)):
                    break
            if (close := getattr(items, "close", None)) is not None:
                close()
        except BaseException as error:  # noqa: BLE001 - goes to whoever reads
            self._put(error)
        self._put(None)

    def _put(self, item: tuple[T] | BaseException | None) -> bool:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._found.put(item, timeout=_WAIT_S)
                return True
        return False

    def close(self) -> None:
        """Stop the sources and wait for their ends."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
