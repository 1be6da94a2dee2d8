"""Runs are told to OpenLineage in valid events, and a server that is away changes nothing."""

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from changelog.contract.base.errors import ChangelogError
from changelog.contract.rows.relation import TableName
from changelog.runtime.lineage import sending as module
from changelog.runtime.lineage.facts import (
    Dataset,
    DatasetCheck,
    Job,
    Place,
    RunState,
    SourceColumn,
)
from changelog.runtime.lineage.places import path_place, server_place, table_place, topic_place
from tests.support.openlineage import check_event, facet, kinds, lineage_server
from tests.support.wait import wait_until

JOB = Job(
    name="rebuild-view.orders",
    kind="VIEW",
    description="Orders.",
    query="SELECT 1",
    dialect="spark",
)
ORDERS = Place("kafka://a:9092", "orders")
STATE = RunState(
    [Dataset(place=ORDERS, columns={"id": "integer"}, version="LSN 0/1")],
    [
        Dataset(
            place=Place("file", "/views/orders"),
            columns={"id": "int", "n": "bigint"},
            version="generation 7, epoch 1, LSN 0/1",
            sources={"id": [SourceColumn(ORDERS, "id", "IDENTITY")]},
            rows=3,
            checks=[DatasetCheck("equals_the_log", "All.", True, "3", "3", {"mismatches": 0})],
        )
    ],
)
RUN_ID = "0190d9b4-a5b0-7f80-8b52-0c3c3ee0a2b6"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Hide what this machine asks of OpenLineage."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@contextmanager
def sending() -> Iterator[module.Sender]:
    """Send events, which somebody asks for."""
    with module.sending() as sender:
        assert sender is not None
        yield sender


@pytest.fixture
def told(monkeypatch):
    with lineage_server(monkeypatch) as told:
        yield told


def test_nothing_is_sent_or_loaded_where_nobody_asks():
    with module.sending() as sender:
        assert sender is None


def test_a_run_is_told_from_its_start_to_its_end(told):
    with sending() as sender:
        run = sender.begin(JOB, lambda: STATE)
        run.know()
        run.know()
        run.end()
        run.abort()
        run.know()
    events = told.of(JOB.name)
    assert kinds(events) == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    end = events[-1]
    assert end["job"]["namespace"] == "changelog"
    assert facet(end["job"], "sql") == {"query": "SELECT 1", "dialect": "spark"}
    assert facet(end["job"], "documentation")["description"] == "Orders."
    assert facet(end["job"], "jobType")["processingType"] == "BATCH"
    (topic,), (table,) = end["inputs"], end["outputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://a:9092", "orders")
    assert facet(topic, "version") == {"datasetVersion": "LSN 0/1"}
    assert [column["type"] for column in facet(table, "schema")["fields"]] == ["int", "bigint"]
    assert facet(table, "version") == {"datasetVersion": "generation 7, epoch 1, LSN 0/1"}
    (source,) = facet(table, "columnLineage")["fields"]["id"]["inputFields"]
    assert (source["name"], source["field"]) == ("orders", "id")
    assert source["transformations"][0] == {
        "type": "DIRECT",
        "subtype": "IDENTITY",
        "masking": False,
    }
    assert facet(table, "outputStatistics", "outputFacets")["rowCount"] == 3
    (check,) = facet(table, "dataQualityAssertions")["assertions"]
    assert (check["assertion"], check["success"]) == ("equals_the_log", True)
    (test,) = facet(end["run"], "test")["tests"]
    assert (test["status"], test["severity"]) == ("pass", "error")


def test_a_failure_is_told_without_secrets(told):
    with sending() as sender:
        run = sender.begin(JOB, lambda: STATE)
        run.end(ChangelogError("postgresql://me:hunter2@db is away\nnow", hint="wait"))
    end = told.last(JOB.name)
    assert end["eventType"] == "FAIL"
    message = facet(end["run"], "errorMessage")["message"]
    assert message == "postgresql://me:***@db is away now | hint: wait"
    assert "hunter2" not in json.dumps(told.events)


def test_a_run_that_goes_on_says_so_at_times(told):
    sender = module.Sender(every_s=0.05)
    run = sender.begin(JOB, lambda: STATE)
    wait_until(lambda: kinds(told.of(JOB.name)).count("RUNNING") >= 2, 30, "further events")
    run.end()
    sender.close()
    count = len(told.of(JOB.name))
    assert told.last(JOB.name)["eventType"] == "COMPLETE"
    assert len(told.events) == count


def test_the_parent_is_the_run_that_the_orchestrator_names(told, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/nightly.views/{RUN_ID}")
    with sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    end = told.last(JOB.name)
    assert end["job"]["namespace"] == "shop"
    parent = facet(end["run"], "parent")
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "nightly.views")
    assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == RUN_ID


