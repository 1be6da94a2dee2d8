"""Copies of tables while the stream goes on: exact under writers, crashes, rewrites and DDL.

Each rule that makes them exact has a twin in which it is left out, and the defect is seen.
"""

import threading
from contextlib import closing

import psycopg2
import pytest

from changelog.contract.base.headers import Op, decode_headers
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 3000
POINTS = ("segment written", "table whole", "fence taken", "chunk copied", "progress written")


capture = capture_with(
    CrashingCapture,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text) WITH (fillfactor = 50)",
    f"INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, {ROWS}) n",
    "ANALYZE notes",
)


@pytest.fixture
def writer(capture):
    """Updates, deletes and moves rows all over the table until told to stop; returns that."""
    done = threading.Event()

    def write():
        with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
            number = 0
            while not done.is_set():
                number += 1
                low = number * 37 % ROWS
                cursor.execute(
                    f"UPDATE notes SET text = text || '+{number}' WHERE id % 97 = {number % 97};"
                    f"DELETE FROM notes WHERE id = {low};"
                    f"UPDATE notes SET id = {100_000 + number} WHERE id = {low + 1};"
                    f"INSERT INTO notes VALUES ({low}, 'again {number}') ON CONFLICT DO NOTHING;"
                    f"INSERT INTO notes VALUES ({200_000 + number}, repeat('new', 500))"
                )
                connection.commit()
                done.wait(0.05)

    thread = threading.Thread(target=write)
    thread.start()

    def stop():
        done.set()
        thread.join()

    yield stop
    stop()


def since_of(capture, table="notes"):
    frontier = capture.frontier()
    return frontier.since.get(f"{capture.prefix}.{table}") if frontier else None


@pytest.mark.parametrize("point", first(1, POINTS))
def test_a_kill_at_any_point_under_live_writes_loses_nothing(capture, writer, point):
    capture.crash(f"{point}:1", small=True)
    capture.crash(f"{point}:2" if point != "table whole" else point, small=True)
    writer()
    capture.finish(small=True)
    capture.check()


@pytest.mark.matrix
def test_many_kills_in_a_row_and_what_is_done_stays_done(capture, writer):
    for times in (3, 2, 3):
        capture.crash(f"progress written:{times}", small=True)
    writer()
    said = capture.finish(small=True)
    assert "going on with the snapshot of epoch 1" in said
    capture.check()
    log = capture.log()
    read = [headers.position for *_, headers in log.records if headers.op.value == b"r"]
    assert len({position.commit_lsn for position in read}) > 5  # segments
    assert len(read) < 1.2 * ROWS
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True


BETWEEN = (
    "UPDATE notes SET text = 'between' WHERE id IN (5, 2500);"
    "UPDATE notes SET id = id + 100000 WHERE id = 2600;"
    "DELETE FROM notes WHERE id = 2700"
)


@pytest.mark.parametrize("table", first(1, ["first", "again"]))
def test_a_row_that_changes_between_snapshot_and_mark_is_right(capture, table):
    if table == "again":
        capture.finish()
        capture.command("resnapshot", "notes", "--json")
    capture.finish(at=f"snapshot taken:{BETWEEN}")
    capture.check()


def test_twin_a_touched_key_that_is_copied_goes_back_in_time(capture):
    capture.finish(at=f"snapshot taken:{BETWEEN}", defect="forget_touched")
    assert {key for (key,) in capture.differences()} == {5, 2500, 2600, 2700}


MOVED = ("DELETE FROM notes WHERE id < 1500",)


@pytest.mark.matrix
def test_a_table_that_is_rewritten_in_between_starts_over(capture):
    capture.crash("progress written:4", small=True)
    capture.sql(*MOVED)
    capture.sql("VACUUM FULL notes")
    said = capture.finish(small=True)
    assert "was changed: it is copied anew" in said
    capture.check()


@pytest.mark.matrix
def test_twin_a_rewrite_that_is_not_noticed_loses_rows(capture):
    capture.crash("progress written:4", small=True)
    capture.sql(*MOVED)
    capture.sql("VACUUM FULL notes")
    capture.finish(small=True, defect="forget_filenode")
    assert capture.differences()


@pytest.mark.matrix
@pytest.mark.parametrize(
    "change",
    first(
        2,
        [
            "ALTER TABLE notes ADD more integer",
            "CLUSTER notes USING notes_pkey",
            "TRUNCATE notes",
            "ALTER TABLE notes ALTER id TYPE bigint",
        ],
    ),
)
def test_ddl_in_between_is_noticed(capture, change):
    capture.crash("progress written:4", small=True)
    capture.sql(change, "INSERT INTO notes (id, text) VALUES (777777, 'after')")
    code, said = capture.attempt(small=True)
    if "bigint" in change:  # the key's schema is pinned for the life of a topic
        assert code != 0
        assert "key" in said
        return
    assert code == 0, said
    capture.check()


