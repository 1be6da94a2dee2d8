"""`changelog load` and a connector's task when the target's disk is full, or a server dies.

And a load whose output nobody reads.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql
from psycopg2.extensions import parse_dsn

from changelog.connect.postgres.target import SinkDatabase
from changelog.connect.rules.settings import parse_settings
from changelog.contract.base.connection import KafkaConnection
from changelog.stack.base.places import server_user
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.beside import HERE, beside
from tests.support.outputs import closed_pipe, full_device
from tests.support.services import own_broker
from tests.support.sink_task import running_task
from tests.support.small_disk import small_disk
from tests.support.sql import execute
from tests.support.wait import wait_until

DEADLINE_S = 120
BATCH, ROWS = 400, 1000
GATE = 20_251_125  # an advisory lock
BOTH = "SELECT count(*), count(DISTINCT id) FROM t"


@pytest.fixture(scope="module")
def own_server():
    """A PostgreSQL that may be killed."""
    with tempfile.TemporaryDirectory(prefix="changelog-load-") as folder:
        Path(folder).chmod(0o755)  # under root the server runs as another user
        with PostgresServer(Path(folder) / "pg", pick(), settings={"fsync": "off"}) as made:
            yield made


@pytest.fixture
def ask(own_server):
    """Run a statement on the server that may be killed."""

    execute(own_server.dsn, "DROP TABLE IF EXISTS t, changelog_connect_offsets")
    return partial(execute, own_server.dsn)


@pytest.fixture
def words(kafka, registry, own_server):
    """The words of a command line, behind the name of the command."""

    def words(topic, *more):
        servers = ["--broker", kafka.brokers, "--schema-registry", registry.url]
        target = ["--into", own_server.dsn, "--table", "t", "--batch", str(BATCH)]
        return [topic, *servers, *target, "--name", topic, *more]

    return words


@pytest.fixture
def load(words, run_command):
    def load(topic, *more):
        return run_command(["load", *words(topic, "--json", *more)])

    return load


@pytest.fixture
def topic(make_topic, send):
    """A topic of rows, of which four fill a page."""
    name = make_topic()
    send(name, *[{"id": n, "note": "x" * 1900} for n in range(ROWS)])
    return name


@pytest.fixture
def program(words):
    """Run the command beside the test; with a defect where one is named."""

    def program(topic, *more, defect=""):
        own = ["changelog", "load"]
        if defect:
            own = ["tests.support.crashing_load", "--defect", defect, "--"]
        return beside(*own, *words(topic, *more))

    return program


@pytest.fixture
def gated(ask, own_server):
    """A table whose row in the middle of the second transaction waits, until it is let in."""
    ask("CREATE TABLE t (id int, note text)")
    ask(
        "CREATE OR REPLACE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id ="
        f" {BATCH + BATCH // 2} THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF; RETURN"
        " NEW; END $$; CREATE TRIGGER gate BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION gate()"
    )
    with closing(psycopg2.connect(own_server.dsn)) as holder, holder.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_lock({GATE})")
        yield


def wait_for_middle(ask):
    """Wait until a load waits in the middle of a transaction; returns its server process."""
    waiting = (
        f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = {GATE}"
    )
    (pid,) = wait_until(lambda: ask(waiting), DEADLINE_S, "a row waits")[0]
    assert ask("SELECT count(*) FROM t") == [(BATCH,)]
    return pid


def kill_backend(_server, pid):
    """Kill the one process: the postmaster ends all others, and starts again by itself."""
    os.kill(pid, signal.SIGKILL)


def kill_server(server, _pid):
    server.kill()
    server.start()


KILLS = [kill_backend, pytest.param(kill_server, marks=pytest.mark.matrix)]


def is_up(server):
    try:
        psycopg2.connect(server.dsn).close()
    except psycopg2.OperationalError:
        return False
    return True


@pytest.mark.parametrize("kill", KILLS)
def test_a_server_that_dies_in_a_transaction_loses_and_doubles_nothing(
    topic, ask, gated, program, load, own_server, kill
):
    with program(topic) as running:
        kill(own_server, wait_for_middle(ask))
        code, said = running.wait(DEADLINE_S), running.stderr.read()
    assert (code, "the database cannot continue now" in said, "Traceback" in said) == (
        1,
        True,
        False,
    )
    wait_until(lambda: is_up(own_server), DEADLINE_S, "the server is up again")
    assert ask("SELECT count(*) FROM t") == [(BATCH,)]
    code, found, said = load(topic)
    assert (code, found.get("rows")) == (0, ROWS - BATCH), said
    assert ask(BOTH) == [(ROWS, ROWS)]


def test_twin_with_places_ahead_of_their_rows_loses_what_the_server_was_killed_in(
    topic, ask, gated, program, load, own_server
):
    """The same with the seeded defect: the place has passed rows that were rolled back."""
    with program(topic, defect="ahead") as running:
        kill_backend(own_server, wait_for_middle(ask))
        assert running.wait(DEADLINE_S) == 1
    wait_until(lambda: is_up(own_server), DEADLINE_S, "the server is up again")
    assert load(topic)[0] == 0
    assert ask(BOTH) == [(ROWS - BATCH, ROWS - BATCH)]


@pytest.mark.matrix
@pytest.mark.parametrize("kill", [kill_backend, kill_server])
def test_a_follower_waits_for_a_server_that_died_and_goes_on(
    topic, ask, gated, program, own_server, kill
):
    with program(topic, "--follow") as running:
        kill(own_server, wait_for_middle(ask))
        wait_until(lambda: is_up(own_server), DEADLINE_S, "the server is up again")
        all_there = f"SELECT 1 FROM t HAVING count(*) >= {ROWS}"
        wait_until(lambda: ask(all_there), DEADLINE_S, "all rows are there")
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_S) == 0
        assert "waiting: the database does not" in running.stderr.read()
    assert ask(BOTH) == [(ROWS, ROWS)]


@pytest.fixture
def disk(ask, own_server):
    """A table on a file system of its own, with room for the rows of one transaction."""
    with (
        tempfile.TemporaryDirectory(prefix="changelog-disk-") as folder,
        small_disk(Path(folder) / "disk", 1400, server_user()) as made,
    ):
        Path(folder).chmod(0o755)
        with closing(psycopg2.connect(own_server.dsn)) as connection, connection.cursor() as cursor:
            place = sql.Literal(str(made.place)).as_string(cursor)
        ask(f"CREATE TABLESPACE small LOCATION {place}")
        ask("CREATE TABLE t (id int, note text) TABLESPACE small")
        yield made
        ask("DROP TABLE t")
        ask("DROP TABLESPACE small")


def test_a_disk_that_is_really_full_is_said_and_leaves_whole_transactions(topic, ask, disk, load):
    code, _, said = load(topic)
    assert code == 1
    assert "No space left on device" in said
    assert "hint: free space on the server, then start again" in said
    assert ask("SELECT count(*), min(id), max(id) FROM t") == [(BATCH, 0, BATCH - 1)]
    assert load(topic)[0] == 1  # as long as it is full
    disk.resize(8192)
    code, found, said = load(topic)
    assert (code, found.get("rows")) == (0, ROWS - BATCH), said
    assert ask(BOTH) == [(ROWS, ROWS)]


def test_twin_with_places_ahead_of_their_rows_loses_what_the_disk_did_not_take(
    topic, ask, disk, program, load
):
    with program(topic, defect="ahead") as running:
        assert running.wait(DEADLINE_S) == 1
    disk.resize(8192)
    assert load(topic)[0] == 0
    assert ask(BOTH) == [(ROWS - BATCH, ROWS - BATCH)]


@pytest.mark.parametrize(
    ("stream", "opened", "code", "said"),
    [
        ("stdout", closed_pipe, 0, ""),
        ("stdout", full_device, 1, "standard output cannot be written: No space left on device"),
        pytest.param("stderr", closed_pipe, 0, "", marks=pytest.mark.matrix),
        pytest.param("stderr", full_device, 0, "", marks=pytest.mark.matrix),
    ],
)
def test_rows_are_there_whoever_reads_what_is_said(topic, ask, words, stream, opened, code, said):
    ask("CREATE TABLE t (id int, note text)")
    more = ["--json"] if stream == "stdout" else []
    to = opened()
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: to}
        line = [sys.executable, "-m", "changelog", "load", *words(topic, *more)]
        ran = subprocess.run(line, env=HERE, text=True, timeout=DEADLINE_S, check=False, **pipes)
    finally:
        os.close(to)
    assert ran.returncode == code, ran.stderr
    assert ask(BOTH) == [(ROWS, ROWS)]
    if stream == "stdout":
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr
    told = json.loads(ran.stdout) if ran.stdout else {}
    assert "error" not in told


@pytest.fixture
def task(kafka, own_server):
    """Run a connector's task that appends rows, in a thread; gives what has ended it."""
    parts = parse_dsn(own_server.dsn)
    url = f"postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}"
    target = {"connection.url": url, "connection.user": parts["user"], "table.name.format": "t"}

    def run(topic, brokers=kafka):
        config = {"name": topic, "topics": topic, "batch.size": str(BATCH), **target}
        return running_task(brokers, parse_settings(config))

    return run


