"""`GET /views/NAME/changes`: the changes of a view as Server-Sent Events, for applications.

An event `changes` has rows of some keys and no id. An event `frontier` says that the view is whole
there, and has an id, with which a client continues later. The server reads on only when the client
has taken the events that it was sent, and closes the stream of a client that takes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from changelog.connect.http.admission import credential
from changelog.connect.http.rights import Holder, Rights
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    UnavailableError,
    ViewError,
)
from changelog.runtime.edge import one_line
from views.changes.feed import Event, Feed, FeedFrontier, Nothing, Some, opened_feed
from views.changes.moments import START, AheadError, GoneError, NotBuiltError
from views.page.access import Access
from views.page.line.sources import ServerAnswers

MOST = 32
"""Most clients at once."""
STALLED_S = 60.0
"""How long a client may take nothing before its stream is closed."""
_QUIET = 20
"""Empty reads, of about a quarter of a second each, after which a comment is sent."""


class ChangeStreams:
    """The streams of changes to applications."""

    def __init__(self, sources: ServerAnswers, access: Access, rights: Rights) -> None:
        self._sources, self._access, self._rights = sources, access, rights
        self._limiter: anyio.CapacityLimiter | None = None
        self._ended = threading.Event()
        self._open = 0

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    async def answer(self, request: Request) -> Response:
        """Stream the changes of a view, or refuse with the reason."""
        view, reader = request.path_params["name"], reader_of(self._rights, request)
        if reader is not None and not reader.may_read(view):
            return _refused(403, f'this token may not read the changes of view "{view}"')
        if reader is None and not self._access.lets_in(request):
            code = 401 if self._access.is_local(request) else 403
            return _refused(code, "a token is needed")
        if self._open >= MOST:
            return _refused(503, f"{MOST} clients are connected already", {"Retry-After": "10"})
        since = request.headers.get("last-event-id") or request.query_params.get("since")
        self._limiter = self._limiter or anyio.CapacityLimiter(MOST)
        self._open += 1
        try:
            feed = await run_sync(self._begun, view, since, limiter=self._limiter)
        except BaseException as error:
            self._open -= 1
            if not isinstance(error, ChangelogError):
                raise
            # 410 tells a client to forget its rows and begin anew; a new client has none yet.
            is_new = since in {None, START} and isinstance(error, NotBuiltError)
            return _refused(404 if is_new else _code(error), one_line(error))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        origin = request.headers.get("origin", "")
        if reader is not None and origin in reader.origins:
            headers |= {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        return _ClientStream(self._events(feed), headers, lambda: self._release(feed))

    def _begun(self, view: str, since: str | None) -> Feed:
        feed = opened_feed(self._sources.project(), view)
        try:
            feed.begin(since)
        except BaseException:
            feed.close()
            raise
        return feed

    def _release(self, feed: Feed) -> None:
        self._open -= 1
        feed.close()

    async def _events(self, feed: Feed) -> AsyncIterator[bytes]:
        quiet = 0
        try:
            events = feed.events()
            yield b"retry: 2000\n\n"
            while not self._ended.is_set():
                event = await run_sync(_next, events, limiter=self._limiter)
                quiet = quiet + 1 if isinstance(event, Nothing) else 0
                if not isinstance(event, Nothing):
                    yield _encoded(event)
                elif quiet % _QUIET == 0:
                    yield b": nothing new\n\n"
        except ChangelogError as error:
            yield _event("broken", {"error": one_line(error), "code": _code(error)})


def reader_of(rights: Rights, request: Request) -> Holder | None:
    """Return the holder of the token for changes that a request carries; None if it has none.

    A script of a browser cannot set headers of a stream, so the token may be in the address.
    """
    text = credential(request.scope["headers"])
    return rights.holder(text or request.query_params.get("token", "").encode())


class _ClientStream(StreamingResponse):
    """A stream that ends when its client takes nothing for too long.

    `on_end` is called once, at the end.
    """

    def __init__(
        self, events: AsyncIterator[bytes], headers: dict[str, str], on_end: Callable[[], None]
    ) -> None:
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the view's changes as events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()

    async def stream_response(self, send: Send) -> None:
        async def in_time(message: Any) -> None:  # noqa: ANN401 - ASGI's type
            with anyio.fail_after(STALLED_S):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            return


def _next(events: Iterator[Event]) -> Event:
    return next(events)


def _encoded(event: Event) -> bytes:
    match event:
        case Some(changes=changes):
            body = b",".join(
                b'{"key":%b,"row":%b}' % (change.key, change.row) for change in changes
            )
            return b'event: changes\ndata: {"changes":[%b]}\n\n' % body
        case FeedFrontier(moment=moment, mark=mark, count=count):
            frontier = {"lsn": str(moment.lsn), "generation": moment.generation, "count": count}
            return _event("frontier", frontier, mark)
        case Nothing():
            return b""


def _event(name: str, content: dict[str, object], mark: str = "") -> bytes:
    id_line = f"id: {mark}\n".encode() if mark else b""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, orjson.dumps(content))


def _code(error: ChangelogError) -> int:
    match error:
        case GoneError():
            return 410
        case AheadError():
            return 409
        case ConfigurationError():
            return 400
        case UnavailableError():
            return 503
        case ViewError():
            return 404
        case _:
            return 500


def _refused(code: int, message: str, headers: dict[str, str] | None = None) -> Response:
    text, _, hint = message.partition(" | hint: ")
    return JSONResponse({"error": text, "hint": hint}, code, headers)
