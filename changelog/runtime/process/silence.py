"""Ends statements that no server answers: libpq itself waits for ever.

The kernel notices a network that swallows packets. It does not notice a server that hangs, nor a
proxy that takes bytes and has lost its other side. So one thread of the process looks at the
statements under way, and shuts the socket of one that takes too long: libpq then says that the
connection is lost. Of a COPY each read of rows is watched by itself: it may go on for as long as
rows come.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from psycopg2 import extensions

SILENCE_S = 300.0
"""A server that says nothing for so long is gone. Longer than a statement of ours waits for locks
on a server that is well; it is tried again later."""

_LOOK_S = 0.5


class WatchedCursor(extensions.cursor):
    """A cursor whose statements end when no answer comes."""

    def execute(
        self,
        query: object,
        vars: Sequence[object] | Mapping[str, object] | None = None,  # noqa: A002 - psycopg2's name
    ) -> None:
        """Run a statement; raises psycopg2.OperationalError after `SILENCE_S`."""
        with watched(self.connection):
            super().execute(query, vars)  # type: ignore[arg-type]  # whatever psycopg2 takes


@contextmanager
def watched(connection: extensions.connection) -> Iterator[None]:
    """Shut a connection's socket when the block takes longer than `SILENCE_S`."""
    token = _WATCH.begin(connection.fileno())
    try:
        yield
    finally:
        _WATCH.end(token)


class _Watch:
    """Statements under way; its thread begins with the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, tuple[float, int]] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def begin(self, fileno: int) -> int:
        with self._lock:
            self._next += 1
            self._running[self._next] = (time.monotonic(), fileno)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="statements", daemon=True)
                self._thread.start()
            return self._next

    def end(self, token: int) -> None:
        with self._lock:
            self._running.pop(token, None)

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            late = time.monotonic() - SILENCE_S
            # Under the lock: a statement that has ended may give its socket's number to another.
            with self._lock:
                for token, (since, fileno) in list(self._running.items()):
                    if since < late:
                        del self._running[token]
                        _shut(fileno)


def _shut(fileno: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(fileno)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


_WATCH = _Watch()
