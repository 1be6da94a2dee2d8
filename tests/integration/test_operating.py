"""What operators see of a running capture: metrics, log lines, status; on the real servers."""

import json
import socket
import sys
import time
import urllib.request
from contextlib import closing

import pytest
from psycopg2.extensions import make_dsn

from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support import narrow
from tests.support.capture_command import CaptureCommand
from tests.support.scrape import samples
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

CANARY = "c4n4ry-s3cret"
ROWS = 100
KEY_BYTES = 5 + 1  # of a small integer: the frame with the schema's id, and one byte of Avro


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    # The servers of the tests trust everybody: a password is carried, and asked for by nobody.
    secret = make_dsn(dsn, password=CANARY)
    made = CaptureCommand(
        dsn=secret, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
    )
    made.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        f"INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, {ROWS}) n",
    )
    yield made
    made.kill()


def lines(capture):
    """The JSON lines that the capture in the background has written so far, whole ones only."""
    return [json.loads(line) for line in capture.said().splitlines(keepends=True) if "\n" in line]


class Metrics:
    """Scrapes the capture in the background."""

    def __init__(self, capture):
        said = wait_until(
            lambda: [each["message"] for each in lines(capture) if "metrics at" in each["message"]],
            30,
            "the address of the metrics",
        )
        self.url = said[0].removeprefix("metrics at ")
        self.text = ""

    def scrape(self):
        with urllib.request.urlopen(self.url, timeout=20) as answer:  # noqa: S310 - ours
            self.text = answer.read().decode()
        return samples(self.text)

    def value(self, name, **labels):
        return self.scrape().get((f"changelog_{name}", tuple(sorted(labels.items()))))


def started(capture):
    capture.start("--metrics-port", "0", "--log-format", "json")
    capture.wait_for_frontier()
    return Metrics(capture)


def keeps_up(capture, metrics):
    """Wait until the log lacks nothing. The server also writes WAL of its own, now and then."""

    def caught_up():
        capture.settle()
        return metrics.value("lag_seconds") < 1

    wait_until(caught_up, 60, "the log catches up")


@pytest.mark.matrix
def test_metrics_agree_with_what_was_written_and_tell_no_secret(capture):
    metrics = started(capture)
    capture.sql(
        "INSERT INTO notes SELECT n, 'new' FROM generate_series(1001, 1600) n",  # in bulk
        "UPDATE notes SET text = 'x' WHERE id <= 7",
        "UPDATE notes SET id = -id WHERE id = 9",
        "DELETE FROM notes WHERE id BETWEEN 11 AND 15",
        "TRUNCATE notes",
    )
    settled = capture.settle()
    # The log has it a moment before the capture counts it as written.
    wait_until(lambda: metrics.value("frontier_lsn") >= settled.lsn, 20, "the frontier is told")
    found = metrics.scrape()
    rows = {
        dict(labels)["operation"]: value
        for (name, labels), value in found.items()
        if name == "changelog_rows_total"
    }
    assert rows == {"snapshot": ROWS, "insert": 600, "update": 8, "delete": 5, "truncate": 1}
    topic = f"{capture.prefix}.notes"
    deleted = (("operation", "delete"), ("table", "public.notes"))
    # Of the stream: a record each, one more for the row that moved, and the truncated rows'.
    streamed = 600 + 8 + 1 + 5 + (ROWS + 600 - 5)
    assert found["changelog_records_total", ()] == streamed
    assert sum(settled.ends[topic]) == ROWS + streamed
    assert found["changelog_bytes_total", deleted] == 5 * KEY_BYTES
    assert found["changelog_source_up", ()] == 1
    assert found["changelog_slot_active", ()] == 1
    assert found["changelog_slot_wal_status", (("status", "reserved"),)] == 1
    assert found["changelog_frontier_age_seconds", ()] < 70
    assert ("process_cpu_seconds_total", ()) in found
    report = capture.stop()
    assert report["rows_captured"] == sum(rows.values())
    assert report["records"] == streamed
    status = capture.command("status", "--json", codes={1})
    shown = metrics.text + capture.said() + json.dumps([report, status])
    assert CANARY not in shown
    assert {"streaming from"} <= {each["message"].rpartition(" ")[0] for each in lines(capture)}
    assert all(each["lsn"] for each in lines(capture) if "streaming" in each["message"])


@pytest.mark.matrix
def test_the_lag_grows_while_the_broker_is_away_and_falls_after(capture, stack):
    metrics = started(capture)
    keeps_up(capture, metrics)
    broker = stack.server("kafka")
    broker.pause()
    try:
        capture.sql("INSERT INTO notes SELECT n, 'b' FROM generate_series(1000, 3000) n")
        wait_until(lambda: metrics.value("lag_seconds") > 2, 30, "the lag grows")
        found = metrics.scrape()
        assert found["changelog_lag_bytes", ()] > 2000 * 20
        assert found["changelog_frontier_age_seconds", ()] > 2
        assert found["changelog_slot_active", ()] == 1
        wait_until(lambda: metrics.value("producer_queue_records") > 0, 30, "records wait")
    finally:
        broker.resume()
    keeps_up(capture, metrics)
    wait_until(lambda: metrics.value("producer_queue_records") == 0, 20, "nothing waits")
    assert metrics.value("rows_total", table="public.notes", operation="insert") == 2001
    (status,) = capture.command("status", "--json")
    assert (status["ok"], status["active"]) == (True, True)
    capture.stop()


