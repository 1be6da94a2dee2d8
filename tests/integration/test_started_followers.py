"""Followers that start: they go on from what an earlier one has kept, without Spark, or say why."""

import logging
import sqlite3
from typing import Any

import pytest
import redis

from changelog.contract.base.errors import LogMovedError, UnavailableLogError
from replay.store import increment
from tests.support.matrix import first
from tests.support.shop import Shop, opened_shop
from tests.support.sql import execute
from views.rebuild import resident
from views.rebuild.local import kept, room
from views.rebuild.local.kept import LocalTables
from views.rebuild.local.logs import HeldLogs
from views.rebuild.local.sent import SentDigests
from views.rebuild.local.visible import VisibleChanges
from views.rebuild.rebuild import RebuildRun
from views.sinks.kept import KeptConnection

GOES_ON = "goes on from what an earlier follower has kept, without Spark"
ENDED = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'changelog' AND datname = current_database() AND pid <> pg_backend_pid()"""
AWAY = """UPDATE orders SET customer_id = 3 WHERE id = 7; DELETE FROM lines WHERE order_id = 9;
INSERT INTO orders VALUES (901, 3, 12.50, NULL); UPDATE customers SET name = 'other' WHERE id = 5"""


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    with opened_shop(stack, tmp_path_factory.mktemp("started") / "project") as made:
        with made.followed():
            pass
        yield made


@pytest.fixture
def no_spark(monkeypatch):
    """Let no round be Spark's."""
    monkeypatch.setattr(RebuildRun, "run_locked", lambda *_: pytest.fail("Spark has made a round"))


def file_of(shop: Shop):
    (path,) = (shop.project.root / "warehouse" / kept.FOLDER).glob("*.sqlite")
    return path


def is_begun_by_spark(shop: Shop, caplog, why: str, *, goes_on: bool = False) -> None:
    with caplog.at_level(logging.INFO, "changelog.views"), shop.followed() as follower:
        shop.is_right()
        assert follower.is_here
    assert why in caplog.text
    assert (GOES_ON in caplog.text) is goes_on
    assert file_of(shop)


@pytest.mark.slow
def test_a_start_goes_on_without_spark(shop, no_spark, caplog):
    shop.change(AWAY)
    with caplog.at_level(logging.INFO, "changelog.views"), shop.followed() as follower:
        assert GOES_ON in caplog.text
        assert not follower.needs_spark
        shop.is_right()
        shop.change("UPDATE orders SET customer_id = 4, amount = 1 WHERE id BETWEEN 10 AND 14")
        assert follower.round().error is None
        shop.is_right()
    with shop.followed():
        shop.is_right()


@pytest.mark.slow
@pytest.mark.parametrize("bound", first(1, ["rows", "disk"]))
def test_a_table_that_is_too_large_is_told_and_left_to_spark(shop, monkeypatch, caplog, bound):
    kept.remove_of(str(shop.project.root / "warehouse"), [spec.name for spec in shop.specs])
    if bound == "rows":
        monkeypatch.setenv("CHANGELOG_REBUILD_FOLLOW_ROWS", "10")
    else:
        monkeypatch.setattr(room, "_SAMPLE", 10)
        monkeypatch.setattr(room, "_SPARE", 1 << 60)
    with shop.followed(is_here=False) as follower:
        warnings = [each.message for each in caplog.records if each.levelno == logging.WARNING]
        told = "and follow_rows is 10" if bound == "rows" else "MB are free"
        assert any("by Spark in each round" in each and told in each for each in warnings)
        assert any("where more than 10 of them live" in each for each in warnings) is (
            bound == "rows"
        )
        assert not list((shop.project.root / "warehouse" / kept.FOLDER).glob("*.sqlite"))
        shop.change("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 10 AND 14")
        assert follower.round().error is None
        shop.is_right()
    monkeypatch.undo()
    with shop.followed():  # the next tests go on from what this one keeps
        shop.is_right()