@pytest.mark.matrix
def test_a_table_that_is_dropped_in_between_does_not_stop_the_others(capture):
    capture.sql("CREATE TABLE other (id integer PRIMARY KEY, text text)")
    capture.sql("INSERT INTO other VALUES (1, 'x')")
    code, said = capture.attempt(small=True, at="progress written:DROP TABLE notes")
    assert code == 0, said
    assert 'table "public.notes" was dropped, or is a partition now: frontiers leave' in said
    assert [table.table for table in capture.frontier().tables.values()] == ["other"]
    assert set(capture.log("other").rows) == {(1,)}


ADDED_MEANWHILE = (
    "INSERT INTO notes VALUES (555555, 'of before'); UPDATE notes SET text = 'new' WHERE id = 7;"
    "COMMIT; ALTER TABLE notes ADD more integer DEFAULT 7;"
    "COMMIT; INSERT INTO notes VALUES (777777, 'of after', 8)"
)


@pytest.mark.parametrize(
    "point", first(1, ["segment written", "progress written:2", "table whole"])
)
def test_a_column_that_the_stream_has_yet_to_bring_is_right_after_a_kill(capture, point):
    capture.crash(point, small=True, at=f"copy due:{ADDED_MEANWHILE}")
    capture.finish(small=True)
    capture.check()
    assert capture.log().rows[7,]["more"] == 7


@pytest.mark.matrix
def test_twin_a_copy_that_is_ahead_of_the_stream_has_columns_that_are_back(capture):
    at = f"copy due:{ADDED_MEANWHILE}"
    with pytest.raises(AssertionError, match="were dropped and are back"):
        capture.finish(small=True, at=at, defect="believe_the_catalogue")


@pytest.mark.matrix
def test_twin_progress_that_is_written_before_the_rows_loses_them(capture):
    capture.crash("progress written:1", defect="progress_before_copy")
    capture.finish()
    capture.sees_defect()


@pytest.mark.matrix
def test_a_resnapshot_goes_on_while_the_stream_does(capture, writer):
    capture.begin(small=True)
    first = capture.wait_for_frontier()
    before = since_of(capture)
    report = capture.command("resnapshot", "public.n*", "--wait", "--json")
    assert report[-1]["done"] is True
    assert since_of(capture) > before
    assert capture.frontier().lsn > first.lsn
    writer()
    capture.settle()
    capture.check()
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True


@pytest.mark.matrix
def test_a_resnapshot_that_is_killed_goes_on_and_its_rows_are_written_once(capture):
    capture.finish(small=True)
    before = since_of(capture)
    capture.command("resnapshot", "notes", "--json")
    # The 1st is the request's own.
    capture.crash("progress written:6", small=True)
    assert since_of(capture) == before  # readers keep what they have
    capture.check()
    capture.finish(small=True)
    assert since_of(capture) > before
    capture.check()
    read = copied_rows(capture)
    assert 2 * ROWS <= read < 2.2 * ROWS
    capture.finish()
    assert copied_rows(capture) == read


def copied_rows(capture, table="notes"):
    """Count the copied rows on a topic since it was made, those before a fresh copy too."""
    topic = f"{capture.prefix}.{table}"
    messages = capture.reader.messages(topic, capture.frontier().ends[topic])
    return sum(decode_headers(each.headers()).op is Op.READ for each in messages)


def test_a_resnapshot_of_what_is_not_captured_is_refused_by_name(capture):
    capture.finish()
    (said,) = capture.command("resnapshot", "nowhere", "--json", codes={2})
    assert '"nowhere" is no captured table' in said["error"]


# --- commits that are streamed and not visible -----------------------------------------------


@pytest.fixture
def standby_away(capture):
    """Let commits wait for a standby that does not exist; returns a function that ends that."""

    def end():
        capture.sql(
            "ALTER SYSTEM RESET synchronous_standby_names",
            "ALTER SYSTEM RESET synchronous_commit",
            "SELECT pg_reload_conf()",
        )

    capture.sql(
        # The registry lives on the same server, and is not to wait.
        "ALTER SYSTEM SET synchronous_commit = 'local'",
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "SELECT pg_reload_conf()",
    )
    capture.sync = psycopg2.extensions.make_dsn(
        capture.dsn, options="-c synchronous_commit=remote_write"
    )
    wait_until(
        lambda: capture.query("SHOW synchronous_standby_names") == [("nobody",)], 30, "the setting"
    )
    yield end
    end()


