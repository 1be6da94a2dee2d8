"""Captures as connectors of `changelog serve`: their life, their failure, another worker's turn."""

import json
import uuid
from functools import partial

import httpx
import psycopg2
import pytest

from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan
from tests.support import sql
from tests.support.connect_workers import curl, running, states
from tests.support.wait import wait_until

DEADLINE_S = 120


@pytest.fixture
def execute(dsn):
    return partial(sql.execute, dsn)


@pytest.fixture
def config(dsn, prefix, execute):
    parts = psycopg2.extensions.parse_dsn(dsn)
    yield {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": parts["host"],
        "database.port": parts["port"],
        "database.user": parts["user"],
        "database.dbname": parts["dbname"],
        "slot.name": prefix,
        "topic.prefix": prefix,
        "table.include.list": r"public\.t.*",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "topic.creation.default.partitions": "1",
        "capture.frontier_interval_ms": "100",
    }
    slot = f"pg_replication_slots WHERE starts_with(slot_name::text, '{prefix}')"
    wait_until(
        lambda: (True,) not in execute(f"SELECT active FROM {slot}"), DEADLINE_S, "nobody reads it"
    )
    execute(f"SELECT pg_drop_replication_slot(slot_name) FROM {slot}")


@pytest.fixture
def records(kafka, prefix):
    """Returns the values of the topic of table t, from its start."""

    def records(table="t"):
        topic = f"{prefix}.{table}"
        ranges = [
            OffsetRange(topic, 0, each.starts[0], each.ends[0])
            for each in Cluster(kafka).standing([topic]).values()
        ]
        values = [record.value() for record in scan(kafka, ranges)]
        return [json.loads(value) for value in values if value is not None]

    return records


@pytest.fixture
def worker(stack):
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}") as (url, _, _said):
        yield url


def ids(records):
    return [each["after"]["id"] for each in records() if each["after"]]


def test_the_life_of_a_capture_by_debeziums_keys(worker, config, prefix, execute, records):
    one = f"{worker}/connectors/{prefix}"
    execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    execute("INSERT INTO t VALUES (1, 'x')")
    code, said, _ = curl("POST", f"{worker}/connectors", {"name": prefix, "config": config})
    assert (code, said["type"]) == (201, "source")
    assert curl("GET", f"{one}/config")[1] == {**config, "name": prefix}
    wait_until(lambda: ids(records) == [1], DEADLINE_S, "the snapshot is on the topic")
    assert records()[0]["op"] == "r"  # Debezium's class has Debezium's envelope
    assert states(worker, prefix) == ["RUNNING"]
    execute("INSERT INTO t VALUES (2, 'y')")
    wait_until(lambda: ids(records) == [1, 2], DEADLINE_S, "the change is on the topic")
    (place,) = curl("GET", f"{one}/offsets")[1]["offsets"]
    assert place["partition"] == {"server": prefix, "slot": prefix}
    assert place["offset"]["lsn"] > 0
    assert curl("PUT", f"{one}/pause")[0] == 202
    wait_until(lambda: states(worker, prefix) == ["PAUSED"], DEADLINE_S, "it rests")
    execute("INSERT INTO t VALUES (3, 'z')")
    assert curl("PUT", f"{one}/resume")[0] == 202
    wait_until(lambda: ids(records) == [1, 2, 3], DEADLINE_S, "it goes on where it was")
    assert curl("POST", f"{one}/restart?includeTasks=true")[0] == 202
    wait_until(lambda: states(worker, prefix) == ["RUNNING"], DEADLINE_S, "it runs again")
    assert curl("PUT", f"{one}/stop")[0] == 204
    wait_until(lambda: states(worker, prefix) == [], DEADLINE_S, "no task is left")
    assert curl("DELETE", f"{one}/offsets")[0] == 400
    assert curl("DELETE", one)[0] == 204
    assert ids(records) == [1, 2, 3]


@pytest.mark.matrix
def test_a_capture_that_cannot_begin_has_a_trace(worker, config, prefix, execute):
    wrong = {**config, "table.include.list": r"public\.nothing", "database.password": "canary-pw"}
    curl("POST", f"{worker}/connectors", {"name": prefix, "config": wrong})
    wait_until(lambda: states(worker, prefix) == ["FAILED"], DEADLINE_S, "it has failed")
    task = httpx.get(f"{worker}/connectors/{prefix}/status").json()["tasks"][0]
    assert "capture ended with code" in task["trace"]
    assert "canary-pw" not in task["trace"]
    assert curl("DELETE", f"{worker}/connectors/{prefix}")[0] == 204


