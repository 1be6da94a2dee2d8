"""What others than its users send to `changelog serve`, on real sockets."""

import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import httpx
import pytest
import uvicorn

from changelog.connect import cli
from changelog.connect.answers import WorkerAnswers
from changelog.connect.api import make_app
from changelog.connect.http import guard
from changelog.connect.http import listening as sockets
from changelog.connect.http.admission import Admission
from changelog.connect.http.listening import Connection, listening
from changelog.connect.rules.state import ConnectCluster
from tests.support.wait import wait_until

TOKEN = "token-canary-0123456789"
CONFIG = {"topics": "t", "connection.url": "postgresql://db/app", "connection.user": "ann"}
MADE = {"name": "c", "config": CONFIG}


class MemoryStore:
    """A store whose topic is this process's."""

    def __init__(self):
        self._cluster, self._turn = ConnectCluster(), threading.RLock()
        self.group = "g"

    @contextmanager
    def read(self):
        with self._turn:
            yield self._cluster

    def write(self, records):
        with self._turn:
            for key, value in records:
                self._cluster.take(key, value)


@contextmanager
def served(token="", beside=()):
    app = make_app(
        WorkerAnswers(MemoryStore(), worker="w", cluster_id="c"),  # type: ignore[arg-type]
        Admission(token.encode()),
        beside,
    )
    listener = listening("127.0.0.1", 0)
    config = uvicorn.Config(app, log_config=None, http=Connection, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with closing(listener):
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def connected(url):
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10)


@pytest.fixture(scope="module")
def url():
    with served() as found:
        httpx.post(f"{found}/connectors", json=MADE).raise_for_status()
        yield found


FROM_A_PAGE = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "null"},
    {"Origin": "null", "Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/connectors"),
        ("POST", "/connectors/c/restart?includeTasks=true"),
        ("POST", "/connectors/c/tasks/0/restart"),
        ("PUT", "/connectors/c/pause"),
        ("PUT", "/connectors/c/stop"),
        ("PUT", "/admin/loggers/root"),
        ("PATCH", "/connectors/c/config"),
        ("DELETE", "/connectors/c"),
        ("GET", "/connectors/c/offsets"),
    ],
)
def test_a_page_of_another_site_does_nothing(url, method, path):
    body = {"name": "d", "config": CONFIG} if path == "/connectors" else None
    for headers in FROM_A_PAGE:
        answer = httpx.request(method, url + path, headers=headers, json=body)
        assert answer.status_code == 403, (headers, answer.text)
    assert httpx.get(f"{url}/connectors").json() == ["c"]
    assert httpx.get(f"{url}/connectors/c/status").json()["connector"]["state"] == "RUNNING"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_a_body_that_a_page_may_send_unasked_is_not_read(url, kind):
    body = b'{"name": "d", "config": {"topics": "t", "connection.url": "postgresql://db/app"}}'
    headers = {} if kind is None else {"Content-Type": kind}
    assert httpx.post(f"{url}/connectors", content=body, headers=headers).status_code == 415
    put = httpx.put(f"{url}/connectors/c/config", content=body, headers=headers)
    assert put.status_code == 415


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
    ],
)
def test_scripts_and_what_comes_from_here_pass(url, headers):
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    for said in (headers, own):
        for path in ("pause", "resume"):
            answer = httpx.put(f"{url}/connectors/c/{path}", headers=said)
            assert answer.status_code == 202, answer.text
        assert httpx.post(f"{url}/connectors/c/restart", headers=said).status_code == 204


def test_a_password_that_a_browser_remembers_is_of_no_use_to_another_site():
    with served(TOKEN) as url:
        elsewhere = {"Origin": "https://evil.example"}
        answer = httpx.put(f"{url}/connectors/c/pause", headers=elsewhere, auth=("x", TOKEN))
        assert answer.status_code == 403
        assert httpx.put(f"{url}/connectors/c/pause", auth=("x", TOKEN)).status_code == 404


