"""Commits that meet: one begins where the one before it ended, and two in two steps.

PostgreSQL sends again from an LSN on the transactions whose commit record begins there or later.
A reader that takes the end of the last transaction for something that it has seen loses the next.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from changelog.source.connect.connect import connect
from changelog.source.stream.pgoutput import Commit, decode
from tests.support.capture_command import CrashingCapture
from tests.support.own_server import capture_of, server_of

pytestmark = [pytest.mark.services]

server = server_of([18])
capture = capture_of(
    CrashingCapture,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
    "INSERT INTO notes VALUES (0, 'first')",
)
TRIES = 20


def commits(capture, slot):
    """Take what a slot has; returns where each commit record begins, and where it ends."""
    took = (
        "SELECT data FROM pg_logical_slot_get_binary_changes("
        f"'{slot}', NULL, NULL, 'proto_version', '1', 'publication_names', '{capture.prefix}')"
    )
    messages = [decode(bytes(data)) for (data,) in capture.query(took)]
    return [(one.commit_lsn, one.end_lsn) for one in messages if isinstance(one, Commit)]


def commit_two_that_meet(capture):
    """Commit two transactions, nothing between them in the WAL; returns where they meet."""
    slot = f"{capture.prefix}_witness"
    capture.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    try:
        for number in range(1, 2 * TRIES, 2):
            with closing(connect(capture.dsn)) as one, closing(connect(capture.dsn)) as other:
                one.autocommit = other.autocommit = False
                for connection, key in ((other, number + 1), (one, number)):
                    connection.cursor().execute(f"INSERT INTO notes VALUES ({key}, 'n')")
                one.commit()
                other.commit()
            (_, end), (begin, _) = commits(capture, slot)
            if begin == end:
                return end
    finally:
        capture.sql(f"SELECT pg_drop_replication_slot('{slot}')")
    raise AssertionError(f"of {TRIES} pairs of commits none met")


def crash_between(capture):
    """Have a capture killed whose last frontier lies between two commits that meet."""
    capture.catch_up()
    meeting = commit_two_that_meet(capture)
    for number in range(1, 2 * TRIES):
        capture.crash(f"frontier written:{number}", defect="one_by_one")
        at = capture.frontier().lsn
        if at == meeting:
            return
        assert at < meeting, "no frontier was written between the two"


def test_a_commit_that_begins_where_the_last_one_ended_is_captured(capture) -> None:
    crash_between(capture)
    capture.finish()
    assert capture.differences() == []


def test_twin_one_that_resumes_past_its_last_frontier_loses_it(capture) -> None:
    crash_between(capture)
    capture.finish(defect="begin_after_the_frontier")
    assert len(capture.differences()) == 1


def test_a_transaction_in_two_steps_counts_when_it_is_committed(capture) -> None:
    capture.catch_up()
    capture.sql("BEGIN", "INSERT INTO notes VALUES (1, 'prepared')", "PREPARE TRANSACTION 'a'")
    capture.sql("BEGIN", "INSERT INTO notes VALUES (2, 'given up')", "PREPARE TRANSACTION 'b'")
    capture.sql("INSERT INTO notes VALUES (3, 'meanwhile')")
    capture.catch_up()
    assert set(capture.log().rows) == {(0,), (3,)}
    capture.sql("COMMIT PREPARED 'a'")
    capture.sql("ROLLBACK PREPARED 'b'")
    capture.catch_up()
    assert set(capture.log().rows) == {(0,), (1,), (3,)}
    assert capture.differences() == []


def test_a_slot_that_sends_what_is_only_prepared_is_refused_by_name(capture) -> None:
    slot = capture.prefix
    make = f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput', false, true)"
    capture.sql(make)
    ((at,),) = capture.query(
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    code, _, told = capture.run("--until", "now", "--start-lsn", at, "--skip-snapshot")
    assert code == 1, told
    assert f'slot "{slot}" sends transactions when they are prepared (two_phase)' in told