@pytest.mark.matrix
def test_a_source_that_is_away_is_told_and_the_counts_stay(kafka, registry, prefix, tmp_path):
    with own_server(tmp_path) as server:
        away = CaptureCommand(
            dsn=server.dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
        )
        away.sql("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        try:
            metrics = started(away)
            server.stop()
            wait_until(lambda: metrics.value("restarts_total") >= 1, 30, "it is tried again")
            assert metrics.value("source_up") == 0
            assert metrics.value("rows_total", table="public.t", operation="snapshot") == 1
            kinds = [name for name, _ in metrics.scrape() if name == "changelog_errors_total"]
            assert kinds
            server.start()
            away.settle()
            assert metrics.value("source_up") == 1
            away.stop()
        finally:
            away.kill()


def test_a_port_that_is_taken_is_said_before_anything_is_made(capture):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, out, said = capture.run("--metrics-port", port, "--log-format", "json", "--json")
    assert code == 2
    (line,) = [json.loads(each) for each in said.splitlines()]
    assert line["level"] == "error"
    assert f"127.0.0.1:{port}" in line["message"]
    assert "--metrics-port" in line["message"]
    assert json.loads(out)["exit_code"] == 2
    assert capture.query("SELECT slot_name FROM pg_replication_slots WHERE active") == []


def test_status_tells_before_during_and_after(capture):
    (before,) = capture.command("status", "--json", codes={1})
    assert before["problems"] == [
        "there is no slot",
        "the log has no frontier yet: no snapshot is whole",
    ]
    capture.start()
    capture.wait_for_frontier()
    capture.settle()
    (during,) = capture.command("status", "--json")
    assert during["frontier"]["records"] == {"public.notes": ROWS}
    assert during["reserves"][0]["limit"] == "disk"  # its files are on this machine
    capture.stop()
    (after,) = capture.command("status", "--json", codes={1})
    assert after["problems"] == ["no process reads the slot: capture does not run"]
    words = [sys.executable, "-m", "changelog", "status", "--project", str(capture.folder)]
    text, code = narrow.shown([*words, "--allow-inactive"])
    assert (code, narrow.misfits(text)) == (0, []), text
    assert ("asking: " in text, "8 of 8, " in text) == (True, True), text
    capture.sql("INSERT INTO notes SELECT n, 'n' FROM generate_series(5000, 6000) n")
    (late,) = capture.command(
        "status", "--json", "--allow-inactive", "--max-lag-bytes", "1000", codes={1}
    )
    assert "over 1,000" in late["problems"][0]
    assert late["lag_bytes"] > 1000


@pytest.mark.matrix
def test_source_and_log_are_told_each_without_the_other(capture):
    capture.catch_up()
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        log, source = ("-b", f"127.0.0.1:{port}"), ("-d", f"host=127.0.0.1 port={port} dbname=x")
        told = [
            capture.command("status", "--json", "--allow-inactive", *words, codes={1})[0]
            for words in (log, source, (*log, *source))
        ]
        code, _, said = capture.run_other("status", "--allow-inactive", *log)
    without_log, without_source, without_both = told
    (why,) = without_log["problems"]
    assert without_log["unanswered"] == {"log": why}
    assert f"no Kafka broker answers at 127.0.0.1:{port}" in why
    assert (without_log["exists"], without_log["active"]) == (True, False)
    assert without_log["wal_status"] == "reserved"
    assert without_log["retained_bytes"] is not None
    assert without_log["reserves"][0]["limit"] == "disk"
    for name in ("frontier", "lag_s", "lag_bytes", "not_captured", "aside"):
        assert without_log[name] is None, name
    (why,) = without_source["problems"]
    assert without_source["unanswered"] == {"source": why}
    assert "no PostgreSQL answers" in why
    assert without_source["frontier"]["lsn"] == str(capture.frontier().lsn)
    assert without_source["frontier"]["age_s"] > 0
    assert without_source["frontier"]["records"] == {"public.notes": ROWS}
    for name in ("exists", "active", "wal_lsn", "retained_bytes", "reserves", "lag_s"):
        assert without_source[name] is None, name
    assert list(without_both["unanswered"]) == ["source", "log"]
    assert without_both["frontier"] is None
    # For people the same.
    assert code == 1
    assert "idle" in said
    assert "PROBLEM" in said
    assert "asking" not in said, "no bar without a terminal"


@pytest.mark.matrix
@pytest.mark.parametrize("version", [15, 16, 18])
def test_a_slot_in_danger_and_a_lost_one_are_told(kafka, registry, prefix, tmp_path, version):
    settings = {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with own_server(tmp_path, settings, version) as server:
        capture = CaptureCommand(
            dsn=server.dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
        )
        capture.sql("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        capture.catch_up()
        (well,) = capture.command("status", "--json", "--allow-inactive")
        (limit,) = [each for each in well["reserves"] if each["limit"] != "disk"]
        assert well["max_slot_wal_keep_bytes"] == 16 << 20
        assert 0 < limit["bytes_left"] <= 48 << 20
        until = time.monotonic() + 60
        while well["wal_status"] != "lost":
            assert time.monotonic() < until
            capture.sql(
                "SELECT pg_logical_emit_message(false, 'x', repeat('x', 20000000))", "CHECKPOINT"
            )
            (well,) = capture.command("status", "--json", "--allow-inactive", codes={0, 1})
        assert well["problems"][0] == (
            "the slot is lost: its WAL was removed, which max_slot_wal_keep_size limits"
        )
        assert well["invalidation_reason"] == (None if version == 15 else "wal_removed")
        # What docs/operating.md says to do about it.
        again = capture.catch_up()
        assert again["snapshot_rows"] == {"public.t": 1}
        assert capture.command("status", "--json", "--allow-inactive")[0]["ok"]


def own_server(folder, settings=None, version=16):
    """A PostgreSQL that a test may stop."""
    settings = {"fsync": "off", **(settings or {})}
    return PostgresServer(folder / "pg", pick(), version=version, settings=settings)