def killed(shop: Shop, monkeypatch, statements: str) -> None:
    """Follow, and end behind the commit of the tables of a round, before a sink has its rows."""

    class KilledError(BaseException):
        pass

    def dies(*_):
        raise KilledError

    with shop.followed() as follower, monkeypatch.context() as patched:
        patched.setattr(resident.Resident, "_verify", dies)
        shop.change(statements)
        with pytest.raises(KilledError):
            follower.round()


def test_after_an_outage_of_the_brokers_it_goes_on_without_spark(shop, no_spark, monkeypatch):
    def away(*_):
        raise UnavailableLogError("the brokers do not answer")

    with shop.followed() as follower:
        shop.change("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 80 AND 84")
        with monkeypatch.context() as patched:
            patched.setattr(HeldLogs, "step", away)
            assert isinstance(follower.round().error, UnavailableLogError)
        assert not follower.is_here
        assert follower.round().error is None
        assert follower.is_here
        shop.is_right()


class StoppedError(Exception):
    """Spark would make the round."""


def stopped(*_):
    raise StoppedError


@pytest.mark.parametrize("looks", first(1, [True, False]))
def test_of_a_read_that_is_not_exact_nothing_is_sent_or_kept(shop, monkeypatch, looks):
    def moved(*_):
        raise LogMovedError("another leader")

    with shop.followed() as follower, monkeypatch.context() as patched:
        shop.is_right()
        shop.change("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 60 AND 64")
        patched.setattr(increment, "check_still_exact", moved)
        patched.setattr(RebuildRun, "run_locked", stopped)
        if looks:
            with pytest.raises(StoppedError):
                follower.round()
            assert not list((shop.project.root / "warehouse" / kept.FOLDER).glob("*.sqlite"))
            with pytest.raises(AssertionError):
                shop.is_right()
        else:  # the twin: without the check the rows are sent
            patched.setattr(resident.Resident, "_require_exact", lambda *_: None)
            assert follower.round().error is None
            shop.is_right()
    with shop.followed():
        shop.is_right()


@pytest.mark.parametrize("tries", first(1, [True, False]))
def test_servers_that_end_connections_hold_no_round_up(shop, no_spark, monkeypatch, caplog, tries):
    change = "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 65 AND 69"
    if not tries:  # the twin
        monkeypatch.setattr(KeptConnection, "failed_when_kept", lambda _: False)
    cache: Any = redis.Redis.from_url(str(shop.endpoints.cache))
    with shop.followed() as follower:
        shop.change(change)
        assert follower.round().error is None
        ended = execute(shop.target, ENDED)
        cache.client_kill_filter(_type="normal", skipme=True)
        shop.change(change)
        assert follower.round().error is None
        assert ended, "a connection was kept"
        assert ("is tried again" not in caplog.text) is tries
        if tries:
            shop.is_right()
    with shop.followed():
        shop.is_right()


MOVED = "UPDATE orders SET customer_id = customer_id % 20 + 1 WHERE id BETWEEN 21 AND 40"


def test_rows_that_no_sink_was_sent_before_a_kill_are_sent_by_the_next(shop, no_spark, monkeypatch):
    killed(shop, monkeypatch, MOVED)
    shop.change(MOVED)  # what was in between is in no sink, and in the journal alone
    killed(shop, monkeypatch, MOVED)
    with shop.followed():
        shop.is_right()