@pytest.mark.matrix
def test_validation_of_a_capture_names_the_keys(worker, config, prefix):
    path = f"{worker}/connector-plugins/PostgresConnector/config/validate"
    assert curl("PUT", path, {**config, "name": prefix})[1]["error_count"] == 0
    wrong = {"capture.partitions": "none", "transforms": "x", "table.include.list": "public.(a|b)"}
    for key, value in wrong.items():
        given = {**config, "name": prefix, key: value}
        if key == "capture.partitions":
            del given["topic.creation.default.partitions"]
        said = curl("PUT", path, given)[1]
        named = [each["value"]["name"] for each in said["configs"] if each["value"]["errors"]]
        assert named == [key]


@pytest.mark.matrix
def test_another_worker_goes_on_when_the_one_with_the_capture_is_killed(
    stack, config, prefix, execute, records
):
    group = f"g{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    execute("CREATE TABLE t (id int PRIMARY KEY)")
    with (
        running(endpoints, group) as (first, one, _),
        running(endpoints, group) as (second, two, _),
    ):
        curl("POST", f"{first}/connectors", {"name": prefix, "config": config})

        def holder(url):
            tasks = httpx.get(f"{url}/connectors/{prefix}/status").json().get("tasks", ())
            return [each["worker_id"] for each in tasks if each["state"] == "RUNNING"]

        wait_until(lambda: holder(second), DEADLINE_S, "it runs")
        execute("INSERT INTO t SELECT generate_series(1, 500)")
        wait_until(lambda: len(set(ids(records))) == 500, DEADLINE_S, "the first rows")
        (name,) = holder(second)
        doomed, survivor = (one, second) if first.endswith(name) else (two, first)
        doomed.kill()
        execute("INSERT INTO t SELECT generate_series(501, 1000)")
        wait_until(lambda: len(set(ids(records))) == 1000, DEADLINE_S, "the rest")
        ours = [survivor.partition("//")[2]]
        wait_until(lambda: holder(survivor) == ours, DEADLINE_S, "the state names the other one")
        curl("PUT", f"{survivor}/connectors/{prefix}/stop")


@pytest.mark.matrix
def test_groups_of_tables_go_on_at_another_worker_as_one(stack, config, prefix, execute, records):
    group = f"g{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    config["capture.groups"] = json.dumps({"side": ["public.t_side"]})
    slots = [prefix, f"{prefix}_side"]

    def add(first, last):
        rows = f"SELECT n FROM generate_series({first}, {last}) n"
        execute(f"DO $$ BEGIN INSERT INTO t {rows}; INSERT INTO t_side {rows}; END $$")

    def are_there(last):
        wanted = [*range(1, last + 1)]
        return all(
            sorted({each["after"]["id"] for each in records(table)}) == wanted
            for table in ("t", "t_side")
        )

    execute("CREATE TABLE t (id int PRIMARY KEY)")
    execute("CREATE TABLE t_side (id int PRIMARY KEY)")
    with (
        running(endpoints, group) as (first, one, _),
        running(endpoints, group) as (second, two, _),
    ):
        curl("POST", f"{first}/connectors", {"name": prefix, "config": config})
        wait_until(lambda: states(second, prefix) == ["RUNNING"], DEADLINE_S, "it runs")
        add(1, 50)
        wait_until(lambda: are_there(50), DEADLINE_S, "the first rows")
        places = curl("GET", f"{first}/connectors/{prefix}/offsets")[1]["offsets"]
        assert [each["partition"]["slot"] for each in places] == slots
        tasks = httpx.get(f"{second}/connectors/{prefix}/status").json()["tasks"]
        is_first = first.endswith(tasks[0]["worker_id"])
        doomed, survivor = (one, second) if is_first else (two, first)
        doomed.kill()
        add(51, 100)
        wait_until(lambda: are_there(100), DEADLINE_S, "the rest")
        curl("PUT", f"{survivor}/connectors/{prefix}/stop")
