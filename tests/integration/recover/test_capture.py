"""Recipes of docs/recover.md for a capture that ended or was overtaken, and for odd tables."""

import signal

import psutil
import pytest

from tests.support.recipes import first_commands, recipe
from tests.support.recovering import CUSTOMERS, DEADLINE_S, ORDERS
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow

MANY = """
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5, repeat('x', 50), 'web'
FROM generate_series(1000, 15000) n
"""
"""So many rows that a snapshot in small chunks has more than a few."""


@pytest.mark.matrix
def test_the_commands_that_come_first_say_what_is_wrong(line):
    line.launches()
    line.catches_up()
    doctor, status, history = first_commands()
    for command in (doctor, status):
        line.types(command)
    assert "published" in line.types(history)
    line.kill()
    line.nobody_reads()
    assert "no process reads the slot" in line.types(doctor, code=1)
    assert "no process reads the slot" in line.types(status, code=1)
    line.types(history)


@pytest.mark.matrix
def test_a_capture_that_was_killed_in_a_snapshot_goes_on_with_it(recovering, dsn):
    wanted = recipe("Capture is killed in a snapshot")
    line = recovering(dsn)
    line.sql(CUSTOMERS, ORDERS, MANY)
    line.crash("progress written:3", small=True)
    line.change()
    # Without the recipe: no snapshot is whole, and nothing can be built.
    line.types("rebuild-view --all", code=1)
    for command in wanted.commands:
        line.types(command)
    assert wanted.is_seen_in(line.heard)
    assert line.frontier().epoch == 1
    line.is_well()


def test_a_capture_that_was_killed_in_the_stream_loses_and_doubles_nothing(line):
    wanted = recipe("Capture is killed in the stream")
    line.change()
    line.crash("record produced:100", defect="deliver_each")
    line.change()
    line.nobody_reads()
    line.types("changelog status", code=1)
    assert line.served() != line.wanted()
    line.carries_out(wanted)
    line.is_well()
    assert line.log("orders").regressions == []


@pytest.mark.matrix
def test_rebuilds_wait_for_a_capture_that_was_down_for_longer_than_the_lag(recovering, dsn):
    wanted = recipe("Capture is down longer than the lag")
    line = recovering(dsn)
    line.set(min_compaction_lag_ms=30_000)
    line.begins()
    line.change()
    line.crash("record produced:100", defect="deliver_each")
    line.change()

    def is_refused():
        return "exact only after" in line.types("changelog topics", code=None)

    wait_until(is_refused, DEADLINE_S, "the lag is over")
    line.heard = ""
    line.types("changelog topics", code=4)
    line.types("rebuild-view --all", code=4)
    assert line.served() != line.wanted()
    line.carries_out(wanted)
    line.is_well()


@pytest.mark.matrix
def test_what_an_overtaken_capture_writes_is_told_and_its_table_copied_anew(line):
    wanted = recipe("A capture that was overtaken wakes up")
    # What it was about to send is still in its queue when it stands still.
    line.settings.write_text(f'{line.settings.read_text()}producer."linger.ms" = "500"\n')
    (line.folder / "halt").write_text("transaction produced")
    line.begin(halts=True)
    old = line.running
    process = psutil.Process(old.pid)
    try:
        line.change()
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, DEADLINE_S, "it stands still")
        line.sql(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{line.prefix}' AND active"
        )
        line.nobody_reads()
        (line.folder / "capture.log").rename(line.folder / "old.log")
        line.launches()
        line.change()
        line.catches_up()
        begun = line.frontier().since.get(f"{line.prefix}.orders")
        process.send_signal(signal.SIGCONT)
        assert old.wait(DEADLINE_S) == 1
    finally:
        old.kill()
        old.wait()

    def is_told():
        line.change()
        return "this capture did not write" in line.said()

    wait_until(is_told, DEADLINE_S, "what it wrote is told")
    line.catches_up()
    line.hears()
    line.carries_out(wanted)
    assert line.frontier().since[f"{line.prefix}.orders"] != begun
    line.is_well()
    line.ends()


@pytest.mark.matrix
def test_a_table_whose_older_records_read_wrong_is_copied_anew(line):
    wanted = recipe("A table is altered so that older records read wrong")
    line.change()
    line.sql("ALTER TABLE orders RENAME channel TO way")
    line.change()
    line.types("changelog capture", code=1)
    line.types("rebuild-view --all")
    assert line.served() != line.wanted()
    # Until the copy is whole, no rebuild can have the table.
    before = line.settings.read_text()
    line.set(on_incompatible="resnapshot")
    line.crash("frontier written", small=True)
    line.settings.write_text(before)
    line.types("rebuild-view --all", code=4)
    line.carries_out(wanted)
    line.is_well()


LOSE_THE_KEY = (
    "ALTER TABLE orders DROP CONSTRAINT orders_pkey",
    "INSERT INTO orders VALUES (300000, 1, 5, 'without a key')",
)
MEND = ("ALTER TABLE orders ADD PRIMARY KEY (id)", "DELETE FROM orders WHERE id IN (50, 300000)")


@pytest.mark.matrix
def test_a_table_that_cannot_be_captured_any_more_is_mended_and_copied(line):
    wanted = recipe("A table cannot be captured any more")
    anew, back = wanted.commands
    line.change()
    line.sql(*LOSE_THE_KEY)
    line.types("changelog capture")
    line.types("rebuild-view --all", code=4)
    assert line.served() != line.wanted()
    line.sql(*MEND)
    assert anew == "changelog capture --on-incompatible resnapshot"
    line.launches("--on-incompatible", "resnapshot")
    wait_until(lambda: not line.frontier().excluded, DEADLINE_S, "the table is whole again")
    line.is_well()
    line.ends()
    # Where capture goes on without such a table, it is asked to take it back.
    line.change()
    line.sql(*LOSE_THE_KEY)
    line.types("changelog capture --on-error log")
    line.types("changelog status", code=1)
    line.types("rebuild-view --all", code=4)
    line.sql(*MEND)
    line.launches("--on-error", "log")
    line.catches_up()
    assert wanted.is_seen_in(line.heard), line.heard
    line.types("rebuild-view --all", code=4)
    line.types(back)
    line.catches_up()
    line.is_well()
    line.ends()


@pytest.mark.matrix
def test_a_table_that_is_rewritten_in_its_snapshot_is_copied_again(recovering, dsn):
    wanted = recipe("A table is rewritten in its snapshot")
    line = recovering(dsn)
    line.sql(CUSTOMERS, ORDERS, MANY)
    line.sql("DELETE FROM orders WHERE id % 7 = 0")
    line.begin(small=True, at="progress written:CLUSTER orders USING orders_pkey")
    line.catches_up()
    line.hears()
    line.carries_out(wanted)
    line.is_well()
    line.ends()
