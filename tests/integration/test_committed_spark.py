"""Spark's readers on a log with transactions: each frontier, both clients, and each rebuilt."""

import json
from functools import partial

import pytest

from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from replay.broker import topics as offsets
from replay.scan import scan
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.captured_project import CapturedProject, rebuild_view
from tests.support.log_readers import by_model
from tests.support.replays import replay_of
from tests.support.switched_log import ATLEAST, ONCE, SwitchedLog

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

NOTES = TableName("public", "notes")


def records_of(replay):
    metrics = replay.metrics()[NOTES]
    assert metrics is not None
    return metrics.records_read


capture = capture_with(CrashingCapture)


@pytest.fixture
def make(capture):
    return partial(SwitchedLog, capture)


@pytest.mark.parametrize("settings", [ONCE, ATLEAST])
def test_spark_reads_each_frontier_and_each_can_be_rebuilt(
    make, settings, spark, registry, capsys, monkeypatch
):
    log = make(settings)
    log.crash("transaction produced:30")
    log.use(ATLEAST if settings == ONCE else ONCE)
    log.capture.crash("transaction produced:20", defect="deliver_each")
    log.use(settings)
    log.capture.finish()
    log.check()
    capture = log.capture
    records = offsets.read_frontiers(capture.kafka, frontier_topic(capture.prefix), capture.prefix)
    for record in records:
        rows, count = by_model(capture, record.frontier, log.topic)
        replay = replay_of(spark, capture.kafka, registry, record, [NOTES])
        assert replay.states[NOTES].frame.count() == len(rows)
        assert records_of(replay) == count
    project = CapturedProject(capture.folder, capture.dsn)
    project.view("notes_view.sql", "-- key: id\nSELECT id, text FROM notes\n")
    for lsn in sorted({str(each.frontier.lsn) for each in records}):
        ran = rebuild_view(capsys, monkeypatch, project, "notes_view", "--as-of", lsn, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["verified"] is True
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True


def test_twin_spark_that_reads_what_is_not_committed_counts_more(
    make, spark, registry, monkeypatch
):
    log = make(ONCE)
    log.crash("transaction produced:30")
    capture = log.capture
    capture.finish()

    def uncommitted(job, numbers):  # travels by its code, being no module's
        from unittest import mock

        from changelog.kafka.clients import reading_config as sound
        from replay.scan import range as reading
        from replay.scan import task

        def config(kafka, *, committed, **options):
            return sound(kafka, committed=not committed, **options)

        with mock.patch.object(reading, "reading_config", config):
            yield from task.run(job, numbers)

    monkeypatch.setattr(scan, "run", uncommitted)
    record = offsets.read_frontier(capture.kafka, frontier_topic(capture.prefix), capture.prefix)
    replay = replay_of(spark, capture.kafka, registry, record, [NOTES])
    replay.states[NOTES].frame.count()
    count = by_model(capture, record.frontier, log.topic)[1]
    assert records_of(replay) > count
