"""Views of several logs go forward by the keys that changed: other captures', other programs'."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx
import pytest
import redis

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.declared import PLACEHOLDER
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints
from replay.store import increment
from tests.support.captured_project import captured_database
from tests.support.declared_log import COMPACT, KEEP, Log
from tests.support.matrix import first
from tests.support.rounds import quiet, rounds
from tests.support.shop import aim, target_database
from tests.support.sql import execute
from tests.support.two_captures import ORDERS, Two, two_captures
from views.base.config import RowsSource
from views.rebuild.rebuild import RebuildRun
from views.rebuild.resident import Resident

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

NAMED = """-- key: id
-- sinks: search, cache, postgres
SELECT id, name, price FROM things
"""
PRICED = """-- key: id
-- sinks: search, cache, postgres
SELECT o.id, o.item, t.name, t.price FROM orders o LEFT JOIN things t ON t.id = o.id
"""
COLUMNS = '{ id = "int", name = "string", price = "decimal(10,2)" }'
JOINED = """-- key: id
-- sinks: search, cache, postgres
SELECT o.id, o.item, p.amount, t.total
FROM orders o LEFT JOIN paid p ON p.id = o.id LEFT JOIN billing.totals t ON t.id = o.id
"""


@dataclass(frozen=True)
class Served:
    """What readers of one view see in each of its sinks."""

    view: str
    endpoints: Endpoints
    target: str

    def search(self):
        body = {"size": 1000, "sort": ["id"], "query": {"match_all": {}}}
        url = f"{self.endpoints.search}/{self.view}/_search"
        found = httpx.post(url, json=body, verify=authorities()).raise_for_status().json()
        return [tuple(hit["_source"].values()) for hit in found["hits"]["hits"]]

    def cache(self):
        client: Any = redis.Redis.from_url(str(self.endpoints.cache), decode_responses=True)
        with closing(client):
            prefix = f"{self.view}:{client.get(f'{self.view}:current')}:"
            found = [json.loads(client.get(k)) for k in client.scan_iter(f"{prefix}*", count=1000)]
        return sorted(tuple(each.values()) for each in found)

    def postgres(self):
        return execute(self.target, f"SELECT * FROM {self.view} ORDER BY id")

    def rows(self):
        found = self.postgres()
        assert self.cache() == found
        assert self.search() == found
        return found


@pytest.fixture
def target(endpoints):
    with target_database(endpoints) as url:
        yield url


@pytest.fixture
def two(stack, tmp_path, target):
    with two_captures(stack, tmp_path) as made:
        found = made()
        aim(found.shop, target)
        yield found


@pytest.fixture
def served(endpoints, target):
    return Served(f"joined_{uuid.uuid4().hex[:8]}", endpoints, target)


@pytest.fixture
def follow(two, served):
    two.shop.view(f"{served.view}.sql", JOINED)
    return lambda: rounds(two.shop.root, served.view, forward=True)


def wanted(two: Two):
    paid = dict(two.billing.query("SELECT id, amount FROM payments"))
    total = dict(two.billing.query("SELECT id, total FROM totals"))
    orders = two.shop.query("SELECT id, item FROM orders ORDER BY id")
    return [(id_, item, paid.get(id_), total.get(id_)) for id_, item in orders]


@pytest.mark.matrix
def test_a_view_of_two_captures_goes_forward_by_either(two, served, follow):
    with follow() as (made, specs, settings):
        assert made()
        assert served.rows() == wanted(two)
        first = made.generation
        assert made() is None
        for project, statements in (
            (two.billing, "INSERT INTO payments VALUES (2, 5); DELETE FROM totals WHERE id = 1"),
            (two.shop, "UPDATE orders SET item = 'oats' WHERE id = 2"),
            (two.billing, "UPDATE payments SET id = 3 WHERE id = 2; DELETE FROM payments"),
            (two.shop, "INSERT INTO orders VALUES (3, 'rye'); DELETE FROM orders WHERE id = 1"),
        ):  # fmt: skip
            project.execute(statements)
            project.capture()
            assert made()
            assert (made.origin.split(":")[0], made.generation) == ("forward", first)
            assert served.rows() == wanted(two)
        before = served.rows()
        two.tear()
        assert made() is None, "a part of a transaction is nothing new"
        assert served.rows() == before
        two.billing.capture()
        assert made()
        assert served.rows() == wanted(two)
        # A rebuild takes the follower's place, which then goes on from what that published.
        assert (
            RebuildRun(replace(settings, source=RowsSource.START), quiet()).run(specs).error is None
        )
        two.billing.execute("UPDATE payments SET amount = 7 WHERE id = 2")
        two.billing.capture()
        assert made()
        assert made.generation > first
        two.shop.execute("UPDATE orders SET item = item || '!'")
        two.shop.capture()
        assert made()
        assert made.origin.startswith("forward")
        assert served.rows() == wanted(two)


@pytest.mark.matrix
@pytest.mark.parametrize("counts", [True, pytest.param(False, id="twin that does not count")])
def test_a_record_of_the_other_log_that_one_reader_skips(two, served, follow, monkeypatch, counts):
    sound = increment._folded

    def skipping(kafka, topic, *arguments, **more):
        found = list(sound(kafka, topic, *arguments, **more))
        return found[1:] if topic in two.topics else found

    if not counts:
        monkeypatch.setattr(Resident, "_compare", lambda *_: None)
    with follow() as (made, _, _):
        assert made()
        with monkeypatch.context() as patched:
            patched.setattr(increment, "_folded", skipping)
            two.billing.execute("UPDATE payments SET amount = 77 WHERE id = 1")
            two.billing.capture()
            assert made() or not counts
        assert (served.rows() == wanted(two)) is counts


class Things:
    """A log that another program writes, and what its rows are."""

    def __init__(self, log: Log) -> None:
        self.log, self.rows = log, dict[int, tuple[str, str]]()

    def put(self, number: int, name: str, price: str = "1.50") -> None:
        self.log.put({"id": number}, {"id": number, "name": name, "price": price})
        self.rows[number] = (name, price)

    def remove(self, number: int) -> None:
        self.log.put({"id": number}, None)
        del self.rows[number]


@pytest.fixture
def opened(stack, tmp_path, target, kafka, registry):
    with captured_database(stack, tmp_path / "shop", ORDERS) as (project, prefix):
        aim(project, target)

        def made(settings, more="", form="flat-json"):
            log = Log(kafka, registry, f"{prefix}.things", settings=settings)
            with (project.root / "changelog.toml").open("a", encoding="utf-8") as file:
                file.write(
                    f'[logs.things]\ntopic = "{log.topic}"\nform = "{form}"\nkey = ["id"]\n'
                    f"columns = {COLUMNS}\n{more}\n"
                )
            return project, Things(log)

        yield made


@pytest.mark.matrix
@pytest.mark.parametrize("settings", first(1, [COMPACT, KEEP]), ids=str)
def test_a_view_of_a_declared_log_goes_forward_by_what_was_appended(opened, served, settings):
    project, things = opened(settings)
    for number in range(1, 6):
        things.put(number, "a")
    project.view(f"{served.view}.sql", NAMED)

    def is_right():
        assert [(id_, name, str(price)) for id_, name, price in served.postgres()] == sorted(
            (id_, *row) for id_, row in things.rows.items()
        )
        assert len(served.cache()) == len(served.search()) == len(things.rows)

    with rounds(project.root, served.view, forward=True) as (made, _, _):
        assert made()
        is_right()
        generation = made.generation or 0
        assert made() is None
        for changes in (
            [partial(things.put, 1, "b"), partial(things.put, 6, "new", "7.25")],
            [partial(things.remove, 2)],
            [
                partial(things.put, 2, "back"),
                partial(things.remove, 6),
                partial(things.put, 3, "c"),
                partial(things.put, 3, "d"),
            ],
        ):
            for change in changes:
                change()
            assert made()
            assert (made.origin.split(":")[0], made.generation) == ("forward", generation)
            is_right()
        # One that cannot be read ends the round, and is seen by nobody.
        things.log.put({"id": 5}, b"{")
        assert isinstance(made.error(), CorruptRecordError)
        is_right()


@pytest.mark.matrix
def test_records_that_are_quarantined_leave_the_rounds_to_spark(opened, served):
    project, things = opened(KEEP)
    path = project.root / "changelog.toml"
    path.write_text('rebuild.on_bad_record = "quarantine"\n' + path.read_text("utf-8"))
    things.put(1, "a")
    things.log.put({"id": 2}, b"{")
    project.view(f"{served.view}.sql", NAMED)
    with rounds(project.root, served.view, forward=True) as (made, _, _):
        for number in (3, 4):
            things.put(number, "new")
            assert made()
            assert not made.follower.is_here
            assert {row[0] for row in served.postgres()} == {*things.rows}
        assert made.generation == 2


class Events(Things):
    """The same, as Debezium writes it, with the source's position and its tombstones."""

    lsn = 100

    def put(self, number: int, name: str, price: str = "1.50", *, sent: str = "") -> None:
        """Write a row; `sent` stands for the name where the source did not send it."""
        row = {"id": number, "name": sent or name, "price": price}
        self._event(number, "u" if number in self.rows else "c", row)
        self.rows[number] = (name, price)

    def remove(self, number: int) -> None:
        self._event(number, "d", None)
        super().remove(number)

    def _event(self, number: int, op: str, after: Any) -> None:
        self.lsn += 1
        value = {"before": {"id": number}, "after": after, "op": op, "source": {"lsn": self.lsn}}
        self.log.put({"id": number}, value)


