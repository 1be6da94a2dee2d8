"""The requests on HTTP: their paths, who may ask, how much and how often."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from changelog.connect.answers import Answers
from changelog.connect.plugins import Plugins
from changelog.connect.requests import Answer, Asked, RequestError
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import one_line

log = logging.getLogger("changelog.connect")

MOST_BYTES = 1 << 20
"""Of a request's body."""
PER_SECOND = 50.0
BURST = 200.0
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_BEARER, _BASIC = "bearer", "basic"
Act = Callable[[Asked], Answer]


def routes(answers: Answers) -> list[Route]:
    """Return each path with its methods."""
    plugins, places = Plugins(), answers.places
    one, task = "/connectors/{name}", "/connectors/{name}/tasks/{task}"
    plugin = "/connector-plugins/{plugin}/config"
    table: list[tuple[str, dict[str, Act]]] = [
        ("/", {"GET": answers.root}),
        ("/health", {"GET": answers.health}),
        ("/connectors", {"GET": answers.connectors, "POST": answers.create}),
        (one, {"GET": answers.connector, "DELETE": answers.delete}),
        (
            f"{one}/config",
            {"GET": answers.config, "PUT": answers.put_config, "PATCH": answers.patch_config},
        ),
        (f"{one}/status", {"GET": answers.status}),
        (f"{one}/pause", {"PUT": answers.pause}),
        (f"{one}/resume", {"PUT": answers.resume}),
        (f"{one}/stop", {"PUT": answers.stop}),
        (f"{one}/restart", {"POST": answers.restart}),
        (f"{one}/tasks", {"GET": answers.tasks}),
        (f"{task}/status", {"GET": answers.task_status}),
        (f"{task}/restart", {"POST": answers.restart_task}),
        (f"{one}/topics", {"GET": answers.topics}),
        (f"{one}/topics/reset", {"PUT": answers.reset_topics}),
        (
            f"{one}/offsets",
            {
                "GET": places.offsets,
                "PATCH": places.alter_offsets,
                "DELETE": places.reset_offsets,
            },
        ),
        ("/connector-plugins", {"GET": plugins.plugins}),
        (plugin, {"GET": plugins.plugin_config}),
        (f"{plugin}/validate", {"PUT": plugins.validate}),
        ("/admin/loggers", {"GET": plugins.loggers}),
        ("/admin/loggers/{logger}", {"GET": plugins.logger, "PUT": plugins.set_logger}),
    ]
    return [Route(path, _endpoint(acts), methods=list(acts)) for path, acts in table]


def make_app(answers: Answers, *, token: str) -> ASGIApp:
    """Return the application; an empty token lets in everybody who reaches it by loopback."""
    handlers: dict[Any, Any] = {
        RequestError: _refused,
        ChangelogError: _failed,
        HTTPException: _unrouted,
        Exception: _broken,
    }
    return _Guard(Starlette(routes=routes(answers), exception_handlers=handlers), token)


def _endpoint(acts: dict[str, Act]) -> Callable[[Request], Awaitable[Response]]:
    async def run(request: Request) -> Response:
        body = await _body(request)
        asked = Asked(request.path_params, request.query_params.multi_items(), body)
        act = acts["GET" if request.method == "HEAD" else request.method]
        answer = await run_in_threadpool(act, asked)
        headers = {"Location": answer.location} if answer.location else None
        if answer.body is None:
            return Response(status_code=answer.code, headers=headers)
        return JSONResponse(answer.body, answer.code, headers)

    return run


async def _body(request: Request) -> Any:  # noqa: ANN401 - any JSON
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > MOST_BYTES:
            raise RequestError(413, f"a request has {MOST_BYTES} bytes at most")
    if not raw:
        return None
    # A page of another site may send forms and texts to loopback, but no JSON, without being asked.
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "a body is application/json")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is no JSON") from None


def _error(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error_code": code, "message": message}, code, headers)


def _refused(_: Request, error: RequestError) -> Response:
    return _error(error.code, error.message)


def _failed(_: Request, error: ChangelogError) -> Response:
    code = 400 if isinstance(error, ConfigurationError) else 500
    return _error(code, one_line(error))


def _unrouted(_: Request, error: HTTPException) -> Response:
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


def _broken(_: Request, __: Exception) -> Response:
    return _error(500, "the request failed: the log of this worker says why")


class _Guard:
    """Lets in who may ask, no more often than is good, and hears paths with a slash at the end."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()
        self._left, self._counted = BURST, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        refusal = self._refusal(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        path = scope["path"]
        if path.endswith("/") and path != "/":
            scope = {**scope, "path": path.rstrip("/")}
        try:
            await self._app(scope, receive, send)
        except Exception:
            log.exception("a request failed")

    def _refusal(self, headers: dict[str, bytes]) -> Response | None:
        if not self._may_pass():
            code = HTTPStatus.TOO_MANY_REQUESTS
            return _error(code, "too many requests", {"Retry-After": "1"})
        if self._token:
            if not hmac.compare_digest(_credential(headers.get("authorization", b"")), self._token):
                challenge = {"WWW-Authenticate": 'Bearer, Basic realm="connect"'}
                return _error(HTTPStatus.UNAUTHORIZED, "a token is needed", challenge)
        elif _host(headers.get("host", b"")) not in LOOPBACK:
            # A name of another site that leads to loopback: its pages would be let in.
            return _error(HTTPStatus.FORBIDDEN, "without a token, loopback alone is answered")
        return None

    def _may_pass(self) -> bool:
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._counted) * PER_SECOND)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _credential(said: bytes) -> bytes:
    """Return the token of a bearer, or the password of a basic authorization."""
    kind, _, rest = said.decode("latin-1").partition(" ")
    if kind.lower() == _BEARER:
        return rest.strip().encode("latin-1")
    if kind.lower() == _BASIC:
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _host(said: bytes) -> str:
    try:
        return urlsplit(f"//{said.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""
