"""The REST interface over HTTP: paths, bodies, and the answers to errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from changelog.connect.answers import WorkerAnswers
from changelog.connect.http.additions import Addition
from changelog.connect.http.admission import Admission
from changelog.connect.http.bodies import whole_body
from changelog.connect.http.guard import Guard, error_answer
from changelog.connect.plugins import Plugins
from changelog.connect.requests import ApiRequest, HttpAnswer, RequestError
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import one_line

MOST_BYTES = 1 << 20  # the longest body of a request
Act = Callable[[ApiRequest], HttpAnswer]


def routes(answers: WorkerAnswers) -> list[Route]:
    """Return the routes of the interface."""
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
            {"GET": places.offsets, "PATCH": places.alter_offsets, "DELETE": places.reset_offsets},
        ),
        ("/connector-plugins", {"GET": plugins.plugins}),
        (plugin, {"GET": plugins.plugin_config}),
        (f"{plugin}/validate", {"PUT": plugins.validate}),
        ("/admin/loggers", {"GET": plugins.loggers}),
        ("/admin/loggers/{logger}", {"GET": plugins.logger, "PUT": plugins.set_logger}),
    ]
    return [Route(path, _endpoint(acts), methods=list(acts)) for path, acts in table]


def make_app(
    answers: WorkerAnswers, admission: Admission, additions: Sequence[Addition] = ()
) -> ASGIApp:
    """Return the application; the additions answer the paths that are theirs."""
    handlers: dict[Any, Any] = {
        RequestError: _refused,
        ChangelogError: _failed,
        HTTPException: _unrouted,
        Exception: _broken,
    }
    app = Starlette(routes=routes(answers), exception_handlers=handlers)
    return Guard(app, admission, additions)


def _endpoint(acts: dict[str, Act]) -> Callable[[Request], Awaitable[Response]]:
    async def run(request: Request) -> Response:
        body = await _body(request)
        call = ApiRequest(request.path_params, request.query_params.multi_items(), body)
        act = acts["GET" if request.method == "HEAD" else request.method]
        answer = await run_in_threadpool(act, call)
        headers = {"Location": answer.location} if answer.location else None
        if answer.body is None:
            return Response(status_code=answer.code, headers=headers)
        return JSONResponse(answer.body, answer.code, headers)

    return run


async def _body(request: Request) -> Any:  # noqa: ANN401 - any JSON
    raw = await whole_body(request, MOST_BYTES)
    if not raw:
        return None
    # A browser lets a page of another site send forms, plain text and untyped bytes here, but JSON
    # only after this server has allowed it.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "a body needs the header Content-Type: application/json")
    try:
        body = json.loads(raw)
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(400, "the body has a text with half of a surrogate pair") from None
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    return body


def _refused(_: Request, error: RequestError) -> Response:
    return error_answer(error.code, error.message)


def _failed(_: Request, error: ChangelogError) -> Response:
    code = 400 if isinstance(error, ConfigurationError) else 500
    return error_answer(code, one_line(error))


def _unrouted(_: Request, error: HTTPException) -> Response:
    return error_answer(error.status_code, f"HTTP {error.status_code} {error.detail}")


def _broken(_: Request, __: Exception) -> Response:
    return error_answer(500, "the request failed; see the log of this worker")