@pytest.mark.parametrize("text", [r'{"name": "\ud800", "config": {}}', r'{"a": ["\udfff"]}'])
def test_half_of_a_surrogate_pair_is_the_askers_mistake(url, text):
    kind = {"Content-Type": "application/json"}
    for method, path in (("POST", "/connectors"), ("PUT", "/connectors/c/config")):
        answer = httpx.request(method, url + path, content=text, headers=kind)
        assert answer.status_code == 400


def test_connections_that_ask_nothing_keep_nobody_out(url):
    opened = []
    try:
        for number in range(sockets.MOST + 20):
            one = connected(url)
            if number % 2:
                one.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            opened.append(one)
        assert httpx.get(f"{url}/health", timeout=10).status_code == 200
    finally:
        for one in opened:
            one.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: l", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"]
)
def test_a_connection_that_asks_nothing_is_closed(monkeypatch, said):
    monkeypatch.setattr(sockets, "ASKS_S", 0.5)
    with served() as url, connected(url) as one:
        one.sendall(said)
        while one.recv(4096):  # the deadline of the socket ends one that is kept
            pass


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.3)
    with served() as url, connected(url) as one:
        one.sendall(
            b"POST /connectors HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert b" 408 " in one.recv(4096)


POST = b"POST /connectors HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(url):
    with closing(connected(url)) as one:
        one.sendall(POST + b"Content-Length: 99999999999999\r\n\r\n{")
        assert b" 413 " in one.recv(4096)


def test_a_client_that_hangs_up_is_told_in_a_line(url, caplog):
    with caplog.at_level("INFO", "changelog"):
        with closing(connected(url)) as one:
            one.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        wait_until(lambda: "closed its connection" in caplog.text, 30, "it is noticed")
    assert "Traceback" not in caplog.text


def test_who_has_no_token_uses_up_nothing_of_those_who_have(monkeypatch):
    monkeypatch.setattr(guard, "PER_SECOND", 0.1)  # no machine is so slow that 500 have room
    with served(TOKEN) as url, httpx.Client() as stranger, httpx.Client() as owner:
        codes = {stranger.get(f"{url}/connectors").status_code for _ in range(500)}
        assert codes == {401, 429}
        own = {"Authorization": f"Bearer {TOKEN}"}
        started = time.monotonic()
        codes = {owner.get(f"{url}/health", headers=own).status_code for _ in range(50)}
        assert codes == {200}, time.monotonic() - started


class SignIn:
    """A page that everybody may send a form to, and that nobody was let in by."""

    per_second = guard.PER_SECOND

    def __init__(self):
        self.waiting = 0

    async def app(self, scope, receive, send):
        self.waiting += 1
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass

    def takes(self, path):
        return path.startswith("/page")

    def admits(self, scope):
        return False

    def is_for_links(self, path, query):
        return True

    def is_for_pages(self, scope):
        return False

    def end(self):
        pass


def test_forms_of_strangers_that_never_come_whole_keep_nobody_out():
    page = SignIn()
    half = b"POST /page/sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nt"
    with served(TOKEN, [page]) as url, ExitStack() as opened:
        for _ in range(guard.AT_ONCE + 20):
            opened.enter_context(connected(url)).sendall(half)
        wait_until(lambda: page.waiting == guard.AT_ONCE, 30, "as many are answered as may be")
        own = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/connectors", headers=own, timeout=10).status_code == 200
        assert httpx.get(f"{url}/page/sign-in", timeout=10).status_code == 503


def test_a_name_that_leads_here_uses_up_nothing():
    with served() as url, httpx.Client() as client:
        for _ in range(300):
            client.get(f"{url}/connectors", headers={"Host": "evil.example"})
        assert client.get(f"{url}/health").status_code == 200
        wait_until(lambda: client.get(f"{url}/connectors").status_code == 200, 10, "it answers")


def test_a_token_is_made_for_its_owner_alone(tmp_path):
    made = cli._token(tmp_path / "token")
    assert len(made) == 64
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert cli._token(tmp_path / "token") == made
