"""A record that capture did not write, on the topic of one table: the other tables go on."""

import pytest
from confluent_kafka import Producer

from tests.support.capture_command import CrashingCapture

pytestmark = [pytest.mark.services, pytest.mark.slow]


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


def write(capture, headers, key=b"stranger", value=b"no row of ours"):
    producer = Producer({**capture.kafka.client_config(), "log_level": 0})
    producer.produce(f"{capture.prefix}.notes", key=key, value=value, headers=headers)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    "headers",
    [
        None,
        pytest.param([("position", b"\x01")], marks=pytest.mark.matrix),
        pytest.param([("position", None)], marks=pytest.mark.matrix),
    ],
)
def test_a_start_after_a_strangers_record_copies_its_table_again_and_goes_on(capture, headers):
    code, _, said = capture.run("--until", "now")
    assert code == 0, said
    write(capture, headers)
    capture.sql("UPDATE others SET text = text || '!'", "UPDATE notes SET text = text || '!'")
    for _ in range(2):  # the second start has nothing to mend any more
        code, _, said = capture.run("--until", "now")
        assert code == 0, said
        assert capture.differences("others") == []
    frontier = capture.frontier()
    topic = f"{capture.prefix}.notes"
    assert topic in frontier.tables
    assert frontier.since[topic].commit_lsn > 0
    assert "copied again" not in said
