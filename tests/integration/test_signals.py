"""Rows of the signal table: taken at their exact place, once, whatever happens in between."""

import signal as signals

import pytest

from tests.support.capture_command import CrashingCapture
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 200


class Capture(CrashingCapture):
    def ask(self, kind, payload="{}", slot=None):
        """Insert a row; returns its id."""
        named = f"'{slot}'" if slot else "NULL"
        columns = "(kind, payload, slot)"
        values = f"('{kind}', '{payload}', {named})"
        self.sql(f"INSERT INTO changelog.changelog_signal {columns} VALUES {values}")
        return self.query("SELECT max(id) FROM changelog.changelog_signal")[0][0]

    def answered(self, number):
        """Wait for the frontier that tells what became of a row; returns it."""

        def told():
            assert self.running is None or self.running.poll() is None, self.said()
            found = self.frontier()
            return found if found is not None and number in found.signals else None

        return wait_until(told, 60.0, f"an answer to signal {number}\n{self.said()}")

    def going_on(self):
        """Wait for a frontier that says that the stream is not paused."""
        return wait_until(
            lambda: (found := self.frontier()) is not None and found.paused is None and found,
            60.0,
            "the end of the pause",
        )


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.make_notes(ROWS)
    made.command("signal install", codes={0})
    yield made
    made.kill()


def test_a_pause_holds_the_log_at_its_own_transaction_until_it_is_resumed(capture):
    capture.start()
    capture.settle()
    capture.sql(
        "BEGIN; INSERT INTO notes VALUES (1001, 'with the pause');"
        " INSERT INTO changelog.changelog_signal (kind) VALUES ('pause');"
        " INSERT INTO notes VALUES (1002, 'with the pause'); COMMIT",
        "INSERT INTO notes VALUES (1003, 'behind the pause')",
    )
    paused = capture.answered(1)
    assert (paused.paused, paused.signals) == (1, {1: "done"})
    # The commit of the next transaction lies behind, and stays there over a restart, and a kill.
    assert {1001, 1002} <= {key for (key,) in capture.rows("notes")}
    assert (1003,) not in capture.rows("notes")
    capture.stop()
    capture.start()
    wait_until(lambda: "pauses the stream" in capture.said(), 60.0, "the pause")
    capture.stop(signals.SIGINT)
    again = capture.frontier()
    assert (again.lsn, again.paused) == (paused.lsn, 1)
    (status,) = capture.command("status", "--json", "--allow-inactive", codes={1})
    assert status["problems"][0].startswith("signal 1 pauses the stream")
    assert status["frontier"]["signals"] == {"1": "done"}
    code, _, said = capture.run("--until", "now")
    assert (code, "signal 1 pauses the stream" in said) == (1, True), said
    capture.start()
    capture.ask("resume")
    capture.answered(2)
    capture.settle()
    assert capture.frontier().paused is None
    capture.check()


@pytest.mark.matrix
def test_a_kill_before_the_answer_takes_the_signals_once_more(capture):
    capture.finish()
    before = capture.frontier()
    capture.sql("INSERT INTO notes VALUES (2001, 'before')")
    capture.ask("pause")
    capture.sql("INSERT INTO notes VALUES (2002, 'behind')")
    capture.crash("transaction produced:2")
    assert capture.frontier().signals == {}
    code, said = capture.attempt(until="now")
    assert code == 1, said
    paused = capture.frontier()
    assert (paused.paused, paused.lsn > before.lsn) == (1, True)
    assert (2002,) not in capture.rows("notes")
    # Killed behind the frontier that says it, capture goes on in the pause.
    capture.sql("DELETE FROM changelog.changelog_signal")
    capture.finish()
    assert capture.frontier().paused is None
    capture.check()


def test_twin_a_pause_that_holds_behind_the_batch_is_seen(capture):
    """The defect: the rest of what was read is written before the stream stands still."""
    capture.finish()
    capture.ask("pause")
    capture.sql("INSERT INTO notes VALUES (3002, 'behind')")
    capture.attempt(until="now", defect="pause_late")
    assert (3002,) in capture.rows("notes")


@pytest.mark.matrix
def test_the_other_kinds_are_answered_and_unknown_ones_are_told(capture):
    capture.start()
    capture.settle()
    begun = capture.frontier().since.get(f"{capture.prefix}.notes")
    asked = capture.ask("checkpoint")
    at = capture.answered(asked)
    assert at.signals == {asked: "done"}
    unknown = capture.ask("vacuum")
    assert capture.answered(unknown).signals[unknown].startswith("not done: there is no such kind")
    empty = capture.ask("resnapshot")
    assert "names no tables" in capture.answered(empty).signals[empty]
    odd = capture.ask("resnapshot", '{"tables": ["no.such"]}')
    assert capture.answered(odd).signals[odd] == "not done: not captured: no.such"
    other = capture.ask("checkpoint", slot="another")
    copy = capture.ask("resnapshot", '{"tables": ["notes"]}', slot=capture.prefix)
    capture.answered(copy)
    assert other not in capture.frontier().signals

    def copied():
        since = capture.frontier().since.get(f"{capture.prefix}.notes")
        return since is not None and (begun is None or since > begun)

    wait_until(copied, 60.0, f"a fresh copy\n{capture.said()}")
    capture.sql("SELECT pg_logical_emit_message(true, 'changelog.signal', 'no JSON')")
    capture.sql("INSERT INTO notes VALUES (4001, 'last')")
    capture.settle()
    assert "is not one of the signal table; ignored" in capture.said()
    capture.stop()
    capture.check()


@pytest.mark.matrix
def test_a_signal_that_is_rolled_back_or_whose_table_is_gone_holds_nothing(capture):
    capture.finish()
    capture.sql(
        "BEGIN; INSERT INTO changelog.changelog_signal (kind) VALUES ('pause'); ROLLBACK",
        "INSERT INTO notes VALUES (5001, 'on')",
    )
    capture.finish()
    assert (5001,) in capture.rows("notes")
    asked = capture.ask("pause")
    capture.finish()  # which ends well, since nothing lies behind
    assert capture.frontier().paused == asked
    capture.command("ddl install")
    capture.command("signal remove")
    assert capture.query("SELECT 1 FROM pg_namespace WHERE nspname = 'changelog'") == [(1,)]
    capture.sql("INSERT INTO notes VALUES (5002, 'on')")
    capture.finish()
    assert (5002,) in capture.rows("notes")
    capture.command("ddl remove")
    assert capture.query("SELECT 1 FROM pg_namespace WHERE nspname = 'changelog'") == []
