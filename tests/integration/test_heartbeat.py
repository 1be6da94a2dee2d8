"""The row that capture updates on request, so that a quiet database has WAL of its own."""

import pytest

from tests.support.capture_command import CaptureCommand
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]


def test_a_quiet_database_gets_beats_and_what_stands_against_them_ends_nothing(
    dsn, kafka, registry, prefix, tmp_path
):
    capture = CaptureCommand(
        dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
    )
    capture.make_notes(10)
    capture.start("--heartbeat-table", "0.2")
    try:
        first = capture.wait_for_frontier()

        def beats():
            there = "SELECT to_regclass('changelog.heartbeat') IS NOT NULL"
            if capture.query(there) != [(True,)]:
                return 0
            rows = capture.query(f"SELECT beats FROM changelog.heartbeat WHERE slot = '{prefix}'")
            return rows[0][0] if rows else 0

        wait_until(lambda: beats() > 5, 60, "beats")
        capture.wait_for_frontier(first.lsn)
        capture.sql("ALTER TABLE changelog.heartbeat RENAME beats TO other")
        wait_until(lambda: "cannot write the heartbeat" in capture.said(), 60, "a warning")
        capture.sql("ALTER TABLE changelog.heartbeat RENAME other TO beats")
        before = beats()
        wait_until(lambda: beats() > before, 60, "beats again")
        assert capture.said().count("cannot write the heartbeat") == 1
        assert capture.stop()["rows_captured"] == 10  # the row is no captured table's
    finally:
        capture.kill()
