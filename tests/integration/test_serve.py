"""`changelog serve` as its clients use it: curl, two Python clients, several workers."""

import json
import os
import signal
import ssl
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial

import httpx
import psycopg2
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_connect import KafkaConnect  # type: ignore[import-untyped]
from kafka_connect_api.kafka_connect_api import Api, Cluster  # type: ignore[import-untyped]

from changelog.connect.postgres.places import PLACES
from tests.support.certificates import LOOPBACK, Authority
from tests.support.connect_worker import AHEAD, DEFECT
from tests.support.connect_workers import curl, running, states
from tests.support.produce_faults import DIES_ONCE
from tests.support.wait import wait_until

DEADLINE_S = 120
PASSWORD = "pw-canary-0123"
TOKEN = "token-canary-0123456789"


@pytest.fixture(scope="module")
def workers(stack):
    """Starts workers of one group; gives the address and the process of each."""
    endpoints = stack.endpoints()

    def run(group, *words, env=None):
        return running(endpoints, group, *words, env=env)

    return run


@pytest.fixture(scope="module")
def worker(workers):
    with workers(f"g{uuid.uuid4().hex[:8]}") as (url, process, said):
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert PASSWORD not in "".join(said)


@pytest.fixture
def config(dsn, prefix, kafka):
    topic = f"{prefix}.t"
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    parts = psycopg2.extensions.parse_dsn(dsn)
    return {
        "connector.class": "changelog.PostgresSink",
        "topics": topic,
        "tasks.max": "2",
        "connection.url": f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}",
        "connection.user": parts["user"],
        "connection.password": PASSWORD,
        "target.tablename": "t",
        "insert.mode": "upsert",
        "pk.fields": "id",
        "auto.create": "true",
        "col.names": "id,a",
        "col.types": "int,text",
    }


@pytest.fixture
def send(kafka, config):
    def send(rows):
        producer = Producer({**kafka.client_config(), "log_level": 0, "linger.ms": 5})
        for row in rows:
            # Changes of one row stand in one partition, whatever its keys are.
            number = abs((row.get("before") or row.get("after") or row)["id"])
            producer.produce(config["topics"], key=str(number), value=json.dumps(row))
        assert producer.flush(30) == 0

    return send


@pytest.fixture
def query(dsn):
    def query(statement):
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except psycopg2.errors.UndefinedTable:
                return None
            return cursor.fetchall()

    return query


def test_the_life_of_a_connector_by_curl(worker, config, prefix, send, query):
    one = f"{worker}/connectors/{prefix}"
    send({"id": n, "a": "x"} for n in range(50))
    code, said, location = curl("POST", f"{worker}/connectors", {"name": prefix, "config": config})
    assert (code, location) == (201, f"/connectors/{prefix}")
    assert said["type"] == "sink"
    assert [each["task"] for each in said["tasks"]] == [0, 1]
    assert curl("POST", f"{worker}/connectors/", {"name": prefix, "config": config})[0] == 409
    wait_until(lambda: query("SELECT count(*) FROM t") == [(50,)], DEADLINE_S, "rows arrive")
    wait_until(lambda: states(worker, prefix) == ["RUNNING"] * 2, DEADLINE_S, "the tasks run")
    # What Terraform's provider waits for: what was sent, the name, and no key more.
    kept = curl("GET", f"{one}/config")[1]
    assert kept == {**config, "name": prefix, "connection.password": "********"}
    assert curl("PUT", f"{one}/config", kept)[0] == 200
    everything = curl("GET", f"{worker}/connectors?expand=info&expand=status&expand=x")[1][prefix]
    assert set(everything) == {"info", "status"}
    assert PASSWORD not in json.dumps(everything)
    assert curl("GET", f"{one}/topics")[1] == {prefix: {"topics": [config["topics"]]}}
    assert curl("PUT", f"{one}/topics/reset")[0] == 403
    assert curl("GET", f"{one}/tasks")[1][1]["id"] == {"connector": prefix, "task": 1}

    assert curl("PUT", f"{one}/pause")[:2] == (202, None)
    wait_until(lambda: states(worker, prefix) == ["PAUSED"] * 2, DEADLINE_S, "the tasks rest")
    assert curl("PUT", f"{one}/resume")[0] == 202
    assert curl("DELETE", f"{one}/offsets")[0] == 400
    assert curl("PUT", f"{one}/stop")[:2] == (204, None)
    offsets = curl("GET", f"{one}/offsets")[1]["offsets"]
    assert sum(each["offset"]["kafka_offset"] for each in offsets) == 50
    first = {"partition": {**offsets[0]["partition"], "kafka_partition": "0"}}
    wait_until(
        lambda: curl("PATCH", f"{one}/offsets", {"offsets": [{**first, "offset": None}]})[0] == 200,
        DEADLINE_S,
        "the tasks have ended",
    )
    assert len(curl("GET", f"{one}/offsets")[1]["offsets"]) == 3
    strange = {"partition": {"kafka_topic": "strange", "kafka_partition": 0}}
    said = curl(
        "PATCH", f"{one}/offsets", {"offsets": [{**strange, "offset": {"kafka_offset": 5}}]}
    )
    assert said[0] == 400
    assert '"strange" does not belong to this' in said[1]["message"]
    query_delete = curl("DELETE", f"{one}/offsets")
    assert query_delete[0] == 200
    assert (
        curl("PATCH", f"{one}/config", {"batch.size": 7, "tasks.max": "1"})[1]["config"][
            "batch.size"
        ]
        == "7"
    )
    assert curl("PUT", f"{one}/resume")[0] == 202
    wait_until(lambda: states(worker, prefix) == ["RUNNING"], DEADLINE_S, "one task runs")
    assert curl("POST", f"{one}/restart")[0] == 204
    assert curl("POST", f"{one}/restart?includeTasks=true&onlyFailed=False")[0] == 202
    assert curl("POST", f"{one}/tasks/0/restart")[0] == 204
    assert curl("GET", f"{one}/tasks/0/status")[1]["id"] == 0
    assert curl("GET", f"{one}/tasks/9/status")[0] == 404
    assert curl("DELETE", one)[0] == 204
    code, said, _ = curl("GET", f"{one}/config")
    assert (code, said["error_code"]) == (404, 404)


