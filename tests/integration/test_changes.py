"""`GET /views/NAME/changes`: no change is missed, whoever is killed, and no frontier is half."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import threading
import time
import uuid
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.lsn import Lsn
from tests.support.beginnings import alter, delete_before
from tests.support.cleaning import present, wait_cleaned
from tests.support.connect_worker import FORGETS, HURRIES, READS_AHEAD, TRUSTS
from tests.support.connect_workers import running
from tests.support.log_writer import CLEAN_AT_ONCE
from tests.support.proxy import Proxy
from tests.support.subscriber import DEADLINE_S, Client, Reader
from tests.support.topic_view import DECLARED, TopicView
from tests.support.wait import wait_until

TOKEN = "token-canary-0123456789"


@pytest.fixture
def view(stack, tmp_path):
    made = TopicView.alone(tmp_path / "project", stack.endpoints())
    made.build(1, 0x10, {n: f"first {n}" for n in range(1, 2_001)})
    made.publish(1)
    return made


def followed(stack, view, *words):
    """Let a client follow the view while its server is killed, and the view switched; return it."""
    group = f"g{uuid.uuid4().hex[:8]}"
    words = (*words, "--project", str(view.root))
    with ExitStack() as clients:
        client = Client("names")
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
    assert client.refused == []
    return client.reader


@pytest.mark.matrix
def test_a_client_that_goes_on_has_the_view_at_each_frontier(stack, view):
    reader = followed(stack, view)
    assert reader.wrong(view.truth) == []
    assert {generation for _, generation, _ in reader.frontiers} == {1, 2}


@pytest.mark.matrix
def test_a_server_that_forgets_where_its_client_was_is_seen(stack, view):
    assert followed(stack, view, FORGETS).wrong(view.truth)


def test_the_example_of_the_page_follows(stack, view):
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text("utf-8")
    example = text.partition("```python\n")[2].partition("```")[0].replace("totals", "names")
    assert "time.sleep(1)" in example
    example = example.replace("time.sleep(1)", "raise")  # the server ends, and with it the test
    found: dict[str, Any] = {}

    def run(url):
        with suppress(httpx.TransportError):
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


@pytest.mark.matrix
def test_what_cannot_be_gone_on_from_is_told(stack, view, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    words = ("--project", str(view.root), "--token-file", str(token))
    for name, sink in (("tabled", "delta"), ("unbuilt", "topic")):
        text = DECLARED.replace("sinks: topic", f"sinks: {sink}")
        (view.root / "views" / f"{name}.sql").write_text(text, encoding="utf-8")
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
            for wrong in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer"}):
                refused = httpx.get(f"{url}/views/names/changes", headers=wrong, timeout=30)
                assert refused.status_code == 401, wrong
            assert asked("0/1")[0] == 410
            assert asked("FF/0")[0] == 409
            assert asked("yesterday")[0] == 400
            assert asked("start", "none")[0] == 404
            code, said = asked("start", "tabled")
            assert (code, "has no topic" in said, "rebuild-view tabled" in said) == (
                404,
                True,
                True,
            )
            # Who has no rows has none to forget.
            assert asked("start", "unbuilt")[0] == 404
            assert asked(f"0/10-5-00c0ffee-{int(time.time())}", "unbuilt")[0] == 410
            whole = asked("start")
            assert len(whole.rows) == 2_000
            view.forward(1, 0x20, {1: None})
            # An LSN is enough for who has read the view elsewhere.
            assert asked("0/10").rows == {}
            assert asked(whole.mark).frontiers[0][:2] == ("0/20", 1)
            view.sink.drop()
            assert asked(whole.mark)[0] == 410
            assert asked("start")[0] == 404
            view.build(1, 0x10, {1: "another"})
            view.publish(1)
            code, said = asked(whole.mark)
            assert (code, "built anew" in said) == (410, True)
            assert asked("start").rows == {1: "another"}


AT_ONCE = {name.replace(".", "_"): value for name, value in CLEAN_AT_ONCE.items()}
SHORT = {"min_compaction_lag_ms": 21_600_000, "max_compaction_lag_ms": None}
"""What is behind is cleaned no more, and was kept for a second."""


def gone_on_from_what_is_cleaned(stack, view, *words):
    """Let the cleaner take a delete that a client has not seen; return what the client then has."""
    kafka = KafkaConnection(brokers=stack.endpoints().brokers)
    topic = view.sink.address(1).location["topic"]
    words = (*words, "--project", str(view.root))
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, _, _):
        client = Client("names")
        client.url = url
        with client:
            client.has("0/10", 1)
        place = view.sink._server.end(topic)
        alter(kafka, topic, **AT_ONCE)
        view.forward(1, 0x20, {2: None})
        lsns = [0x20]

        def stir():
            lsns.append(lsns[-1] + 1)
            view.forward(1, lsns[-1], {1: "again"})

        deleted = [
            message.offset() or 0
            for message in present(kafka, topic, start=place)
            if message.value() is None
        ]
        wait_cleaned(kafka, stir, {topic: [(0, offset) for offset in deleted]})
        stir()  # what stands first behind the mark is new, and says nothing of what stood there
        newest = str(Lsn(lsns[-1]))
        alter(kafka, topic, **SHORT, delete_retention_ms=1_000)
        late = Client("names", client.reader)
        late.url = url
        with late:
            wait_until(lambda: late.refused or late.connected, DEADLINE_S, "an answer")
            if late.connected:
                alter(kafka, topic, delete_retention_ms=None)  # steps may take their time again
                late.has(newest, 1)
        alter(kafka, topic, delete_retention_ms=None)
        anew = Client("names")
        anew.url = url
        with anew:
            anew.has(newest, 1)
    assert not anew.reader.wrong(view.truth)
    return late


@pytest.mark.matrix
def test_a_mark_behind_which_deletes_were_cleaned_away_is_refused(stack, view):
    late = gone_on_from_what_is_cleaned(stack, view)
    assert {code for code, _ in late.refused} == {410}
    said = json.loads(late.refused[0][1])
    assert "deletes are kept for 1 s" in said["error"]
    assert "since=start" in said["hint"]
    assert not late.connected


@pytest.mark.matrix
def test_twin_a_server_that_trusts_every_mark_leaves_deleted_rows(stack, view):
    late = gone_on_from_what_is_cleaned(stack, view, TRUSTS)
    assert late.reader.wrong(view.truth)
    assert late.reader.rows[2] == "first 2"


@pytest.mark.matrix
def test_a_mark_stays_good_while_nothing_behind_it_was_cleaned_away(stack, view):
    """However old it is: what comes next stands right behind it."""
    kafka = KafkaConnection(brokers=stack.endpoints().brokers)
    topic = view.sink.address(1).location["topic"]
    words = ("--project", str(view.root))
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, _, _):
        first = Client("names")
        first.url = url
        with first:
            first.has("0/10", 1)
        _, place, life, written = first.reader.mark.split("-")
        first.reader.mark = f"0/10-{place}-{life}-{int(written) - 30 * 86_400}"
        view.forward(1, 0x20, {1: "second", 2: None})
        later = Client("names", first.reader)
        later.url = url
        with later:
            later.has("0/20", 1)
        assert not later.reader.wrong(view.truth)
        delete_before(kafka, topic, [int(place) + 2])
        removed = Client("names", Reader())
        removed.url, removed.reader.mark = url, f"0/10-{place}-{life}-{int(time.time())}"
        with removed:
            wait_until(lambda: removed.refused, DEADLINE_S, "an answer")
    code, said = removed.refused[0]
    assert (code, "was removed from the topic" in said) == (410, True)


ROW_BYTES, MANY_ROWS = 20_000, 1_600
READ_AHEAD_BYTES = 12 << 20
"""Of 43 MB of rows, which do not compress: what librdkafka fetches until it is full, and more."""


@contextmanager
def idle_client(stack, detour, root, *words):
    """Ask for a large view, and take nothing; gives what the server was sent, and is let go of."""
    settings = root / "changelog.toml"
    brokers = json.dumps(f"127.0.0.1:{detour.proxy}")
    text = re.sub("kafka.brokers = .*", f"kafka.brokers = {brokers}", settings.read_text())
    settings.write_text(text, encoding="utf-8")
    endpoints = replace(stack.endpoints(), brokers=json.loads(brokers))
    with (
        Proxy(detour.proxy, detour.listener) as proxy,
        running(endpoints, f"g{uuid.uuid4().hex[:8]}", HURRIES, *words, "--project", str(root)) as (
            url,
            process,
            _,
        ),
        closing(socket.socket()) as client,
    ):
        # The little that a kernel takes for a client that does not.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = url.removeprefix("http://").split(":")
        client.connect((host, int(port)))
        before = proxy.answered
        asked = f"GET /views/names/changes?since=start HTTP/1.1\r\nHost: {host}\r\n\r\n"
        client.sendall(asked.encode())
        ours = client.getsockname()[1]
        server = psutil.Process(process.pid)

        def holds():
            ends = [each for each in server.net_connections("tcp") if each.raddr]
            return any(each.raddr.port == ours for each in ends)

        wait_until(holds, DEADLINE_S, "the server has the connection")
        yield (lambda: proxy.answered - before), holds


@pytest.fixture
def large(stack, tmp_path):
    made = TopicView.alone(tmp_path / "project", stack.endpoints())
    made.build(1, 0x10, {})
    for first in range(0, MANY_ROWS, 200):
        names = {
            n: base64.b64encode(os.urandom(ROW_BYTES)).decode() for n in range(first, first + 200)
        }
        made.forward(1, 0x20 + first, names)
    made.publish(1)
    return made


@pytest.mark.matrix
def test_a_client_that_takes_nothing_costs_little_and_is_let_go(stack, detour, large):
    with idle_client(stack, detour, large.root) as (answered, holds):
        wait_until(lambda: not holds(), DEADLINE_S, "the client is let go")
        assert 0 < answered() < READ_AHEAD_BYTES


@pytest.mark.matrix
def test_twin_a_server_that_reads_ahead_is_seen(stack, detour, large):
    with idle_client(stack, detour, large.root, READS_AHEAD) as (answered, _):
        wait_until(lambda: answered() > READ_AHEAD_BYTES, DEADLINE_S, "it has read on")
