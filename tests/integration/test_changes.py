"""`GET /views/NAME/changes`: no change is missed, whoever is killed, and no frontier is half."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.connect_worker import FORGETS
from tests.support.connect_workers import running
from tests.support.topic_view import Reader, TopicView
from tests.support.wait import wait_until

DEADLINE_S = 120
TOKEN = "token-canary-0123456789"


@pytest.fixture
def view(stack, tmp_path):
    made = TopicView.alone(tmp_path / "project", stack.endpoints())
    made.build(1, 0x10, {n: f"first {n}" for n in range(1, 2_001)})
    made.publish(1)
    return made


class Client:
    """An application that follows the view, and goes on whenever it loses the server."""

    def __init__(self) -> None:
        self.url = ""
        self.reader = Reader()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def has(self, lsn: str, generation: int) -> None:
        """Wait until it has come to a frontier."""
        wait_until(
            lambda: self.reader.frontiers and self.reader.frontiers[-1][:2] == (lsn, generation),
            DEADLINE_S,
            f"the client is at {lsn} of generation {generation}",
        )

    def _follow(self) -> None:
        while not self._ends.is_set():
            self.reader.reconnected()
            with suppress(httpx.TransportError):
                self._connected()
            self._ends.wait(0.05)

    def _connected(self) -> None:
        since = {"Last-Event-ID": self.reader.mark}
        with httpx.stream("GET", f"{self.url}/views/names/changes", headers=since) as stream:
            assert stream.status_code == 200, stream.read()
            for line in stream.iter_lines():
                self.reader.take(line)
                if self._ends.is_set():
                    return


def followed(stack, view, *words):
    """Let a client follow the view while its server is killed, and the view switched; return it."""
    group = f"g{uuid.uuid4().hex[:8]}"
    words = (*words, "--project", str(view.root))
    with ExitStack() as clients:
        client = Client()
        with running(stack.endpoints(), group, *words) as (url, process, _):
            client.url = url
            clients.enter_context(client)
            client.has("0/10", 1)
            for n in range(5):
                view.forward(1, 0x20 + n, {1: f"second {n}", 10 + n: None})
            client.has("0/24", 1)
            process.kill()
        # Nobody is there to tell of these.
        view.forward(1, 0x30, {2: "alone", 3: None})
        view.build(2, 0x38, {n: f"of two {n}" for n in range(100)})
        view.publish(2)
        with running(stack.endpoints(), group, *words) as (url, process, _):
            client.url = url
            view.forward(2, 0x40, {5: "after"})
            client.has("0/40", 2)
            process.kill()
        view.publish(1)
        with running(stack.endpoints(), group, *words) as (url, _, _):
            client.url = url
            view.forward(1, 0x50, {4: "back"})
            client.has("0/50", 1)
    return client.reader


def test_a_client_that_goes_on_has_the_view_at_each_frontier(stack, view):
    reader = followed(stack, view)
    assert reader.wrong(view.truth) == []
    assert {generation for _, generation, _ in reader.frontiers} == {1, 2}


def test_a_server_that_forgets_where_its_client_was_is_seen(stack, view):
    assert followed(stack, view, FORGETS).wrong(view.truth)


def test_the_example_of_the_page_follows(stack, view):
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text("utf-8")
    example = text.partition("```python\n")[2].partition("```")[0].replace("totals", "names")
    found: dict[str, Any] = {}

    def run(url):
        with suppress(httpx.HTTPError):  # the server ends
            exec(example.replace("http://127.0.0.1:8083", url), found)  # noqa: S102 - of our page

    words = ("--project", str(view.root))
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, _, _):
        assert url not in example
        thread = threading.Thread(target=run, args=[url])
        thread.start()
        wait_until(lambda: len(found.get("rows", ())) == 2_000, DEADLINE_S, "all rows are there")
        view.forward(1, 0x20, {1: "second", 2: None})
        wait_until(lambda: (2,) not in found["rows"], DEADLINE_S, "a row is gone")
        wait_until(lambda: found["mark"].startswith("0/20-"), DEADLINE_S, "the mark moves")
    thread.join()
    assert found["rows"][1,] == {"id": 1, "name": "second"}


def test_what_cannot_be_gone_on_from_is_told(stack, view, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    words = ("--project", str(view.root), "--token-file", str(token))
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, _, _):
        client = httpx.Client(
            base_url=f"{url}/views", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
        )

        def asked(since, name="names"):
            with client.stream("GET", f"/{name}/changes", params={"since": since}) as answer:
                if answer.status_code != 200:
                    return answer.status_code, answer.read().decode()
                reader = Reader()
                for line in answer.iter_lines():
                    reader.take(line)
                    if reader.frontiers:
                        return reader
            raise AssertionError("the stream ended")

        with client:
            assert httpx.get(f"{url}/views/names/changes").status_code == 401
            assert asked("0/1")[0] == 410
            assert asked("FF/0")[0] == 409
            assert asked("yesterday")[0] == 400
            assert asked("start", "none")[0] == 404
            whole = asked("start")
            assert len(whole.rows) == 2_000
            view.forward(1, 0x20, {1: None})
            # An LSN is enough for who has read the view elsewhere.
            assert asked("0/10").rows == {}
            assert asked(whole.mark).frontiers[0][:2] == ("0/20", 1)
            view.sink.drop()
            assert asked(whole.mark)[0] == 410
            view.build(1, 0x10, {1: "another"})
            view.publish(1)
            code, said = asked(whole.mark)
            assert (code, "built anew" in said) == (410, True)
            assert asked("start").rows == {1: "another"}