def test_what_the_worker_says_of_itself(worker):
    root = curl("GET", worker)[1]
    assert tuple(map(int, root["version"].split(".")[:2])) >= (3, 7)
    assert root["kafka_cluster_id"]
    assert curl("GET", f"{worker}/health")[1]["status"] == "healthy"
    plugins = curl("GET", f"{worker}/connector-plugins?connectorsOnly=false")[1]
    assert {"class", "type", "version"} == set(plugins[0])
    for each in plugins:
        assert curl("GET", f"{worker}/connector-plugins/{each['class']}/config")[0] == 200
    code, said, _ = curl(
        "PUT", f"{worker}/connector-plugins/PostgresSink/config/validate", {"topics": "a b"}
    )
    assert (code, said["error_count"] > 0) == (200, True)
    assert curl("GET", f"{worker}/admin/loggers")[1]["root"]["level"] == "INFO"
    assert curl("PUT", f"{worker}/admin/loggers/root?scope=cluster", {"level": "INFO"})[0] == 204
    assert curl("PUT", f"{worker}/admin/loggers/root", {"level": "INFO"})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("POST", "/health", {}, 405),
        ("POST", "/connectors", [], 400),
        ("POST", "/connectors", {"name": "x", "config": {"name": "y"}}, 400),
        ("PUT", "/connectors/x/config", {"topics": "t"}, 400),
        ("GET", "/connectors/x/status", None, 404),
        ("DELETE", "/connectors/x", None, 404),
        ("PUT", "/connectors/x/pause", None, 404),
        ("PUT", "/connectors", "x" * (2 << 20), 405),
        ("POST", "/connectors", "x" * (2 << 20), 413),
    ],
)
def test_an_error_is_json_with_a_message(worker, method, path, body, code):
    said = httpx.request(method, worker + path, json=body)
    assert said.status_code == code
    assert said.json()["error_code"] == code
    assert said.json()["message"]


def traced(worker, name, words):
    tasks = httpx.get(f"{worker}/connectors/{name}/status").json().get("tasks", ())
    return words in "".join(each.get("trace", "") for each in tasks)


def test_what_workers_know_reaches_no_table_and_no_dead_letters(
    worker, config, prefix, kafka, send, query
):
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    names = [f"{prefix}-state", f"{prefix}-tasks"]
    logged = f"{prefix}.logged"
    made = [NewTopic(each, 1, 1) for each in names]
    made.append(NewTopic(logged, 1, 1, config={"cleanup.policy": "compact"}))
    for future in admin.create_topics(made).values():
        future.result(30)
    send([{"id": 2**40}])  # no int
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": logged}
    for wrong, why in (({"topics": names[0]}, "keep what they know"), (dead, "is compacted")):
        assert curl("PUT", f"{worker}/connectors/{prefix}/config", {**config, **wrong})[0] < 300
        try:
            # The trace: a status of the connector before, under the same name, may still be read.
            wait_until(partial(traced, worker, prefix, why), DEADLINE_S, f"a task says: {why}")
        finally:
            assert curl("DELETE", f"{worker}/connectors/{prefix}")[0] == 204
        wait_until(
            lambda: httpx.get(f"{worker}/connectors/{prefix}").status_code == 404, 30, "it is gone"
        )
    assert query("SELECT count(*) FROM t") in (None, [(0,)])


