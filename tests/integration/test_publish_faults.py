"""`changelog publish` and `changelog topics --delete` that are killed, or whose servers are away.

And a publish whose output nobody reads.
"""

import os
import pty
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.cluster import describe
from changelog.stack.base.ports import pick
from tests.support.beside import HERE, beside
from tests.support.matrix import first
from tests.support.outputs import closed_pipe, full_device
from tests.support.published import committed_records, state_of, unsettled
from tests.support.services import own_broker
from tests.support.wait import wait_until

DEADLINE_S = 120
ROWS, WRITTEN, VANISHED = 3_000, 1_500, 500
CHANGED = ["--key", "id", "--as", "json", "--tombstones", "--changed-only"]
QUERY = "SELECT id, name FROM public.t"
GATE, GATED_ROWS = 20_251_126, 20_000
GATED = (
    f"SELECT n AS id, repeat('x', 100) AS name, CASE WHEN n = {GATED_ROWS // 2} THEN "
    f"pg_advisory_lock_shared({GATE})::text END AS gate FROM generate_series(1, {GATED_ROWS}) n"
)
"""Waits in the middle, until it is let on."""


def words(dsn, kafka, topic, query=QUERY):
    """Return the words of a command line, behind the name of the command."""
    servers = ["--from", f"postgres:{dsn}", "--broker", kafka.brokers]
    return ["--query", query, "--to", topic, *servers, *CHANGED]


@pytest.fixture
def topic(prefix):
    return f"{prefix}.t"


@pytest.fixture
def publish(dsn, kafka, topic, run_command):
    def publish():
        code, found, said = run_command(["publish", *words(dsn, kafka, topic), "--json"])
        assert code == 0, said
        return found["written"], found["tombstones"]

    return publish


@pytest.fixture
def seeded(dsn, kafka, topic):
    """Run the command until it kills itself, or to its end, perhaps with a defect."""

    def seeded(*own):
        program = [sys.executable, "-m", "tests.support.crashing_publish", *own, "--"]
        line = [*program, *words(dsn, kafka, topic)]
        return subprocess.run(line, env=HERE, timeout=DEADLINE_S, check=False).returncode

    return seeded


@pytest.fixture
def shown(kafka, topic):
    def shown(*, settled=True):
        return committed_records(kafka, topic, settled=settled)

    return shown


@pytest.fixture
def table(execute):
    execute(f"CREATE TABLE t AS SELECT n AS id, 'v' || n AS name FROM generate_series(1, {ROWS}) n")

    def table():
        return [{"id": n, "name": name} for n, name in execute("SELECT * FROM t ORDER BY id")]

    return table


@pytest.fixture
def published(table, publish, execute):
    """The rows of a table that were published, and have changed since."""
    assert publish() == (ROWS, 0)
    before = table()
    execute(f"DELETE FROM t WHERE id <= {VANISHED}; UPDATE t SET name = 'new' WHERE id <= 1500")
    execute(f"INSERT INTO t SELECT n, 'more' FROM generate_series({ROWS + 1}, {ROWS + 500}) n")
    return before


KILLS = [("produced:1000", 1000), ("produced:1700", 1700), ("written", WRITTEN + VANISHED)]


@pytest.mark.parametrize(("moment", "lying"), first(1, reversed(KILLS)))
def test_nothing_is_seen_of_a_run_that_is_killed_and_the_next_one_publishes_once(
    published, table, topic, kafka, seeded, publish, shown, moment, lying
):
    assert seeded("--kill", moment) == -signal.SIGKILL
    assert unsettled(kafka, topic) >= lying, "the records lie there"
    assert state_of(shown(settled=False)) == published
    assert publish() == (WRITTEN, VANISHED)
    records = shown()
    assert state_of(records) == table()
    assert len(records) == ROWS + WRITTEN + VANISHED


@pytest.mark.parametrize("moment", first(0, ["committing", "committed"]))
def test_a_run_that_is_killed_at_its_commit_is_whole_or_was_nothing(
    published, table, seeded, publish, shown, moment
):
    assert seeded("--kill", moment) == -signal.SIGKILL
    again = publish()
    assert again in ([(0, 0)] if moment == "committed" else [(0, 0), (WRITTEN, VANISHED)])
    records = shown()
    assert state_of(records) == table()
    assert len(records) == ROWS + WRITTEN + VANISHED


def test_twin_without_a_transaction_shows_half_of_a_run_that_is_killed(
    published, table, seeded, shown
):
    """The same with the seeded defect: records that stand as they are written."""
    assert seeded("--kill", "produced:1000", "--defect", "at_once") == -signal.SIGKILL
    records = shown()
    assert len(records) == ROWS + 1000
    assert state_of(records) not in (published, table())


@pytest.mark.matrix
def test_twin_that_believes_a_killed_run_publishes_nothing_of_it(published, table, seeded, shown):
    """The same with the seeded defect: what was never committed counts as what the topic holds."""
    assert seeded("--kill", "written") == -signal.SIGKILL
    assert seeded("--defect", "believe") == 0
    assert state_of(shown()) == published != table()


@pytest.mark.parametrize(
    ("stream", "opened", "code"),
    first(
        2,
        [
            ("stdout", closed_pipe, 0),
            ("stdout", full_device, 1),
            ("stderr", closed_pipe, 0),
            ("stderr", full_device, 0),
        ],
    ),
)
def test_rows_are_published_whoever_reads_what_is_said(
    dsn, kafka, topic, shown, stream, opened, code
):
    query = "SELECT n AS id FROM generate_series(1, 3) n"
    line = [sys.executable, "-m", "changelog", "publish", *words(dsn, kafka, topic, query)]
    more = ["--json"] if stream == "stdout" else []
    to = opened()
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: to}
        ran = subprocess.run(
            [*line, *more], env=HERE, text=True, timeout=DEADLINE_S, check=False, **pipes
        )
    finally:
        os.close(to)
    assert ran.returncode == code, ran.stderr
    assert [each["id"] for each in state_of(shown())] == [1, 2, 3]
    said = ran.stderr or ""
    assert "Traceback" not in said
    assert ("standard output cannot be written: No space left" in said) == bool(code)


