"""`--exactly-once`: kill -9 and a capture that comes back, as a reader of transactions sees it."""

import signal
from collections import Counter

import psutil
import pytest

from changelog.sink.frontier import FrontierLog
from changelog.sink.scan import OffsetRange, scan
from tests.support.capture_command import CrashingCapture
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

CHANGED = range(1, 81)
CHANGES = tuple(f"UPDATE notes SET text = 'change {n}' WHERE id = {n}" for n in CHANGED)
PATIENT = '[capture.producer]\n"linger.ms" = "600000"\n'


@pytest.fixture
def make(dsn, kafka, registry, prefix, tmp_path):
    made = []

    def make(settings):
        capture = CrashingCapture(
            dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path
        )
        with (tmp_path / "changelog.toml").open("a") as file:
            file.write(settings)
        capture.sql(
            "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
            "INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, 500) n",
        )
        made.append(capture)
        return capture

    yield make
    for capture in made:
        if capture.running is not None:
            capture.running.send_signal(signal.SIGCONT)
        capture.kill()


def changes_seen(capture):
    """How often a reader of committed records sees each change."""
    values = [value for _, _, _, value, _ in capture.log().records if value is not None]
    return Counter(value["text"] for value in values if value["text"].startswith("change"))


def records_on_disk(capture):
    """Count all records of the table's topic, those of aborted transactions too."""
    topic = f"{capture.prefix}.notes"
    with FrontierLog(capture.kafka, "unused") as log:
        ends = log.ends([topic])[topic]
    ranges = [OffsetRange(topic, number, 0, end) for number, end in enumerate(ends)]
    return sum(1 for _ in scan(capture.kafka, ranges))


ONCE = Counter(f"change {n}" for n in CHANGED)


@pytest.mark.parametrize(
    "point", ["transaction produced:40", "frontier written:1:transaction produced"]
)
def test_a_kill_leaves_each_change_once(make, point):
    capture = make("exactly_once = true\n")
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash(point, defect="deliver_each")
    capture.finish()
    capture.check()
    assert changes_seen(capture) == ONCE
    if point.startswith("transaction"):
        assert records_on_disk(capture) > len(capture.log().records)  # some were taken back


def test_twin_a_start_that_believes_aborted_records_loses_them(make):
    capture = make("exactly_once = true\n")
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash("transaction produced:40", defect="deliver_each")
    capture.finish(defect="believe_aborted")
    capture.sees_defect()


def test_a_kill_in_the_snapshot_leaves_the_table(make):
    capture = make("exactly_once = true\n")
    capture.crash("segment written:2", small=True)
    capture.sql(*CHANGES, "DELETE FROM notes WHERE id > 400")
    capture.finish(small=True)
    capture.check()


def overtaken(capture):
    """Let a capture stand still with records in its queue, and another one go on meanwhile."""
    capture.finish()
    capture.sql(*CHANGES)
    capture.begin(kill="transaction produced:40", signal_name="SIGSTOP")
    process = psutil.Process(capture.running.pid)
    stopped = psutil.STATUS_STOPPED
    wait_until(lambda: process.status() == stopped, 60, "the capture stands still")
    capture.outside(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE slot_name = '{capture.prefix}' AND active"
    )
    capture.sql("UPDATE notes SET text = 'newer' WHERE id <= 80")
    capture.finish()
    process.send_signal(signal.SIGCONT)


def test_a_capture_that_was_overtaken_writes_nothing_behind_the_new_one(make):
    capture = make(f"exactly_once = true\n{PATIENT}")
    overtaken(capture)
    wait_until(lambda: "trying again" in capture.said(), 60, "it notices that it was overtaken")
    capture.sql("UPDATE notes SET text = 'last' WHERE id = 1")
    wait_until(
        lambda: capture.log().rows[(1,)]["text"] == "last", 60, "it goes on when nobody else does"
    )
    capture.check()
    assert changes_seen(capture) == ONCE


def test_twin_without_transactions_it_does(make):
    capture = make(PATIENT)
    overtaken(capture)
    wait_until(lambda: capture.log().regressions, 60, "old records lie behind new ones")