def test_a_view_of_debezium_s_events_goes_forward_by_the_source_s_position(opened, served):
    """Values that it did not send are those of the rows that are held.

    What is sent again, as behind a restart of the connector, is read whole, once.
    """
    project, log = opened(COMPACT, 'order = "lsn"', form="debezium-json")
    things = Events(log.log)
    for number in range(1, 4):
        things.put(number, "a")
    project.view(f"{served.view}.sql", NAMED)

    def is_right():
        assert [(id_, (name, str(price))) for id_, name, price in served.postgres()] == sorted(
            things.rows.items()
        )
        assert len(served.cache()) == len(served.search()) == len(things.rows)

    with rounds(project.root, served.view, forward=True) as (made, _, _):
        assert made()
        is_right()
        generation = made.generation or 0
        for changes in (
            [partial(things.put, 1, "b"), partial(things.put, 4, "new", "7.25")],
            [partial(things.put, 1, "b", "9.00", sent=PLACEHOLDER), partial(things.remove, 2)],
            [
                partial(things.put, 2, "back"),
                partial(things.put, 2, "back", "3.00", sent=PLACEHOLDER),
                partial(things.remove, 4),
            ],
        ):
            for change in changes:
                change()
            assert made()
            assert (made.origin.split(":")[0], made.generation) == ("forward", generation)
            is_right()
        resent = {"before": None, "after": {"id": 1, "name": "a", "price": "1.50"}, "op": "c"}
        things.log.put({"id": 1}, {**resent, "source": {"lsn": 101}})
        assert made()
        assert made.generation == generation + 1
        is_right()
        things.put(3, "c")
        assert made()
        assert (made.origin.split(":")[0], made.generation) == ("forward", generation + 1)
        is_right()


@pytest.mark.matrix
def test_a_view_of_both_goes_forward_by_either(opened, served):
    project, things = opened(KEEP)
    things.put(1, "a")
    project.view(f"{served.view}.sql", PRICED)

    def is_right():
        orders = project.query("SELECT id, item FROM orders ORDER BY id")
        wanted = [(id_, item, *things.rows.get(id_, (None, None))) for id_, item in orders]
        found = [(*row[:3], row[3] and str(row[3])) for row in served.postgres()]
        assert found == wanted
        assert len(served.cache()) == len(served.search()) == len(wanted)

    with rounds(project.root, served.view, forward=True) as (made, _, _):
        assert made()
        is_right()
        generation = made.generation
        things.put(2, "b")
        assert made()
        is_right()
        project.execute(
            "UPDATE orders SET item = 'oats' WHERE id = 1; INSERT INTO orders VALUES (9, 'x')"
        )
        project.capture()
        assert made()
        is_right()
        things.put(9, "nine")
        project.execute("DELETE FROM orders WHERE id = 2")
        project.capture()
        assert made()
        is_right()
        assert (made.origin.split(":")[0], made.generation) == ("forward", generation)
