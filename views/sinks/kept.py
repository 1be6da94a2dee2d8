"""Connections that stay open between requests, for a thread that makes many requests.

A connection costs PostgreSQL a process and a cache a handshake, and a follower writes to each sink
several times a second. Only a thread that asks for it keeps its connection. Other threads, tasks of
Spark's and all other commands open one for each request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast, runtime_checkable


class Closable(Protocol):
    """A connection."""

    def close(self) -> Any:  # noqa: ANN401 - what their clients return is not used
        """Close it."""
        ...


C = TypeVar("C", bound=Closable)
_LONGEST_S = 60.0
"""A connection is replaced after this time: the address may lead to another server by then."""


class KeptConnection(threading.local):
    """The connection to one server that each thread keeps while it is in `keep`."""

    def __init__(self) -> None:
        self._keeps = False
        self._idle: Closable | None = None
        self._opened_at = 0.0
        self._failed_when_kept = False

    def __reduce__(self) -> tuple[type[KeptConnection], tuple[()]]:
        """Pickle without the connections."""
        return KeptConnection, ()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep this thread's connection open between requests inside the block."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            self.close_idle()

    @contextmanager
    def lent(self, connect: Callable[[], C]) -> Iterator[C]:
        """Lend the connection of this thread, or a new one; after an error it is closed."""
        if time.monotonic() - self._opened_at > _LONGEST_S:
            self.close_idle()
        idle, self._idle = cast("C | None", self._idle), None
        connection, opened_at = idle, self._opened_at
        if connection is None:
            connection, opened_at = connect(), time.monotonic()
        try:
            yield connection
        except BaseException:
            self._failed_when_kept = idle is not None
            connection.close()
            raise
        if self._keeps and self._idle is None:
            self._idle, self._opened_at = connection, opened_at
        else:
            connection.close()

    def close_idle(self) -> None:
        """Close the connection of this thread until the next request."""
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.close()

    def failed_when_kept(self) -> bool:
        """Tell whether the last failure was on a kept connection; each failure is told once.

        The server may have restarted or become a standby since it was opened.
        """
        failed, self._failed_when_kept = self._failed_when_kept, False
        return failed


@runtime_checkable
class ConnectedSink(Protocol):
    """A sink whose threads may keep their connections to its server."""

    @property
    def kept(self) -> KeptConnection:
        """Return the connection that each thread keeps."""
        ...


def kept_of(sink: object) -> KeptConnection:
    """Return a sink's kept connection, or an unused one for sinks that have none."""
    return sink.kept if isinstance(sink, ConnectedSink) else KeptConnection()
