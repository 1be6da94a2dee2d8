"""`changelog verify --repair`: the plan, the rows that are written, and writers that go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from itertools import count
from random import Random

import psycopg2
import pytest
from psycopg2.errors import LockNotAvailable
from psycopg2.extensions import make_dsn, parse_dsn
from typer.testing import CliRunner

from changelog.cli import app
from changelog.compare import postgres
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
OURS = "application_name = 'changelog verify --repair'"
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


def test_settings_of_the_copys_database_do_not_change_what_is_written(dsn, execute):
    name = parse_dsn(dsn)["dbname"]
    execute(
        "CREATE TABLE orders (id int PRIMARY KEY, tags text[], length interval, at timestamptz);"
        "INSERT INTO orders VALUES (1, ARRAY[NULL, 'NULL'], '1 mon -1 day', '2024-07-01 12:00+02');"
        "CREATE TABLE copy (LIKE orders INCLUDING ALL);"
        f"ALTER DATABASE {name} SET array_nulls = off;"
        f"ALTER DATABASE {name} SET xmloption = document;"
        f"ALTER DATABASE {name} SET intervalstyle = sql_standard;"
        f"ALTER DATABASE {name} SET timezone = 'Asia/Kathmandu'"
    )
    code, _, errors = repaired(dsn, f"postgres:{dsn} dbname={name}/copy", "--yes")
    assert code == 0, errors
    assert execute("TABLE copy EXCEPT TABLE orders") == []


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
        self.repair = Repair(self.source, self.target, self.report)
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
    opened.repair.carry_out(opened.planned)
    assert opened.repair.done == {
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


@contextmanager
def in_a_batch(dsn, execute, target):
    """Run a repair until a trigger of the copy waits for a lock; yield it, and who has the lock."""
    waits = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'"
    words = [sys.executable, "-m", "changelog", "verify", "orders", "--source", dsn, "--json"]
    words += ["--target", target, "--settle", "0", "--repair", "--yes"]
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            wait_until(lambda: execute(waits)[0][0], 60.0, "it is in the middle of a batch")
            yield process, connection


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
    with in_a_batch(dsn, execute, target) as (process, _):
        process.kill()
    wait_until(
        lambda: not execute(f"SELECT 1 FROM pg_stat_activity WHERE {OURS}"), 30.0, "it has gone"
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


@pytest.fixture
def open_write(dsn, execute, target):
    """A transaction that has written a row of the copy and stays open; yields its process's id."""
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE copy SET own = 'open' WHERE id = 900")
        yield connection.info.backend_pid


def test_who_keeps_the_copy_locked_is_named(monkeypatch, verify, open_write):
    monkeypatch.setattr(postgres, "_LOCK_PATIENCE_S", 0.5)
    code, _, errors = verify("--yes")
    assert code == 1
    assert "cannot be locked for writing" in errors
    assert f"process {open_write} (" in errors


@pytest.mark.parametrize(
    ("timeout", "outcome"),
    [("200ms", nullcontext()), ("60s", pytest.raises(LockNotAvailable))],
    ids=["as it is", "defect: a long wait"],
)
def test_writers_do_not_queue_behind_a_repair_that_waits(
    dsn, execute, monkeypatch, opened, open_write, timeout, outcome
):
    monkeypatch.setattr(postgres, "_TABLE_LOCK_TIMEOUT", f"SET LOCAL lock_timeout = '{timeout}'")
    repair = threading.Thread(target=opened.repair.carry_out, args=(opened.planned,))
    repair.start()
    asks = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"
    try:
        wait_until(lambda: execute(asks)[0][0], 60.0, "the repair asks for the lock")
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            cursor.execute("SET lock_timeout = '2s'")
            with outcome:
                for key in range(901, 904):
                    cursor.execute(f"UPDATE copy SET own = 'new' WHERE id = {key}")
    finally:
        execute(f"SELECT pg_terminate_backend({open_write})")
        repair.join(60)
    assert opened.compare().verified


