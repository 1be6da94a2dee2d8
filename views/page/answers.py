"""Handlers of the page's URLs."""

from __future__ import annotations

import json
import logging
import secrets
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import anyio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from changelog.connect.http.rights import Rights
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.edge import one_line
from views.generations.history import last_states
from views.page.access import COOKIE, Access
from views.page.actions import ACTIONS, Action, ActionPlan, ActionResult, act
from views.page.changes import ChangeStreams
from views.page.line.cells import Cell, cells, duration, moment, size
from views.page.line.charts import charts
from views.page.line.sources import Line, ServerAnswers
from views.page.line.standing import PROOFS, ViewLine

log = logging.getLogger("changelog.page")

ROOT = "/page"
_ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MOST_FORM = 4096
_MOST_RESULTS = 100
_SEE_OTHER = 303


class PageAnswers:
    """Answers the requests to the page of one worker."""

    def __init__(self, folder: Path, access: Access, rights: Rights) -> None:
        self._folder, self._access = folder, access
        self._sources = ServerAnswers(folder)
        self._live = _Live(self._sources)
        self._changes = ChangeStreams(self._sources, access, rights)
        self._results: OrderedDict[str, tuple[str, ActionResult]] = OrderedDict()
        self._acts = threading.Lock()

    def app(self) -> Starlette:
        """Return the application."""
        view = f"{ROOT}/views/{{name}}"
        table: list[tuple[str, Callable[[Request], Awaitable[Response]], str]] = [
            (ROOT, self._for_people(self.line), "GET"),
            (view, self._for_people(self.view), "GET"),
            (f"{view}/{{action}}", self._for_people(self.confirm), "GET"),
            (f"{view}/{{action}}", self.act, "POST"),
            (f"{ROOT}/live", self.live, "GET"),
            ("/views/{name}/changes", self._changes.answer, "GET"),
            (f"{ROOT}/sign-in", self.sign_in_form, "GET"),
            (f"{ROOT}/sign-in", self.sign_in, "POST"),
            (f"{ROOT}/sign-out", self.sign_out, "POST"),
            (f"{ROOT}/assets/{{name}}", self.asset, "GET"),
        ]
        handlers: dict[Any, Any] = {HTTPException: self._unrouted, Exception: self._broken}
        return Starlette(
            routes=[Route(path, act, methods=[method]) for path, act, method in table],
            exception_handlers=handlers,
        )

    def end(self) -> None:
        """End the open streams."""
        self._live.end()
        self._changes.end()

    async def line(self, request: Request, code: str) -> Response:
        """Show the line."""
        line = await run_in_threadpool(self._sources.line)
        return self._page(request, "line", code, line=line, cells=cells(line))

    async def view(self, request: Request, code: str) -> Response:
        """Show one view."""
        name, key = request.path_params["name"], request.query_params.get("key", "")
        line = await run_in_threadpool(self._sources.line)
        view_line = self._one(line, name)
        rows = self._sources.rows(name)
        newest = sorted(last_states(rows).values(), key=lambda row: -row.generation)
        with_proof = [row for row in reversed(rows) if row.certificate]
        serving = [row for row in with_proof if row.generation == view_line.serving]
        explanation = await run_in_threadpool(origin, self._folder, name, key) if key else None
        result = self._results.get(request.query_params.get("done", ""))
        return self._page(
            request,
            "view",
            code,
            view=view_line,
            generations=newest[:50],
            charts=charts(rows),
            certificate=next(iter(serving or with_proof), None),
            proofs=PROOFS,
            key=key,
            explanation=explanation,
            result=result[1] if result is not None and result[0] == name else None,
        )

    async def confirm(self, request: Request, code: str) -> Response:
        """Show the plan of an action, and ask for a confirmation."""
        action, name = self._action(request), request.path_params["name"]
        try:
            plan = await run_in_threadpool(lambda: action.plan(self._sources.project(), name))
        except ChangelogError as error:
            plan = ActionPlan(serving=None, to=None, sinks=(), why=one_line(error))
        return self._page(request, "confirm", code, action=action, plan=plan, name=name)

    async def act(self, request: Request) -> Response:
        """Carry out an action that the visitor confirmed."""
        form = await _form(request)
        if not self._access.lets_in(request):
            raise HTTPException(401, "Sign in first.")
        if not self._access.is_own_form(request, form.get("code", "")):
            raise HTTPException(403, "The form has expired: load the page again.")
        action, name = self._action(request), request.path_params["name"]
        if form.get("sure") != "yes":
            raise HTTPException(400, "The action was not confirmed.")
        confirmed = ActionPlan(serving=_number(form, "serving"), to=_number(form, "to"), sinks=())
        result = await run_in_threadpool(self._act, action, name, confirmed)
        mark = secrets.token_hex(8)
        self._results[mark] = (name, result)
        while len(self._results) > _MOST_RESULTS:
            self._results.popitem(last=False)
        return _see(f"{ROOT}/views/{quote(name)}?{urlencode({'done': mark})}")

    async def live(self, request: Request) -> Response:
        """Stream the cells of the page that change."""
        if not self._access.lets_in(request):
            raise HTTPException(401, "Sign in first.")
        return self._live.response()

    async def sign_in_form(self, request: Request) -> Response:
        """Ask for the token."""
        return self._ask(request.query_params.get("to", ROOT))

    async def sign_in(self, request: Request) -> Response:
        """Sign a visitor in who sends the token."""
        form = await _form(request)
        to = _own_path(form.get("to", ROOT))
        if not self._access.admission.is_token(form.get("token", "").strip().encode()):
            return self._ask(to, status=401, wrong=True)
        response = _see(to)
        self._access.sign_in(response, signed=True)
        return response

    async def sign_out(self, request: Request) -> Response:
        """Sign the visitor out."""
        form = await _form(request)
        if not self._access.is_own_form(request, form.get("code", "")):
            raise HTTPException(403, "The form has expired: load the page again.")
        try:
            await run_in_threadpool(self._access.sign_out, request)
        except ChangelogError as error:
            raise HTTPException(503, f"You are still signed in: {one_line(error)}") from None
        response = _see(f"{ROOT}/sign-in")
        response.delete_cookie(COOKIE, path="/")
        return response

    async def asset(self, request: Request) -> Response:
        """Return a stylesheet, script or icon; they are public."""
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404, "There is no such file.")
        headers = {**_HEADERS, "Cache-Control": "max-age=300"}
        return FileResponse(_FOLDER / "assets" / name, headers=headers, media_type=_ASSETS[name])

    def _for_people(
        self, show: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that redirects to the sign-in if needed, and sets a missing cookie."""

        async def answer(request: Request) -> Response:
            if not self._access.is_local(request):
                raise HTTPException(403, "Without a token only requests by loopback are answered.")
            if not self._access.lets_in(request):
                return _see(f"{ROOT}/sign-in?{urlencode({'to': request.url.path})}")
            cookie = self._access.cookie(request)
            cookies = Response()
            if not cookie:
                cookie = self._access.sign_in(cookies, signed=False)
            response = await show(request, self._access.form_code(cookie))
            for name, value in cookies.raw_headers:
                if name == b"set-cookie":
                    response.raw_headers.append((name, value))
            return response

        return answer

    def _act(self, action: Action, name: str, confirmed: ActionPlan) -> ActionResult:
        with self._acts:
            try:
                project = self._sources.project()
            except ChangelogError as error:
                return ActionResult(False, one_line(error))
            result = act(self._folder, action, project, name, confirmed)
        log.info("%s of view %s on the page: %s", action.name, name, result.text)
        self._sources.ask_again()
        return result

    def _page(self, request: Request, template: str, code: str, **values: object) -> Response:
        signed = self._access.needs_token and self._access.is_signed_in(request)
        return _rendered(template, values, code=code, signed=signed)

    def _ask(self, to: str, *, status: int = 200, wrong: bool = False) -> Response:
        if not self._access.needs_token:
            return _see(ROOT)
        to = _own_path(to)
        return _rendered("sign_in", {"to": to, "wrong": wrong}, status=status)

    @staticmethod
    def _action(request: Request) -> Action:
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise HTTPException(404, "There is no such page.")
        return action

    @staticmethod
    def _one(line: Line, name: str) -> ViewLine:
        view = next((view for view in line.views if view.declared.name == name), None)
        if view is None:
            raise HTTPException(404, f"The project has no view {name!r}.")
        return view

    async def _unrouted(self, _: Request, error: HTTPException) -> Response:
        return self._failed(error.status_code, error.detail)

    async def _broken(self, _: Request, __: Exception) -> Response:
        return self._failed(500, "The request failed; see the log of this worker.")

    def _failed(self, code: int, message: str) -> Response:
        titles = {401: "Not signed in", 403: "Not allowed", 404: "Not found"}
        title = titles.get(code, "That did not work")
        return _rendered("error", {"title": title, "message": message}, status=code)


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        HTTPException: the body is not a form, or too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "The body is not a form.")
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > _MOST_FORM:
            raise HTTPException(413, "The form is too large.")
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException(400, "The body is not a form.") from None


def _number(form: dict[str, str], name: str) -> int | None:
    text = form.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004


def _own_path(to: str) -> str:
    """Return a path if it belongs to the page, else the page's root."""
    is_own = to == ROOT or to.startswith(f"{ROOT}/")
    return to if is_own and "\\" not in to and to.isprintable() else ROOT


def _see(path: str) -> RedirectResponse:
    return RedirectResponse(path, _SEE_OTHER, dict(_HEADERS))


ORIGIN_S = 120.0
MOST_CHARACTERS = 100_000
_TURN = threading.Lock()
"""Held while a row is explained: one at a time, because each is a process that may need Spark."""


def origin(folder: Path, view: str, key: str) -> str:
    """Return the explanation of a row as text, or the reason why there is none."""
    if not _TURN.acquire(blocking=False):
        return "another row is being explained: try again"
    try:
        return _origin(folder, view, key)
    finally:
        _TURN.release()


def _origin(folder: Path, view: str, key: str) -> str:
    command = [sys.executable, "-m", "views", "--project", str(folder), view, f"--explain={key}"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=ORIGIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ORIGIN_S:.0f} s"
    except ValueError:
        return "that is not a key"
    output = (ran.stdout + ran.stderr).strip()
    if len(output) > MOST_CHARACTERS:
        return f"{output[:MOST_CHARACTERS]}\n… ({len(output):,} characters in all)"
    return output or "the command printed nothing"


_EVERY_S = 2.0
_MOST = 32
"""Most streams at once: every open page has one."""
_NAP_S = 0.25


class _Live:
    """The streams of cells to open pages."""

    def __init__(self, sources: ServerAnswers) -> None:
        self._sources = sources
        self._ended = threading.Event()
        self._open = 0

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    def response(self) -> StreamingResponse:
        """Return a stream, which lasts until the page is closed."""
        if self._open >= _MOST:
            raise HTTPException(503, f"{_MOST} pages are open already.")
        return StreamingResponse(
            self._events(), media_type="text/event-stream", headers=dict(_HEADERS)
        )

    async def _events(self) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield "retry: 3000\n\n"
            sent_cells: dict[str, Cell] = {}
            while not self._ended.is_set():
                current_cells = cells(await run_in_threadpool(self._line))
                if sent_cells and current_cells.keys() != sent_cells.keys():
                    yield "event: views\ndata: {}\n\n"
                    return
                changed = {
                    name: {"text": cell.text, "state": cell.state}
                    for name, cell in current_cells.items()
                    if sent_cells.get(name) != cell
                }
                yield f"event: cells\ndata: {json.dumps(changed)}\n\n"
                sent_cells = current_cells
                await self._rest()
        finally:
            self._open -= 1

    def _line(self) -> Line:
        return self._sources.line(wait_s=0.0)

    async def _rest(self) -> None:
        until = time.monotonic() + _EVERY_S
        while time.monotonic() < until and not self._ended.is_set():  # noqa: ASYNC110 - by a signal
            await anyio.sleep(_NAP_S)


_FOLDER = Path(__file__).parent
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With no-referrer a browser would send `Origin: null` with our own forms too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "moment": moment,
        "size": size,
        "tojson_text": lambda value: json.dumps(value, indent=2, default=str, ensure_ascii=False),
    }
    return environment


def _rendered(
    name: str,
    values: Mapping[str, object],
    *,
    code: str = "",
    signed: bool = False,
    status: int = 200,
) -> HTMLResponse:
    """Render a template with values, whose texts are escaped.

    `code` is the code for its forms; `signed` says whether the visitor can sign out.
    """
    text = _templates().get_template(f"{name}.html").render(values, code=code, signed=signed)
    return HTMLResponse(text, status, dict(_HEADERS))
