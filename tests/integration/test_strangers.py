"""Records that capture did not write, on its own topics: what is not concerned goes on."""

import pytest
from confluent_kafka import Producer

from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.topic import frontier_topic
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

NO_HEADERS = None
POSITIONS = {
    "a later epoch": lambda frontier, end: Position(frontier.epoch + 7, frontier.lsn, 0),
    "an LSN past the end of the WAL": lambda frontier, end: Position(
        frontier.epoch, Lsn(end + (1 << 40)), 0
    ),
    "an LSN of the past": lambda frontier, end: Position(frontier.epoch, Lsn(1), 0),
}


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = CrashingCapture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.make_notes(20)
    made.sql(
        "CREATE TABLE others (id integer PRIMARY KEY, text text)",
        "INSERT INTO others SELECT n, 'other ' || n FROM generate_series(1, 20) n",
    )
    yield made
    made.kill()


def write(capture, headers, *, topic="notes", key=b"stranger", value=b"no row of ours", count=1):
    producer = Producer({**capture.kafka.client_config(), "log_level": 0})
    for _ in range(count):
        producer.produce(f"{capture.prefix}.{topic}", key=key, value=value, headers=headers)
    assert producer.flush(60) == 0


def catch_up(capture, **named):
    code, said = capture.attempt(**named)
    assert code == 0, said
    return said


def stands_well(capture):
    (status,) = capture.command("status", "--json", codes={1})
    return status["problems"] == ["no process reads the slot: capture does not run"]


def goes_on(capture):
    """Two starts more: the other table is right at each, and so is the one that was written to."""
    capture.sql("UPDATE others SET text = text || '!'", "UPDATE notes SET text = text || '!'")
    first, second = catch_up(capture), catch_up(capture)
    for table in ("others", "notes"):
        assert capture.differences(table) == []
    assert "notes" in {each.table for each in capture.frontier().tables.values()}
    return first, second


@pytest.mark.parametrize(
    "headers",
    [
        NO_HEADERS,
        pytest.param([("position", b"\x01")], marks=pytest.mark.matrix),
        pytest.param([("position", None)], marks=pytest.mark.matrix),
    ],
)
def test_a_start_after_a_strangers_record_copies_its_table_again_and_goes_on(capture, headers):
    catch_up(capture)
    write(capture, headers)
    first, second = goes_on(capture)
    assert "others have written to its topic" in first
    assert "others have written" not in second  # there is nothing to mend any more


@pytest.mark.parametrize("kind", first(1, POSITIONS))
def test_a_strangers_position_hides_no_row_of_ours(capture, kind):
    catch_up(capture)
    position = POSITIONS[kind](capture.frontier(), capture.end_of_wal())
    for partition in range(3):
        producer = Producer({**capture.kafka.client_config(), "log_level": 0})
        headers = encode_headers(position, Op.UPDATE, 0)
        topic = f"{capture.prefix}.notes"
        producer.produce(topic, key=b"stranger", value=b"", headers=headers, partition=partition)
        assert producer.flush(60) == 0
    epoch = capture.frontier().epoch
    first, second = goes_on(capture)
    assert "others have written to its topic" in first
    assert "others have written" not in second
    assert capture.frontier().epoch == epoch
    assert stands_well(capture)


@pytest.mark.matrix
def test_a_topic_that_strangers_wrote_to_before_the_first_start_is_taken(capture):
    write(capture, NO_HEADERS, count=3)
    catch_up(capture)
    first, _ = goes_on(capture)
    assert "others have written" not in first


@pytest.mark.parametrize(
    ("key", "value"),
    first(1, [("{prefix}", b"{}"), ("{prefix}", b"\xff"), ("other", b"no frontier"), (None, b"?")]),
)
def test_a_strangers_record_on_the_topic_of_frontiers_is_passed_over(capture, key, value):
    catch_up(capture)
    before = capture.frontier()
    raw = key.format(prefix=capture.prefix).encode() if key else b"\xff\xfe"
    topic = frontier_topic(capture.prefix).removeprefix(f"{capture.prefix}.")
    for mark in (b"", b"#backfill", b"#tables"):
        write(capture, NO_HEADERS, topic=topic, key=raw + mark, value=value)
    assert capture.frontier() == before
    assert stands_well(capture)
    first, _ = goes_on(capture)
    assert "copying" not in first


def test_rows_that_were_sent_before_the_fresh_copy_began_are_right(capture):
    """Readers begin behind them: the copy has them, or the stream brings them once more."""
    catch_up(capture)
    capture.sql("UPDATE notes SET text = text || '!' WHERE id > 10")
    capture.crash("record produced:8", defect="deliver_each")
    write(capture, NO_HEADERS)
    catch_up(capture)
    capture.check()
