"""A server of OpenLineage hears of captures, rebuilds, refuted views and followers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg2.extensions import parse_dsn

from changelog.contract.base.lsn import Lsn
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.openlineage import facet, kinds, lineage_server
from tests.support.wait import wait_until
from views.generations.served import Served, served_of
from views.rebuild import rebuild

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(10, 2));
INSERT INTO orders SELECT n, 'c' || n % 3, n * 1.5 FROM generate_series(1, 30) AS n;
"""
VIEW = """-- key: customer
-- sinks: delta
SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
"""
COPY = "-- key: id\n-- sinks: cache\nSELECT id, amount FROM orders\n"
SOON_S = 300


@pytest.fixture(scope="module")
def project(stack, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("lineage"), TABLES) as (
        made,
        prefix,
    ):
        made.view("totals.sql", VIEW)
        made.view(f"copied_{prefix}.sql", COPY)
        yield made


def prefix_of(project):
    """Return the name of the database, slot and prefix of the topics."""
    return parse_dsn(project.dsn)["dbname"]


@pytest.fixture
def told(monkeypatch):
    with lineage_server(monkeypatch) as told:
        yield told


def lose_a_row(monkeypatch):
    """Plant a defect: a sink is given a row less."""

    class Loses:
        def __init__(self, sink):
            self._sink = sink

        def __getattr__(self, name):
            return getattr(self._sink, name)

        def write(self, rows):
            self._sink.write(rows.where("customer <> 'c1'"))

    def planted(spec, settings, spark):
        sinks = served_of(spec, settings, spark).sinks
        return Served(spec.name, {name: Loses(sink) for name, sink in sinks.items()})

    original = rebuild.RebuildRun
    monkeypatch.setattr(
        "views.command.RebuildRun", lambda *a, **k: original(*a, **k, make_served=planted)
    )


def names(datasets):
    return [(each["namespace"], each["name"]) for each in datasets]


def test_a_capture_tells_its_tables_and_topics(stack, tmp_path, told):
    with captured_database(stack, tmp_path / "project", TABLES) as (project, _):
        parts = parse_dsn(project.dsn)
    events = told.of(f"capture.{prefix_of(project)}")
    assert kinds(events) == ["START", "RUNNING", "COMPLETE"]
    end = events[-1]
    (table,), (topic,) = end["inputs"], end["outputs"]
    host = "localhost" if parts["host"].startswith("/") else parts["host"]
    assert names([table]) == [
        (f"postgres://{host}:{parts['port']}", f"{prefix_of(project)}.public.orders")
    ]
    assert topic["name"] == f"{prefix_of(project)}.orders"
    assert topic["namespace"].startswith("kafka://")
    assert [column["name"] for column in facet(topic, "schema")["fields"]] == [
        "id", "customer", "amount",
    ]  # fmt: skip
    assert facet(topic, "outputStatistics", "outputFacets")["rowCount"] == 30
    (source,) = facet(topic, "columnLineage")["fields"]["amount"]["inputFields"]
    assert (source["name"], source["field"]) == (table["name"], "amount")
    version = facet(topic, "version")["datasetVersion"]
    assert Lsn.parse(version.removeprefix("LSN ")) > Lsn(0)


def test_rebuilds_stages_and_publications_are_told_and_so_is_a_refuted_one(
    project, told, spark, capsys, monkeypatch
):
    job = "rebuild-view.totals"
    done = rebuild_view(capsys, monkeypatch, project, "totals", "--json")
    assert done.code == 0, done.err
    start, end = told.of(job)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    (topic,), (table,) = end["inputs"], end["outputs"]
    assert topic["name"] == f"{prefix_of(project)}.orders"
    assert names([table]) == [("file", str(project.warehouse / "totals"))]
    assert facet(table, "outputStatistics", "outputFacets")["rowCount"] == 3
    columns = facet(table, "columnLineage")["fields"]
    assert [
        (source["field"], source["transformations"][0]["subtype"])
        for source in columns["total"]["inputFields"]
    ] == [("amount", "AGGREGATION")]
    (check,) = facet(table, "dataQualityAssertions")["assertions"]
    assert (check["success"], check["expected"], check["actual"]) == (True, "3", "3")
    number, frontier = done.results[0]["generation"], done.results[0]["frontier"]
    place = f"epoch {frontier['epoch']}, LSN {frontier['lsn']}"
    assert facet(table, "version")["datasetVersion"] == f"generation {number}, {place}"
    assert facet(topic, "version")["datasetVersion"] == place

    done = rebuild_view(capsys, monkeypatch, project, "totals", "--stage")
    assert done.code == 0, done.err
    staged = facet(told.last(job)["outputs"][0], "version")
    assert staged["datasetVersion"].startswith(f"generation {number + 1}, ")
    done = rebuild_view(capsys, monkeypatch, project, "totals", "--publish")
    assert done.code == 0, done.err
    published = told.last(f"{job}.publish")
    assert published["eventType"] == "COMPLETE"
    assert names(published["outputs"]) == names([table]), "a generation has no name of its own"
    assert facet(published["outputs"][0], "version") == staged

    lose_a_row(monkeypatch)
    refuted = rebuild_view(capsys, monkeypatch, project, "totals")
    assert refuted.code == 3, refuted.err
    end = told.last(job)
    assert end["eventType"] == "FAIL"
    assert "is refuted" in facet(end["run"], "errorMessage")["message"]
    (check,) = facet(end["outputs"][0], "dataQualityAssertions")["assertions"]
    assert (check["success"], check["params"]["mismatches"]) == (False, 1)
    (test,) = facet(end["run"], "test")["tests"]
    assert test["status"] == "fail"


def test_a_server_that_is_away_neither_ends_a_rebuild_nor_delays_it_for_long(
    project, spark, capsys, monkeypatch
):
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    done = rebuild_view(capsys, monkeypatch, project, "totals", "--json")
    assert done.code == 0, done.err
    assert done.err.count("OpenLineage: ") == 1, done.err


def test_a_follower_is_one_run_that_goes_on(project, told):
    view = f"copied_{prefix_of(project)}"
    command = [str(Path(sys.executable).with_name("rebuild-view")), view, "--follow", "--json"]
    rounds: list[dict] = []
    process = subprocess.Popen(
        command, cwd=project.root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )

    def read():
        assert process.stdout is not None
        with process.stdout as lines:
            rounds.extend(json.loads(line) for line in lines if line.startswith("{"))

    threading.Thread(target=read, daemon=True).start()
    job = f"rebuild-view.{view}.follow"
    try:
        wait_until(lambda: rounds, SOON_S, "a first round")
        project.execute("INSERT INTO orders VALUES (31, 'c0', 1)")
        project.capture()
        wait_until(lambda: rounds[-1]["rows"] == 31, SOON_S, "a further round")
        process.terminate()
        assert process.wait(60) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Spark's JVM, too
        process.wait()
    events = told.of(job)
    assert kinds(events) == ["START", "RUNNING", "COMPLETE"]
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    first, last = (event["outputs"][0] for event in events[1:])
    assert names([first]) == names([last])
    assert facet(first, "version") != facet(last, "version")
    assert facet(last, "columnLineage") == facet(first, "columnLineage")
    (topic,) = events[-1]["inputs"]
    assert topic["name"] == f"{prefix_of(project)}.orders"
