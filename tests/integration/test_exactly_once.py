"""`--exactly-once`: kill -9 and a capture that comes back, as a reader of transactions sees it."""

import signal
from collections import Counter

import psutil
import pytest

from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first
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


def changes_seen(capture, table="notes"):
    """How often a reader of committed records sees each change."""
    values = [value for _, _, _, value, _ in capture.log(table).records if value is not None]
    return Counter(value["text"] for value in values if value["text"].startswith("change"))


def records_on_disk(capture):
    """Count all records of the table's topic, those of aborted transactions too."""
    topic = f"{capture.prefix}.notes"
    with FrontierLog(capture.kafka, "unused") as log:
        ends = log.ends([topic])[topic]
    ranges = [OffsetRange(topic, number, 0, end) for number, end in enumerate(ends)]
    return sum(1 for _ in scan(capture.kafka, ranges, committed=False))


ONCE = Counter(f"change {n}" for n in CHANGED)


@pytest.mark.parametrize(
    "point", first(1, ["transaction produced:40", "frontier written:1:transaction produced"])
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


@pytest.mark.matrix
def test_twin_a_start_that_believes_aborted_records_loses_them(make):
    capture = make("exactly_once = true\n")
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash("transaction produced:40", defect="deliver_each")
    capture.finish(defect="believe_aborted")
    capture.sees_defect()


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["chunk copied:2", "table whole"])
def test_a_kill_in_the_snapshot_leaves_the_table(make, point):
    capture = make("exactly_once = true\n")
    capture.crash(point, small=True)
    capture.sql(*CHANGES, "DELETE FROM notes WHERE id > 400")
    capture.finish(small=True)
    capture.check()


EVERYTHING = 'exactly_once = true\nenvelope = "nested"\nmessages = ["*"]\nddl = true\n'


@pytest.mark.matrix
def test_a_kill_leaves_each_message_event_and_schema_change_once(make):
    capture = make(EVERYTHING)
    capture.finish()
    numbers = range(1, 31)
    for number in numbers:
        capture.sql(
            f"UPDATE notes SET text = 'change {number}' WHERE id = {number}",
            f"SELECT pg_logical_emit_message({number % 2 == 0}, 'outbox', '{number}')",
        )
    capture.sql("ALTER TABLE notes ADD other integer")
    capture.sql("INSERT INTO notes VALUES (501, 'last', 1)")
    capture.crash("message produced:20", defect="deliver_each")
    capture.finish()
    frontier, prefix = capture.frontier(), capture.prefix

    def committed(topic):
        name = f"{prefix}.{topic}"
        return [message.value() for message in capture.reader.messages(name, frontier.ends[name])]

    events = [capture.reader.decode(raw) for raw in committed("notes")]
    texts = [event["after"]["text"] for event in events if event["op"] in "cu"]
    assert sorted(texts) == sorted([*(f"change {number}" for number in numbers), "last"])
    assert sorted(map(int, committed("_messages"))) == [*numbers]
    assert len(committed("changelog.ddl")) == 1


def overtaken(capture, **named):
    """Let a capture stand still with records in its queue, and another one go on meanwhile."""
    process = stand_still(capture, **named)
    capture.sql("UPDATE notes SET text = 'newer' WHERE id <= 80")
    capture.finish()
    process.send_signal(signal.SIGCONT)


def stand_still(capture, **named):
    """Stop a capture with records in its queue, and let the server take the slot from it."""
    capture.finish()
    capture.sql(*CHANGES)
    capture.begin(kill="transaction produced:40", signal_name="SIGSTOP", **named)
    process = psutil.Process(capture.running.pid)
    stopped = psutil.STATUS_STOPPED
    wait_until(lambda: process.status() == stopped, 60, "the capture stands still")
    capture.sql(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE slot_name = '{capture.prefix}' AND active"
    )
    return process


@pytest.mark.matrix
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


@pytest.mark.matrix
def test_twin_without_transactions_it_does(make):
    capture = make(PATIENT)
    overtaken(capture, defect="forget_foreign")
    wait_until(lambda: capture.log().regressions, 60, "old records lie behind new ones")
    wait_until(lambda: "trying again" in capture.said(), 60, "it notices that it was overtaken")
    capture.settle()
    # By position all is well; the cleaner goes by offset, and would keep what is old.
    assert by_position(capture) == table(capture)
    assert by_offset(capture) != table(capture)


def by_position(capture):
    """Return the rows as our readers see them."""
    return {key: value["text"] for key, value in capture.log().rows.items()}


def by_offset(capture):
    """Return the rows as the cleaner leaves them: the last record of each key."""
    last = {key["id"]: value for _, _, key, value, _ in capture.log().records}
    return {(key,): value["text"] for key, value in last.items() if value is not None}


def table(capture):
    return {(key,): text for key, text in capture.query("SELECT id, text FROM notes")}


@pytest.mark.matrix
def test_a_capture_that_was_overtaken_and_goes_on_alone_repairs_what_it_wrote(make):
    capture = make(PATIENT)
    overtaken(capture)
    wait_until(lambda: "this capture did not write" in capture.said(), 60, "it sees old records")
    wait_until(lambda: by_offset(capture) == table(capture), 60, "the table is copied anew")
    assert by_position(capture) == table(capture)


@pytest.mark.matrix
def test_a_capture_sees_what_one_that_it_has_overtaken_writes_behind_its_back(make):
    capture = make(PATIENT)
    process = stand_still(capture)
    capture.sql("UPDATE notes SET text = 'newer' WHERE id <= 80")
    settings = capture.folder / "changelog.toml"
    settings.write_text(settings.read_text().replace(PATIENT, ""))
    old = capture.running
    try:
        (capture.folder / "capture.log").rename(capture.folder / "old.log")
        capture.begin()
        capture.settle()
        process.send_signal(signal.SIGCONT)
        wait_until(
            lambda: "this capture did not write" in capture.said(), 60, "it sees old records"
        )
        wait_until(lambda: by_offset(capture) == table(capture), 60, "the table is copied anew")
        assert by_position(capture) == table(capture)
        old_said = (capture.folder / "old.log").read_text()
        wait_until(lambda: "trying again" in old_said, 0, "the old one wrote no frontier")
    finally:
        old.kill()
        old.wait()
