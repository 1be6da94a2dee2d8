"""What sinks do when their server fails: one error, in time; readers see nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import psycopg2
import pytest
import redis
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from psycopg2.extras import RealDictCursor
from pyspark import cloudpickle

from changelog.contract.base.errors import SinkError, UnavailableError
from tests.conformance.conftest import Bench, delta_rows, postgres_bench
from tests.support.far_delta import HADOOPS_OWN, IMPATIENT, far_store
from tests.support.faulty_line import CANARY, PASSED_BYTES, Line, line_of, within
from tests.support.matrix import first
from tests.support.wait import wait_until
from views.sinks.cache.sink import CacheSink
from views.sinks.search.sink import SearchSink

pytestmark = [pytest.mark.spark, pytest.mark.services]

FEW, MORE, MANY = 10, 20, 60_000


@pytest.fixture
def inserted(postgres_url, spark, view):
    connection = psycopg2.connect(postgres_url, cursor_factory=RealDictCursor)
    connection.autocommit = True
    yield postgres_bench(postgres_url, connection, spark, view, {"mode": "insert"})
    connection.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with far_store(tmp_path_factory.mktemp("store"), IMPATIENT) as made:
        yield made


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path):
    if request.param == "store":
        view = request.getfixturevalue("view")
        made = request.getfixturevalue("store").line(view, tmp_path, delta_rows)
        made.build(1, FEW)
        yield made
        return
    bench: Bench = request.getfixturevalue(request.param)
    detour = request.getfixturevalue("detour")
    with line_of(bench, detour, tmp_path) as made:
        made.build(1, FEW)
        yield made


SINKS = ["postgres", "search", "cache", "upserted", "inserted", "topic", "store"]
of_each_sink = pytest.mark.parametrize("line", first(1, SINKS), indirect=True)


def fails_at(line: Line, sink: Any, step: str, fault) -> SinkError:
    """Let a server fail before a step, or in the middle of the write; return the error."""
    rows = line.rows(MANY if step == "write" else MORE)

    def write_in_part() -> None:
        gate, since = line.folder / "gate", line.proxy.passed
        gate.unlink(missing_ok=True)

        def fail() -> None:
            line.is_in_the_middle(since)
            fault()
            gate.touch()

        failing = threading.Thread(target=fail)
        failing.start()
        try:
            sink.write(line.gated(MANY, gate))
        finally:
            failing.join()

    acts = {
        "open": lambda: sink.open(2, rows.schema),
        "write": lambda: sink.write(rows),
        "seal": sink.seal,
        "publish": lambda: sink.publish(2),
    }
    for name, act in acts.items():
        if name != step:
            act()
            continue
        if name != "write":
            fault()
        failing = write_in_part if name == "write" else act
        with pytest.raises(SinkError) as caught:
            within(line.deadline_s, failing, otherwise=line.proxy.heal)
        return caught.value
    raise AssertionError(step)


def is_clear(line: Line, error: SinkError) -> None:
    """Require one line that names the server, and not its password."""
    text = str(error)
    assert isinstance(error, UnavailableError), text
    assert error.exit_code == 1
    assert "hint:" in text
    assert "\n" not in text
    assert f"{line.proxy.port}" in text, text
    assert CANARY not in text


def goes_on(line: Line) -> None:
    """Require that the next run clears up and serves."""
    assert line.bench.sink().published() == 1
    line.clear_up()
    assert line.bench.sink().generations() == [1]
    assert line.bench.stored(line.bench.view, 2) == 0
    line.build(3, MORE)


@of_each_sink
@pytest.mark.parametrize("step", first(1, ["write", "publish", "open", "seal"]))
def test_a_server_that_is_away_is_said_and_readers_see_nothing_of_it(line, step):
    with line.looked_at(FEW, MORE):
        error = fails_at(line, line.sink(), step, line.proxy.refuse)
        is_clear(line, error)
        line.proxy.heal()
        goes_on(line)


@pytest.mark.matrix
@of_each_sink
@pytest.mark.parametrize("step", first(1, ["seal", "write", "open", "publish"]))
def test_a_server_that_stands_still_is_left_in_time(line, step):
    with line.looked_at(FEW, MORE):
        error = fails_at(line, line.sink(), step, line.proxy.hold)
        is_clear(line, error)
        line.proxy.refuse()  # what was on its way does not come late
        line.proxy.heal()
        goes_on(line)


@pytest.mark.matrix
@pytest.mark.parametrize("line", ["postgres", "cache", "search"], indirect=True)
def test_twin_without_a_limit_it_is_waited_for(line):
    sink = line.sink(retry_s=3_600, answer_s=3_600)
    rows = line.rows(MORE)
    sink.open(2, rows.schema)
    sink.write(rows)
    line.proxy.hold()
    with pytest.raises(AssertionError, match="it goes on"):
        within(6, sink.seal, otherwise=line.proxy.heal)


@pytest.mark.matrix
def test_twin_by_hadoops_own_limits_a_store_is_waited_for(tmp_path, view):
    with far_store(tmp_path, HADOOPS_OWN) as made:
        line = made.line(view, tmp_path, delta_rows)
        line.build(1, FEW)
        with pytest.raises(AssertionError, match="it goes on"):
            within(
                40,
                lambda: fails_at(line, line.sink(), "write", line.proxy.refuse),
                otherwise=line.proxy.heal,
            )


@pytest.mark.parametrize("line", first(1, SINKS), indirect=True)
def test_a_switch_whose_answer_is_lost_is_one_all_the_same(line):
    sink = line.sink()
    rows = line.rows(MORE)
    sink.open(2, rows.schema)
    sink.write(rows)
    sink.seal()
    with line.looked_at(FEW, MORE):
        line.proxy.silence()
        with pytest.raises(UnavailableError):
            within(line.deadline_s, lambda: sink.publish(2), otherwise=line.proxy.heal)
        line.proxy.refuse()
        line.proxy.heal()
        assert line.bench.sink().published() in {1, 2}
        line.bench.sink().publish(2)
    assert line.bench.sink().published() == 2
    assert len(line.bench.served(line.bench.view)) == MORE


@pytest.mark.matrix
@pytest.mark.parametrize("line", ["search"], indirect=True)
def test_twin_a_switch_in_two_steps_is_seen_when_the_second_fails(line, monkeypatch):
    def in_two_steps(sink, generation):
        old = {"index": sink._index(1), "alias": sink._view}
        sink._server.request("POST", "/_aliases", {"actions": [{"remove": old}]})
        wait_until(lambda: line.bench.served(line.bench.view) is None, 10, "readers look")
        line.proxy.refuse()
        new = {"index": sink._index(generation), "alias": sink._view}
        sink._server.request("POST", "/_aliases", {"actions": [{"add": new}]})

    monkeypatch.setattr(SearchSink, "publish", in_two_steps)
    with pytest.raises(AssertionError, match="a reader saw"), line.looked_at(FEW, MORE):
        fails_at(line, line.sink(), "publish", lambda: None)


@pytest.mark.matrix
@pytest.mark.parametrize("line", ["store"], indirect=True)
def test_twin_a_table_that_goes_before_the_next_is_there_is_seen(line):
    def readers_look():
        wait_until(lambda: line.bench.served(line.bench.view) is None, 60, "readers look")
        between.touch()

    def published_in_two_steps():
        looking = threading.Thread(target=readers_look)
        looking.start()
        sink.publish_in_two_steps(2, between)
        looking.join()

    between, sink, rows = line.folder / "between", line.sink(), line.rows(MORE)
    sink.open(2, rows.schema)
    sink.write(rows)
    sink.seal()
    with pytest.raises(AssertionError, match="a reader saw"), line.looked_at(FEW, MORE):
        published_in_two_steps()


@pytest.fixture
def full(endpoints):
    """Let a server have no room for a generation; returns what gives it room again."""

    def search(bench: Bench):
        def blocked(value):
            httpx.put(
                f"{endpoints.search}/{bench.view}-000002/_settings",
                json={"index.blocks.read_only_allow_delete": value},
            ).raise_for_status()

        # What a disk above its flood-stage watermark does to all indices that it holds.
        blocked(True)
        return lambda: blocked(None)

    def cache(bench: Bench):
        client = redis.Redis.from_url(str(endpoints.cache))
        used: Any = client.info("memory")
        client.config_set("maxmemory", str(used["used_memory"] + (1 << 20)))
        return lambda: client.config_set("maxmemory", "0")

    def topic(bench: Bench):
        def limited(value):
            act = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
            entry = ConfigEntry("max.message.bytes", value, incremental_operation=act)
            resource = ConfigResource(
                ResourceType.TOPIC, f"views.{bench.view}.000002", incremental_configs=[entry]
            )
            admin = AdminClient({"bootstrap.servers": endpoints.brokers, "log_level": 0})
            admin.incremental_alter_configs([resource])[resource].result()

        limited("100")
        return lambda: limited(None)

    return {"search": search, "cache": cache, "topic": topic}


def is_refused_for_room(line: Line, full) -> str:
    """Require that a server without room fails the write; returns what is said."""
    sink, rows = line.sink(), line.rows(MANY)
    sink.open(2, rows.schema)
    make_room = full[line.bench.kind](line.bench)
    try:
        with line.looked_at(FEW):
            with pytest.raises(SinkError) as caught:
                sink.write(rows)
            with pytest.raises(SinkError, match="not sealed"):
                line.bench.sink().publish(2)
            line.clear_up()
            assert line.bench.sink().generations() == [1]
    finally:
        if line.bench.kind == "cache":
            make_room()
    return str(caught.value)


@pytest.mark.matrix
@pytest.mark.parametrize("line", first(1, ["search", "cache", "topic"]), indirect=True)
def test_a_server_without_room_fails_the_write_and_serves_on(line, full):
    said = is_refused_for_room(line, full)
    words = {"search": "room", "cache": "is full", "topic": "max.message.bytes"}
    assert words[line.bench.kind] in said
    assert "hint:" in said
    line.build(3, MORE)


@pytest.mark.parametrize("line", ["cache"], indirect=True)
def test_twin_a_sink_that_swallows_the_refusal_is_seen(line, full, monkeypatch):
    monkeypatch.setattr("views.sinks.load.counted", lambda found: sum(r.written for r in found))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        is_refused_for_room(line, full)


def kill_in_the_middle(bench: Bench, sink: Any, folder: Path, is_there) -> None:
    """Let a process write a generation, and end it by SIGKILL when a part is there."""
    (folder / "sink").write_bytes(cloudpickle.dumps(sink))
    words = [sys.executable, "-m", "tests.support.unfinished_write", str(folder)]
    writer = subprocess.Popen(words, start_new_session=True, cwd=Path(__file__).parents[2])
    try:
        wait_until(lambda: writer.poll() is not None or is_there(), 120, "a part is written")
        assert writer.poll() is None
        assert bench.sink().generations() == [1, 2]
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()


@pytest.mark.parametrize("line", first(0, ["postgres", "search", "cache", "topic"]), indirect=True)
def test_what_a_killed_writer_left_serves_nobody_and_is_removed(line):
    since = line.proxy.passed
    with line.looked_at(FEW, MORE):
        kill_in_the_middle(
            line.bench, line.asked(), line.folder, lambda: line.proxy.passed - since > PASSED_BYTES
        )
        with pytest.raises(SinkError, match="not sealed"):
            line.bench.sink().publish(2)
        goes_on(line)


@pytest.mark.matrix
def test_what_a_killed_writer_left_in_delta_serves_nobody_and_is_removed(delta, tmp_path):
    place = tmp_path / delta.view / "_generations" / "000002"
    rows = delta.spark.sql("select 1 id, 'a' text")
    first_one = delta.sink()
    first_one.open(1, rows.schema)
    first_one.write(rows)
    first_one.seal()
    first_one.publish(1)
    asked: Any = ("delta", delta.view, delta.settings, {})
    kill_in_the_middle(delta, asked, tmp_path, lambda: any(place.rglob("*.parquet*")))
    with pytest.raises(SinkError, match="not sealed"):
        delta.sink().publish(2)
    assert delta.served(delta.view) == [{"id": 1, "text": "a"}]
    delta.sink().discard(2)
    assert (delta.sink().generations(), delta.stored(delta.view, 2)) == ([1], 0)


@pytest.mark.matrix
@pytest.mark.parametrize("line", ["cache"], indirect=True)
def test_twin_a_sink_that_counts_a_generation_as_whole_from_its_start_is_seen(line, monkeypatch):
    sound = CacheSink.open

    def whole_at_once(sink, generation, schema):
        sound(sink, generation, schema)
        with sink._server.client() as client:
            client.hset(sink._register, str(generation), "0")

    def published_in_part():
        fails_at(line, line.sink(), "write", line.proxy.refuse)
        line.bench.sink().publish(2)
        line.looks_once()

    monkeypatch.setattr(CacheSink, "open", whole_at_once)
    with pytest.raises(AssertionError, match="a reader saw"), line.looked_at(FEW, MORE):
        published_in_part()


@pytest.mark.parametrize("line", first(0, SINKS), indirect=True)
def test_a_slow_server_is_waited_for(line):
    rows = line.rows(MORE)
    sink = line.sink()
    line.proxy.trickle()
    with line.looked_at(FEW, MORE):
        sink.open(2, rows.schema)
        sink.write(rows)
        sink.seal()
        sink.publish(2)
    assert len(line.bench.served(line.bench.view)) == MORE