def test_the_context_of_an_orchestrator_has_a_root_too(told, monkeypatch):
    names = {"run": {"runId": RUN_ID}, "job": {"namespace": "a", "name": "task"}}
    root = {"run": {"runId": RUN_ID}, "job": {"namespace": "a", "name": "dag"}}
    context = json.dumps({"parent": {**names, "root": root}})
    monkeypatch.setenv("OPENLINEAGE_CONTEXT", context)
    with sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    parent = facet(told.last(JOB.name)["run"], "parent")
    assert (parent["job"]["name"], parent["root"]["job"]["name"]) == ("task", "dag")


@pytest.mark.parametrize("text", ["airflow/nightly", f"a/b/c/{RUN_ID}", "a/b/no-id"])
def test_a_parent_that_cannot_be_read_is_told_and_left_out(told, monkeypatch, caplog, text):
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", text)
    with caplog.at_level(logging.WARNING, "changelog"), sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    assert "parent" not in told.last(JOB.name)["run"]["facets"]
    assert "the parent of the run is not told" in caplog.text


def test_a_file_of_openlineage_is_enough(told, monkeypatch, tmp_path):
    url = os.environ["OPENLINEAGE_URL"]
    monkeypatch.delenv("OPENLINEAGE_URL")
    text = f"transport:\n  type: http\n  url: {url}\n"
    (tmp_path / "openlineage.yml").write_text(text)
    with sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    assert kinds(told.of(JOB.name)) == ["START", "COMPLETE"]
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with module.sending() as sender:
        assert sender is None


def test_a_configuration_without_a_receiver_is_told(monkeypatch, tmp_path, caplog, capfd):
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "nowhere.yml"))
    with caplog.at_level(logging.WARNING, "changelog"), sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    assert "OpenLineage's configuration has no transport" in caplog.text
    assert capfd.readouterr().out == ""


def test_without_the_extra_a_warning_says_that_nothing_is_sent(monkeypatch, caplog):
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with caplog.at_level(logging.WARNING, "changelog"), module.sending() as sender:
        assert sender is None
    assert "changelog-store[openlineage]" in caplog.text


def lines(caplog):
    return [line for line in caplog.messages if line.startswith("OpenLineage: ")]


def test_a_server_that_refuses_is_one_line(monkeypatch, caplog):
    with (
        lineage_server(monkeypatch, status=422),
        caplog.at_level(logging.WARNING, "changelog"),
        sending() as sender,
    ):
        for _ in range(3):
            sender.begin(JOB, lambda: STATE).end()
    (line,) = lines(caplog)
    assert "422" in line


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_server_that_is_away_or_silent_costs_a_bounded_time(monkeypatch, caplog, is_silent):
    monkeypatch.setattr(module, "_LAST_S", 0.5)
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        if is_silent:
            held.listen()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        begun = time.monotonic()
        with caplog.at_level(logging.WARNING, "changelog"):
            sender = module.Sender()
            sender.begin(JOB, lambda: STATE).end()
            assert time.monotonic() - begun < 0.5, "nobody waits before the end"
            sender.close(0.5)
        assert time.monotonic() - begun < 3
    assert len(lines(caplog)) == 1


def test_an_error_in_what_is_told_is_no_error_of_the_run(told, caplog):
    def broken():
        raise KeyError("datasets")

    with caplog.at_level(logging.WARNING, "changelog"), sending() as sender:
        sender.begin(JOB, broken).end()
    assert kinds(told.of(JOB.name)) == ["START", "COMPLETE"]
    assert "are not told: KeyError('datasets')" in caplog.text


def test_the_schemas_refuse_what_is_no_event(told):
    with sending() as sender:
        sender.begin(JOB, lambda: STATE).end()
    (event,) = told.of(JOB.name)[1:]
    check_event(event)
    del event["outputs"][0]["facets"]["version"]["datasetVersion"]
    with pytest.raises(Exception, match="datasetVersion"):
        check_event(event)


TABLE = TableName("public", "orders")


@pytest.mark.parametrize(
    ("parts", "namespace", "name"),
    [
        ({"host": "db", "port": "5433", "dbname": "shop"}, "postgres://db:5433", "shop"),
        ({"host": "a,b", "port": "1,2", "dbname": "shop"}, "postgres://a:1", "shop"),
        ({"host": "/run/postgresql", "user": "me"}, "postgres://localhost:5432", "me"),
        ({"hostaddr": "::1", "dbname": "x"}, "postgres://[::1]:5432", "x"),
    ],
)
def test_tables_have_the_names_that_others_give_them(parts, namespace, name, monkeypatch):
    for variable in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER"):
        monkeypatch.delenv(variable, raising=False)
    assert table_place(parts, TABLE) == Place(namespace, f"{name}.public.orders")


def test_topics_folders_and_servers_have_the_names_that_others_give_them():
    assert topic_place("b", "t") == Place("kafka://b:9092", "t")
    assert topic_place("[::1]:9093,c:1", "t") == Place("kafka://[::1]:9093", "t")
    assert path_place("abfss://views@lake.dfs.core.windows.net/a/b") == Place(
        "abfss://views@lake.dfs.core.windows.net", "a/b"
    )
    assert path_place("file:///srv/a") == Place("file", "/srv/a")
    assert server_place("opensearch", "https://me:secret@search:9243", 9200, "v") == Place(
        "opensearch://search:9243", "v"
    )
