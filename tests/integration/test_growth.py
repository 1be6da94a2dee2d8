"""A topic that gets more partitions while it holds rows: captured on, told, and mended."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from changelog.contract.base.headers import decode_headers
from changelog.contract.log.partition import partition_of
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.wait import wait_until

pytestmark = pytest.mark.services


capture = capture_with(CrashingCapture, notes=60)


def grow(capture, topic, partitions):
    admin = AdminClient(capture.kafka.client_config())
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


@pytest.mark.matrix
def test_three_partitions_become_six_and_no_row_is_wrong(capture):
    topic = f"{capture.prefix}.notes"
    capture.catch_up()
    before = capture.frontier()
    assert (len(before.ends[topic]), before.grown) == (3, {})
    grow(capture, topic, 6)
    capture.sql(
        "DELETE FROM notes WHERE id % 3 = 0",
        "UPDATE notes SET text = 'new' WHERE id % 3 = 1",
        "UPDATE notes SET id = id + 1000 WHERE id % 6 = 2",
    )
    capture.catch_up()
    grown = capture.frontier()
    assert len(grown.ends[topic]) == 6
    assert before.lsn < grown.grown[topic].lsn
    assert sum(grown.ends[topic][3:]) > 0
    (report,) = capture.command("verify", "--json")
    assert (report["verified"], report["tables"][0]["rows"]) == (True, 40)
    (found,) = capture.command("topics", "--json")
    assert found["topics"][0]["verdict"] == "exact"


@pytest.mark.parametrize(
    "defect", ["", pytest.param("forget_partitions", marks=pytest.mark.matrix)]
)
def test_what_is_alive_after_a_copy_lies_where_its_tombstones_will(capture, defect):
    topic = f"{capture.prefix}.notes"
    capture.begin(defect=defect)
    try:
        capture.wait_for_frontier()
        capture.sql("UPDATE notes SET text = 'old'")
        capture.settle()  # from here on the stream's producer knows of three
        grow(capture, topic, 6)
        capture.sql("UPDATE notes SET text = 'new'")
        wait_until(lambda: topic in capture.settle().grown, 60, "a frontier that tells it")
        capture.command("resnapshot", "notes", "--wait", "--json")
        capture.sql("UPDATE notes SET text = 'newer'")
        frontier = capture.settle()
    finally:
        capture.kill()
    assert frontier.grown == {}
    assert capture.differences() == []
    alive = {
        (message.key(), message.partition())
        for message in capture.reader.messages(topic, frontier.ends[topic])
        if message.value() is not None
        and decode_headers(message.headers()).position >= frontier.since[topic]
    }
    misplaced = {key for key, partition in alive if partition_of(key, 6) != partition}
    assert len({key for key, _ in alive}) == 60
    assert bool(misplaced) == bool(defect)
