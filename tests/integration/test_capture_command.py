"""The command `changelog capture`: its life, its servers going away, and bad input."""

import signal
import socket
from contextlib import closing

import pytest

from changelog.stack.base.ports import pick
from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]


capture = capture_with(CaptureCommand, notes=100)


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
