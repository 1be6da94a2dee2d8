"""The requests on HTTP: their paths, who may ask, how much and how often."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from changelog.connect.answers import Answers
from changelog.connect.http.additions import Addition
from changelog.connect.http.admission import Admission
from changelog.connect.plugins import Plugins
from changelog.connect.requests import Answer, Asked, RequestError
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import one_line

log = logging.getLogger("changelog.connect")

MOST_BYTES = 1 << 20
"""Of a request's body."""
PER_SECOND = 50.0
BURST = 200.0
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


def make_app(answers: Answers, admission: Admission, beside: Sequence[Addition] = ()) -> ASGIApp:
    """Return the application.

    Args:
        answers: of the worker.
        admission: who may ask.
        beside: what is served under other paths.
    """
    handlers: dict[Any, Any] = {
        RequestError: _refused,
        ChangelogError: _failed,
        HTTPException: _unrouted,
        Exception: _broken,
    }
    app = Starlette(routes=routes(answers), exception_handlers=handlers)
    return _Guard(app, admission, beside)


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

    def __init__(self, app: ASGIApp, admission: Admission, beside: Sequence[Addition]) -> None:
        self._app, self._admission, self._beside = app, admission, beside
        self._left, self._counted = BURST, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        own = next((each for each in self._beside if each.takes(path)), None)
        refusal = self._too_many() or (None if own else self._refusal(scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if path.endswith("/") and path != "/":
            scope = {**scope, "path": path.rstrip("/")}
        try:
            await (own.app if own else self._app)(scope, receive, send)
        except Exception:
            log.exception("a request failed")

    def _refusal(self, scope: Scope) -> Response | None:
        if self._admission.token:
            if not self._admission.has_token(scope["headers"]):
                challenge = {"WWW-Authenticate": 'Bearer, Basic realm="connect"'}
                return _error(HTTPStatus.UNAUTHORIZED, "a token is needed", challenge)
        elif not self._admission.is_local(scope["headers"]):
            return _error(HTTPStatus.FORBIDDEN, "without a token, loopback alone is answered")
        return None

    def _too_many(self) -> Response | None:
        if self._may_pass():
            return None
        code = HTTPStatus.TOO_MANY_REQUESTS
        return _error(code, "too many requests", {"Retry-After": "1"})

    def _may_pass(self) -> bool:
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._counted) * PER_SECOND)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
