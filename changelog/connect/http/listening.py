"""The socket and the server of HTTP."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import FrameType

import uvicorn

from changelog.connect.http.additions import Addition
from changelog.contract.base.errors import UnavailableError

STALLED_MS = 60_000
"""A connection is ended whose peer takes nothing of what it was sent for so long. What was to be
sent then is let go with it: asyncio would hold it until the peer takes it, or for ever."""


class Server(uvicorn.Server):
    """A server that ends the streams of `beside` once it is asked to end, and does not wait."""

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
