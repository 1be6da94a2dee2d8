"""The socket and the server of HTTP, and its connections: one that asks nothing keeps nobody out.

uvicorn closes a connection that is idle behind an answer. One that never asked, or sends half a
request, it would keep for ever.
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
"""A connection is ended whose peer takes nothing of what it was sent for so long. What was to be
sent then is let go with it: asyncio would hold it until the peer takes it, or for ever."""


class RestServer(uvicorn.Server):
    """A server that ends the streams of its additions once it is asked to end."""

    def __init__(self, config: uvicorn.Config, beside: Sequence[Addition]) -> None:
        super().__init__(config)
        self._beside = beside

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the request to end."""
        for addition in self._beside:
            addition.end()
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises UnavailableError if that is not possible there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="--port takes another one",
        ) from None
    # asyncio does this for sockets of its own alone; else each answer waits 40 ms for the client.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
    return listener


MOST = 256  # connections at once: a further one closes the one that has been idle for longest
ASKS_S = 15.0  # a connection is closed that has not asked for so long, whole lines and headers


class Connection(H11Protocol):
    """A connection that is closed when it asks nothing."""

    idle_since: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note a new connection, and make room for it."""
        super().connection_made(transport)
        self.idle_since = time.monotonic()
        self._look_in(ASKS_S)
        if len(self.connections) > MOST:
            others = [
                connection
                for connection in cast("set[Connection]", self.connections)
                if connection is not self and connection.is_idle
            ]
            if others:
                min(others, key=lambda connection: connection.idle_since).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that has ended."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Note that the connection is idle."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Tell whether no request is being answered."""
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
