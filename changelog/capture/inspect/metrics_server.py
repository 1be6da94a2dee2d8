"""The server of metrics: few connections at once, none for long, and no name of another site."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST = 16
"""Connections at once; a further one ends the oldest."""
SILENT_S = 10.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves an application of WSGI, a thread for each of a few connections."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, app: App) -> None:
        """Listen.

        Raises OSError: that is not possible there.
        """
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._open: dict[int, socket.socket] = {}
        self._turn = threading.Lock()
        super().__init__((address, port), _Handler)
        self.set_app(_for_this_machine(app) if address in _LOOPBACK else app)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._turn:
                self._open.pop(id(request), None)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Begin a thread for a connection, and make room for it."""
        with self._turn:
            oldest = next(iter(self._open.values())) if len(self._open) >= MOST else None
            if oldest is not None:
                self._open.pop(id(oldest))
                _shut(oldest)
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Log nothing about a connection that breaks off."""


class _Handler(WSGIRequestHandler):
    timeout = SILENT_S

    def log_message(self, *_: object) -> None:
        """Log no request."""


def _shut(connection: socket.socket) -> None:
    """End a connection whose thread waits for it; the thread closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _for_this_machine(app: App) -> App:
    """Return an application that answers to names of this machine alone.

    A name of another site that leads to loopback would let its pages read what is answered.
    """

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if host and _name(host) not in _LOOPBACK:
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"metrics are for this machine\n"]
        return app(environ, start)

    return answer


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
