"""`changelog verify --view`: what the sinks of views serve, against PostgreSQL's own answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import redis
from deltalake import DeltaTable
from rich.console import Console

from changelog.config import load_project
from changelog.runtime.tls_trust import authorities
from tests.support.captured_project import captured_database
from tests.support.shop import aim, target_database
from tests.support.sql import execute
from tests.support.wait import wait_until
from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.generations.reached import NotReachedError, wait_for
from views.generations.served import served_of
from views.project.catalog import Catalog
from views.rebuild.rebuild import RebuildRun

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text, country char(4));
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer_id int, amount numeric(10, 2), placed timestamptz, weight float8
);
CREATE TABLE nothing (id int PRIMARY KEY, t text);
INSERT INTO customers SELECT n, CASE WHEN n % 7 > 0 THEN 'é' || n END, 'DE'
FROM generate_series(1, 40) AS n;
INSERT INTO orders SELECT n, 1 + n % 50, n * 0.37, timestamptz '2026-01-01Z' + n * interval '7 s',
    CASE n % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE n / 7.0::float8 END
FROM generate_series(1, 600) AS n;
"""
CARDS = """-- dialect: postgres
-- key: id
-- sinks: {sinks}
SELECT c.id, c.name, c.country || '.' AS country, count(o.id) AS orders, sum(o.amount) AS amount,
    max(o.placed) AS last, count(*) / 2 AS half, string_agg(o.id::text, ',' ORDER BY o.id) AS ids
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id, c.name, c.country
"""
WEIGHTS = """-- dialect: postgres
-- key: id
-- sinks: {sinks}
SELECT id, weight, NULLIF(amount, 0.37) AS amount, placed AT TIME ZONE 'UTC' AS day FROM orders
WHERE id % 3 < 2
"""
EMPTY = """-- dialect: postgres
-- key: id
-- sinks: {sinks}
SELECT id, t FROM nothing
"""
SPARKS = "-- key: id\nSELECT id, name FROM customers\n"