def test_rows_that_the_copy_refuses_are_told_and_the_others_are_written(execute, verify):
    execute("ALTER TABLE copy ADD CHECK (id <> 11)")
    code, result, errors = verify("--yes")
    assert (code, "1 rows are refused by the copy: id='11'" in errors) == (3, True), errors
    assert result["done"] == {"update": 3, "insert": 1, "delete": 2, "refused": 1}
    ((key, why),) = [(row["key"], row["why"]) for row in result["refused"]]
    assert key == {"id": "11"}
    assert 'violates check constraint "copy_id_check"' in why
    assert execute("SELECT id FROM orders EXCEPT SELECT id FROM copy") == [(11,)]


def test_a_deferred_constraint_refuses_its_row_alone(execute, verify):
    execute(
        "CREATE TABLE customers (t text PRIMARY KEY);"
        "INSERT INTO customers SELECT t FROM orders WHERE id <> 11 UNION SELECT t FROM copy;"
        "ALTER TABLE copy ADD FOREIGN KEY (t) REFERENCES customers DEFERRABLE INITIALLY DEFERRED"
    )
    code, result, errors = verify("--yes")
    assert (code, result["done"].get("refused")) == (3, 1), errors
    assert execute("SELECT id FROM orders EXCEPT SELECT id FROM copy") == [(11,)]


def test_deletes_come_first_then_updates_then_inserts(execute, verify):
    name = f"note_{uuid.uuid4().hex[:8]}"
    execute(
        "CREATE TABLE noted (n serial, command text);"
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO noted (command) VALUES (TG_OP); RETURN NULL; END';"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON copy"
        f" FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
    assert verify("--yes")[0] == 0
    commands = [command for (command,) in execute("SELECT command FROM noted ORDER BY n")]
    assert commands == [*["DELETE"] * 2, *["UPDATE"] * 3, *["INSERT"] * 2]


def test_a_value_that_another_row_gives_up_is_free(execute, verify):
    """A unique value goes from a row that is deleted to a new one, and on along a chain."""
    execute("UPDATE copy SET t = 'text 11' WHERE id = 2001")
    execute("UPDATE copy SET t = 'text ' || id - 1 WHERE id IN (2, 3)")
    execute("CREATE UNIQUE INDEX ON copy (t)")
    code, result, errors = verify("--yes")
    assert (code, result["refused"]) == (0, []), errors


def test_a_trigger_that_keeps_the_row_as_it_was_is_told(execute, verify):
    before_update(execute, "RETURN NULL;")
    code, result, errors = verify("--yes")
    assert (code, "changed 0 rows, not 1" in errors) == (3, True), errors
    assert result["done"] == {"refused": 3, "insert": 2, "delete": 2}


def before_update(execute, body):
    name = f"keep_{uuid.uuid4().hex[:8]}"
    execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} END';"
        f"CREATE TRIGGER keep BEFORE UPDATE ON copy FOR EACH ROW EXECUTE FUNCTION {name}()"
    )


@pytest.mark.parametrize("by", ["a trigger", "a type"])
def test_a_value_that_the_copy_changes_is_not_called_lag(execute, verify, by):
    if by == "a trigger":
        before_update(execute, "NEW.t = NEW.t || ''!''; RETURN NEW;")
    else:
        execute("ALTER TABLE copy ALTER amount TYPE numeric(10,1)")
        execute("UPDATE orders SET amount = round(amount, 1) WHERE id <> 1")
    code, result, errors = verify("--yes")
    assert (code, "stores another value than was written" in errors) == (3, True), errors
    assert "lags" not in errors
    assert {"id": "1"} in result["stored_otherwise"]
    assert {"id": "11"} not in result["stored_otherwise"]


def test_an_empty_source_deletes_nothing(execute, verify):
    execute("DELETE FROM orders; DELETE FROM copy WHERE id > 3")
    before = rows(execute)
    code, result, errors = verify("--yes")
    assert (code, "because the source has no row" in errors) == (2, True), errors
    assert (result["done"], rows(execute)) == ({}, before)
    code, result, errors = verify()
    assert (code, "because the source has no row" in result["not_allowed"]) == (3, True), errors
    assert verify("--yes", "--max-deletes", "2")[0] == 2
    assert verify("--yes", "--max-deletes", "3")[0] == 0
    assert rows(execute) == []


