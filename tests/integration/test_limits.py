"""`--limit-rows` and `--limit-bytes`: capture holds back, and goes on being a capture."""

import time

import pytest

from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS, RATE = 1500, 250


capture = capture_with(CrashingCapture)


def seconds(capture, *words):
    begun = time.monotonic()
    report = capture.catch_up(*words)
    return time.monotonic() - begun, report


@pytest.mark.parametrize("option", first(1, ["--limit-rows", "--limit-bytes"]))
def test_snapshot_and_stream_are_held_to_a_rate(capture, option):
    # Of a row: a key of 6 or 7 bytes, a value of some 20.
    rate = RATE if option == "--limit-rows" else RATE * 20
    capture.make_notes(ROWS)
    least_s = ROWS / RATE * 0.8
    spent_s, _ = seconds(capture, option, str(rate))
    assert spent_s > least_s
    capture.sql("UPDATE notes SET text = text || '!'")
    spent_s, _ = seconds(capture, option, str(rate))
    assert spent_s > least_s
    rows = capture.query("SELECT id, text FROM notes")
    assert {key: row["text"] for key, row in capture.rows("notes").items()} == {
        (key,): text for key, text in rows
    }


@pytest.mark.matrix
def test_twin_a_capture_that_does_not_wait_is_not_held(capture):
    """The same with the seeded defect, at a rate by which the stream would take five minutes."""
    rate = 5
    capture.make_notes(ROWS)
    capture.catch_up()
    settings = capture.folder / "changelog.toml"
    settings.write_text(settings.read_text() + f"limit_rows = {rate}\n")
    capture.sql("UPDATE notes SET text = 'changed'")
    begun = time.monotonic()
    capture.finish(defect="forget_to_wait")
    assert time.monotonic() - begun < ROWS / rate * 0.8
    assert {row["text"] for row in capture.rows("notes").values()} == {"changed"}


@pytest.mark.matrix
def test_frontiers_go_on_and_postgresql_hears_of_a_capture_that_is_held_back(capture):
    capture.make_notes(1)
    capture.sql("ALTER SYSTEM SET wal_sender_timeout = '2s'", "SELECT pg_reload_conf()")
    try:
        capture.start("--limit-rows", "50")
        capture.wait_for_frontier()
        for first in range(1000, 1600, 20):
            capture.sql(
                f"INSERT INTO notes SELECT n, 'x' FROM generate_series({first}, {first + 19}) n"
            )
        end = capture.end_of_wal()
        seen = set()

        def passed():
            seen.add(capture.frontier().lsn)
            return capture.frontier().lsn >= end

        wait_until(passed, 60, "the frontier has passed all")
        # 600 rows take 12 s, six times what the server would wait for silence.
        assert len(seen) > 3
        assert "trying again" not in capture.said()
        capture.stop()
    finally:
        capture.sql("ALTER SYSTEM RESET wal_sender_timeout", "SELECT pg_reload_conf()")
