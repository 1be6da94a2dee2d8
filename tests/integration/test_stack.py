"""The embedded servers: started, crashed, recovered, stopped."""

import json
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg2
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from changelog.contract.base.errors import StackError
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.ports import is_free, pick
from changelog.stack.base.process import wait_until
from changelog.stack.base.state import Endpoints
from changelog.stack.cli import app
from changelog.stack.servers.kafka import KafkaServer
from changelog.stack.servers.postgres import PostgresServer
from changelog.stack.stack import Stack

pytestmark = [pytest.mark.services, pytest.mark.slow]

HTTP: dict[str, Any] = {"timeout": 60, "verify": authorities()}  # a busy machine is slow
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'


@pytest.fixture(scope="module")
def open_folder():
    """A directory that the user of the servers may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="changelog-stack-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def place(open_folder):
    folder = Path(tempfile.mkdtemp(dir=open_folder))
    folder.chmod(0o755)
    return folder


@pytest.fixture(
    scope="module",
    params=[("cache",), pytest.param(("search", "cache"), marks=pytest.mark.matrix)],
    ids=["without search", "with search"],
)
def stack(request, open_folder):
    folder = Path(tempfile.mkdtemp(dir=open_folder))
    folder.chmod(0o755)
    with Stack(folder / "stack", with_=request.param) as started:
        yield started
    assert processes_of(started) == []
    assert list(started.directory.rglob("process.json")) == []


def processes_of(stack: Stack) -> list[str]:
    """Every process that works in the stack's directory or was started with its path."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [process.cwd(), *process.cmdline()]
        except psutil.Error:
            continue
        if any(str(stack.directory) in word for word in words):
            found.append(process.name())
    return found


def execute(dsn: str, *statements: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(dsn)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def produce(brokers: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, "acks": "all"})
    for number in range(count):
        producer.produce(topic, key=str(number), value=b"x" * 100)
    assert producer.flush(30) == 0