def test_more_than_half_of_the_copys_rows_are_not_deleted_unasked(execute, verify):
    execute("DELETE FROM orders WHERE id > 400")
    before = rows(execute)
    code, _, errors = verify("--yes")
    assert (code, "602 of the copy's 1,000 rows would be deleted, more than half" in errors) == (
        2,
        True,
    ), errors
    assert rows(execute) == before
    assert verify("--yes", "--max-deletes", "602")[0] == 0
    assert rows(execute) == rows(execute, "orders")


def test_a_source_that_is_emptied_after_the_plan_deletes_nothing_unasked(execute, opened):
    opened.repair._most_deletes = 3
    execute("DELETE FROM orders")
    opened.repair.carry_out(opened.planned)
    assert opened.repair.done == {"delete": 3, "changed meanwhile": 2, "agrees by now": 2}


@pytest.mark.parametrize(
    "source",
    [
        ["copy"],
        ["--query", "SELECT id, upper(t) AS t FROM copy", "--key", "id"],
        ["--query", "SELECT id, upper(t) AS t FROM shown", "--key", "id"],
        ["parent", "--key", "id"],
        ["--query", "SELECT id, upper(t) AS t FROM parent WHERE false", "--key", "id"],
        ["child", "--key", "id"],
    ],
)
def test_a_source_that_reads_the_copy_is_refused(dsn, execute, target, run_command, source):
    execute("CREATE VIEW shown AS SELECT id, t, amount FROM copy")
    execute("CREATE TABLE parent (id int, t text)")
    execute("ALTER TABLE copy ALTER id SET NOT NULL; ALTER TABLE copy INHERIT parent")
    execute("CREATE TABLE child () INHERITS (copy)")
    before = rows(execute)
    words = ["verify", *source, "--source", dsn, "--target", target, "--settle", "0"]
    more = ["--columns", "t=own"] if "--query" not in source else []
    code, _, errors = run_command([*words, *more, "--repair", "--yes"])
    assert (code, "would overwrite the source's own rows" in errors) == (2, True), errors
    assert rows(execute) == before


def test_a_query_over_other_tables_of_the_database_may_be_the_source(dsn, target, run_command):
    words = ["verify", "--query", "SELECT * FROM orders", "--key", "id", "--source", dsn, "--json"]
    words += ["--target", target, "--settle", "0", "--repair", "--yes"]
    code, result, errors = run_command(words)
    assert (code, result["after"]["verified"]) == (0, True), errors


def test_columns_that_postgresql_computes_are_not_written(dsn, execute):
    execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, twice int, n int);"
        "CREATE TABLE copy (id int PRIMARY KEY, a int,"
        " twice int GENERATED ALWAYS AS (a * 2) STORED, n int GENERATED ALWAYS AS IDENTITY);"
        "INSERT INTO orders SELECT i, i, i * 2, i FROM generate_series(1, 4) AS i;"
        "INSERT INTO copy (id, a, n) OVERRIDING SYSTEM VALUE VALUES (1, 7, 1), (2, 2, 9), (3, 3, 3)"
    )
    target = f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"
    code, result, errors = repaired(dsn, target, "--yes")
    assert (code, result["planned"]) == (3, {"update": 1, "insert": 1, "left": 1}), errors
    assert result["done"] == {"update": 1, "insert": 1}
    assert execute("SELECT * FROM copy EXCEPT SELECT * FROM orders") == [(2, 2, 4, 9)]
    code, _, errors = repaired(dsn, target, "--yes")
    assert 'does not allow an update of "n"' in errors


