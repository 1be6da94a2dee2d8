"""Views that are followed together do not wait for one another's sinks, unless asked to."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from changelog.contract.base.errors import LockedError
from changelog.stack.base.ports import pick
from tests.support.proxy import Proxy
from tests.support.shop import opened_shop
from tests.support.wait import wait_until
from views.generations.lock import Moving
from views.generations.place import LockPlace
from views.rebuild.sending import sender as waiting
from views.rebuild.sending.sending import Sending
from views.sinks.base import UnavailableSinkError
from views.sinks.postgres.sink import PostgresSink
from views.sinks.search.sink import SearchSink

SOON_S = 120.0


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    with opened_shop(stack, tmp_path_factory.mktemp("apart") / "project") as made:
        yield made


@contextmanager
def search_behind_a_proxy(shop):
    """Let followers reach the search server through a network that can fail."""
    parts = urlsplit(shop.endpoints.search)
    path = shop.project.root / "changelog.toml"
    text = path.read_text("utf-8")
    with Proxy(pick(), parts.port) as proxy:
        url = urlunsplit(parts._replace(netloc=f"{parts.hostname}:{proxy.port}"))
        there = json.dumps(shop.endpoints.search)
        assert there in text
        path.write_text(text.replace(there, json.dumps(url)), "utf-8")
        try:
            yield proxy
        finally:
            path.write_text(text, "utf-8")


def raised(shop, order=30):
    """Raise an order's amount; returns its key in the cache, and the amount."""
    shop.change(f"UPDATE orders SET amount = amount + 1 WHERE id = {order}")
    ((customer, amount),) = shop.project.query(
        f"SELECT customer_id, amount::text FROM orders WHERE id = {order}"
    )
    return f"[{customer},{order}]", amount


def is_in_cache(shop, wanted):
    key, amount = wanted
    return shop.entries()[key]["amount"] == amount


def wait_for_cache(shop, wanted, deadline_s=SOON_S):
    wait_until(lambda: is_in_cache(shop, wanted), deadline_s, "in the cache")


def rounds_that_the_cache_has(shop, follower, orders):
    """Raise each order, one round each; returns the outcome of the last."""
    outcomes = []
    for order in orders:
        wanted = raised(shop, order)
        outcomes.append(follower.round())
        assert outcomes[-1].error is None, outcomes[-1].error
        wait_for_cache(shop, wanted)
    return outcomes[-1]


def result_of(shop, outcome, kind):
    return next(each for each in outcome.results if each.view == shop.names[kind])


@pytest.mark.matrix
def test_a_search_server_that_is_held_delays_no_other_sink_and_catches_up(shop):
    before = shop.documents()
    with search_behind_a_proxy(shop) as proxy, shop.followed(patience_s=0.5) as follower:
        proxy.hold()
        outcome = rounds_that_the_cache_has(shop, follower, [30, 30, 31])
        assert shop.documents() == before, "the search server is still held"
        late, fresh = (result_of(shop, outcome, kind) for kind in ("documents", "entries"))
        assert late.reach["search"].is_behind
        assert not late.published
        assert late.reach["search"].position < fresh.reach["cache"].position
        proxy.heal()
        wait_until(lambda: not follower._resident.sending.is_busy, SOON_S, "search catches up")
        shop.is_right()
        assert follower.is_here, "without a round of Spark's"
        raised(shop)
        follower.round()
        follower._resident.sending.drain(SOON_S)
        shop.is_right()


@pytest.mark.matrix
def test_twin_together_they_wait_for_the_sink_that_is_held(shop):
    with (
        search_behind_a_proxy(shop) as proxy,
        shop.followed(together=True) as follower,
        ThreadPoolExecutor(1) as pool,
    ):

        def is_in_cache_meanwhile():
            try:
                wait_for_cache(shop, wanted, 5.0)
            except AssertionError:
                return False
            finally:
                proxy.heal()
            return True

        proxy.hold()
        wanted = raised(shop)
        watched = pool.submit(is_in_cache_meanwhile)
        assert follower.round().error is None
        assert watched.result(SOON_S) is False
        shop.is_right()