def all_there(ask, ended):
    """Wait until a task has written all rows, each once."""

    def looks():
        assert ended == []
        try:
            return ask(f"SELECT 1 FROM t HAVING count(*) >= {ROWS}")
        except psycopg2.OperationalError:
            return []  # it answered once before it had noticed that a process of its was killed

    wait_until(looks, DEADLINE_S, "all rows are there")
    assert ask(BOTH) == [(ROWS, ROWS)]


@pytest.mark.parametrize("kill", KILLS)
def test_a_task_waits_for_a_server_that_died_and_goes_on(topic, ask, gated, task, own_server, kill):
    with task(topic) as ended:
        kill(own_server, wait_for_middle(ask))
        wait_until(lambda: is_up(own_server), DEADLINE_S, "the server is up again")
        all_there(ask, ended)


@pytest.mark.matrix
def test_twin_a_task_with_places_ahead_of_their_rows_loses_what_the_server_was_killed_in(
    topic, ask, gated, task, own_server, monkeypatch
):
    """The same with the seeded defect: the places are written before the rows."""
    whole = SinkDatabase.write

    def ahead(target, events, moves, *more, **named):
        whole(target, [], moves, *more, **named)
        whole(target, events, {}, *more, **named)

    monkeypatch.setattr(SinkDatabase, "write", ahead)
    with task(topic):
        kill_backend(own_server, wait_for_middle(ask))
        wait_until(lambda: is_up(own_server), DEADLINE_S, "the server is up again")
        passed = f"SELECT 1 FROM changelog_connect_offsets WHERE next_offset = {ROWS}"
        wait_until(lambda: ask(passed), DEADLINE_S, "the place is at the end")
        assert ask(BOTH) != [(ROWS, ROWS)]