def test_a_failed_task_has_a_trace_and_goes_on_after_a_restart(worker, config, prefix, query, send):
    wrong = {**config, "auto.create": "false"}
    client = KafkaConnect(url=worker)
    send([{"id": 1, "a": "y"}])
    client.create_connector({"name": prefix, "config": wrong})
    try:
        wait_until(lambda: "FAILED" in states(worker, prefix), DEADLINE_S, "a task has failed")
        assert traced(worker, prefix, "there is no table")
        client.update_connector(prefix, config)
        client.restart_connector(prefix, include_tasks=True, only_failed=True)
        wait_until(lambda: query("SELECT a FROM t") == [("y",)], DEADLINE_S, "the row is there")
        wait_until(lambda: states(worker, prefix) == ["RUNNING"] * 2, DEADLINE_S, "both run")
    finally:
        client.delete_connector(prefix)


@pytest.mark.matrix
def test_a_topic_that_is_made_later_is_waited_for_and_one_that_goes_is_missed(
    worker, config, prefix, kafka, query
):
    def waits():
        return [each.get("waits_for") for each in client.get_connector_status(prefix)["tasks"]]

    later, client = f"{prefix}.later", KafkaConnect(url=worker)
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    both = {**config, "topics": f"{later},{config['topics']}", "auto.offset.reset": "latest"}
    client.create_connector({"name": prefix, "config": both})
    try:
        said = f"topics that do not exist: {later}"
        wait_until(lambda: waits() == [said] * 2, DEADLINE_S, "both wait")
        assert states(worker, prefix) == ["RUNNING"] * 2
        admin.create_topics([NewTopic(later, 1, 1)])[later].result(30)
        producer = Producer({**kafka.client_config(), "log_level": 0})
        producer.produce(later, value=json.dumps({"id": 1, "a": "z"}))
        assert producer.flush(30) == 0
        wait_until(lambda: query("SELECT a FROM t") == [("z",)], DEADLINE_S, "the row is there")
        wait_until(lambda: waits() == [None] * 2, DEADLINE_S, "none waits")
        admin.delete_topics([later])[later].result(30)
        client.restart_connector(prefix, include_tasks=True)
        wait_until(
            partial(traced, worker, prefix, f'topic "{later}" no longer exists'), DEADLINE_S, "told"
        )
    finally:
        client.delete_connector(prefix)


def test_kafka_connect_py(worker, config, prefix):
    client = KafkaConnect(url=worker)
    assert client.get_cluster_info()["version"]
    client.create_connector({"name": prefix, "config": config})
    assert prefix in client.list_connectors()
    assert prefix in client.list_connectors(expand="status", pattern=prefix)
    assert client.get_connector(prefix)["name"] == prefix
    assert client.get_connector_config(prefix)["topics"] == config["topics"]
    client.restart_connector(prefix)
    client.pause_connector(prefix)
    client.resume_connector(prefix)
    client.stop_connector(prefix)
    assert client.list_connector_tasks(prefix) == []
    assert client.list_connector_topics(prefix)
    assert client.list_connector_plugins()
    said = client.validate_connector_config("PostgresSink", {**config, "name": prefix})
    assert said["error_count"] == 0
    client.delete_connector(prefix)
    assert prefix not in client.list_connectors()


def test_kafka_connect_api(worker, config, prefix):
    KafkaConnect(url=worker).create_connector({"name": prefix, "config": config})
    cluster = Cluster(Api(hostname="127.0.0.1", port=int(worker.rpartition(":")[2])))
    assert cluster.version
    found = cluster.connectors[prefix]
    assert found.exists()
    assert found.state == "RUNNING"
    assert found.config["topics"] == config["topics"]
    assert [each.id for each in found.tasks] == [0, 1]
    found.pause()
    found.resume()
    found.delete()
    assert prefix not in cluster.connectors


