"""Runs of views become events with stable names, columns and proofs."""

import json
from dataclasses import replace

import pytest

from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError, RefutedError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from replay.decode.schemas import TopicSchemas
from tests.support.openlineage import facet, kinds, lineage_server
from views.base.config import RebuildSettings
from views.generations.served import sink_settings
from views.lineage.places import served_places
from views.lineage.runs import Action, told_to_lineage
from views.project.catalog import catalog_of
from views.rebuild.result.report import Outcome, ViewResult
from views.verify.compare.report import VerifyReport

SETTINGS = """
postgres.dsn = "postgresql://me@db/shop"
kafka.brokers = "broker:9092,other:9092"
sinks.search.url = "http://me:hunter2@search:9200"
sinks.cache.url = "redis://cache"
sinks.postgres.url = "postgresql://me:hunter2@serving:5433/app"
rebuild.warehouse = "s3://lake/views"
sinks.iceberg.catalogue = "polaris"
capture.topic_prefix = "shop"
capture.slot = "s"
"""
VIEW = """-- key: id
-- sinks: delta, search, cache, postgres, topic, iceberg
SELECT id, upper(name) AS name FROM orders
"""
ORDERS = TableName("public", "orders")
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "orders",
        "relation": ["public", "orders"],
        "key": ["id"],
        "fields": [
            {"name": "id", "type": "int", "column": "id", "pg_type": "integer"},
            {"name": "name", "type": ["null", "string"], "column": "name", "pg_type": "text"},
        ],
    }
)
EQUAL = VerifyReport(
    view="orders_by_id", verified=True, rows_expected=3, rows_served=3, mismatches=0
)
DONE = ViewResult(
    view="orders_by_id",
    generation=4,
    frontier=Frontier(slot="s", epoch=2, lsn=Lsn.parse("1/A"), ts_us=1_600_000_000_123_456),
    topics=("shop.orders",),
    schemas={ORDERS: TopicSchemas("shop.orders", 1, {2: SCHEMA}, 2)},
    columns=(("id", "int"), ("name", "string")),
    rows=3,
    verified=True,
    published=True,
    switch_seconds=0.1,
    sinks=("delta", "search"),
    reports={"delta": EQUAL, "search": EQUAL},
    refused={"search": 1},
)
JOB = "rebuild-view.orders_by_id"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "changelog.toml").write_text(SETTINGS)
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "orders_by_id.sql").write_text(VIEW)
    return RebuildSettings(project=load_project(tmp_path, needs=[]))


@pytest.fixture
def specs(settings):
    return catalog_of(settings.project).load_all(None)


@pytest.fixture
def told(monkeypatch):
    with lineage_server(monkeypatch) as told:
        yield told


def test_each_sink_has_one_name_for_all_generations_without_a_password(settings, specs):
    places = served_places(specs[0], sink_settings(settings.project))
    assert {kind: (place.namespace, place.name) for kind, place in places.items()} == {
        "delta": ("s3://lake", "views/orders_by_id"),
        "search": ("opensearch://search:9200", "orders_by_id"),
        "cache": ("redis://cache:6379", "orders_by_id"),
        "postgres": ("postgres://serving:5433", "app.public.orders_by_id"),
        "topic": ("kafka://broker:9092", "shop.views.orders_by_id"),
        "iceberg": ("iceberg://polaris", "views.orders_by_id"),
    }


def test_the_options_of_a_view_name_its_tables(settings, specs):
    options = {"postgres": {"table": "served.o"}, "iceberg": {"table": "a.b.o"}}
    sinks = replace(sink_settings(settings.project), iceberg_catalogue="", warehouse="/w")
    places = served_places(replace(specs[0], options=options), sinks)
    assert places["postgres"].name == "app.served.o"
    assert (places["iceberg"].namespace, places["iceberg"].name) == ("file", "/w/_iceberg/a/b/o")


