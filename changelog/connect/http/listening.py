"""The HTTP server's socket and connections: an idle connection does not keep others out.

uvicorn closes a connection that is idle after an answer. One on which no request or half a request
was sent, it would keep for ever.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from types import FrameType
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from changelog.connect.http.additions import Addition
from changelog.contract.base.errors import UnavailableError

STALLED_MS = 60_000
"""How long a peer may not acknowledge data before its connection is ended.

Without it asyncio would hold the data that waits to be sent for ever.
"""


class RestServer(uvicorn.Server):
    """A server that ends the streams of its additions when a signal asks it to end."""

    def __init__(self, config: uvicorn.Config, additions: Sequence[Addition]) -> None:
        super().__init__(config)
        self._additions = additions

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams of the additions, and the server after its open requests."""
        for addition in self._additions:
            addition.end()
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises UnavailableError if the address cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another --port",
        ) from None
    # asyncio does this only for sockets that it opened; without it each answer takes 40 ms more.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
    return listener


MOST = 256  # connections at once: a further one closes the one that has been idle longest
ASKS_S = 15.0  # a connection is closed if no complete request came for this time


class Connection(H11Protocol):
    """An HTTP connection that is closed if no request comes on it."""

    idle_since: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer, and close an idle connection if there are too many."""
        super().connection_made(transport)
        self.idle_since = time.monotonic()
        self._look_in(ASKS_S)
        if len(self.connections) > MOST:
            idle = [
                connection
                for connection in cast("set[Connection]", self.connections)
                if connection is not self and connection.is_idle
            ]
            if idle:
                min(idle, key=lambda connection: connection.idle_since).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that has ended."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Record since when the connection is idle."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Return whether no request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _look_in(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        remaining_s = ASKS_S if not self.is_idle else self.idle_since + ASKS_S - time.monotonic()
        if remaining_s <= 0:
            self.transport.close()
        else:
            self._look_in(remaining_s)
