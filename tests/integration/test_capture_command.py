"""The command `changelog capture`: its life, its servers going away, and bad input."""

import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.capture_command import CaptureCommand
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = CaptureCommand(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, 100) n",
    )
    yield made
    made.kill()


def texts(rows):
    return {key[0]: value["text"] for key, value in rows.items()}


@pytest.mark.parametrize("number", first(1, [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_stops_it_cleanly_with_a_frontier_at_the_end(capture, number):
    capture.start()
    capture.wait_for_frontier()
    capture.sql("UPDATE notes SET text = 'new' WHERE id = 7")
    capture.settle()
    report = capture.stop(number)
    assert report["rows_captured"] == 101
    assert texts(capture.rows("notes"))[7] == "new"
    assert capture.catch_up()["rows_captured"] == 0


def test_an_idle_source_moves_the_slot_past_other_wal(capture):
    capture.start()
    first = capture.wait_for_frontier()
    capture.sql("CREATE TABLE elsewhere (n int)", "INSERT INTO elsewhere VALUES (1)")
    capture.wait_for_frontier(first.lsn)

    def acknowledged():
        ((lag,),) = capture.query(
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots "
            f"WHERE slot_name = '{capture.prefix}'"
        )
        return lag < 1000

    wait_until(acknowledged, 30, "the slot follows")
    capture.stop()


@pytest.mark.matrix
def test_a_stalled_broker_loses_nothing_and_keeps_the_connection(capture, stack):
    capture.outside("ALTER SYSTEM SET wal_sender_timeout = '3s'", "SELECT pg_reload_conf()")
    try:
        capture.start()
        capture.wait_for_frontier()
        broker = stack.server("kafka")
        broker.pause()
        try:
            capture.sql("INSERT INTO notes SELECT n, 'b' FROM generate_series(1000, 3000) n")
            ((pid,),) = capture.query(_WALSENDER.format(capture.prefix))
            stalled_for = capture.query("SELECT clock_timestamp() + '9 seconds'")[0][0]
            wait_until(
                lambda: capture.query("SELECT clock_timestamp()")[0][0] > stalled_for, 30, "9 s"
            )
            assert capture.query(_WALSENDER.format(capture.prefix)) == [(pid,)]
        finally:
            broker.resume()
        capture.settle()
        capture.stop()
    finally:
        capture.outside("ALTER SYSTEM RESET wal_sender_timeout", "SELECT pg_reload_conf()")
    assert len(capture.rows("notes")) == 2101


_SENT = (
    "SELECT r.sent_lsn >= pg_current_wal_lsn() FROM pg_stat_replication r "
    "JOIN pg_replication_slots s ON s.active_pid = r.pid AND s.database = current_database()"
)


@pytest.mark.matrix
def test_a_stop_does_not_wait_for_ever_for_a_broker_that_stays_away(capture, stack):
    capture.start()
    capture.wait_for_frontier()
    broker = stack.server("kafka")
    broker.pause()
    try:
        capture.sql("INSERT INTO notes VALUES (5000, 'later')")
        wait_until(lambda: capture.query(_SENT) == [(True,)], 30, "the row has been sent")
        capture.stop()
    finally:
        broker.resume()
    capture.catch_up()
    assert texts(capture.rows("notes"))[5000] == "later"


_WALSENDER = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}'"


def test_the_registry_down_in_mid_capture_is_waited_for(capture, stack):
    capture.start()
    capture.wait_for_frontier()
    registry = stack.server("registry")
    registry.kill()
    try:
        capture.sql(
            "ALTER TABLE notes ADD extra integer", "INSERT INTO notes VALUES (500, 'new', 5)"
        )
        wait_until(lambda: "trying again" in capture.said(), 60, "capture waits for the registry")
    finally:
        registry.start()
    capture.settle()
    report = capture.stop()
    assert report["restarts"] >= 1
    rows = capture.rows("notes")
    assert len(rows) == 101
    assert rows[(500,)]["extra"] == 5


@pytest.mark.matrix
def test_a_second_capture_of_the_same_slot_is_refused(capture):
    capture.start()
    capture.wait_for_frontier()
    code, _, said = capture.run()
    assert code == 1
    assert f'slot "{capture.prefix}" is read by' in said
    capture.stop()


@pytest.mark.matrix
def test_no_server_at_the_address_is_one_line_and_exit_code_1(capture):
    port = pick()
    code, _, said = capture.run(
        "--no-wait", "--postgres", f"postgresql://postgres@127.0.0.1:{port}/app"
    )
    assert code == 1
    assert said.splitlines()[-1].startswith("error: no PostgreSQL answers")
    code, _, said = capture.run("--no-wait", "--broker", f"127.0.0.1:{port}")
    assert code == 1
    assert f"error: no Kafka broker answers at 127.0.0.1:{port}" in said
    code, _, said = capture.run("--no-wait", "--schema-registry", f"http://127.0.0.1:{port}")
    assert code == 1
    assert "error: no schema registry answers" in said
    assert capture.query("SELECT count(*) FROM pg_replication_slots")[0][0] >= 0
    assert capture.frontier() is None


def test_a_wrong_password_is_named_and_never_shown(tmp_path, capture):
    with PostgresServer(tmp_path / "pg", pick(), password="right-canary") as server:
        wrong = server.dsn.replace("right-canary", "wrong-canary")
        assert wrong != server.dsn
        code, out, said = capture.run("--postgres", wrong)
    assert code == 2
    assert "password authentication failed" in said
    assert "canary" not in out + said


def test_wal_level_must_be_logical(tmp_path, capture):
    with PostgresServer(tmp_path / "pg", pick(), settings={"wal_level": "replica"}) as server:
        code, _, said = capture.run("--postgres", server.dsn)
    assert code == 1
    assert "wal_level is replica, and capture needs logical" in said
    assert "ALTER SYSTEM SET wal_level = logical" in said


def test_a_table_without_a_primary_key_is_refused_by_name_and_leaves_nothing_behind(capture):
    capture.sql("CREATE TABLE unkeyed (n integer)")
    code, _, said = capture.run("--until", "now")
    assert code == 2
    assert 'table "public.unkeyed" has no primary key' in said
    left = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert capture.query(left) == []
    assert capture.query("SELECT pubname FROM pg_publication") == []
    assert capture.frontier() is None
    capture.catch_up("--exclude", "public.unkeyed")
    assert len(capture.rows("notes")) == 100


def test_a_missing_table_is_named(capture):
    code, _, said = capture.run("--tables", "public.notes,public.nowhere")
    assert code == 2
    assert '"public.nowhere"' in said


def test_a_topic_with_wrong_settings_is_refused_and_fixed_on_request(capture):
    topic = f"{capture.prefix}.notes"
    admin = AdminClient(capture.kafka.client_config())
    wrong = NewTopic(topic, 3, 1, config={"cleanup.policy": "delete"})
    admin.create_topics([wrong])[topic].result(30)
    code, _, said = capture.run("--until", "now")
    assert code == 2
    assert f'topic "{topic}"' in said
    assert "cleanup.policy is delete, must be compact" in said
    capture.catch_up("--fix-topics")
    assert len(capture.rows("notes")) == 100


def test_unknown_settings_and_options_end_with_2(capture):
    assert capture.run("--nonsense")[0] == 2
    (capture.folder / "changelog.toml").write_text("[capture]\ntabels = []\n")
    code, _, said = capture.run()
    assert code == 2
    assert "capture.tabels" in said


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("change", "says"),
    first(
        1,
        [
            ("ALTER TABLE notes ADD more float DEFAULT random()", "added with a default"),
            ("ALTER TABLE notes RENAME text TO body", "renamed"),
        ],
    ),
)
def test_a_change_that_old_rows_feel_and_the_stream_does_not_show_is_refused(capture, change, says):
    capture.catch_up()
    capture.sql(change, "INSERT INTO notes (id) VALUES (1000)")
    for _ in range(2):  # and again: a restart does not get past it
        code, _, said = capture.run("--until", "now")
        assert code == 1
        assert says in said
        assert "`--on-incompatible resnapshot`" in said
    subprocess.run(
        [sys.executable, "-m", "changelog", "slot", "drop", "--yes"],
        check=True,
        cwd=capture.folder,
        capture_output=True,
    )
    capture.catch_up()
    rows = capture.rows("notes")
    column = capture.query("SELECT * FROM notes WHERE id = 7")
    assert len(rows) == 101
    assert tuple(rows[(7,)].values()) == column[0]


@pytest.mark.matrix
def test_a_plain_new_column_needs_nothing(capture):
    capture.catch_up()
    capture.sql("ALTER TABLE notes ADD more integer", "INSERT INTO notes VALUES (1000, 'x', 5)")
    capture.catch_up()
    capture.sql("ALTER TABLE notes DROP text", "INSERT INTO notes VALUES (1001, 6)")
    capture.catch_up()
    rows = capture.rows("notes")
    assert (rows[(1000,)]["more"], rows[(1001,)]["more"]) == (5, 6)


@pytest.mark.matrix
def test_odd_names_of_tables_and_columns_survive(capture):
    odd = '"a""; DROP TABLE notes --"'
    capture.sql(
        f'CREATE TABLE {odd} ("Kéy nr." integer PRIMARY KEY, "select" text, "1a-b" text)',
        f"INSERT INTO {odd} VALUES (1, 'x', 'y')",
    )
    capture.catch_up()
    frontier = capture.frontier()
    (topic,) = [name for name, table in frontier.tables.items() if table.table.startswith("a")]
    log = capture.reader.read(frontier, topic)
    ((key, value),) = log.rows.items()
    assert key == (1,)
    assert sorted(map(str, value.values())) == ["1", "x", "y"]
    assert len(capture.rows("notes")) == 100


@pytest.mark.matrix
def test_a_port_that_answers_with_nonsense_is_no_crash(capture):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        wrong = f"host=127.0.0.1 port={port} dbname=x user=y connect_timeout=2"
        code, _, said = capture.run("--postgres", wrong)
    assert code == 1
    assert "Traceback" not in said


def test_verify_compares_the_other_tables_when_one_is_gone(capture):
    capture.sql("CREATE TABLE gone (id integer PRIMARY KEY)", "INSERT INTO gone VALUES (1)")
    capture.catch_up()
    capture.sql("DROP TABLE gone")
    found, error = capture.command("verify", "--json", codes={4})
    reports = {table["table"]: table for table in found["tables"]}
    assert reports["public.notes"]["verified"] is True
    assert reports["public.gone"]["verified"] is None
    assert "is not there any more" in error["error"]
    (said,) = capture.command("verify", "gone", "--json", codes={1, 2})
    assert "gone" in said["error"]