def test_a_token_is_needed_where_one_is_set_and_too_many_requests_are_refused(workers, tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with workers(f"g{uuid.uuid4().hex[:8]}", "--token-file", str(path)) as (url, _, said):
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert httpx.get(url, auth=("anybody", TOKEN)).status_code == 200
        with httpx.Client() as client:
            codes = {client.get(url).status_code for _ in range(600)}
        assert codes == {401, 429}
    assert TOKEN not in "".join(said)


@pytest.mark.matrix
def test_https(workers, tmp_path):
    authority = Authority(tmp_path, "authority")
    pair = authority.sign("worker", LOOPBACK)
    words = ["--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)]
    trusted = ssl.create_default_context(cafile=authority.certificate)
    with workers(f"g{uuid.uuid4().hex[:8]}", *words) as (url, *_):
        assert url.startswith("https://")
        assert httpx.get(url, verify=trusted).status_code == 200


def test_other_addresses_than_loopback_need_a_token(kafka):
    command = [sys.executable, "-m", "changelog", "serve", "--host", "0.0.0.0"]  # noqa: S104 - refused
    ran = subprocess.run(
        [*command, "--broker", kafka.brokers],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "--token-file" in ran.stderr


class Pair:
    """Two workers of one group that share the four tasks of a connector."""

    def __init__(self, connector, *workers):
        self.connector = connector
        self._processes = {url: process for url, process, _ in workers}

    def holders(self, url):
        """Which workers run the tasks, as one of them says."""
        # A worker that has not read the connector's making yet says 404.
        said = httpx.get(f"{url}/connectors/{self.connector}/status").json().get("tasks", ())
        return [each["worker_id"] for each in said if each["state"] == "RUNNING"]

    def kill(self):
        """Kill the worker that has a task; returns the other one."""
        url = next(iter(self._processes))
        named = self.holders(url)[0]
        doomed = next(each for each in self._processes if each.endswith(f"//{named}"))
        self._processes[doomed].kill()
        return next(each for each in self._processes if each != doomed)

    def killed(self):
        """The other one than a worker that has died; empty while none has."""
        is_dead = {url: process.poll() is not None for url, process in self._processes.items()}
        assert not all(is_dead.values())
        return (
            "" if not any(is_dead.values()) else next(u for u, dead in is_dead.items() if not dead)
        )

    def wait_for_all_tasks(self, survivor):
        """What is left has all the tasks: the state is on the topic, the places in the target."""
        mine = [survivor.partition("//")[2]] * 4
        wait_until(lambda: self.holders(survivor) == mine, DEADLINE_S, "one worker has all tasks")


@pytest.fixture
def pair(workers, config, prefix):
    """Run two workers and a connector, whose transactions are small."""

    @contextmanager
    def pair(*defect, env=None, **given):
        small = {**config, "batch.size": "50", "tasks.max": "4", **given}
        asked = {name: value for name, value in small.items() if value is not None}
        group = f"g{uuid.uuid4().hex[:8]}"
        with workers(group, *defect, env=env) as one, workers(group, *defect, env=env) as other:
            made = Pair(prefix, one, other)
            curl("POST", f"{one[0]}/connectors", {"name": prefix, "config": asked})
            wait_until(lambda: len(made.holders(other[0])) == 4, DEADLINE_S, "all tasks run")
            yield made

    return pair


@pytest.fixture
def written(query):
    def written():
        return (query("SELECT count(*) FROM t") or [(0,)])[0][0]

    return written


def _killed(pair, send, query, written, *defect):
    """Let two workers append rows, kill one that has tasks, and go on; returns what is there.

    Rows are appended, so that each that is written twice shows.
    """
    with pair(*defect, **{"insert.mode": "insert", "pk.fields": None}) as workers:
        send({"id": n, "a": "x"} for n in range(3_000))
        wait_until(lambda: written() > 500, DEADLINE_S, "some rows")
        survivor = workers.kill()
        send({"id": n, "a": "x"} for n in range(3_000, 4_000))
        wait_until(
            lambda: query("SELECT count(DISTINCT id) FROM t") == [(4_000,)], DEADLINE_S, "all rows"
        )
        workers.wait_for_all_tasks(survivor)
        return query("SELECT count(*), count(DISTINCT id) FROM t")[0]


class Truth:
    """Rows and their changes: what is sent of them, and what they come to."""

    def __init__(self):
        self.rows = {}
        self.sent = 0

    def _event(self, op, before, after):
        self.sent += 1
        return {"op": op, "before": before, "after": after}

    def born(self, ids, text):
        for n in ids:
            self.rows[n] = text
            yield self._event("c", None, {"id": n, "a": text})

    def changed(self, ids, text):
        """Delete a fifth of the rows, give a fifth another key, and update the others."""
        for n in ids:
            before = {"id": n, "a": self.rows.pop(n)}
            if not n % 5:
                yield self._event("d", before, None)
                continue
            after = {"id": -n if n % 5 == 1 else n, "a": text}
            self.rows[after["id"]] = text
            yield self._event("u", before, after)

    def first(self):
        """Births and changes by turns."""
        for n in range(1, 3_001, 100):
            yield from self.born(range(n, n + 100), "born")
            yield from self.changed(range(n, n + 100), "changed")

    def then(self):
        """Changes of all that is there, and births."""
        yield from self.changed([*self.rows], "changed again")
        yield from self.born(range(3_001, 4_001), "late")


def is_caught_up(query, truth):
    """Tell whether the places are at the end of all that was sent."""
    return query(f"SELECT sum(next_offset) FROM {PLACES}") == [(truth.sent,)]


@pytest.mark.matrix
def test_the_death_of_a_worker_that_writes_by_key_leaves_the_rows_as_they_are(
    pair, send, query, dsn
):
    truth = Truth()
    with pair() as workers:
        send(truth.first())
        wait_until(lambda: is_caught_up(query, truth), DEADLINE_S, "the first part is written")
        with closing(psycopg2.connect(dsn)) as holder, holder.cursor() as cursor:
            cursor.execute("LOCK TABLE t IN EXCLUSIVE MODE")
            send(truth.then())
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
            wait_until(lambda: query(waiting) == [(4,)], DEADLINE_S, "all are in a transaction")
            survivor = workers.kill()
        wait_until(lambda: is_caught_up(query, truth), DEADLINE_S, "all is written")
        workers.wait_for_all_tasks(survivor)
        assert dict(query("SELECT id, a FROM t")) == truth.rows


@pytest.mark.matrix
def test_twin_whose_places_move_ahead_of_a_death_loses_changes(pair, send, query, tmp_path):
    """The same with the seeded defect: who goes on begins behind rows that are not written."""
    truth = Truth()
    with pair(AHEAD, env={**os.environ, DIES_ONCE: str(tmp_path / "died")}) as workers:
        send(truth.born(range(1, 3_001), "born"))  # a change would heal what is lost
        survivor = wait_until(workers.killed, DEADLINE_S, "one has died")
        wait_until(lambda: is_caught_up(query, truth), DEADLINE_S, "all places are at the end")
        workers.wait_for_all_tasks(survivor)
        assert dict(query("SELECT id, a FROM t")) != truth.rows


@pytest.mark.matrix
def test_a_restart_of_all_workers_goes_on(workers, config, prefix, send, query):
    group = f"g{uuid.uuid4().hex[:8]}"
    send({"id": n, "a": "x"} for n in range(10))
    with workers(group) as (url, *_):
        curl("POST", f"{url}/connectors", {"name": prefix, "config": config})
        wait_until(lambda: query("SELECT count(*) FROM t") == [(10,)], DEADLINE_S, "rows")
    send({"id": n, "a": "y"} for n in range(5, 20))
    with workers(group) as (url, process, _):
        assert httpx.get(f"{url}/connectors").json() == [prefix]
        wait_until(
            lambda: query("SELECT count(*) FROM t WHERE a = 'y'") == [(15,)], DEADLINE_S, "the rest"
        )
        process.kill()
    assert query("SELECT count(*) FROM t") == [(20,)]


def tasks_of(url, name):
    return httpx.get(f"{url}/connectors/{name}/config").json().get("tasks.max")


@pytest.mark.matrix
def test_two_workers_that_make_the_same_connector_at_once_agree(workers, config, prefix):
    group = f"g{uuid.uuid4().hex[:8]}"
    with workers(group) as (first, *_), workers(group) as (second, *_):
        for number in range(5):
            name = f"{prefix}-{number}"

            def ask(url, tasks, name=name):
                given = {**config, "tasks.max": tasks}
                body = {"name": name, "config": given, "initial_state": "STOPPED"}
                return httpx.post(f"{url}/connectors", json=body).status_code

            with ThreadPoolExecutor(2) as pool:
                codes = list(pool.map(ask, (first, second), ("1", "2")))
            assert sorted(codes) == [201, 409]
            winner = str(1 + codes.index(201))
            wait_until(
                lambda: all(tasks_of(url, name) == winner for url in (first, second)),  # noqa: B023
                DEADLINE_S,
                "both say the same",
            )


def test_the_death_of_a_worker_loses_and_doubles_nothing(pair, send, query, written):
    assert _killed(pair, send, query, written) == (4_000, 4_000)
    assert query(f"SELECT sum(next_offset) FROM {PLACES}") == [(4_000,)]


@pytest.mark.matrix
def test_twin_whose_places_do_not_move_with_the_rows_doubles(pair, send, query, written):
    rows, ids = _killed(pair, send, query, written, DEFECT)
    assert ids == 4_000
    assert rows > ids
