"""`changelog push` on a real broker: processes that are killed, receivers that fail."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import count

import pytest
from standardwebhooks.webhooks import Webhook

from tests.support.topic_view import TopicView
from tests.support.wait import wait_until
from tests.support.webhooks import webhooks

pytestmark = pytest.mark.services
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SOON_S = 120


class Pushed:
    """A view in a topic, what its rows must be, and processes that push it."""

    def __init__(self, root, endpoints, url):
        self.view = TopicView.alone(root, endpoints)
        self.rows: dict[int, str | None] = {n: f"n{n}" for n in range(50)}
        self.view.build(1, 0x100, {n: f"n{n}" for n in range(50)})
        self.view.publish(1)
        self._lsn, self._url = count(0x200, 0x10), url

    def change(self, changes):
        self.view.forward(1, next(self._lsn), changes)
        self.rows |= changes

    def truth(self):
        return {
            json.dumps({"id": key}, separators=(",", ":")): {"id": key, "name": name}
            for key, name in self.rows.items()
            if name is not None
        }

    def start(self, *words):
        command = [sys.executable, "-m", "changelog", "push", "names", "--to", self._url]
        return subprocess.Popen(
            [*command, *words],
            cwd=self.view.root,
            env={**os.environ, "CHANGELOG_WEBHOOK_SECRET": SECRET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=SOON_S)
        return process.returncode, out, err


def more_than(hooks, count):
    return len(hooks.taken) > count


@pytest.fixture
def hooks():
    with webhooks() as made:
        yield made


@pytest.fixture
def line(stack, tmp_path, hooks):
    return Pushed(tmp_path / "project", stack.endpoints(), hooks.url)


def test_all_rows_and_then_what_changes_reach_the_receiver_signed(line, hooks):
    code, _, err = line.run("--once")
    assert code == 2, err
    assert "--since start" in err
    code, out, err = line.run("--since", "start", "--once", "--json")
    assert code == 0, err
    assert json.loads(out)["delivered"] == 50
    assert hooks.rows() == line.truth()
    line.change({3: None, 4: "four", 99: "new"})
    code, out, err = line.run("--once", "--json")
    assert code == 0, err
    assert json.loads(out)["delivered"] == 3
    assert hooks.rows() == line.truth()
    for request in hooks.taken:
        Webhook(SECRET).verify(request.body.decode(), request.headers)
    assert SECRET not in err


def test_a_process_that_is_killed_sends_again_the_same_and_loses_nothing(line, hooks):
    turns: Counter[str] = Counter()

    def decide(request):
        turns["all"] += 1
        time.sleep(0.002)
        return (503 if turns["all"] % 7 == 0 else 200), {}

    hooks.decide = decide
    process = line.start("--since", "start")
    for round_ in range(4):
        line.change({n: f"r{round_}-{n}" for n in range(round_, 50, 2)} | {round_ + 40: None})
        before = len(hooks.taken)
        wait_until(partial(more_than, hooks, before + 5), SOON_S, "some events")
        process.kill()
        process.communicate()
        process = line.start()
    wait_until(lambda: hooks.rows() == line.truth(), SOON_S, "all rows")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert hooks.order_is_kept()
    sent = Counter(request.headers["webhook-id"] for request in hooks.taken)
    assert max(sent.values()) > 1, "something was sent twice, or nothing was tried"


def test_a_refused_event_is_kept_with_the_reason(line, hooks):
    hooks.decide = lambda request: (422 if request.row["id"] == 7 else 200, {})
    code, out, err = line.run("--since", "start", "--once", "--json")
    assert code == 0, err
    assert json.loads(out)["refused"] == 1
    sink = line.view.sink
    (message,) = sink._server.records(f"{sink._topic}.refused")
    letter = json.loads(message.value())
    assert letter["status"] == 422
    assert letter["reason"] == "no row of mine, token=***"
    assert letter["event"]["data"]["row"] == {"id": 7, "name": "n7"}
    assert json.loads(message.key()) == {"id": 7}


def test_a_second_process_under_one_name_ends_the_first(line, hooks):
    first = line.start("--since", "start")
    try:
        wait_until(lambda: len(hooks.taken) >= 50, SOON_S, "all rows")
        second = line.start("--since", "now")
        try:
            wait_until(lambda: second.poll() is not None or _claimed_twice(line), SOON_S, "a claim")
            line.change({1: "one"})
            _, err = first.communicate(timeout=SOON_S)
            assert first.returncode == 5, err
            assert "another process pushes" in err
            wait_until(lambda: hooks.rows() == line.truth(), SOON_S, "the change")
        finally:
            second.terminate()
            second.communicate(timeout=60)
    finally:
        first.kill()
        first.communicate()


def _claimed_twice(line):
    sink = line.view.sink
    records = sink._server.records(f"{sink._topic}.pushes")
    return len({json.loads(message.value())["run"] for message in records}) == 2


def test_an_address_that_redirects_ends_with_one_line_and_the_place_stays(line, hooks):
    hooks.decide = lambda _: (308, {"Location": "http://127.0.0.1:1/"})
    code, out, err = line.run("--since", "start", "--once")
    assert (code, out) == (1, ""), err
    assert "308" in err
    hooks.decide = lambda _: (200, {})
    code, _, err = line.run("--once")
    assert code == 0, err
    assert hooks.rows() == line.truth()
