"""Cuts connections to a PostgreSQL that stands still.

A statement may take an hour, and libpq waits for its answer for ever: keepalives find a machine
that is gone, and not a server that answers nobody. So while a connection is open somebody else asks
now and then, by a connection of his own; where he gets no answer either, the first one is cut.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg2
from psycopg2 import extensions

_LEAST_TIMEOUT_S = 2
"""libpq takes no shorter one."""
_PAUSE_S = 1.0
_SAID_NO = "FATAL:"
"""What refuses us answers."""


class Watch:
    """State of a connection that is watched."""

    def __init__(self, connection: extensions.connection) -> None:
        self.is_cut = False  # whether it was ended, since the server answers nobody
        self._place = connection.fileno()
        self._over = threading.Event()
        self._ending = threading.Lock()

    def end(self) -> None:
        """Stop watching; the connection may be closed afterwards."""
        with self._ending:
            self._over.set()

    def run(self, settings: Mapping[str, Any], seconds: float) -> None:
        """Ask the server at an interval, and cut the connection when it does not answer."""
        while not self._over.wait(seconds):
            if not self._is_answered(settings, seconds):
                self._cut()
                return

    def _is_answered(self, settings: Mapping[str, Any], seconds: float) -> bool:
        end = time.monotonic() + seconds
        parameters = {
            **settings,
            "connect_timeout": max(_LEAST_TIMEOUT_S, round(seconds)),
            "application_name": "changelog-watch",
        }
        while not self._over.is_set():
            try:
                with closing(psycopg2.connect(**parameters)):
                    return True
            except psycopg2.Error as error:
                if _SAID_NO in str(error):
                    return True
            if time.monotonic() >= end:
                return False
            self._over.wait(_PAUSE_S)
        return True

    def _cut(self) -> None:
        with self._ending:
            if self._over.is_set():
                return
            self.is_cut = True
            cut(self._place)


def cut(descriptor: int) -> None:
    """Shut a connection of another thread, which may wait on this very socket: no close."""
    with closing(socket.socket(fileno=os.dup(descriptor))) as line, suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def watched(
    connection: extensions.connection, settings: Mapping[str, Any], seconds: float
) -> Iterator[Watch]:
    """Cut a connection whose server answers nobody any more, from one time to the next.

    Once in so many seconds the server is asked by a connection of the same settings, and it may be
    silent for so long.
    """
    watch = Watch(connection)
    threading.Thread(
        target=watch.run, args=(settings, seconds), name="postgres-watch", daemon=True
    ).start()
    try:
        yield watch
    finally:
        watch.end()
