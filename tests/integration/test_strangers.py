"""Records that capture did not write, on its own topics: what is not concerned goes on."""

import pytest
from confluent_kafka import Producer

from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.topic import frontier_topic
from changelog.kafka.scan import OffsetRange, headers_of, scan
from changelog.sink.frontier import FrontierLog
from replay.broker.topics import read_frontier, read_frontiers
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

NO_HEADERS = None
POSITIONS = {
    "a later epoch": lambda frontier, end: Position(frontier.epoch + 7, frontier.lsn, 0),
    "an LSN past the end of the WAL": lambda frontier, end: Position(
        frontier.epoch, Lsn(end + (1 << 40)), 0
    ),
    "an LSN of the past": lambda frontier, end: Position(frontier.epoch, Lsn(1), 0),
}


capture = capture_with(
    CrashingCapture,
    "CREATE TABLE others (id integer PRIMARY KEY, text text)",
    "INSERT INTO others SELECT n, 'other ' || n FROM generate_series(1, 20) n",
    notes=20,
)


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


@pytest.mark.matrix
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


@pytest.mark.matrix
def test_rows_that_were_sent_before_the_fresh_copy_began_are_right(capture):
    """Readers begin behind them: the copy has them, or the stream brings them once more."""
    catch_up(capture)
    capture.sql("UPDATE notes SET text = text || '!' WHERE id > 10")
    capture.crash("record produced:8", defect="deliver_each")
    write(capture, NO_HEADERS)
    catch_up(capture)
    capture.check()


def raw_records(capture, topic):
    """Return the records of a topic as they are, in the order of their partitions."""
    with FrontierLog(capture.kafka, "unused") as log:
        ends = log.ends([topic])[topic]
    ranges = [OffsetRange(topic, partition, 0, end) for partition, end in enumerate(ends)]
    found = list(scan(capture.kafka, ranges))
    return sorted(found, key=lambda record: (record.partition(), record.offset()))


def put_back(capture, records):
    """Write records once more, behind all others: the same keys, values and headers."""
    producer = Producer({**capture.kafka.client_config(), "log_level": 0})
    for record in records:
        headers = [(name, bytes(value)) for name, value in record.headers() or ()]
        place = {"headers": headers, "partition": record.partition()}
        producer.produce(record.topic(), record.value(), record.key(), **place)
    assert producer.flush(60) == 0


def left_by_the_cleaner(capture, table="notes"):
    """Return the rows that stand when of each key the record of the greatest offset is left."""
    log = capture.log(table)
    alive = capture.frontier().alive_from.get(f"{capture.prefix}.{table}", (0, 0, 0))
    last = {key["id"]: value for p, at, key, value, _ in log.records if at >= alive[p]}
    return {key: value["text"] for key, value in last.items() if value is not None}


def first_records(capture, op, count=3):
    records = raw_records(capture, f"{capture.prefix}.notes")
    found = [each for each in records if headers_of(each).op is op]
    assert len(found) >= count
    return found[:count]


def after_old_records_were_put_back(capture, op, **named):
    capture.sql("DELETE FROM notes WHERE id = 3", "INSERT INTO notes VALUES (3, 'new'), (21, 'n')")
    catch_up(capture)
    capture.sql("UPDATE notes SET text = text || '!'")
    capture.sql("UPDATE notes SET text = text || '?'")
    catch_up(capture)
    put_back(capture, first_records(capture, op, 2))
    return catch_up(capture, **named)


@pytest.mark.matrix
@pytest.mark.parametrize("op", first(1, [Op.READ, Op.CREATE, Op.UPDATE]))
def test_old_records_of_ours_that_were_put_back_are_outlived_by_the_rows_of_now(capture, op):
    catch_up(capture)
    said = after_old_records_were_put_back(capture, op)
    assert "older than the last frontier" in said
    assert "others have written to its topic" in said
    assert left_by_the_cleaner(capture) == rows_at_source(capture)
    goes_on(capture)
    assert left_by_the_cleaner(capture) == rows_at_source(capture)


@pytest.mark.matrix
def test_twin_of_old_records_that_nobody_looks_for_the_cleaner_keeps_the_old_rows(capture):
    catch_up(capture)
    after_old_records_were_put_back(capture, Op.READ, defect="forget_foreign")
    assert left_by_the_cleaner(capture) != rows_at_source(capture)


def rows_at_source(capture):
    return dict(capture.query("SELECT id, text FROM notes"))


@pytest.mark.matrix
def test_a_record_put_back_behind_a_newer_one_that_no_frontier_covers_is_noticed(capture):
    catch_up(capture)
    capture.sql("UPDATE notes SET text = 'a' WHERE id = 1", "UPDATE notes SET text = 'b'")
    before = capture.frontier()
    capture.crash("record produced:15", defect="deliver_each")
    assert capture.frontier() == before
    updates = [
        each
        for each in raw_records(capture, f"{capture.prefix}.notes")
        if headers_of(each).op is Op.UPDATE
    ]
    put_back(capture, [min(updates, key=lambda each: headers_of(each).position)])
    assert "older than one before it" in catch_up(capture)
    assert left_by_the_cleaner(capture) == rows_at_source(capture)
    goes_on(capture)


@pytest.mark.matrix
def test_old_frontiers_that_were_put_back_are_passed_over(capture):
    catch_up(capture)
    topic = frontier_topic(capture.prefix)
    old = [each for each in raw_records(capture, topic) if b"#" not in each.key()][:2]
    capture.sql("UPDATE notes SET text = text || '!'")
    catch_up(capture)
    newest = capture.frontier()
    put_back(capture, old)
    assert capture.frontier() == newest
    assert read_frontier(capture.kafka, topic, capture.prefix).frontier == newest
    assert read_frontier(capture.kafka, topic).frontier == newest
    known = [each.frontier for each in read_frontiers(capture.kafka, topic, capture.prefix)]
    assert known == sorted(known, key=lambda each: each.lsn)
    assert known[-1] == newest
    assert stands_well(capture)
    first, _ = goes_on(capture)
    assert "copying" not in first


@pytest.mark.matrix
@pytest.mark.parametrize("running", [False, True])
def test_a_table_without_a_key_is_copied_again_too(capture, running):
    capture.sql(
        "CREATE TABLE events (n integer, text text)",
        "ALTER TABLE events REPLICA IDENTITY FULL",
        "INSERT INTO events SELECT n, 'event ' || n FROM generate_series(1, 20) n",
    )
    settings = capture.folder / "changelog.toml"
    settings.write_text(settings.read_text() + "allow_unkeyed = true\n")
    catch_up(capture)
    topic = f"{capture.prefix}.events"
    if running:
        capture.start()
        capture.settle()
    write(capture, NO_HEADERS, topic="events")
    if running:
        capture.sql("INSERT INTO events VALUES (22, 'more')")
        wait_until(lambda: any(capture.frontier().alive_from.get(topic, ())), 60, "a fresh copy")
        capture.stop()
    else:
        assert "others have written to its topic" in catch_up(capture)
    capture.sql("INSERT INTO events VALUES (21, 'last')")
    assert "others have written" not in catch_up(capture)
    ((count,),) = capture.query("SELECT count(*) FROM events")
    frontier = capture.frontier()
    since, alive = frontier.since[topic], frontier.alive_from[topic]
    rows = [
        each
        for each in raw_records(capture, topic)
        if each.offset() >= alive[each.partition()] and headers_of(each).position >= since
    ]
    assert len(rows) == count