def test_deletes_that_reach_other_tables_are_refused_by_name(execute, verify):
    execute(
        "CREATE TABLE items (id int PRIMARY KEY REFERENCES copy ON DELETE CASCADE);"
        "CREATE TABLE notes (item int REFERENCES items ON DELETE SET NULL);"
        "CREATE TABLE kept (item int REFERENCES copy);"
        "INSERT INTO items VALUES (2001); INSERT INTO notes VALUES (2001)"
    )
    code, result, errors = verify("--yes")
    reached = "items (ON DELETE CASCADE), notes (ON DELETE SET NULL)"
    assert (code, reached in errors, result["done"]) == (2, True, {}), errors
    assert execute("SELECT * FROM items, notes") == [(2001, 2001)]
    assert verify("--yes", "--max-deletes", "2")[0] == 0
    assert execute("SELECT item FROM notes") == [(None,)]
    execute("UPDATE copy SET t = 'wrong' WHERE id = 5")
    assert verify("--yes")[0] == 0, "a repair without deletes goes on"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_repair_that_breaks_off_says_what_is_written(dsn, execute, target, as_json):
    execute("UPDATE copy SET t = 'wrong' WHERE id BETWEEN 101 AND 350")
    cancels = "PERFORM pg_cancel_backend(pg_backend_pid());"
    before_update(execute, f"IF NEW.id = 250 THEN {cancels} END IF; RETURN NEW;")
    words = ["verify", "orders", "--source", dsn, "--target", target, "--settle", "0", "--repair"]
    ran = CliRunner().invoke(app, [*words, "--yes", *(["--json"] if as_json else [])])
    assert "canceling statement" in str(ran.exception)
    if as_json:
        assert json.loads(ran.stdout)["done"] == {"update": 98, "insert": 2}
    else:
        assert "repaired before the error: 98 update, 2 insert" in ran.stdout
    assert execute("SELECT count(*) FROM copy WHERE t = 'wrong'") == [(253 - 98,)]


def test_sigterm_ends_a_repair_after_its_batch_and_says_what_is_written(dsn, execute, target):
    execute("UPDATE copy SET t = 'wrong' WHERE id BETWEEN 101 AND 350")
    before_update(
        execute, "IF NEW.id = 150 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW;"
    )
    with in_a_batch(dsn, execute, target) as (process, connection):
        process.terminate()
        connection.rollback()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(output.splitlines()[0])["done"] == {"update": 98, "insert": 2}
    assert execute("SELECT count(*) FROM copy WHERE t = 'wrong'") == [(253 - 98,)]


@pytest.mark.parametrize(
    ("target", "more", "part"),
    [
        ("delta:x", ["--repair"], "not to a copy of the kind delta"),
        ("topic:x", ["--repair", "--yes"], "`changelog resnapshot TABLE`"),
        ("", ["--yes"], "--yes only works with --repair"),
        ("", ["--max-deletes", "0"], "--max-deletes only works with --repair"),
        ("", ["--repair", "--every", "1h"], "--repair does not go with --every"),
    ],
)
def test_what_cannot_be_repaired_is_refused(dsn, execute, run_command, target, more, part):
    execute(FILL)
    target = target or f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"
    words = ["verify", "orders", "--source", dsn, "--target", target, *more]
    code, _, errors = run_command(words)
    assert (code, part in errors) == (2, True), errors


def test_a_role_that_may_not_write_is_told_the_rights(dsn, execute, prefix, verify):
    execute(f"CREATE ROLE {prefix}_reader LOGIN; GRANT SELECT ON orders, copy TO {prefix}_reader")
    reader = make_dsn(dsn, user=f"{prefix}_reader")
    target = f"postgres:{reader} dbname={parse_dsn(dsn)['dbname']}/copy"
    code, _, errors = repaired(dsn, target, "--yes")
    assert (code, "permission denied" in errors) == (2, True), errors
    assert "GRANT INSERT, UPDATE, DELETE" in errors


def test_a_view_is_no_table_to_repair(dsn, execute, run_command, target):
    execute("CREATE VIEW shown AS SELECT id, t, amount FROM copy")
    words = ["verify", "orders", "--source", dsn, "--settle", "0", "--repair", "--yes"]
    code, _, errors = run_command([*words, "--target", target.replace("/copy", "/shown")])
    assert (code, "is not a table" in errors) == (2, True), errors
