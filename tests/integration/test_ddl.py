"""The topic of schema changes: what stands on it, where, and what never does."""

import json
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from changelog.contract.base.headers import decode_headers
from changelog.kafka.cluster import describe
from tests.support.capture_command import CaptureCommand, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]


class Capture(CaptureCommand):
    """A capture whose schema changes are read."""

    @property
    def topic(self):
        return f"{self.prefix}.changelog.ddl"

    def changes(self):
        """Return key, document and position of each schema change before the frontier's ends."""
        found = self.reader.messages(self.topic, self.frontier().ends[self.topic])
        return [
            (each.key().decode(), json.loads(each.value()), decode_headers(each.headers()).position)
            for each in found
        ]

    def queries(self):
        return [document["query"] for _, document, _ in self.changes()]

    def triggers(self):
        return self.query("SELECT evtname FROM pg_event_trigger ORDER BY 1")


capture = capture_with(
    Capture,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
    "CREATE TABLE other (id integer PRIMARY KEY)",
)


ONLY = ("--ddl", "--exclude", "other")


def test_schema_changes_stand_between_the_rows_before_and_after_them(capture):
    capture.catch_up(*ONLY)
    add = "ALTER TABLE notes ADD more integer"
    capture.sql(
        "INSERT INTO notes VALUES (1, 'before')",
        "INSERT INTO notes VALUES (2, 'in the same'); " + add + "; INSERT INTO notes VALUES (3)",
        "ALTER TABLE other ADD more integer",
        "CREATE SCHEMA aside",
        "CREATE TABLE aside.unknown (id integer)",
        "CREATE TEMP TABLE passing (id integer)",
        "COMMENT ON TABLE notes IS 'said'",
    )
    with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE notes DROP text")
        connection.rollback()
    report = capture.catch_up(*ONLY)
    assert report["messages"] == 2
    ((key, document, position), (_, comment, _)) = capture.changes()
    assert key == "public.notes"
    user = capture.query("SELECT session_user")[0][0]
    assert document == {
        "command": "ALTER TABLE",
        "object_type": "table",
        "object": "public.notes",
        "tables": [["public", "notes"]],
        "query": "INSERT INTO notes VALUES (2, 'in the same'); "
        + add
        + "; INSERT INTO notes VALUES (3)",
        "query_withheld": False,
        "user": user,
        "role": user,
    }
    assert comment["command"] == "COMMENT"
    records = capture.reader.read(capture.frontier(), f"{capture.prefix}.notes").records
    rows = {key["id"]: headers.position for _, _, key, _, headers in records}
    assert rows[1] < rows[2] < position < rows[3]
    described = describe(capture.kafka, [capture.topic])[capture.topic].settings
    assert (described["cleanup.policy"], described["retention.ms"]) == ("delete", "-1")


def test_a_text_that_may_hold_a_password_gets_neither_on_the_topic_nor_into_the_wal(capture):
    capture.catch_up(*ONLY)
    role = f"r{capture.prefix}"
    capture.sql(
        f"CREATE ROLE {role} PASSWORD 'canary'; ALTER TABLE notes ADD more integer",
        "ALTER TABLE notes ADD link text DEFAULT 'http://me:canary@host/'",
        f"DROP ROLE {role}",
    )
    capture.sql("CREATE PUBLICATION seen", "SELECT 1")
    capture.catch_up(*ONLY)
    assert [(d["query"], d["query_withheld"]) for _, d, _ in capture.changes()] == [
        (None, True)
    ] * 2


@pytest.mark.matrix
def test_without_the_right_capture_says_so_and_goes_on(capture):
    capture.catch_up("--exclude", "other")
    role = f"r{capture.prefix}"
    capture.sql(
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        "INSERT INTO notes VALUES (1)",
    )
    try:
        dsn = make_dsn(capture.dsn, user=role, password="x")
        _, _, said = capture.run("--until", "now", "--postgres", dsn, *ONLY)
        assert "cannot make the event triggers" in said
        assert "`changelog ddl install`" in said
        assert capture.triggers() == []
        assert len(capture.rows("notes")) == 1
        # A superuser makes them, and then this role needs no right for them.
        capture.command("ddl install")
        _, _, said = capture.run("--until", "now", "--postgres", dsn, *ONLY)
        assert "event triggers" not in said
    finally:
        capture.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    capture.sql("ALTER TABLE notes ADD more integer")
    capture.catch_up(*ONLY)
    assert capture.queries() == ["ALTER TABLE notes ADD more integer"]
    capture.command("ddl remove")
    assert capture.triggers() == []
    assert capture.query("SELECT 1 FROM pg_namespace WHERE nspname = 'changelog'") == []


@pytest.mark.matrix
def test_a_message_of_somebody_else_under_the_name_of_the_triggers_stops_nothing(capture):
    capture.catch_up(*ONLY)
    capture.sql(
        "SELECT pg_logical_emit_message(true, 'changelog.ddl', 'no JSON')",
        "INSERT INTO notes VALUES (1)",
    )
    _, _, said = capture.run("--until", "now", *ONLY)
    assert 'a message of the prefix "changelog.ddl" is not one of the triggers; left out' in said
    assert (len(capture.rows("notes")), capture.changes()) == (1, [])


@pytest.mark.matrix
def test_a_trigger_that_fails_leaves_the_users_command_alone(capture):
    capture.command("ddl install")
    capture.sql("ALTER FUNCTION pg_logical_emit_message(boolean, text, text) RENAME TO gone")
    try:
        capture.sql("ALTER TABLE notes ADD more integer")
    finally:
        capture.sql("ALTER FUNCTION gone(boolean, text, text) RENAME TO pg_logical_emit_message")
    columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'notes'"
    assert capture.query(columns) == [(3,)]
