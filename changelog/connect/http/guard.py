"""Admission and rate limit of requests; a path may have a slash at the end.

Who may not ask, and whom no other site sent, is told first: what those send is counted apart, and
so is what is being answered of it, so that nobody without the token uses up what those with it may
ask for.
"""

from __future__ import annotations

import logging
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
BURST = 200.0
AT_ONCE = 128  # requests that are being answered, of those who may ask, and as many of all others
BODY_S = 20.0  # how long a request's body may take
_SAFE = {"GET", "HEAD"}


def error_answer(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an answer that tells an error as Kafka Connect does."""
    return JSONResponse({"error_code": code, "message": message}, code, headers)


@dataclass(slots=True)
class _Pace:
    """Limit of the requests: a number at once, and a number each second."""

    allowance: float = BURST  # requests that may come now
    counted: float = field(default_factory=time.monotonic)  # when that was so
    at_once: int = 0  # requests that are being answered

    def allows(self) -> bool:
        now = time.monotonic()
        self.allowance = min(BURST, self.allowance + (now - self.counted) * PER_SECOND)
        self.counted = now
        if self.allowance < 1:
            return False
        self.allowance -= 1
        return True


class Guard:
    """Checks that each request passes first; additions are served under other paths."""

    def __init__(self, app: ASGIApp, admission: Admission, beside: Sequence[Addition]) -> None:
        self._app, self._admission, self._beside = app, admission, beside
        self._admitted, self._others = _Pace(), _Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = next((addition for addition in self._beside if addition.takes(scope["path"])), None)
        refusal = self._refusal(scope, own)
        is_admitted = refusal is None and (own is None or own.admits(scope))
        pace = self._admitted if is_admitted else self._others
        if not pace.allows():
            refusal = error_answer(429, "too many requests", {"Retry-After": "1"})
        elif pace.at_once >= AT_ONCE:
            refusal = error_answer(503, f"{AT_ONCE} requests are being answered")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        path = scope["path"]
        if path.endswith("/") and path != "/":
            scope = {**scope, "path": path.rstrip("/")}
        pace.at_once += 1
        try:
            await (own.app if own else self._app)(scope, _in_time(receive), send)
        except ClientDisconnect:
            log.info("a client hung up in the middle of its request")
        except Exception:
            log.exception("a request failed")
        finally:
            pace.at_once -= 1

    def _refusal(self, scope: Scope, own: Addition | None) -> Response | None:
        """Return the refusal of a request, or None if it is answered or an addition decides."""
        headers = scope["headers"]
        if own is None and self._admission.token:
            if not self._admission.has_token(headers):
                challenge = {"WWW-Authenticate": 'Bearer, Basic realm="connect"'}
                return error_answer(HTTPStatus.UNAUTHORIZED, "a token is needed", challenge)
        elif own is None and not self._admission.is_local(headers):
            return error_answer(HTTPStatus.FORBIDDEN, "without a token, loopback alone is answered")
        # With a token too: browsers send a password that they remember for any site.
        if is_foreign(headers) and not _is_followed(scope, own):
            return error_answer(HTTPStatus.FORBIDDEN, "a page of another site sent this request")
        return None


def _is_followed(scope: Scope, own: Addition | None) -> bool:
    """Tell whether a request is a link that somebody followed to a page where nothing is begun."""
    return (
        own is not None
        and scope["method"] in _SAFE
        and is_followed_link(scope["headers"])
        and own.is_for_links(scope["path"], scope["query_string"])
    )


def _in_time(receive: Receive) -> Receive:
    """Return the receiver of a body, which gives up on one that takes too long."""
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
