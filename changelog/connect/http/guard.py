"""Admission and rate limits of requests; a path may end with a slash.

Requests without credentials have limits of their own, so that they cannot use up those of requests
with credentials.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from changelog.connect.http.additions import Addition
from changelog.connect.http.admission import Admission, is_followed_link, is_foreign

log = logging.getLogger("changelog.connect")

PER_SECOND = 50.0
BURST, BURST_S = 200.0, 4.0  # requests that may come at once: those of 4 seconds, or 200
AT_ONCE = 128  # requests answered at once with credentials, and as many without
BODY_S = 20.0  # how long a request's body may take to arrive
_SAFE = {"GET", "HEAD"}


def error_answer(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the answer to an error in the form of Kafka Connect."""
    return JSONResponse({"error_code": code, "message": message}, code, headers)


@dataclass(slots=True)
class _RateLimit:
    """A limit of requests a second, and the number that are being answered."""

    per_second: float
    allowance: float = math.inf  # requests that may come at once, as of `counted`
    counted: float = field(default_factory=time.monotonic)
    at_once: int = 0  # requests that are being answered

    def allows(self) -> bool:
        now = time.monotonic()
        gained = (now - self.counted) * self.per_second
        self.allowance = min(max(BURST, BURST_S * self.per_second), self.allowance + gained)
        self.counted = now
        if self.allowance < 1:
            return False
        self.allowance -= 1
        return True


class Guard:
    """Checks each request before the application or the addition that its path belongs to."""

    def __init__(self, app: ASGIApp, admission: Admission, additions: Sequence[Addition]) -> None:
        self._app, self._admission, self._additions = app, admission, additions
        self._others = _RateLimit(PER_SECOND)
        # The connectors have one of their own, and so has each addition.
        self._admitted = [_RateLimit(addition.per_second) for addition in additions]
        self._admitted.append(_RateLimit(PER_SECOND))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        places = (n for n, addition in enumerate(self._additions) if addition.takes(path))
        place = next(places, len(self._additions))
        addition = self._additions[place] if place < len(self._additions) else None
        refusal = self._refusal(scope, addition)
        is_admitted = refusal is None and (addition is None or addition.admits(scope))
        limit = self._admitted[place] if is_admitted else self._others
        if not limit.allows():
            refusal = error_answer(429, "too many requests", {"Retry-After": "1"})
        elif limit.at_once >= AT_ONCE:
            refusal = error_answer(503, f"{AT_ONCE} requests are being answered")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if path.endswith("/") and path != "/":
            scope = {**scope, "path": path.rstrip("/")}
        limit.at_once += 1
        try:
            await (addition.app if addition else self._app)(scope, _in_time(receive), send)
        except ClientDisconnect:
            log.info("a client closed its connection in the middle of its request")
        except Exception:
            log.exception("a request failed")
        finally:
            limit.at_once -= 1

    def _refusal(self, scope: Scope, addition: Addition | None) -> Response | None:
        """Return the refusal of a request, or None if it is answered.

        An addition checks the credentials itself.
        """
        headers = scope["headers"]
        if addition is None and self._admission.token:
            if not self._admission.has_token(headers):
                challenge = {"WWW-Authenticate": 'Bearer, Basic realm="connect"'}
                return error_answer(HTTPStatus.UNAUTHORIZED, "a token is needed", challenge)
        elif addition is None and not self._admission.is_local(headers):
            return error_answer(
                HTTPStatus.FORBIDDEN, "without a token only requests by loopback are answered"
            )
        # Also with a token: a browser sends a remembered password with requests of any page.
        is_for_pages = addition is not None and addition.is_for_pages(scope)
        if is_foreign(headers) and not is_for_pages and not _is_followed(scope, addition):
            return error_answer(HTTPStatus.FORBIDDEN, "a page of another site sent this request")
        return None


def _is_followed(scope: Scope, addition: Addition | None) -> bool:
    """Return whether a request follows a link of another site to a page that changes nothing."""
    return (
        addition is not None
        and scope["method"] in _SAFE
        and is_followed_link(scope["headers"])
        and addition.is_for_links(scope["path"], scope["query_string"])
    )


def _in_time(receive: Receive) -> Receive:
    """Return a receiver that raises HTTPException if the body takes too long to arrive."""
    deadline = anyio.current_time() + BODY_S
    is_whole = False

    async def received() -> Message:
        nonlocal is_whole
        if is_whole:
            return await receive()
        with anyio.move_on_at(deadline):
            message = await receive()
            is_whole = not message.get("more_body", False)
            return message
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, f"no body in {BODY_S:.0f} s")

    return received
