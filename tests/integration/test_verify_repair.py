"""`changelog verify --repair`: the plan, the rows that are written, and writers that go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from functools import partial
from itertools import count
from random import Random

import psycopg2
import pytest
from psycopg2.extensions import parse_dsn
from typer.testing import CliRunner

from changelog.cli import app
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.repair import Repair
from changelog.contract.base.errors import ChangelogError
from tests.support.copies import PostgresCopy, Source, every_row
from tests.support.planted import planted_defects
from tests.support.wait import wait_until

FILL = """
CREATE TABLE orders (id int PRIMARY KEY, t text, amount numeric);
INSERT INTO orders SELECT n, 'text ' || n, n * 1.25 FROM generate_series(1, 1000) AS n;
CREATE TABLE copy (LIKE orders INCLUDING ALL, own text DEFAULT 'own');
INSERT INTO copy SELECT * FROM orders;
UPDATE copy SET own = 'kept';
"""
SPOIL = """
UPDATE copy SET t = 'wrong' WHERE id IN (1, 2, 3);
DELETE FROM copy WHERE id IN (11, 12);
INSERT INTO copy VALUES (2001, 'risen', 1), (2002, 'risen', 2);
"""


@pytest.fixture
def target(dsn, execute):
    execute(FILL)
    execute(SPOIL)
    return f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"


def repaired(dsn, target, *more, table="orders"):
    """Return the exit code, the result and the error of a command."""
    words = ["verify", table, "--source", dsn, "--target", target, "--settle", "0", "--json"]
    ran = CliRunner().invoke(app, [*words, "--repair", *more])
    error = ran.exception
    code = error.exit_code if isinstance(error, ChangelogError) else ran.exit_code
    return code, json.loads(ran.stdout or "{}"), str(error) + str(getattr(error, "hint", ""))


@pytest.fixture
def verify(dsn, target):
    return partial(repaired, dsn, target)


def rows(execute, table="copy"):
    return execute(f"SELECT id, t, amount FROM {table} ORDER BY id")


def test_the_plan_changes_nothing(execute, verify):
    before = rows(execute)
    code, result, errors = verify()
    assert (code, result["planned"]) == (3, {"update": 3, "insert": 2, "delete": 2, "left": 0})
    assert "--yes writes the rows of the plan" in errors
    assert rows(execute) == before


def test_rows_are_written_and_compared_again(execute, verify):
    code, result, errors = verify("--yes")
    assert code == 0, errors
    assert result["done"] == {"update": 3, "insert": 2, "delete": 2}
    assert result["after"]["verified"] is True
    assert result["before"]["mismatches"] == 7
    assert rows(execute) == rows(execute, "orders")
    assert execute("SELECT id, own FROM copy WHERE own <> 'kept' ORDER BY id") == [
        (11, "own"), (12, "own"),
    ]  # fmt: skip
    code, result, _ = verify("--yes")
    assert (code, "done" in result) == (0, False), "there is nothing left to do"


def test_every_type_is_written_as_the_source_has_it(dsn, tmp_path):
    source = Source(dsn)
    source.fill(every_row())
    copy = PostgresCopy(dsn, tmp_path)
    copy.fill(planted_defects(has_duplicate=False).rows)
    code, result, errors = repaired(dsn, copy.target, "--yes", table="every")
    assert (code, result["after"]["verified"]) == (0, True), errors
    assert copy.execute("SELECT * FROM every EXCEPT SELECT * FROM copy") == []


def test_a_key_that_the_copy_has_twice_is_left(dsn, tmp_path):
    source = Source(dsn)
    source.fill(every_row())
    copy = PostgresCopy(dsn, tmp_path)
    copy.fill([*every_row(), every_row()[4]])
    code, result, _ = repaired(dsn, copy.target, "--yes", table="every")
    assert (code, result["planned"]) == (3, {"left": 1})


class Opened:
    """Both sides of a comparison, and the repair of their differences."""

    def __init__(self, dsn):
        self.source = PostgresSide(dsn, ComparedRelation(table="orders"), of="source")
        self.target = PostgresSide(dsn, ComparedRelation(table="copy"), of="target")
        self.report = self.compare()
        self.repair = Repair(self.source, self.target, self.report.plan)
        self.planned = self.repair.plan(self.report.refuted)

    def compare(self):
        return compare(self.source, self.target, CompareRequest(settle_s=0.0))

    def close(self):
        self.source.close()
        self.target.close()


@pytest.fixture
def opened(dsn, target):
    with closing(Opened(dsn)) as made:
        yield made


def test_a_row_that_a_writer_has_changed_since_the_plan_is_left_to_it(execute, opened):
    execute("UPDATE copy SET t = 'a writer was here' WHERE id = 1")
    execute("INSERT INTO copy VALUES (11, 'a writer was here')")
    execute("DELETE FROM copy WHERE id = 2001")
    assert opened.repair.carry_out(opened.planned) == {
        "changed meanwhile": 3, "update": 2, "insert": 1, "delete": 1,
    }  # fmt: skip
    assert execute("SELECT t FROM copy WHERE id IN (1, 11)") == [("a writer was here",)] * 2


def test_the_rows_are_those_that_the_source_has_at_the_moment_of_writing(execute, opened):
    execute("UPDATE orders SET t = 'newer' WHERE id = 1; DELETE FROM orders WHERE id IN (2, 11)")
    execute("INSERT INTO orders VALUES (2001, 'newer', 3)")
    opened.repair.carry_out(opened.planned)
    assert rows(execute) == rows(execute, "orders")


def test_a_writers_change_that_comes_while_rows_are_written_is_applied_behind_it(
    dsn, execute, opened, monkeypatch
):
    """The source loses a row after the repair has read it; the writer deletes it in the copy."""
    read, writers = opened.source.read, []

    def apply():
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM copy WHERE id = 11")
            cursor.execute("UPDATE copy SET t = 'newest' WHERE id = 1")
            connection.commit()

    def read_and_change(keys):
        came = read(keys)
        execute("DELETE FROM orders WHERE id = 11; UPDATE orders SET t = 'newest' WHERE id = 1")
        writers.append(threading.Thread(target=apply))
        writers[-1].start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'copy'::regclass"
        while writers[-1].is_alive() and not execute(waiting)[0][0]:
            pass
        return came

    monkeypatch.setattr(opened.source, "read", read_and_change)
    opened.repair.carry_out(opened.planned)
    for writer in writers:
        writer.join(30)
    assert rows(execute) == rows(execute, "orders")


def test_a_command_that_is_killed_leaves_no_half_batch_and_is_run_again(
    dsn, execute, target, verify
):
    execute("UPDATE copy SET t = 'wrong' WHERE id BETWEEN 101 AND 350")
    execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';"
        "CREATE TRIGGER wait BEFORE UPDATE ON copy FOR EACH ROW WHEN (new.id = 250)"
        " EXECUTE FUNCTION wait()"
    )
    ours = "application_name = 'changelog verify --repair'"
    waits = f"SELECT count(*) FROM pg_stat_activity WHERE {ours} AND wait_event_type = 'Lock'"
    words = [sys.executable, "-m", "changelog", "verify", "orders", "--source", dsn]
    words += ["--target", target, "--settle", "0", "--repair", "--yes"]
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            wait_until(lambda: execute(waits)[0][0], 60.0, "it is in the middle of a batch")
            process.kill()
    wait_until(
        lambda: not execute(f"SELECT 1 FROM pg_stat_activity WHERE {ours}"), 30.0, "it has gone"
    )
    (wrong,) = execute("SELECT count(*) FROM copy WHERE t = 'wrong'")[0]
    assert wrong == 253 - 98, (
        "of the first 100 keys, two were missing; of the second none is written"
    )
    execute("DROP TRIGGER wait ON copy")
    assert verify("--yes")[0] == 0
    assert rows(execute) == rows(execute, "orders")


def test_writers_go_on_meanwhile(dsn, execute, verify):
    """Each change is made at the source and then applied to the copy, as replication does it."""
    ended, changes = threading.Event(), count()

    def write():
        random = Random(7)  # noqa: S311
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while not ended.is_set():
                key, text = random.randrange(1, 1000), f"change {next(changes)}"
                if random.random() < 0.3:
                    for table in ("orders", "copy"):
                        cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
                    continue
                for table in ("orders", "copy"):
                    cursor.execute(
                        f"INSERT INTO {table} (id, t) VALUES ({key}, '{text}')"
                        " ON CONFLICT (id) DO UPDATE SET t = excluded.t"
                    )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(6):
            execute(f"UPDATE copy SET t = 'wrong' WHERE id % 7 = {number}")
            execute(f"DELETE FROM copy WHERE id % 11 = {number}")
            verify("--yes")
    finally:
        ended.set()
        writer.join(30)
    assert next(changes) > 100
    verify("--yes")
    assert rows(execute) == rows(execute, "orders")
    assert verify()[0] == 0


def test_a_row_that_the_copy_refuses_is_told(execute, verify):
    execute("ALTER TABLE copy ADD CHECK (id <> 11)")
    code, _, errors = verify("--yes")
    assert (code, "cannot be written" in errors) == (1, True), errors
    assert rows(execute) != rows(execute, "orders")


def test_a_trigger_that_keeps_the_row_as_it_was_is_told(execute, verify):
    name = f"keep_{uuid.uuid4().hex[:8]}"
    execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f"CREATE TRIGGER keep BEFORE UPDATE ON copy FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
    code, _, errors = verify("--yes")
    assert (code, "changed 0 rows, not 1" in errors) == (1, True), errors


@pytest.mark.parametrize(
    ("target", "more", "part"),
    [
        ("delta:x", ["--repair"], "not to a copy of the kind delta"),
        ("topic:x", ["--repair", "--yes"], "`changelog resnapshot TABLE`"),
        ("", ["--yes"], "--yes only works with --repair"),
        ("", ["--repair", "--every", "1h"], "--repair does not go with --every"),
    ],
)
def test_what_cannot_be_repaired_is_refused(dsn, execute, run_command, target, more, part):
    execute(FILL)
    target = target or f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"
    words = ["verify", "orders", "--source", dsn, "--target", target, *more]
    code, _, errors = run_command(words)
    assert (code, part in errors) == (2, True), errors


def test_a_view_is_no_table_to_repair(dsn, execute, run_command, target):
    execute("CREATE VIEW shown AS SELECT id, t, amount FROM copy")
    words = ["verify", "orders", "--source", dsn, "--settle", "0", "--repair", "--yes"]
    code, _, errors = run_command([*words, "--target", target.replace("/copy", "/shown")])
    assert (code, "is not a table" in errors) == (2, True), errors