@pytest.mark.matrix
def test_twin_without_the_journal_they_are_missing(shop, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(LocalTables, "lacks_from", lambda *_: None)
        killed(shop, monkeypatch, "UPDATE orders SET amount = amount + 1 WHERE id = 50")
        with shop.followed(), pytest.raises(AssertionError):
            shop.is_right()
    shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 50")  # which brings them
    with shop.followed():
        shop.is_right()


@pytest.mark.matrix
def test_a_start_after_a_round_of_sparks_is_sparks(shop, caplog):
    saved = file_of(shop).read_bytes()
    with shop.followed() as follower:
        shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 60")
        assert follower.round().error is None
    shop.is_right()
    for side in ("-wal", "-shm"):
        file_of(shop).with_name(file_of(shop).name + side).unlink(missing_ok=True)
    file_of(shop).write_bytes(saved)
    is_begun_by_spark(shop, caplog, "further than")


@pytest.mark.parametrize(
    ("statement", "why"),
    first(
        1,
        [
            ("UPDATE facts SET value = '0' WHERE name = 'version'", "it is of version 0"),
            ("DELETE FROM table1 WHERE key = (SELECT min(key) FROM table1)", "are not those that"),
            (
                """UPDATE facts SET value = json_set(value, '$.' ||
            (SELECT key FROM json_each(facts.value) LIMIT 1) || '.definition', 'other')
            WHERE name = 'views'""",
                "was another",
            ),
        ],
    ),
)
def test_what_is_damaged_or_of_something_else_is_said_and_made_again(shop, caplog, statement, why):
    with sqlite3.connect(file_of(shop), isolation_level=None) as database:
        database.executescript(statement)
    database.close()
    is_begun_by_spark(shop, caplog, why)
    with shop.followed():
        shop.is_right()


@pytest.mark.matrix
def test_a_row_that_is_not_the_logs_is_found_by_the_proof(shop, caplog, monkeypatch):
    """The sums are right, since the file was written so: only the log says otherwise."""
    with monkeypatch.context() as patched:
        advance = LocalTables.advance

        def forgets(self, changed, position, held=None):
            return advance(self, {table: [] for table in changed}, position, held)

        patched.setattr(LocalTables, "advance", forgets)
        with shop.followed() as follower:
            shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 70")
            follower.round()
    is_begun_by_spark(shop, caplog, "that were kept are not the log's", goes_on=True)


def test_a_file_that_cannot_be_a_database_is_made_again(shop, caplog):
    for side in ("-wal", "-shm"):
        file_of(shop).with_name(file_of(shop).name + side).unlink(missing_ok=True)
    file_of(shop).write_bytes(b"nothing" * 1000)
    is_begun_by_spark(shop, caplog, "the file is damaged")


UNSEEN = "UPDATE orders SET placed = '2026-02-02Z' WHERE id BETWEEN 100 AND 109"
SAME = "UPDATE orders SET customer_id = customer_id WHERE id BETWEEN 110 AND 119"
SWAPPED = """UPDATE orders SET amount = amount + CASE WHEN id = 120 THEN 1 ELSE -1 END
WHERE id IN (120, 140)"""


def changed_keys(shop: Shop, follower, statements: str) -> dict[str, int]:
    shop.change(statements)
    outcome = follower.round()
    assert outcome.error is None
    shop.is_right()
    kinds = {name: kind for kind, name in shop.names.items()}
    words = {kinds[result.view]: result.origin.split() for result in outcome.results}
    return {kind: int(said[1]) if said[0] == "forward:" else 0 for kind, said in words.items()}


def test_only_rows_that_differ_are_written(shop):
    with shop.followed() as follower:
        unseen = changed_keys(shop, follower, UNSEEN)
        assert unseen == {"documents": 10, "entries": 0, "totals": 0}
        assert set(changed_keys(shop, follower, SAME).values()) == {0}
        # The two orders are of one customer, whose total stays as it is.
        first = changed_keys(shop, follower, SWAPPED)
        again = changed_keys(shop, follower, SWAPPED)
    # At first it may be sent all the same: until then nobody knows the digest of what serves.
    assert first["totals"] <= 1
    assert again == {"documents": 2, "entries": 2, "totals": 0}


def test_twin_unchanged_rows_are_written_where_nobody_looks(shop, monkeypatch):
    monkeypatch.setattr(VisibleChanges, "of", lambda _, touched: touched)
    monkeypatch.setattr(SentDigests, "unsent", lambda _self, _view, digests: set(digests))
    with shop.followed() as follower:
        assert changed_keys(shop, follower, SAME)["totals"]