@pytest.mark.matrix
@pytest.mark.parametrize("defect", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_who_moves_readers_waits_for_what_is_under_way(shop, monkeypatch, defect):
    """The defect: the follower lets others while a sink is written to."""
    begun, may_end, gives_up = threading.Event(), threading.Event(), threading.Event()
    happened = []
    write, pause = SearchSink.apply, Sending.pause

    def written(self, *arguments):
        begun.set()
        assert may_end.wait(SOON_S)
        write(self, *arguments)
        happened.append("written")

    def paused(self, stop):
        if defect:
            return True
        may_end.set()
        return pause(self, stop)

    names = [spec.name for spec in shop.specs]
    with shop.followed(patience_s=0.1) as follower, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(SearchSink, "apply", written)
        raised(shop)
        assert follower.round().error is None
        assert begun.wait(SOON_S)
        with pytest.raises(LockedError), Moving(LockPlace(shop.project.root), names, lambda: True):
            pass  # the round is over, and a sink is written to
        monkeypatch.setattr(Sending, "pause", paused)

        def move():
            with Moving(LockPlace(shop.project.root), names, gives_up.is_set):
                happened.append("moved")

        moved = pool.submit(move)
        try:
            wait_until(follower._moving.is_wanted, SOON_S, "somebody waits")
            assert follower.round() is None
            moved.result(SOON_S)
        finally:
            gives_up.set()
            may_end.set()
        follower.round()
        follower._resident.sending.drain(SOON_S)
        assert happened == (["moved", "written"] if defect else ["written", "moved"])
        shop.is_right()


@pytest.mark.matrix
def test_a_sink_that_is_away_is_waited_for_without_a_round_of_spark(shop, monkeypatch):
    sound, away = PostgresSink.apply, [UnavailableSinkError("the server does not answer")] * 2

    def failing(self, *arguments):
        if away:
            raise away.pop()
        sound(self, *arguments)

    with shop.followed(patience_s=0.5) as follower:
        monkeypatch.setattr(PostgresSink, "apply", failing)
        for _ in range(3):
            raised(shop)
            assert follower.round().error is None
        wait_until(lambda: not follower._resident.sending.is_busy, SOON_S, "it catches up")
        shop.is_right()
        assert follower.is_here


@pytest.mark.matrix
def test_a_sink_that_lacks_too_much_is_left_behind_and_brought_forward_by_spark(shop, monkeypatch):
    monkeypatch.setattr(waiting, "MOST_KEYS", 2)
    with search_behind_a_proxy(shop) as proxy, shop.followed(patience_s=0.5) as follower:
        proxy.hold()
        outcome = rounds_that_the_cache_has(shop, follower, [30, 31, 32, 33])
        assert result_of(shop, outcome, "documents").reach["search"].is_left
        proxy.heal()
        sending = follower._resident.sending
        wait_until(lambda: sending.calls_for_spark, SOON_S, "it answers again")
        outcome = follower.round()
        assert outcome is not None, "nothing is new in the log, and the sink has to catch up"
        assert outcome.error is None, outcome.error
        shop.is_right()


def follower_of(shop, found):
    """Start a follower's process; the results that it prints are added to a list."""
    command = [str(Path(sys.executable).with_name("rebuild-view")), "--all", "--follow", "--json"]
    process = subprocess.Popen(
        command, cwd=shop.project.root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )

    def read():
        assert process.stdout is not None
        with process.stdout as lines:
            found.extend(json.loads(line) for line in lines if line.startswith("{"))

    threading.Thread(target=read, daemon=True).start()
    return process


@pytest.mark.matrix
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_follower_that_is_ended_while_a_sink_is_held_leaves_what_the_next_goes_on_from(shop, by):
    found: list[dict] = []
    with search_behind_a_proxy(shop) as proxy:
        process = follower_of(shop, found)
        try:
            wait_until(lambda: len(found) >= 3, 300, "a first round")
            wait_for_cache(shop, raised(shop), 300)
            proxy.hold()
            for _ in range(2):
                wait_for_cache(shop, raised(shop), 120)
            documents = shop.names["documents"]
            late = [each for each in found if each["view"] == documents and "reached" in each]
            assert late[-1]["reached"]["search"]["seconds_behind"] > 0
            os.kill(process.pid, by)
            assert process.wait(180) == (0 if by is signal.SIGTERM else -by)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Spark's JVM, too
            process.wait()
        proxy.heal()  # what the server did not get from the one that died comes now
    with shop.followed():
        shop.is_right()
