"""`changelog verify --target`: bad input is told in a line; live writes are no false alarm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import duckdb
import psycopg2
import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from changelog.compare.compare import CompareRequest, compare
from changelog.compare.duckdb_side import _PAUSES_S
from changelog.compare.plan import KeyBuckets, make_plan
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.runtime.process.signals import interrupts_held
from tests.support.wait import wait_until

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, t text, n numeric);
CREATE TABLE copy (id int PRIMARY KEY, t text, n numeric);
CREATE TABLE keyless (id int, t text);
INSERT INTO orders SELECT n, 'row ' || n, n FROM generate_series(1, 100) AS n;
INSERT INTO copy SELECT * FROM orders
"""


@pytest.fixture
def target(dsn, execute):
    execute(TABLES)
    return f"postgres:{make_dsn(dsn)} dbname={parse_dsn(dsn)['dbname']}/copy"


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["nowhere"], 2, 'the source has no table "nowhere"'),
        ([], 2, "no table of the source is named"),
        (["orders", "--query", "SELECT 1"], 2, "both a table and --query are given"),
        (["--query", "SELEC 1", "--key", "id"], 2, "the query cannot be run"),
        (["--query", "SELECT 1); DROP TABLE orders; SELECT (1", "--key", "id"], 2, "cannot be run"),
        (["orders", "--key", "other"], 2, 'the source has no column "other"'),
        (["keyless"], 2, "the source has no primary key"),
        (["orders", "--columns", "t=missing"], 2, 'the target has no "missing"'),
        (["orders", "--rate", "inf"], 2, "--rate is no number"),
        (["orders", "--sample", "much"], 2, "--sample 'much' is not a part"),
        (["--query", "SELECT 1 AS id", "--key", "id", "--rate", "9"], 2, "--rate needs a table"),
        (["orders", "--target", "nothing:secret"], 2, "--target is none of the kinds"),
        (
            ["orders", "--target", "postgresql://me:${NO_SUCH_VARIABLE}@h/db/t"],
            2,
            "--target names the environment variable NO_SUCH_VARIABLE, which is not set",
        ),
        (["orders", "--target", ""], 2, "--target is empty"),
        (["orders", "--certificate", ""], 2, "--certificate is empty"),
        (["orders", "--target", "parquet:/etc"], 2, "/etc is a folder"),
        (["orders", "--columns", "id,,t"], 2, "has an empty name"),
        (["orders", "--target", "duckdb:/missing.duckdb/t"], 2, "there is no file"),
        (["orders", "--target", "parquet:/missing/*.parquet"], 2, "cannot be read"),
        (["orders", "--target", "postgresql://me:s3cret@127.0.0.1:1/db/copy"], 1, "no PostgreSQL"),
    ],
)
def test_bad_input_is_told_in_a_line(dsn, target, run_command, execute, words, code, part):
    given_target = [] if "--target" in words else ["--target", target]
    ended, _, said = run_command(["verify", *words, *given_target, "--source", dsn])
    assert (ended, part in said) == (code, True), said
    assert "secret" not in said
    assert "s3cret" not in said
    assert execute("SELECT count(*) FROM orders") == [(100,)]


@pytest.mark.parametrize(
    "source", ["postgresql://me:${NO_SUCH_VARIABLE}@h/db", "${NO_SUCH_VARIABLE}"]
)
def test_a_variable_that_is_missing_is_named_with_its_option(target, run_command, source):
    ended, _, said = run_command(["verify", "orders", "--source", source, "--target", target])
    assert ended == 2
    assert "--source names the environment variable NO_SUCH_VARIABLE, which is not set" in said
    assert "changelog.toml" not in said


def test_a_source_in_a_variable_is_a_connection_string(dsn, target, run_command):
    words = ["verify", "orders", "--source", "${SHOP_DSN}", "--target", target, "--json"]
    ended, report, said = run_command(words, env={"SHOP_DSN": dsn})
    assert (ended, report.get("verified")) == (0, True), said