def test_a_rebuild_is_told_with_its_proof(told, settings, specs):
    with told_to_lineage(["orders_by_id"], specs, settings, Action.REBUILD) as take:
        take(Outcome.of([DONE]))
    start, end = told.of(JOB)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert facet(end["job"], "sql")["query"] == VIEW
    (topic,) = end["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "shop.orders")
    assert facet(topic, "version")["datasetVersion"] == "epoch 2, LSN 1/A"
    fields = [(field["name"], field["type"]) for field in facet(topic, "schema")["fields"]]
    assert fields == [("id", "integer"), ("name", "text")]
    outputs = {output["namespace"]: output for output in end["outputs"]}
    delta, search = outputs["s3://lake"], outputs["opensearch://search:9200"]
    assert facet(delta, "version")["datasetVersion"] == "generation 4, epoch 2, LSN 1/A"
    sources = {
        name: [
            (source["name"], source["field"], source["transformations"][0]["subtype"])
            for source in column["inputFields"]
        ]
        for name, column in facet(delta, "columnLineage")["fields"].items()
    }
    assert sources == {
        "id": [("shop.orders", "id", "IDENTITY")],
        "name": [("shop.orders", "name", "TRANSFORMATION")],
    }
    counts = [
        facet(each, "outputStatistics", "outputFacets")["rowCount"] for each in (delta, search)
    ]
    assert counts == [3, 2]
    (check,) = facet(delta, "dataQualityAssertions")["assertions"]
    assert (check["success"], check["expected"], check["params"]["mode"]) == (True, "3", "full")
    assert "hunter2" not in json.dumps(told.events)


def test_a_refuted_view_is_a_failure_with_the_verdict(told, settings, specs):
    differs = replace(EQUAL, verified=False, mismatches=2)
    refuted = replace(DONE, error=RefutedError("2 rows differ"), reports={"delta": differs})
    with told_to_lineage(["orders_by_id"], specs, settings, Action.REBUILD) as take:
        take(Outcome.of([refuted]))
    end = told.last(JOB)
    assert end["eventType"] == "FAIL"
    assert facet(end["run"], "errorMessage")["message"].startswith("2 rows differ")
    delta = next(each for each in end["outputs"] if each["namespace"] == "s3://lake")
    (check,) = facet(delta, "dataQualityAssertions")["assertions"]
    assert (check["success"], check["params"]["mismatches"]) == (False, 2)
    assert not {"version"} & set(delta["facets"])
    assert not delta.get("outputFacets")


def test_a_view_that_cannot_be_read_has_a_run_that_fails(told, settings, specs):
    broken = ViewResult(view="broken", error=ChangelogError("it has no key"))
    names = ["orders_by_id", "broken"]
    with told_to_lineage(names, specs, settings, Action.REBUILD) as take:
        take(Outcome.of([DONE, broken]))
    assert told.last("rebuild-view.broken")["eventType"] == "FAIL"
    assert told.last(JOB)["eventType"] == "COMPLETE"


@pytest.mark.parametrize(
    ("error", "kind"), [(ChangelogError("no frontier"), "FAIL"), (KeyboardInterrupt(), "ABORT")]
)
def test_a_run_that_could_not_begin_has_an_end_too(told, settings, specs, error, kind):
    with (
        pytest.raises(type(error)),
        told_to_lineage(["orders_by_id"], specs, settings, Action.REBUILD),
    ):
        raise error
    assert kinds(told.of(JOB)) == ["START", kind]


def test_a_follower_begins_with_its_first_round_and_ends_when_it_is_stopped(told, settings, specs):
    names = ["orders_by_id", "followed_apart"]
    with told_to_lineage(names, specs, settings, Action.FOLLOW) as take:
        take(Outcome.of([DONE]))
        take(Outcome.of([replace(DONE, generation=4, switch_seconds=None)]))
        take(Outcome(()))
    events = told.of(f"{JOB}.follow")
    assert kinds(events) == ["START", "RUNNING", "COMPLETE"]
    assert facet(events[-1]["job"], "jobType")["processingType"] == "STREAMING"
    assert not any(output.get("outputFacets") for output in events[-1]["outputs"])
    assert {event["job"]["name"] for event in told.events} == {f"{JOB}.follow"}


def test_a_follower_that_fails_says_why(told, settings, specs):
    with told_to_lineage(["orders_by_id"], specs, settings, Action.FOLLOW) as take:
        take(Outcome.of([DONE]))
        take(Outcome((), ChangelogError("the log is gone")))
    assert kinds(told.of(f"{JOB}.follow")) == ["START", "RUNNING", "FAIL"]
