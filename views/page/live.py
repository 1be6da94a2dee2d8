"""Server-sent events of the page: `cells`, `views`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from views.page.line.cells import Cell, cells
from views.page.line.sources import Line, Sources
from views.page.render import HEADERS

EVERY_S = 2.0
MOST = 32
"""Pages that are open at once."""
_NAP_S = 0.25


class Live:
    """The streams of one worker."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._ended = threading.Event()
        self._open = 0

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    def response(self) -> StreamingResponse:
        """Return a stream, which lasts as long as somebody reads it.

        Raises:
            HTTPException: too many are open.
        """
        if self._open >= MOST:
            raise HTTPException(503, f"{MOST} pages are open already.")
        return StreamingResponse(
            self._events(), media_type="text/event-stream", headers=dict(HEADERS)
        )

    async def _events(self) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield "retry: 3000\n\n"
            last_cells: dict[str, Cell] = {}
            while not self._ended.is_set():
                now_cells = cells(await run_in_threadpool(self._line))
                if last_cells and now_cells.keys() != last_cells.keys():
                    yield "event: views\ndata: {}\n\n"
                    return
                changed = {
                    name: cell for name, cell in now_cells.items() if last_cells.get(name) != cell
                }
                shown = {n: {"text": c.text, "state": c.state} for n, c in changed.items()}
                yield f"event: cells\ndata: {json.dumps(shown)}\n\n"
                last_cells = now_cells
                await self._rest()
        finally:
            self._open -= 1

    def _line(self) -> Line:
        return self._sources.line(wait_s=0.0)

    async def _rest(self) -> None:
        until = time.monotonic() + EVERY_S
        while time.monotonic() < until and not self._ended.is_set():  # noqa: ASYNC110 - by a signal
            await anyio.sleep(_NAP_S)