def end_offset(brokers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": brokers, "log_level": 0, "group.id": "test"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(high)
    finally:
        consumer.close()


def write_everywhere(endpoints: Endpoints, name: str) -> None:
    execute(endpoints.postgres, f"CREATE TABLE {name} (a int)", f"INSERT INTO {name} VALUES (7)")
    produce(endpoints.brokers, name, 500)
    url = f"{endpoints.schema_registry}/subjects/{name}/versions"
    httpx.post(url, json={"schema": SCHEMA}, **HTTP).raise_for_status()
    if endpoints.search:
        httpx.put(f"{endpoints.search}/{name}", **HTTP).raise_for_status()
        document = f"{endpoints.search}/{name}/_doc/1?refresh=true"
        httpx.put(document, json={"a": 7}, **HTTP).raise_for_status()
    with redis.Redis.from_url(str(endpoints.cache)) as client:
        client.set(name, "7")


def read_everywhere(endpoints: Endpoints, name: str) -> dict[str, object]:
    registry = httpx.get(
        f"{endpoints.schema_registry}/subjects/{name}/versions/latest", **HTTP
    ).json()
    with redis.Redis.from_url(str(endpoints.cache)) as client:
        cached = client.get(name)
    values: dict[str, object] = {
        "postgres": execute(endpoints.postgres, f"TABLE {name}"),
        "kafka": end_offset(endpoints.brokers, name),
        "registry": json.loads(registry["schema"]),
        "cache": cached,
    }
    if endpoints.search:
        answer = httpx.get(f"{endpoints.search}/{name}/_doc/1", **HTTP).json()
        values["search"] = answer["_source"]
    return values


def written(stack: Stack) -> dict[str, object]:
    """Return what `read_everywhere` gives of a stack that has everything that was written."""
    values: dict[str, object] = {
        "postgres": [(7,)],
        "kafka": 500,
        "registry": json.loads(SCHEMA),
        "cache": b"7",
    }
    return values | ({"search": {"a": 7}} if "search" in parts(stack) else {})


def parts(stack: Stack) -> list[str]:
    return sorted(part.name for part in stack.status())


def test_data_and_ports_survive_down_and_up(stack):
    before = stack.up()
    write_everywhere(before, "kept")
    running = parts(stack)
    assert sorted(stack.down()) == running
    assert processes_of(stack) == []
    after = stack.up()
    assert after == before
    assert read_everywhere(after, "kept") == written(stack)


@pytest.mark.matrix
def test_up_recovers_servers_that_were_killed(stack):
    before = stack.up()
    write_everywhere(before, "recovered")
    for name in ("postgres", "kafka", "cache"):
        stack.server(name).kill()
    states = {part.name: part.state for part in stack.status()}
    assert states["postgres"] == states["kafka"] == states["cache"] == "crashed"
    with pytest.raises(StackError, match="no postgres"):
        stack.endpoints()
    with pytest.raises(StackError, match="no kafka"):
        stack.endpoint("brokers")
    assert stack.endpoint("schema_registry") == before.schema_registry
    assert stack.endpoint("cache") == before.cache
    said: list[str] = []
    assert stack.up(said.append) == before
    assert "postgres: ended unexpectedly, recovering" in said
    assert read_everywhere(before, "recovered") == written(stack)


def test_a_second_up_starts_nothing(stack):
    first = stack.up()
    pids = {part.name: part.pid for part in stack.status()}
    said: list[str] = []
    assert stack.up(said.append) == first
    assert said == []
    assert {part.name: part.pid for part in stack.status()} == pids


def test_postgres_is_ready_for_logical_decoding_and_durable(stack):
    dsn = stack.up().postgres
    settings = "SELECT current_setting('wal_level'), current_setting('fsync'), current_user"
    assert execute(dsn, settings) == [("logical", "on", "postgres")]


def test_the_registry_refuses_a_schema_that_cannot_read_earlier_ones(stack):
    url = f"{stack.up().schema_registry}/subjects/strict/versions"
    httpx.post(url, json={"schema": SCHEMA}, **HTTP).raise_for_status()
    wider = json.loads(SCHEMA)
    wider["fields"].append({"name": "b", "type": "int"})
    assert (
        httpx.post(url, json={"schema": json.dumps(wider)}, **HTTP).status_code
        == httpx.codes.CONFLICT
    )


@pytest.mark.matrix
def test_a_paused_broker_does_not_answer_until_it_is_resumed(stack):
    stack.up()
    kafka = stack.server("kafka")
    kafka.pause()
    assert kafka.state() == "paused"
    kafka.resume()
    assert wait_until(lambda: kafka.state() == "ready", 30)


def test_status_as_json_has_the_endpoints_under_the_documented_keys(stack):
    endpoints = stack.up()
    said = CliRunner().invoke(app, ["status", "--dir", str(stack.directory), "--json"])
    assert said.exit_code == 0
    assert json.loads(said.stdout) == json.loads(endpoints.to_json())


def test_each_server_has_its_log(stack):
    stack.up()
    for part in parts(stack):
        command = ["logs", part, "--dir", str(stack.directory), "--lines", "2"]
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 0
        assert said.stdout.strip()


@pytest.mark.matrix
def test_a_stack_whose_state_file_was_lost_is_taken_over_with_its_data(stack):
    write_everywhere(stack.up(), "taken_over")
    old = {part.pid for part in stack.status()}
    (stack.directory / "stack.json").unlink()
    assert read_everywhere(stack.up(), "taken_over") == written(stack)
    assert not old & {part.pid for part in stack.status()}
    assert processes_of(stack).count("java") == (3 if "search" in parts(stack) else 2)


def test_a_fixed_port_that_is_taken_is_named_and_nothing_is_left(place):
    with PostgresServer(place / "other", pick()) as other:
        stack = Stack(place / "stack", ports={"postgres": other.port})
        with pytest.raises(StackError, match=rf"port {other.port} for postgres is taken"):
            stack.up()
        assert processes_of(stack) == []
        assert execute(other.dsn, "SELECT 1") == [(1,)]


@pytest.mark.matrix
def test_a_server_whose_pid_file_was_lost_is_replaced_not_doubled(place):
    server = PostgresServer(place / "pg", pick())
    with server:
        first = server.pid
        assert first is not None
        (server.directory / "process.json").unlink()
        server.start()
        assert server.pid != first
        assert not psutil.pid_exists(first) or psutil.Process(first).status() == "zombie"


def test_a_server_that_ends_at_its_start_says_why(place):
    server = PostgresServer(place / "pg", pick(), settings={"shared_buffers": "much"})
    with pytest.raises(StackError, match='invalid value for parameter "shared_buffers"'):
        server.start()
    assert server.state() == "stopped"


@pytest.mark.matrix
def test_a_broker_whose_second_port_is_taken_says_so_above_its_orderly_end(place):
    with socket.create_server(("127.0.0.1", pick())) as other:
        server = KafkaServer(place / "kafka", pick(), other.getsockname()[1])
        with pytest.raises(StackError, match="Address already in use") as caught:
            server.start()
    assert server.state() == "stopped"
    assert len(str(caught.value).splitlines()) < 25


def test_another_password_than_the_first_is_said_without_showing_it(place):
    port = pick()
    with PostgresServer(place / "pg", port, password="canary-1") as server:
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(server.dsn.replace("canary-1", "wrong"))
        assert execute(server.dsn, "SHOW wal_level") == [("logical",)]
    wrong = PostgresServer(place / "pg", port, password="canary-2")
    with pytest.raises(StackError, match="another password") as caught:
        wrong.start()
    wrong.stop()
    assert "canary" not in str(caught.value)
    assert is_free(port)


@pytest.mark.matrix
def test_data_goes_where_the_user_of_the_server_may_enter(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = PostgresServer(closed / "pg", pick())
    with server:
        execute(server.dsn, "CREATE TABLE t AS SELECT 7 AS a")
    home = server.work_directory
    with server:
        assert execute(server.dsn, "TABLE t") == [(7,)]
        assert server.work_directory == home
    if not home.is_relative_to(Path(closed)):
        shutil.rmtree(home.parent)
