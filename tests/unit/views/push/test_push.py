"""Webhooks: what is sent, what answers mean, and that order and places are kept."""

import base64
import json
import threading
import time
from collections import Counter

import pytest
from standardwebhooks.webhooks import Webhook

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from tests.support.wait import wait_until
from tests.support.webhooks import webhooks
from views.changes.feed import FeedFrontier, KeyChange, Nothing, Some
from views.changes.moments import Moment
from views.push import receiver as receiver_module
from views.push.events import Signer, event_of
from views.push.push import Pusher
from views.push.receiver import Receiver, ReceiverError, StoppedError, check_url

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
LIFE = "00c0ffee"


def change(offset, key, row):
    return KeyChange(
        json.dumps({"id": key}).encode(), json.dumps(row).encode(), offset, 1_764_000_000_000
    )


def event(offset=7, key=1, row=None):
    return event_of("shop.views.totals", LIFE, change(offset, key, row))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(receiver_module, "_backoff", lambda _: 0.01)


@pytest.fixture
def hooks():
    with webhooks() as made:
        yield made


def test_an_event_is_one_of_cloudevents_with_an_id_that_stays():
    from cloudevents.core.formats.json import JSONFormat

    made = event(7, 1, {"id": 1, "total": "7.50"})
    read = JSONFormat().read(None, made.body)
    assert read.get_id() == made.id == f"{LIFE}-7"
    assert read.get_source() == "/shop.views.totals"
    assert read.get_type() == "changelog.row.upserted"
    assert read.get_subject() == '{"id": 1}'
    assert read.get_data() == {"key": {"id": 1}, "row": {"id": 1, "total": "7.50"}}
    assert read.get_extension("sequence") == "7".rjust(20, "0")
    assert event(8).body.endswith(b'"row":null}}')
    assert json.loads(event(8).body)["type"] == "changelog.row.deleted"
    assert event(7, 1, {"id": 1, "total": "7.50"}) == made


def test_the_signature_is_that_of_standard_webhooks():
    made = event()
    headers = Signer.of(f"{SECRET} {OTHER}", "S").headers(made, int(time.time()))
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(made.body.decode(), headers)["id"] == made.id
    with pytest.raises(Exception, match="matching signature"):
        Webhook(SECRET).verify(made.body.decode() + " ", headers)
    assert "webhook-signature" not in Signer().headers(made, 1)


@pytest.mark.parametrize("text", ["", "short", "whsec_c2hvcnQ=", f"{SECRET} no-base64!"])
def test_a_secret_that_is_none_is_refused_and_not_quoted(text):
    with pytest.raises(ConfigurationError) as caught:
        Signer.of(text, "THE_VARIABLE")
    assert "THE_VARIABLE" in str(caught.value)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "host/x", "https://", "https://me:hunter2@host/x", "file:///etc/passwd"]
)
def test_what_is_no_address_of_a_receiver_is_refused(url):
    with pytest.raises(ConfigurationError) as caught:
        check_url(url)
    assert "hunter2" not in str(caught.value)


def test_an_address_is_shown_without_what_may_be_a_token(caplog):
    assert check_url("https://host/x?token=hunter2") == "https://host/x"
    check_url("http://far.example.com/x")
    assert "is not encrypted" in caplog.text


def answers(*statuses, headers=None):
    """Return a handler that gives these answers in turn, and 200 after the last."""
    rest = list(statuses)
    return lambda _: (rest.pop(0) if rest else 200, headers or {})


def receiver_of(hooks, stop=lambda: False):
    return Receiver(hooks.url, Signer.of(SECRET, "S"), stop)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_receiver_that_cannot_now_gets_the_same_event_again(hooks, status):
    hooks.decide = answers(status, status)
    assert receiver_of(hooks).deliver(event()) is None
    assert len(hooks.requests) == 3
    assert len({(r.headers["webhook-id"], r.body) for r in hooks.requests}) == 1


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_an_event_that_is_refused_is_not_sent_again_and_says_why(hooks, status):
    hooks.decide = answers(status)
    refusal = receiver_of(hooks).deliver(event())
    assert (refusal.status, len(hooks.requests)) == (status, 1)
    assert refusal.text == "no row of mine, token=***"


@pytest.mark.parametrize("status", [301, 307, 308, 401, 403, 404, 410])
def test_a_receiver_that_takes_nothing_ends_the_command_and_no_redirect_is_followed(hooks, status):
    with webhooks() as elsewhere:
        hooks.decide = lambda _: (status, {"Location": elsewhere.url})
        with pytest.raises(ReceiverError, match=str(status)):
            receiver_of(hooks).deliver(event())
        assert not elsewhere.requests
    assert len(hooks.requests) == 1


@pytest.mark.parametrize("form", ["1", "date"])
def test_a_receiver_is_left_alone_as_long_as_it_asks(hooks, form):
    from email.utils import formatdate

    after = form if form == "1" else formatdate(time.time() + 2, usegmt=True)
    hooks.decide = answers(429, headers={"Retry-After": after})
    begun = time.monotonic()
    assert receiver_of(hooks).deliver(event()) is None
    assert time.monotonic() - begun >= 0.9