def test_a_locked_duckdb_file_is_told_at_once(dsn, target, run_command, tmp_path):
    file = tmp_path / "copy.duckdb"
    script = (
        "import duckdb, sys\n"
        f"database = duckdb.connect({str(file)!r})\n"
        "database.execute('CREATE TABLE orders (id INTEGER)')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        began = time.monotonic()
        words = ["verify", "orders", "--source", dsn, "--target", f"duckdb:{file}"]
        ended, _, said = run_command(words)
        took_s = time.monotonic() - began
        writer.stdin.close()
    assert ended == 1
    assert f"process {writer.pid} (" in said
    assert "has the file open for writing | hint: close its connection" in said
    assert took_s < sum(_PAUSES_S)


def test_files_that_are_overwritten_all_the_time_end_with_4(
    dsn, target, run_command, tmp_path, monkeypatch
):
    monkeypatch.setattr("changelog.compare.duckdb_side._PAUSES_S", (0.1, 0.1))
    file = tmp_path / "orders.parquet"
    done = threading.Event()

    def overwrite() -> None:
        size = 0
        while not done.is_set():
            size += 1
            file.write_bytes(b"PAR1" + b"x" * (size % 100))
            time.sleep(0.01)

    file.write_bytes(b"PAR1")
    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        words = ["verify", "orders", "--source", dsn, "--target", f"parquet:{file}"]
        ended, _, said = run_command(words)
    finally:
        done.set()
        writer.join()
    assert ended == 4, said
    assert "was overwritten while it was read, 2 times in a row" in said


def test_a_role_that_may_not_read_is_told(dsn, target, run_command, execute, prefix):
    execute(f"CREATE ROLE reader_{prefix} LOGIN")
    try:
        source = make_dsn(dsn, user=f"reader_{prefix}")
        ended, _, said = run_command(["verify", "orders", "--source", source, "--target", target])
        assert (ended, "permission denied" in said) == (2, True), said
    finally:
        execute(f"DROP ROLE reader_{prefix}")


def test_a_rate_reads_the_table_in_parts(dsn, target):
    with (
        closing(
            PostgresSide(dsn, ComparedRelation(table="orders"), of="source", rate=10_000)
        ) as source,
        closing(PostgresSide(dsn, ComparedRelation(table="copy"), of="target")) as copy,
    ):
        report = compare(source, copy, CompareRequest(settle_s=0.0))
    assert (report.verified, report.source_rows) == (True, 100)


@pytest.mark.parametrize("statistics", ["", "ANALYZE grown"])
def test_a_rate_holds_for_a_table_of_which_statistics_know_nothing(
    dsn, execute, monkeypatch, statistics
):
    """A table that was never analysed, and one that has grown a hundredfold since."""
    execute("CREATE TABLE grown (id int PRIMARY KEY, t text) WITH (autovacuum_enabled = false)")
    execute("INSERT INTO grown SELECT n, 'x' FROM generate_series(1, 50) AS n")
    if statistics:
        execute(statistics)
    execute("INSERT INTO grown SELECT n, 'x' FROM generate_series(51, 20000) AS n")
    with closing(
        PostgresSide(dsn, ComparedRelation(table="grown"), of="source", rate=4_000)
    ) as side:
        parts: list[int] = []
        pauses_s: list[float] = []

        def pause(seconds: float) -> bool:
            parts.append(side._rows_read - sum(parts))
            pauses_s.append(seconds)
            return False

        monkeypatch.setattr(side._interrupted, "wait", pause)
        buckets = KeyBuckets(61, by_value=True)
        columns = side.columns()
        side.bind(make_plan(columns, columns, key=["id"], columns={}, buckets=buckets))
        assert sum(digest.rows for digest in side.digests().values()) == 20_000
    assert max(parts) <= 5_000
    assert sum(pauses_s) > 3.0


def test_ctrl_c_ends_a_comparison_in_the_middle_of_a_statement(dsn, target, execute, tmp_path):
    words = ["verify", "--source", dsn, "--target", target, "--key", "id"]
    words += ["--query", "SELECT id, t FROM orders, pg_sleep(600) AS waits"]
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "changelog", *words], stdout=out, stderr=out
        )
        running = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'changelog verify'"
            " AND wait_event = 'PgSleep'"
        )
        wait_until(lambda: execute(running), 30, "the statement runs")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130, said.read_text()
    assert not execute(running), "the server has ended it too"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_it_although_the_server_stands_still(
    dsn, execute, tmp_path, monkeypatch, number, code
):
    """The process of the server is stopped; it goes on at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    execute(TABLES)
    words = ["verify", "--source", dsn, "--target", f"duckdb:{tmp_path}/c.duckdb/orders"]
    words += ["--query", "SELECT id, t FROM orders, pg_sleep(600) AS waits", "--key", "id"]
    with closing(duckdb.connect(f"{tmp_path}/c.duckdb")) as database:
        database.execute("CREATE TABLE orders AS SELECT 1 AS id, 'a' AS t")
    process = subprocess.Popen([sys.executable, "-m", "changelog", *words])
    running = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'changelog verify'"
        " AND wait_event = 'PgSleep'"
    )
    ((pid,),) = wait_until(lambda: execute(running), 30, "the statement runs")
    os.kill(pid, signal.SIGSTOP)
    try:
        process.send_signal(number)
        assert process.wait(30) == code
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [*tmp_path.glob("changelog-verify-*")] == []


def test_interrupts_that_come_during_an_import_are_not_lost():
    """As one did that came in the middle of numpy, and made it count as missing."""
    after = []

    def imported():
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            after.append("the import")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # xdist ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            imported()
    finally:
        signal.signal(signal.SIGINT, before)
    assert after == ["the import"]


def test_live_writes_are_no_false_alarm_and_a_lost_change_is_found(dsn, target, execute):
    """A writer, and a copy that follows it by half a second; one row of the copy stays wrong."""
    done = threading.Event()

    def write() -> None:
        with closing(psycopg2.connect(dsn)) as own, closing(psycopg2.connect(dsn)) as other:
            own.autocommit = other.autocommit = True
            waiting: list[tuple[float, str]] = []
            turn = 0
            while not done.is_set() or waiting:
                if not done.is_set():
                    turn += 1
                    key = 10 + turn * 7 % 90
                    change = [
                        f"UPDATE {{}} SET t = 'turn {turn}' WHERE id = {key}",
                        f"DELETE FROM {{}} WHERE id = {key}",
                        f"INSERT INTO {{}} VALUES ({key}, 'back', {turn}) ON CONFLICT DO NOTHING",
                    ][turn % 3]
                    own.cursor().execute(change.format("orders"))
                    waiting.append((time.monotonic() + 0.5, change.format("copy")))
                while waiting and waiting[0][0] <= time.monotonic():
                    other.cursor().execute(waiting.pop(0)[1])
                time.sleep(0.02)

    def looked():
        with (
            closing(PostgresSide(dsn, ComparedRelation(table="orders"), of="source")) as source,
            closing(PostgresSide(dsn, ComparedRelation(table="copy"), of="target")) as copy,
        ):
            return compare(source, copy, CompareRequest(settle_s=3.0))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            report = looked()
            assert report.verified is True, report.lines()
        execute("UPDATE copy SET t = 'lost' WHERE id = 3")
        report = looked()
        assert [each.key for each in report.differences] == [{"id": "3"}], report.lines()
    finally:
        done.set()
        writer.join()
