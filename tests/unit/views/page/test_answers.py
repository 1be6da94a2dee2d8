"""Who gets in, what a form may do, and that texts of others stay texts: views.page over HTTP."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import httpx
import pytest
from starlette.types import ASGIApp

from changelog.connect.http.admission import Admission
from changelog.connect.http.rights import Rights
from changelog.contract.base.errors import UnavailableLogError
from changelog.sections import Http
from tests.support.memory_sessions import MemorySessions
from views.page import answers as answers_module
from views.page.access import COOKIE, Access
from views.page.actions import Action, ActionPlan, ActionResult
from views.page.answers import PageAnswers
from views.page.line.cells import cells
from views.page.line.looking import LastAnswer
from views.page.line.sources import Line
from views.page.line.standing import (
    DeclaredView,
    LineStanding,
    LogProgress,
    Severity,
    SinkState,
    view_line,
)

TOKEN = "token-canary-0123456789"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCRIPT = "<script>alert(1)</script>"


class AsgiClient:
    """Asks an application as if it were at http://localhost; follows no redirection."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self._app, self._headers = app, headers
        self.cookies = httpx.Cookies()

    def get(self, path: str) -> httpx.Response:
        return self._ask("GET", path)

    def post(self, path: str, **given) -> httpx.Response:
        return self._ask("POST", path, **given)

    def _ask(self, method: str, path: str, **given) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self._app),
                base_url="http://localhost",
                cookies=self.cookies,
                headers=self._headers,
            ) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return anyio.run(ask)


def made_line():
    view = view_line(
        DeclaredView(name="totals", sinks=("cache",), key=("id",), description=SCRIPT),
        sinks={"cache": LastAnswer(SinkState(2))},
        history=LastAnswer([]),
        log=LogProgress(),
        refused={},
        due=None,
        now=NOW,
    )
    return Line(
        at=NOW,
        folder=SCRIPT,
        slot=SCRIPT,
        capture=LastAnswer(None, SCRIPT),
        topics=LastAnswer(None, SCRIPT),
        views=(view,),
        unknown=(LineStanding(Severity.UNKNOWN, SCRIPT, SCRIPT),),
    )


@pytest.fixture
def asked():
    return []


@pytest.fixture
def sessions():
    return MemorySessions()


@pytest.fixture
def client(monkeypatch, tmp_path, asked, sessions):
    """Gives a client of a page by its token; what it shows is made up."""
    action = Action("rollback", "Roll back", lambda *_: (1, ("totals", "--rollback")))
    plan = ActionPlan(
        serving=2, to=1, sinks=("cache",), words=("totals", "--rollback"), note=SCRIPT
    )
    monkeypatch.setattr(Action, "plan", lambda *_: plan)
    monkeypatch.setattr(answers_module, "ACTIONS", {"rollback": action})

    def act(folder, action, project, view, confirmed):
        asked.append((view, confirmed.serving, confirmed.to))
        return ActionResult(True, SCRIPT)

    monkeypatch.setattr(answers_module, "act", act)

    def client(token="", **headers):
        access = Access.of(Admission(token.encode()), is_tls=False, sessions=sessions)
        found = PageAnswers(tmp_path, access, Rights(Http(), access.admission))
        found._sources = SimpleNamespace(  # type: ignore[assignment]
            line=lambda **_: made_line(), rows=lambda _: [], project=lambda: None, ask_again=list
        )
        return AsgiClient(found.app(), headers)

    return client


def code_of(text):
    found = re.search('name="code" value="([0-9a-f]+)"', text)
    assert found, text
    return found[1]


PATHS = ["/page", "/page/views/totals", "/page/views/totals/rollback"]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_shown(client, path) -> None:
    answer = client(TOKEN).get(path)
    assert (answer.status_code, answer.text) == (303, "")
    assert answer.headers["location"].startswith("/page/sign-in")
    assert client(TOKEN).get("/page/live").status_code == 401
    for form in ({"token": "wrong"}, {"token": ""}):
        answer = client(TOKEN).post("/page/sign-in", data=form)
        assert answer.status_code == 401
        assert COOKIE not in answer.cookies


