"""`--sequences`: where sequences stand, on a topic of their own, before each frontier."""

import json

import pytest

from changelog.contract.base.headers import decode_headers
from changelog.contract.log.topic import sequences_topic
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog
from tests.support.capture_command import CrashingCapture, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]


class Capture(CrashingCapture):
    """A capture of one table, with sequences beside it."""

    def records(self):
        """Return name, value and position of each record of the topic."""
        topic = sequences_topic(self.prefix)
        with FrontierLog(self.kafka, topic) as log:
            (end,) = log.ends([topic])[topic]
        found = []
        for record in scan(self.kafka, [OffsetRange(topic, 0, 0, end)]):
            key, value = json.loads(record.key() or b""), record.value()
            assert key["schema"] == "public"
            stands = None if value is None else json.loads(value)
            found.append((key["name"], stands, decode_headers(record.headers()).position))
        return found

    def last(self):
        return {name: stands for name, stands, _ in self.records()}


capture = capture_with(
    Capture,
    "CREATE TABLE notes (id bigserial PRIMARY KEY, other int GENERATED ALWAYS AS IDENTITY)",
    "CREATE TABLE left_out (id serial PRIMARY KEY)",
    'CREATE SEQUENCE "free""one" START 5 INCREMENT -1 MINVALUE -9 MAXVALUE 9',
    "INSERT INTO notes DEFAULT VALUES",
    settings='sequences = true\ntables = ["public.notes"]\n',
)


def stands(last_value, is_called=True):
    return {"last_value": last_value, "is_called": is_called}


def test_sequences_of_captured_tables_are_written_where_they_changed(capture):
    capture.catch_up()
    assert capture.last() == {"notes_id_seq": stands(1), "notes_other_seq": stands(1)}
    capture.sql("INSERT INTO notes SELECT FROM generate_series(1, 9)")
    capture.sql("SELECT setval('notes_other_seq', 70, false)")
    capture.catch_up()
    assert capture.last() == {"notes_id_seq": stands(10), "notes_other_seq": stands(70, False)}
    before = len(capture.records())
    capture.sql("UPDATE notes SET id = id + 100")
    capture.catch_up()
    assert len(capture.records()) == before  # none moved
    # One that is gone is a tombstone; a pattern covers those that no captured table owns.
    capture.sql("ALTER TABLE notes ALTER id DROP DEFAULT", "DROP SEQUENCE notes_id_seq")
    capture.sql("UPDATE notes SET id = id + 100")
    capture.catch_up("--tables", "public.*", "--exclude", "public.left_out*")
    assert capture.last() == {
        "notes_id_seq": None,
        "notes_other_seq": stands(70, False),
        'free"one': stands(5, False),
    }


def are_covered(capture):
    """Insert a row; tell whether what is written before its frontier covers its value."""
    capture.sql("INSERT INTO notes DEFAULT VALUES")
    frontier = capture.settle()
    highest = max(row["id"] for row in capture.rows("notes").values())
    written = [
        each["last_value"]
        for name, each, position in capture.records()
        if name == "notes_id_seq" and each and position.commit_lsn <= frontier.lsn
    ]
    return max(written) >= highest


@pytest.mark.matrix
def test_a_value_stands_on_the_log_before_the_frontier_that_has_its_row(capture):
    """What a rollback gave away is given away: the record is never behind the rows."""
    capture.start()
    capture.wait_for_frontier()
    assert all(are_covered(capture) for _ in range(5))
    capture.stop()


@pytest.mark.matrix
def test_twin_sequences_that_are_looked_at_once_lie_behind_the_rows(capture):
    capture.begin(defect="look_at_sequences_once")
    capture.wait_for_frontier()
    assert not any(are_covered(capture) for _ in range(2))


def test_check_names_the_sequences_that_would_be_written(capture):
    (found,) = capture.command("capture --check", "--json")
    said = json.dumps(found)
    assert "2: public.notes_id_seq, public.notes_other_seq" in said
