"""Connections that ask nothing are closed: none of them keeps others out.

uvicorn closes one that is idle behind an answer. One that never asked, or sends half a request, it
would keep for ever.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 256
"""Connections at once: a further one closes the one that has been idle for longest."""
ASKS_S = 15.0
"""A connection is closed that has not asked for so long, whole lines and headers."""


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
        """Forget it."""
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
