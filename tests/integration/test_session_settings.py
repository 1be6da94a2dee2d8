"""Settings of a database that end a session, or change how it reads and writes texts."""

import json
import subprocess
import sys
import time
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from changelog.postgres.connection import opened
from tests.support.capture_command import CaptureCommand
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

SHORT = ("idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout")
ODD = {
    **dict.fromkeys(SHORT, "'200ms'"),
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "backslash_quote": "off",
}


server = server_of(first(1, [18, 14]))
capture = capture_of(
    CaptureCommand,
    "CREATE TABLE notes (id integer PRIMARY KEY, kind regtype, place regclass)",
    "INSERT INTO notes VALUES (1, 'integer', 'notes'), (2, 'name', 'pg_class')",
)


def set_all(capture, settings):
    ((name,),) = capture.query("SELECT current_database()")
    there = {name for (name,) in capture.query("SELECT name FROM pg_settings")}
    capture.sql(
        *(f'ALTER DATABASE "{name}" SET {n} = {v}' for n, v in settings.items() if n in there)
    )


def test_capture_status_and_verify_are_as_everywhere(capture):
    set_all(capture, ODD)
    capture.catch_up()
    with closing(opened(dsn=capture.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes VALUES (3, 'text', 'pg_type')")
        connection.commit()
    capture.catch_up()
    rows = capture.rows("notes")
    assert {key: (row["kind"], row["place"]) for (key,), row in rows.items()} == {
        1: ("integer", "notes"),
        2: ("name", "pg_class"),
        3: ("text", "pg_type"),
    }
    _, out, said = capture.run_other("status", "--json")
    assert (json.loads(out)["slot"], said) == (capture.prefix, "")
    (line,) = capture.command("verify", "--json")
    (table,) = line["tables"]
    assert (table["verified"], table["rows_expected"]) == (True, 3)


def test_a_session_outlasts_the_timeouts_also_when_its_transaction_is_taken_back(capture):
    set_all(capture, {name: ODD[name] for name in SHORT})
    with closing(opened(dsn=capture.dsn)) as connection:
        for _ in range(2):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                time.sleep(0.5)
                cursor.execute("SELECT 1")
            connection.rollback()
            time.sleep(0.5)


def test_twin_that_sets_nothing_is_ended(capture):
    set_all(capture, {name: ODD[name] for name in SHORT})
    with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        time.sleep(0.5)
        with pytest.raises(psycopg2.Error):
            cursor.execute("SELECT 1")


@pytest.mark.matrix
def test_a_snapshot_that_the_server_ends_is_told_in_a_line(capture):
    capture.catch_up()
    # Capture does not run, and a row waits for it: verify waits too, its snapshot open.
    capture.sql("INSERT INTO notes VALUES (4, 'text', 'pg_type')")
    words = [sys.executable, "-m", "changelog", "verify", "--project", str(capture.folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as verify:

        def ended():
            return capture.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
                "'changelog verify' AND state = 'idle in transaction'"
            )

        wait_until(ended, 60, "the snapshot is open")
        capture.catch_up()
        _, said = verify.communicate(timeout=90)
    assert verify.returncode == 1
    assert "PostgreSQL has ended the snapshot" in said
    assert "Traceback" not in said


@pytest.mark.matrix
def test_a_session_that_may_not_write_says_which_setting_it_is(capture):
    ((name,),) = capture.query("SELECT current_database()")
    capture.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    code, _, said = capture.run("--until", "now")
    assert (code, "cannot make the publication" in said) == (1, True), said
    assert "default_transaction_read_only is on: ALTER ROLE" in said
    writes = make_dsn(capture.dsn, options="-c default_transaction_read_only=off")
    code, _, said = capture.run("--until", "now", "--postgres", writes)
    assert code == 0, said