def test_a_receiver_that_is_away_is_tried_until_we_are_to_end():
    stopped = threading.Event()
    receiver = Receiver("http://127.0.0.1:1/x", Signer(), stopped.is_set)
    threading.Timer(0.3, stopped.set).start()
    with pytest.raises(StoppedError):
        receiver.deliver(event())


class FakeFeed:
    """Gives changes in steps, each whole at a frontier, and then nothing more."""

    life = LIFE

    def __init__(self, steps):
        self._steps = steps

    def events(self):
        for number, changes in enumerate(self._steps, 1):
            for one in changes:
                yield Some([one])
            moment = Moment(Lsn(number), changes[-1].offset + 1, 1, 1)
            yield FeedFrontier(moment, moment.mark(LIFE), len(changes))
        while True:
            yield Nothing()
            time.sleep(0.01)


class Kept:
    """Marks and dead letters, kept in memory."""

    def __init__(self):
        self.marks, self.dead = [], []

    def write(self, mark):
        self.marks.append(mark)

    def put(self, event, refusal):
        self.dead.append((event.id, refusal.status))


def pushed(hooks, steps, *, lanes=4, stop=lambda: False):
    kept = Kept()
    pusher = Pusher(
        FakeFeed(steps), receiver_of(hooks, stop), kept, kept, topic="t", lanes=lanes, stop=stop
    )
    pusher.run(once=True)
    return kept, pusher.report


def many(count, keys):
    return [change(n, n % keys, {"id": n % keys, "n": n}) for n in range(count)]


def test_each_key_is_in_order_and_keys_do_not_wait_for_each_other(hooks):
    slow = threading.Event()

    def decide(request):
        if request.row["id"] == 0:
            slow.wait(10)
        return 200, {}

    hooks.decide = decide
    changes = [change(n, n % 20, {"id": n % 20, "n": n}) for n in range(200)]
    lanes = {json.dumps({"id": n}).encode() for n in range(20)}
    assert len(lanes) == 20

    def release():
        wait_until(lambda: len(hooks.taken) >= 50, 30, "others are delivered meanwhile")
        slow.set()

    thread = threading.Thread(target=release)
    thread.start()
    kept, report = pushed(hooks, [changes], lanes=20)
    thread.join()
    assert report.delivered == 200
    assert hooks.order_is_kept()
    assert kept.marks == [f"0/1-200-{LIFE}-1"]


def test_a_flaky_receiver_gets_all_in_order(hooks):
    counts: Counter[str] = Counter()

    def decide(request):
        counts[request.headers["webhook-id"]] += 1
        return (503 if counts[request.headers["webhook-id"]] % 3 else 200), {}

    hooks.decide = decide
    _, report = pushed(hooks, [many(60, 7), many(60, 7)])
    assert (report.delivered, report.refused) == (120, 0)
    assert hooks.order_is_kept()
    assert max(counts.values()) <= 6


def test_twin_a_push_without_lanes_by_key_is_seen(hooks, monkeypatch):
    turn = iter(range(10**6))
    monkeypatch.setattr(
        Pusher, "_lane_of", lambda self, key: self._lanes[next(turn) % len(self._lanes)]
    )

    def decide(request):
        if request.row["n"] % 3 == 0:
            time.sleep(0.02)
        return 200, {}

    hooks.decide = decide
    pushed(hooks, [many(90, 5)])
    assert not hooks.order_is_kept()


def test_a_dead_letter_holds_up_nobody_and_is_told(hooks, caplog):
    hooks.decide = lambda request: (422 if request.row["n"] == 3 else 200, {})
    kept, report = pushed(hooks, [many(10, 2)])
    assert kept.dead == [(f"{LIFE}-3", 422)]
    assert (report.delivered, report.refused) == (9, 1)
    assert len(kept.marks) == 1
    assert "hunter2" not in caplog.text


def test_no_mark_is_written_before_all_is_delivered(hooks):
    stopped = threading.Event()

    def decide(request):
        if request.row["n"] == 5:
            stopped.set()
            return 503, {}
        return 200, {}

    hooks.decide = decide
    kept, _ = pushed(hooks, [many(10, 3)], stop=stopped.is_set)
    assert kept.marks == []


def test_a_receiver_that_takes_nothing_leaves_the_place_where_it_is(hooks):
    hooks.decide = lambda _: (410, {})
    kept = Kept()
    pusher = Pusher(
        FakeFeed([many(10, 3)]), receiver_of(hooks), kept, kept, topic="t", lanes=2,
        stop=lambda: False,
    )  # fmt: skip
    with pytest.raises(ReceiverError):
        pusher.run(once=True)
    assert kept.marks == []
    assert kept.dead == []


def test_twin_a_mark_that_does_not_wait_for_deliveries_is_seen(hooks, monkeypatch):
    monkeypatch.setattr(Pusher, "_await_lanes", lambda self: None)
    stopped, kept = threading.Event(), Kept()

    def decide(request):
        if request.row["n"] == 5:
            wait_until(lambda: kept.marks, 30, "a mark")
            stopped.set()
            return 503, {}
        return 200, {}

    hooks.decide = decide
    pusher = Pusher(
        FakeFeed([many(10, 3)]), receiver_of(hooks, stopped.is_set), kept, kept, topic="t",
        lanes=4, stop=stopped.is_set,
    )  # fmt: skip
    pusher.run()
    assert kept.marks, "the place is behind an event that nobody has"
    assert pusher.report.delivered < 10
