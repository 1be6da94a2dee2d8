"""A topic that somebody deletes under a running capture, or under its first copy."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError
from changelog.kafka.cluster import describe
from changelog.sink.producer import LogProducer
from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ENDS_S = 60


capture = capture_with(
    CaptureCommand,
    "CREATE TABLE others (id integer PRIMARY KEY)",
    "INSERT INTO others VALUES (1)",
    notes=20,
)


def delete(kafka: KafkaConnection, topic: str) -> None:
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in describe(kafka, [topic]), 30, "the topic is gone")


def test_capture_ends_and_says_it_as_the_next_start_does(capture):
    topic = f"{capture.prefix}.notes"
    running = capture.start()
    capture.wait_for_frontier()
    delete(capture.kafka, topic)
    capture.sql("UPDATE notes SET text = 'later'")
    running.communicate(timeout=ENDS_S)
    assert running.returncode == 1, capture.said()
    capture.running = None
    error = capture.said().splitlines()[-1]
    assert f'topic "{topic}" was deleted: what it held is lost' in error
    _, _, said = capture.run("--until", "now")
    assert said.splitlines()[-1] == error


@pytest.mark.matrix
@pytest.mark.parametrize("is_written", first(1, [True, False]))
def test_capture_copies_the_table_anew_where_that_is_asked_for(capture, is_written):
    topic = f"{capture.prefix}.notes"
    capture.start("--on-incompatible", "resnapshot")
    capture.wait_for_frontier()
    delete(capture.kafka, topic)
    capture.sql(f"UPDATE {'notes' if is_written else 'others'} SET id = id + 100")

    def copied():
        found = capture.frontier()
        return topic in describe(capture.kafka, [topic]) and found.topic_ids.get(topic) in {
            each.topic_id for each in describe(capture.kafka, [topic]).values()
        }

    wait_until(copied, ENDS_S, f"the table is copied anew\n{capture.said()}")
    capture.settle()
    first = 101 if is_written else 1
    assert {key for (key,) in capture.rows("notes")} == {*range(first, first + 20)}
    capture.stop()


def test_a_producer_waits_for_no_topic_that_is_gone(kafka, prefix):
    topic = f"{prefix}.one"
    admin = AdminClient(kafka.client_config())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = LogProducer.open(kafka)
    producer.produce(topic, b"k", b"v", [])
    producer.flush()
    delete(kafka, topic)
    producer.produce(topic, b"k", b"v", [])
    with pytest.raises(LogError, match=f'"{topic}" does not exist: 1 records'):
        producer.flush(ENDS_S)
    producer.close()