def stuck(capture, statement):
    """Commit in a thread; hangs after the WAL has it."""

    def commit():
        with closing(psycopg2.connect(capture.sync)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()

    thread = threading.Thread(target=commit)
    thread.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    wait_until(lambda: capture.query(waiting) == [(1,)], 30, "the commit waits")
    return thread


STUCK = "UPDATE notes SET text = 'stuck' WHERE id = 7"


def resnapshot_while_stuck(capture, **named):
    capture.begin(**named)
    capture.wait_for_frontier()
    before = since_of(capture)
    thread = stuck(capture, STUCK)
    wait_until(
        lambda: capture.log().rows[(7,)]["text"] == "stuck", 60, "the invisible row is streamed"
    )
    assert capture.query("SELECT text FROM notes WHERE id = 7") == [("row 7",)]
    capture.command("resnapshot", "notes", "--json")
    return thread, before


def asked_for(capture):
    return "copying the table" in capture.said()


@pytest.mark.matrix
def test_a_commit_that_is_streamed_and_not_visible_is_waited_for(capture, standby_away):
    thread, before = resnapshot_while_stuck(capture)
    wait_until(lambda: asked_for(capture), 30, "the request arrives")
    lsn = capture.settle().lsn  # the stream goes on
    assert since_of(capture) == before
    standby_away()
    thread.join()
    wait_until(lambda: since_of(capture) > before, 60, "the table is copied")
    assert capture.frontier().lsn >= lsn
    capture.check()


@pytest.mark.matrix
def test_twin_an_invisible_commit_that_is_not_waited_for_leaves_an_old_row(capture, standby_away):
    thread, before = resnapshot_while_stuck(capture, defect="forget_hidden")
    wait_until(lambda: since_of(capture) > before, 60, "the table is copied")
    standby_away()
    thread.join()
    assert {key for (key,) in capture.differences()} == {7}


def restarted_while_stuck(capture, **named):
    """The commit is streamed by a life before; the next one finds it still invisible."""
    thread, before = resnapshot_while_stuck(capture)
    wait_until(lambda: asked_for(capture), 30, "the request arrives")
    capture.settle()
    capture.kill()
    capture.begin(**named)
    wait_until(lambda: "streaming from" in capture.said(), 30, "it goes on")
    return thread, before


@pytest.mark.matrix
def test_a_commit_of_before_the_start_that_is_not_visible_is_waited_for(capture, standby_away):
    thread, before = restarted_while_stuck(capture)
    capture.settle()
    assert since_of(capture) == before
    standby_away()
    thread.join()
    wait_until(lambda: since_of(capture) > before, 60, "the table is copied")
    capture.check()


@pytest.mark.matrix
def test_twin_an_invisible_commit_of_before_leaves_an_old_row(capture, standby_away):
    thread, before = restarted_while_stuck(capture, defect="forget_writers")
    wait_until(lambda: since_of(capture) > before, 60, "the table is copied")
    standby_away()
    thread.join()
    assert {key for (key,) in capture.differences()} == {7}


def added_under_an_open_writer(capture, **named):
    """A transaction writes to a table before it is published, and once more afterwards."""
    capture.finish()
    capture.sql("CREATE TABLE more (id integer PRIMARY KEY, text text)")
    with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO more VALUES (1, 'before')")
        capture.begin(**named)
        wait_until(lambda: "streaming from" in capture.said(), 30, "it streams")
        capture.settle()
        if named:
            wait_until(lambda: since_of(capture, "more"), 30, "the table is copied too soon")
        else:
            assert since_of(capture, "more") is None
        cursor.execute("INSERT INTO more VALUES (2, 'after')")
        connection.commit()
    wait_until(lambda: since_of(capture, "more"), 30, "the table is copied")
    capture.settle()


@pytest.mark.matrix
def test_an_added_table_waits_for_who_wrote_to_it_before(capture):
    added_under_an_open_writer(capture)
    capture.check("more")


@pytest.mark.matrix
def test_twin_an_added_table_that_does_not_wait_lacks_a_row(capture):
    added_under_an_open_writer(capture, defect="forget_writers")
    assert capture.differences("more") == [(1,)]


# --- lost slots ------------------------------------------------------------------------------


def lose_slot(capture):
    capture.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            capture.sql(
                "SELECT pg_logical_emit_message(true, 'test', '')",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
        lost = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{capture.prefix}'"
        wait_until(lambda: capture.query(lost) == [("lost",)], 30, "the slot is lost")
    finally:
        capture.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


@pytest.mark.matrix
@pytest.mark.parametrize("kill", first(1, ["progress written:3", "slot intended", ""]))
def test_a_lost_slot_leaves_no_deleted_row_behind(capture, kill):
    capture.finish()
    capture.sql("DELETE FROM notes WHERE id <= 10", "UPDATE notes SET text = 'x' WHERE id = 11")
    lose_slot(capture)
    if kill:
        capture.crash(kill, small=True)
    capture.finish(small=True)
    assert capture.frontier().epoch == (3 if kill == "slot intended" else 2)
    capture.check()
    last = {}
    for _, _, key, value, _ in capture.log().records:
        last[key["id"]] = value
    assert {key for key in range(1, 11) if last[key] is not None} == set()


@pytest.mark.matrix
def test_a_slot_that_is_lost_in_the_first_snapshot_starts_over(capture):
    capture.crash("progress written:4", small=True)
    capture.sql("DELETE FROM notes WHERE id <= 10")
    lose_slot(capture)
    capture.finish(small=True)
    assert capture.frontier().epoch == 2
    capture.check()