class Mart:
    def __init__(self, project, endpoints, target):
        self.project, self.endpoints, self.target = project, endpoints, target
        mark = uuid.uuid4().hex[:8]
        self.cards, self.weights, self.empty, self.sparks = (
            f"{kind}_{mark}" for kind in ("cards", "weights", "empty", "sparks")
        )
        project.view(f"{self.cards}.sql", CARDS.format(sinks="search, postgres, delta"))
        project.view(f"{self.weights}.sql", WEIGHTS.format(sinks="cache, topic, delta"))
        project.view(f"{self.empty}.sql", EMPTY.format(sinks="search, cache, postgres, topic"))
        project.view(f"{self.sparks}.sql", SPARKS)
        project.view(f"{self.cards}.postgres.json", json.dumps({"columns": {"last": "newest"}}))

    def rebuild(self, *names):
        settings = RebuildSettings(project=load_project(self.project.root))
        specs = [Catalog.of(self.project.root).load(name) for name in names]
        outcome = RebuildRun(settings, Stages(Console(quiet=True))).run(specs)
        assert outcome.error is None, outcome.error

    def shows_now(self):
        settings = RebuildSettings(project=load_project(self.project.root))
        with suppress(NotReachedError):
            return wait_for(settings, self.cards, None, timeout_s=2.0)

    def verify(self, *names, settle="0.5", more=()):
        """Return the exit code, the report and the errors."""
        words = [sys.executable, "-m", "changelog", "verify", "--settle", settle, "--json", *more]
        for name in names:
            words += ["--view", name]
        ran = subprocess.run(
            [*words, "--timeout", "20", "--project", str(self.project.root)],
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        lines = ran.stdout.splitlines()
        return ran.returncode, json.loads(lines[0]) if lines else {}, ran.stderr

    def index(self):
        url = f"{self.endpoints.search}/_alias/{self.cards}"
        return next(iter(httpx.get(url, verify=authorities()).raise_for_status().json()))

    def table(self):
        spec = Catalog.of(self.project.root).load(self.cards)
        sink = served_of(spec, load_project(self.project.root), None).sinks["postgres"]
        number = sink.published()
        assert number is not None
        return sink.address(number).location["table"]

    def search(self, method, path, body=None):
        url = f"{self.endpoints.search}/{path}"
        return httpx.request(method, url, json=body, verify=authorities()).raise_for_status().json()


@contextmanager
def capturing(project):
    words = [sys.executable, "-m", "changelog", "capture", "--project", str(project.root)]
    with (project.root / "capture.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


@pytest.fixture(scope="module")
def mart(stack, spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers") / "project"
    endpoints = stack.endpoints()
    with (
        target_database(endpoints) as url,
        captured_database(stack, folder, TABLES) as (project, _),
    ):
        aim(project, url)
        made = Mart(project, endpoints, url)
        made.rebuild(made.cards, made.weights, made.empty)
        with capturing(project):
            wait_until(made.shows_now, 60.0, "capture has come to the present")
            yield made


def by_sink(report, view):
    return {one["sink"]: one for one in report["sinks"] if one["view"] == view}


def test_each_sink_serves_what_postgresql_answers(mart):
    code, report, errors = mart.verify(mart.cards, mart.weights, mart.empty)
    assert code == 0, (errors, report)
    assert report["verified"] is True
    cards, weights = by_sink(report, mart.cards), by_sink(report, mart.weights)
    assert {name: one["rows_target"] for name, one in cards.items()} == {
        "search": 40, "postgres": 40, "delta": 40,
    }  # fmt: skip
    assert {one["rows_source"] for one in weights.values()} == {400}
    assert by_sink(report, mart.empty).keys() == {"search", "cache", "postgres", "topic"}
    for one in report["sinks"]:
        assert one["not_compared"] == {}, one
        assert one["lsn"] > "0/0"


def differing(mart, view, sink):
    code, report, errors = mart.verify(view)
    assert code == 3, (errors, report)
    assert f'view "{view}" in {sink}' in errors
    own = by_sink(report, view)
    assert {name for name, one in own.items() if not one["verified"]} == {sink}
    return [difference["key"]["id"] for difference in own[sink]["differences"]]


def test_a_row_that_somebody_alters_in_a_sink_is_named(mart):
    relation = mart.table()
    execute(mart.target, f"UPDATE {relation} SET amount = amount + 0.01 WHERE id = 7")
    assert differing(mart, mart.cards, "postgres") == ["7"]
    execute(mart.target, f"UPDATE {relation} SET amount = amount - 0.01 WHERE id = 7")

    client: Any = redis.Redis.from_url(str(mart.endpoints.cache), decode_responses=True)
    number = client.get(f"{mart.weights}:current")
    entry = f"{mart.weights}:{number}:10"
    text = client.get(entry)
    assert text is not None
    client.set(entry, str(text).replace('"-0.0"', "0.0").replace("-0.0", "0.0"))
    assert differing(mart, mart.weights, "cache") == ["10"]
    client.set(entry, str(text))
    client.close()

    mart.search("PUT", f"{mart.index()}/_settings", {"index.blocks.write": False})
    place = f"{mart.index()}/_doc/11"
    document = mart.search("GET", place)["_source"]
    mart.search("DELETE", f"{place}?refresh=true")
    assert differing(mart, mart.cards, "search") == ["11"]
    mart.search("PUT", f"{place}?refresh=true", document)

    # Readers open the view's table, not the folder of its generation.
    table = DeltaTable(str(mart.project.warehouse / mart.cards))
    before = table.version()
    table.delete("id = 12")
    assert differing(mart, mart.cards, "delta") == ["12"]
    table.restore(before)
    assert mart.verify(mart.cards, mart.weights)[0] == 0


def test_what_the_source_has_since_is_waited_for_and_not_taken_for_a_difference(mart):
    mart.project.execute("UPDATE orders SET amount = amount + 1 WHERE id = 20")
    code, _, errors = mart.verify(mart.cards)
    assert code == 1, errors  # capture has had the seconds that the command waited
    assert "nobody follows or rebuilds it" in errors
    mart.rebuild(mart.cards, mart.weights)
    wait_until(mart.shows_now, 60.0, "the view shows the present")
    code, report, errors = mart.verify(mart.cards, more=["--sample", "50%"])
    assert code == 0, (errors, report)


def test_rounds_tell_when_a_sink_differs(mart):
    words = [sys.executable, "-m", "changelog", "verify", "--view", mart.cards, "--json"]
    words += ["--every", "1s", "--settle", "0.5", "--project", str(mart.project.root)]
    relation = mart.table()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = map(json.loads, process.stdout)
        assert [next(lines)["verified"] for _ in range(3)] == [True, True, True]
        execute(mart.target, f"UPDATE {relation} SET amount = amount + 0.01 WHERE id = 7")
        line = next(line for line in lines if line["since"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 3
    assert line["name"] == f'view "{mart.cards}" in postgres'
    (since,) = line["since"]
    assert since["key"] == {"id": "7"}
    assert since["equal"]["lsn"] <= since["differs"]["lsn"]
    execute(mart.target, f"UPDATE {relation} SET amount = amount - 0.01 WHERE id = 7")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--view", "{sparks}"], "is in Spark's SQL, which PostgreSQL cannot answer"),
        (["--view", "no_such"], "no_such"),
        (["--view", "{cards}", "orders"], "by commands of their own"),
        (["--view", "{cards}", "--target", "delta:x"], "--target does not go with --view"),
        (["--settle", "3"], "--settle only works with --target"),
    ],
)
def test_what_cannot_be_compared_is_said(mart, words, message):
    words = [word.format(sparks=mart.sparks, cards=mart.cards) for word in words]
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", "verify", *words, "--project", mart.project.root],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert message in ran.stderr
