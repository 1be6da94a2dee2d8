"""A second capture of the same slot, beside one that runs or that was thought dead.

The first one moves both the slot and the last frontier all the time. Whoever looks at them must
see one moment: else a healthy slot seems to stand past the log, and the advice would be to drop it.
"""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psutil
import psycopg2
import pytest

from changelog.runtime.process.beside import working_beside
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 200
BUSY = "is read by the server process"
LOST, MOVED = "are lost", "has moved the slot"
TOGETHER = 3


capture = capture_with(CrashingCapture, notes=ROWS)


@contextmanager
def writes(capture):
    """Have rows changed all the while, a transaction after the other."""

    def write(done):
        with closing(psycopg2.connect(capture.dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while not done.is_set():
                cursor.execute("UPDATE notes SET text = text || '.' WHERE id % 20 = 0")

    with working_beside("writer", write):
        yield


def at_once(count, call):
    """Call from several threads; returns what comes back."""
    with ThreadPoolExecutor(count) as pool:
        return [each.result() for each in [pool.submit(call) for _ in range(count)]]


@pytest.mark.matrix
def test_a_second_capture_is_told_that_one_runs_and_never_to_drop_the_slot(capture):
    capture.begin()
    capture.wait_for_frontier()
    with writes(capture):
        ended = at_once(TOGETHER, capture.run)
        checked = capture.run("--check", "--json")
        (status,) = capture.command("status", "--json")
    for code, _, said in ended:
        assert (code, BUSY in said) == (1, True), said
        assert LOST not in said
        assert "drop" not in said
    (problem,) = json.loads(checked[1])["problems"]
    assert BUSY in problem
    assert status["problems"] == []
    capture.settle()
    capture.check()
    assert capture.running.poll() is None


@pytest.mark.matrix
def test_an_overtaken_capture_that_wakes_up_is_told_that_another_one_runs(capture):
    capture.begin()
    old, log = capture.running, capture.folder / "capture.log"
    capture.wait_for_frontier()
    log.rename(capture.folder / "old.log")
    with writes(capture):
        old.send_signal(signal.SIGSTOP)
        capture.sql(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{capture.prefix}' AND active"
        )
        capture.begin()
        capture.settle()
        old.send_signal(signal.SIGCONT)
        assert old.wait(90) == 1
    said = (capture.folder / "old.log").read_text()
    assert "another capture runs" in said
    assert LOST not in said
    assert "drop" not in said
    capture.settle()
    assert capture.differences() == []


@pytest.mark.matrix
def test_twin_who_looks_at_the_log_first_is_told_to_drop_a_healthy_slot(capture):
    capture.begin()
    capture.wait_for_frontier()
    with writes(capture):
        ended = at_once(TOGETHER, lambda: capture.attempt(until="", defect="look_at_the_log_first"))
    assert any(LOST in said and "slot drop" in said for _, said in ended), ended


def stood_still(capture, **named):
    """Stop a capture between its look and the stream, let another one go on, wake it up."""
    capture.finish()
    (capture.folder / "halt").write_text("log read")
    capture.begin(halts=True, **named)
    process = psutil.Process(capture.running.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 60, "it stands still")
    capture.sql("UPDATE notes SET text = 'while it stood still'")
    capture.finish()
    capture.sql("UPDATE notes SET text = 'afterwards' WHERE id % 2 = 0")
    process.send_signal(signal.SIGCONT)
    capture.settle()
    capture.check()


@pytest.mark.matrix
def test_a_capture_that_stood_still_after_its_look_looks_again(capture):
    stood_still(capture)
    assert MOVED in capture.said()
    assert "this capture did not write" not in capture.said()
    assert capture.log().regressions == []


@pytest.mark.matrix
def test_twin_who_looks_once_takes_the_other_one_s_records_for_a_stranger_s(capture):
    stood_still(capture, defect="look_once")
    wait_until(lambda: "this capture did not write" in capture.said(), 60, "it counts them")


@pytest.mark.matrix
def test_of_two_captures_that_start_at_once_one_begins_and_the_other_is_refused(capture):
    capture.begin()
    first, log = capture.running, capture.folder / "capture.log"
    log.rename(capture.folder / "first.log")
    capture.begin()
    both = {first: capture.folder / "first.log", capture.running: log}
    try:
        (ended,) = wait_until(
            lambda: [each for each in both if each.poll() is not None], 90, "one is refused"
        )
        said = both[ended].read_text()
        assert BUSY in said or "is active for PID" in said, said
        assert "drop" not in said
        (capture.running,) = {*both} - {ended}
        capture.settle()
        capture.check()
    finally:
        for each in both:
            each.kill()
            each.wait()