@pytest.fixture(scope="module")
def broker():
    """A broker that may be killed."""
    with own_broker() as made:
        yield made


@pytest.fixture
def own_kafka(broker):
    return KafkaConnection(brokers=broker.url)


@pytest.fixture
def program(dsn, own_kafka, topic):
    """Run the command beside the test, against the broker that may be killed."""

    return lambda: beside("changelog", "publish", *words(dsn, own_kafka, topic, GATED))


@pytest.fixture
def gate(dsn):
    """Hold the query in its middle; gives what lets it on."""
    with closing(psycopg2.connect(dsn)) as holder, holder.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_lock({GATE})")
        yield holder.close


def wait_for_middle(execute, kafka, topic):
    """Wait until the query waits, and some of its records lie at the broker."""
    waiting = (
        "SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database WHERE NOT granted AND "
        f"locktype = 'advisory' AND datname = current_database() AND objid = {GATE}"
    )
    wait_until(lambda: execute(waiting), DEADLINE_S, "the query waits")
    wait_until(lambda: unsettled(kafka, topic), DEADLINE_S, "records lie at the broker")


def wait_for_words(running, said):
    """Read what a process says until these words; they come, or it ends."""
    lines = []
    for line in running.stderr:
        lines.append(line)
        if said in line:
            return
    raise AssertionError("".join(lines))


@pytest.mark.matrix
def test_a_broker_that_dies_in_the_middle_is_waited_for(
    broker, own_kafka, topic, program, gate, execute
):
    with program() as running:
        wait_for_middle(execute, own_kafka, topic)
        broker.kill()
        gate()
        wait_for_words(running, "waiting for the brokers")
        assert running.poll() is None
        broker.start()
        code, said = running.wait(DEADLINE_S), running.stderr.read()
    assert code == 0, said
    records = committed_records(own_kafka, topic)
    assert len(records) == GATED_ROWS
    assert [each["id"] for each in state_of(records)] == [*range(1, GATED_ROWS + 1)]


@pytest.mark.matrix
def test_who_does_not_wait_for_a_broker_that_died_leaves_nothing(
    broker, own_kafka, topic, program, gate, execute, dsn, run_command
):
    with program() as running:
        wait_for_middle(execute, own_kafka, topic)
        broker.kill()
        gate()
        wait_for_words(running, "waiting for the brokers")
        running.send_signal(signal.SIGTERM)
        code, said = running.wait(DEADLINE_S), running.stderr.read()
    assert (code, "Traceback" in said) == (130, False), said
    broker.start()
    assert committed_records(own_kafka, topic, settled=False) == []
    command = ["publish", *words(dsn, own_kafka, topic, GATED), "--json"]
    code, found, said = run_command(command)
    assert (code, found.get("written")) == (0, GATED_ROWS), said
    assert len(committed_records(own_kafka, topic)) == GATED_ROWS


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["publish", "topics"])
def test_brokers_that_are_not_there_are_named(dsn, topic, run_command, name):
    away = KafkaConnection(brokers=f"127.0.0.1:{pick()}")
    given = (
        words(dsn, away, topic, "SELECT 1 AS id")
        if name == "publish"
        else ["--delete", "--yes", topic]
    )
    code, _, said = run_command([name, *given, "--broker", away.brokers])
    assert code == 1
    assert f"no Kafka broker answers at {away.brokers}" in said


@contextmanager
def asked_to_delete(kafka, topic):
    """Run `changelog topics --delete` at a terminal; gives the process, and what answers it."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "changelog", "topics", "--delete", topic, "--slot", "none"]
    try:
        with subprocess.Popen(
            [*line, "--broker", kafka.brokers],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=HERE,
        ) as running:
            try:
                yield running, ours
            finally:
                running.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def read_to(stream, said):
    """Read a stream until it has said something without an end of line."""
    text = b""
    while said not in text:
        piece = stream.read1()
        assert piece, text
        text += piece


@pytest.mark.matrix
def test_brokers_that_are_not_there_are_named_before_anything_is_asked(topic):
    away = KafkaConnection(brokers=f"127.0.0.1:{pick()}")
    with asked_to_delete(away, topic) as (running, _):
        out, said = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 1
    assert f"no Kafka broker answers at {away.brokers}" in said.decode()
    assert b"Delete" not in out + said


@pytest.mark.matrix
def test_a_topic_stays_where_the_broker_dies_while_a_person_is_asked(broker, own_kafka, topic):
    admin = AdminClient({**own_kafka.client_config(), "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    wait_until(lambda: topic in describe(own_kafka, [topic]), DEADLINE_S, "the topic is there")
    with asked_to_delete(own_kafka, topic) as (running, keys):
        read_to(running.stderr, b"with all records?")
        broker.kill()
        os.write(keys, b"y\n")
        _, said = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, b"Traceback" in said) == (1, False)
    assert f'cannot delete topic "{topic}"' in said.decode()
    broker.start()
    assert topic in describe(own_kafka, [topic])
    with asked_to_delete(own_kafka, topic) as (running, keys):
        os.write(keys, b"y\n")
        _, said = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, said
    assert describe(own_kafka, [topic]) == {}