def test_the_token_gives_a_cookie_that_holds_no_token(client) -> None:
    one = client(TOKEN)
    answer = one.post("/page/sign-in", data={"token": TOKEN, "to": "/page/views/totals"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/views/totals")
    said = answer.headers["set-cookie"]
    assert TOKEN not in said
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(said.split("; "))
    page = one.get("/page")
    assert page.status_code == 200
    assert one.post("/page/sign-out", data={"code": code_of(page.text)}).status_code == 303
    assert one.get("/page").status_code == 303


def test_a_cookie_of_another_token_or_one_that_was_changed_is_none(client) -> None:
    cookie = client(TOKEN).post("/page/sign-in", data={"token": TOKEN}).cookies[COOKIE]
    seen = client().get("/page").cookies[COOKIE]
    kind, end, *rest = cookie.split(".")
    error = [".".join([kind, str(int(end) + 1), *rest]), seen, seen.replace("seen", "signed")]
    for each in [*error, "signed.9999999999.x.y", "", "....", "signed.a.b.c"]:
        found = client(TOKEN, cookie=f"{COOKIE}={each}").get("/page")
        assert found.status_code == 303, each
    assert client(TOKEN + "x", cookie=f"{COOKIE}={cookie}").get("/page").status_code == 303
    assert client(TOKEN, cookie=f"{COOKIE}={cookie}").get("/page").status_code == 200


def test_after_signing_in_nobody_is_sent_to_another_site(client) -> None:
    for to in ["https://example.org", "//example.org", "/pager", "/page/\\example.org", ""]:
        answer = client(TOKEN).post("/page/sign-in", data={"token": TOKEN, "to": to})
        assert answer.headers["location"] == "/page"


def test_programs_carry_the_token_itself(client) -> None:
    assert client(TOKEN, Authorization=f"Bearer {TOKEN}").get("/page").status_code == 200
    assert client(TOKEN, Authorization="Bearer x").get("/page").status_code == 303


@pytest.mark.parametrize("path", ["/page", "/page/live"])
def test_without_a_token_other_names_than_loopback_get_nothing(client, path) -> None:
    found = client(host="example.org").get(path)
    assert found.status_code in {401, 403}
    assert "totals" not in found.text


@pytest.mark.parametrize("path", [*PATHS, "/page/views/none", "/page/none"])
def test_texts_stay_texts_and_every_answer_says_what_may_run(client, path) -> None:
    answer = client().get(path)
    assert SCRIPT not in answer.text
    assert "style=" not in answer.text
    assert re.findall("<script[^>]*>", answer.text) in (
        [],
        ['<script src="/page/assets/page.js" defer>'],
    )
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_every_cell_that_may_change_is_on_the_page(client, monkeypatch) -> None:
    """Also the command that mends, of what is well when the page is loaded."""
    well = replace(made_line(), topics=LastAnswer({"topics": [], "missing": []}))
    monkeypatch.setattr(f"{__name__}.made_line", lambda: well)
    assert well.log.mend == ""
    found = set(re.findall('data-live="([^"]+)"', client().get("/page").text))
    assert set(cells(well)) <= found


def confirmed(one, **changed) -> httpx.Response:
    page = one.get("/page/views/totals/rollback").text
    form = {"code": code_of(page), "serving": "2", "to": "1", "sure": "yes"} | changed
    found: httpx.Response = one.post("/page/views/totals/rollback", data=form)
    return found


def test_what_is_confirmed_is_done_once_and_told(client, asked) -> None:
    one = client()
    answer = confirmed(one)
    assert (answer.status_code, asked) == (303, [("totals", 2, 1)])
    told = one.get(answer.headers["location"]).text
    assert "&lt;script&gt;" in told
    assert "done</span>" in told


@pytest.mark.parametrize(
    ("changed", "code"), [({"code": "0" * 64}, 403), ({"code": ""}, 403), ({"sure": "no"}, 400)]
)
def test_a_form_of_another_visit_or_without_confirmation_does_nothing(
    client, asked, changed, code
) -> None:
    assert confirmed(client(), **changed).status_code == code
    assert not asked


def test_a_form_of_another_site_does_nothing(client, asked) -> None:
    one = client()
    page = one.get("/page/views/totals/rollback").text
    form = {"code": code_of(page), "serving": "2", "to": "1", "sure": "yes"}
    path = "/page/views/totals/rollback"
    foreign = one.post(path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
    one.cookies.clear()
    without = one.post(path, data=form)
    as_json = one.post(path, json=form)
    assert [each.status_code for each in (foreign, without, as_json)] == [403, 403, 415]
    assert not asked


def test_files_are_those_of_the_page_alone(client) -> None:
    one = client(TOKEN)
    assert one.get("/page/assets/page.css").headers["content-type"].startswith("text/css")
    for name in ["answers.py", "..%2Fanswers.py", "%2e%2e/answers.py"]:
        assert one.get(f"/page/assets/{name}").status_code == 404


def signed_in(client):
    found = client(TOKEN)
    form = {"token": TOKEN, "to": "/page"}
    assert found.post("/page/sign-in", data=form).status_code == 303
    return found


def test_a_copied_cookie_holds_no_longer_than_the_session(client, sessions) -> None:
    owner, thief = signed_in(client), client(TOKEN)
    thief.cookies.set(COOKIE, owner.cookies[COOKIE])
    page = thief.get("/page")
    assert page.status_code == 200
    code = code_of(owner.get("/page").text)
    sessions.away = UnavailableLogError("no answer")
    assert owner.post("/page/sign-out", data={"code": code}).status_code == 503
    assert owner.get("/page").status_code == 200
    sessions.away = None
    assert owner.post("/page/sign-out", data={"code": code}).status_code == 303
    assert thief.get("/page").headers["location"].startswith("/page/sign-in")
    assert thief.post("/page/sign-out", data={"code": code_of(page.text)}).status_code == 403
    assert client(TOKEN, Authorization=f"Bearer {TOKEN}").get("/page").status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        "é".encode(),
        "signed.9999999999.a.é".encode(),
        b"signed.\xb2.a.b",
        b"signed.9999999999.a.\xed\xa0\x80",
        b"\xff\xfe",
    ],
)
def test_a_cookie_of_other_letters_is_none(client, said) -> None:
    found = client(TOKEN)
    found._headers["cookie"] = COOKIE.encode() + b"=" + said
    assert found.get("/page").status_code == 303
    assert found.post("/page/sign-out", data={"code": "é"}).status_code == 403
