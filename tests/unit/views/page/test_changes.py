"""A slow client fills no memory: the server makes the next event when the last one was taken."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from starlette.requests import Request

from changelog.connect.http.admission import Admission
from changelog.connect.http.rights import Rights
from changelog.sections import Http
from tests.support.memory_sessions import MemorySessions
from views.changes.feed import KeyChange, Nothing, Some
from views.changes.moments import GoneError
from views.page import changes as changes_module
from views.page.access import Access
from views.page.changes import ChangeStreams

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/views/v/changes",
    "path_params": {"name": "v"},
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


class Feed:
    """Has more than anybody takes."""

    def __init__(self, *, fails=False) -> None:
        self.made, self.closed, self._fails = 0, 0, fails

    def events(self):
        while True:
            self.made += 1
            if self._fails:
                raise GoneError("dropped")
            yield Nothing() if self.made % 2 else Some([KeyChange(b"{}", b"null", 0, 0)])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened(monkeypatch):
    admission = Admission(b"")
    access = Access.of(admission, is_tls=False, sessions=MemorySessions())

    def opened(feed):
        found = ChangeStreams(SimpleNamespace(), access, Rights(Http(), admission))  # type: ignore[arg-type]
        monkeypatch.setattr(found, "_begun", lambda *_: feed)
        return found

    return opened


async def run(changes, send) -> None:
    async def receive():
        await anyio.sleep_forever()

    response = await changes.answer(Request(SCOPE))
    await response(SCOPE, receive, send)


def test_a_client_that_takes_nothing_is_waited_for_and_then_let_go(opened, monkeypatch):
    monkeypatch.setattr(changes_module, "STALLED_S", 0.3)
    feed, taken = Feed(), []

    async def send(message):
        taken.append(message)
        if len(taken) > 5:
            await anyio.sleep_forever()

    changes = opened(feed)
    anyio.run(run, changes, send)
    assert len(taken) == 6
    assert feed.made <= 2 * len(taken)
    assert (feed.closed, changes._open) == (1, 0)


def test_a_stream_that_cannot_go_on_says_so(opened):
    feed, taken = Feed(fails=True), []

    async def send(message):
        taken.append(message.get("body", b""))

    anyio.run(run, opened(feed), send)
    assert b"event: broken\n" in b"".join(taken)
    assert b'"code":410' in b"".join(taken)
    assert feed.closed == 1


def test_more_clients_than_there_is_room_for_are_refused(opened, monkeypatch):
    monkeypatch.setattr(changes_module, "MOST", 0)
    answer = anyio.run(opened(Feed()).answer, Request(SCOPE))
    assert answer.status_code == 503