def test_a_task_whose_disk_is_full_fails_and_goes_on_after_a_restart(topic, ask, disk, task):
    with task(topic) as ended:
        wait_until(lambda: ended, DEADLINE_S, "the task has failed")
    assert "No space left on device" in str(ended[0])
    assert ask("SELECT count(*), min(id), max(id) FROM t") == [(BATCH, 0, BATCH - 1)]
    disk.resize(8192)
    with task(topic) as ended:
        all_there(ask, ended)


@pytest.mark.matrix
def test_a_task_waits_for_brokers_that_are_away(ask, task):
    ask("CREATE TABLE t (id int, note text)")
    with own_broker() as broker:
        kafka = KafkaConnection(brokers=f"127.0.0.1:{broker.port}")
        words = [sys.executable, "-m", "changelog", "write", "rows", "--broker", kafka.brokers]
        half = ROWS // 2

        def write(first):
            lines = "".join(
                json.dumps({"key": None, "value": {"id": n, "note": "x"}}) + "\n"
                for n in range(first, first + half)
            )
            subprocess.run([*words, "--json"], input=lines, text=True, check=True, env=HERE)

        make = ["topics", "--create", "rows", "--unkeyed", "--broker", kafka.brokers]
        subprocess.run([sys.executable, "-m", "changelog", *make], check=True, env=HERE)
        write(0)
        with task("rows", kafka) as ended:
            wait_until(
                lambda: ask(f"SELECT 1 FROM t HAVING count(*) = {half}"), DEADLINE_S, "half of it"
            )
            broker.kill()
            assert ended == []
            broker.start()
            write(half)
            all_there(ask, ended)
        broker.kill()
        with task("rows", kafka) as ended:  # a start without brokers
            broker.start()
            all_there(ask, ended)
