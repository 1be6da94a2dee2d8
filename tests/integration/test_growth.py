"""A topic that gets more partitions while it holds rows: captured on, told, and mended."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support.capture_command import CaptureCommand

pytestmark = pytest.mark.services


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = CaptureCommand(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
        "INSERT INTO notes SELECT n, 'old' FROM generate_series(1, 60) n",
    )
    return made


def test_three_partitions_become_six_and_no_row_is_wrong(capture):
    topic = f"{capture.prefix}.notes"
    capture.catch_up()
    before = capture.frontier()
    assert (len(before.ends[topic]), before.grown) == (3, {})
    admin = AdminClient(capture.kafka.client_config())
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    capture.sql(
        "DELETE FROM notes WHERE id % 3 = 0",
        "UPDATE notes SET text = 'new' WHERE id % 3 = 1",
        "UPDATE notes SET id = id + 1000 WHERE id % 6 = 2",
    )
    capture.catch_up()
    grown = capture.frontier()
    assert len(grown.ends[topic]) == 6
    assert before.lsn < grown.grown[topic].lsn <= grown.lsn
    assert sum(grown.ends[topic][3:]) > 0
    (report,) = capture.command("verify", "--json")
    assert (report["verified"], report["tables"][0]["rows"]) == (True, 40)
    (found,) = capture.command("topics", "--json")
    assert found["topics"][0]["verdict"] == "exact"

    capture.command("resnapshot", "notes", "--json")
    capture.catch_up()
    assert capture.frontier().grown == {}
    (report,) = capture.command("verify", "--json")
    assert report["verified"] is True
