"""Transactions that a new slot waits for are named, in whichever database they are."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.capture_command import CaptureCommand
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services]

server = server_of([16])
capture = capture_of(
    CaptureCommand,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
    "INSERT INTO notes VALUES (1, 'kept')",
)


SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"


@pytest.fixture
def prepared(capture):
    """A transaction that nobody ends by itself."""
    name = f"forgotten {capture.prefix}"
    capture.sql("BEGIN", "INSERT INTO notes VALUES (2, 'late')", f"PREPARE TRANSACTION '{name}'")
    yield name
    if capture.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        capture.sql(f"ROLLBACK PREPARED '{name}'")


def test_a_prepared_transaction_is_named_and_waited_for(capture, prepared):
    words = f"the prepared transaction '{prepared}' of database \"{capture.prefix}\""
    code, out, _ = capture.run("--check", "--json")
    assert code == 0
    notes = [each["found"] for each in json.loads(out)["checks"]]
    assert [each for each in notes if words in each], out
    capture.start()
    wait_until(lambda: words in capture.said(), 30, "the transaction's name")
    assert capture.stop()["frontiers"] == 0
    assert "stopped before the slot" in capture.said()
    assert capture.query(SLOTS) == []
    capture.start()
    wait_until(lambda: words in capture.said(), 30, "the transaction's name")
    capture.sql(f"COMMIT PREPARED '{prepared}'")
    capture.wait_for_frontier()
    capture.stop()
    assert set(capture.rows("notes")) == {(1,), (2,)}


@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lines_that_wait_for_their_slot_end_when_asked(capture, prepared, number):
    words = [sys.executable, "-m", "changelog", "capture", "--print"]
    with subprocess.Popen(
        [*words, "--project", str(capture.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as printing:
        told = printing.stderr
        assert told is not None
        wait_until(lambda: prepared in told.readline(), 30, "the transaction's name")
        printing.send_signal(number)
        out, said = printing.communicate(timeout=30)
    assert (printing.returncode, out) == (0, ""), said
    assert "stopped before the slot" in said
    assert "trying again" not in said
    assert capture.query(SLOTS) == []
    assert capture.query("SELECT pubname FROM pg_publication") == []
