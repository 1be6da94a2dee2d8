"""Splits of a topic that the cleaner has made gaps in, on the real broker."""

from __future__ import annotations

import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.base.record_place import TopicRange
from replay.broker.density import strata_of
from replay.broker.probe import refine_density, sample_density
from replay.broker.splits import layers
from replay.scan.last_records import FoldRules
from replay.scan.scan import by_tasks, ranges_of
from replay.scan.task import ScanJob
from tests.support.builders import make_relation
from tests.support.cleaning import present
from tests.support.log_writer import CLEAN_AT_ONCE, LogWriter
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.spark]
TASKS = 8
EVERYTHING = Position(9, Lsn(0), 0)
SPARSE, DENSE = 45_000, 5_000


@pytest.fixture
def wanted(kafka, registry, prefix):
    """A partition with 99 % of its records in the last tenth of its offsets."""
    log = LogWriter(
        kafka, registry, make_relation(), prefix=prefix, partitions=1, settings=CLEAN_AT_ONCE
    )
    # One row in 1000 is of a key of its own; the rest supersede each other.
    for number in range(SPARSE):
        log.put((b"%d" % (number if number % 1000 == 0 else 1), b"x" * 60))
    for number in range(DENSE):
        log.put((b"%d" % (SPARSE + number), b"x" * 60))
    log.flush()
    end = SPARSE + DENSE

    def is_sparse():
        log.put((b"-1", b"stir"))
        log.flush()
        return sum((m.offset() or 0) < SPARSE for m in present(kafka, log.topic)) <= DENSE // 99

    wait_until(is_sparse, 90, "the cleaner has removed what is superseded")
    key_schema_id = int.from_bytes(log.codec.encode_key((b"1",))[1:5], "big")
    return TopicRange(topic=log.topic, starts=(0,), ends=(end,), key_schema_id=key_schema_id)


def records_of_tasks(spark, kafka, wanted, parts):
    job = ScanJob(
        kafka=kafka,
        topic=wanted.topic,
        ranges=ranges_of(wanted, parts),
        rules=FoldRules.of(wanted, since=None, before=EVERYTHING, most_bytes=1 << 20),
    )
    tallies = by_tasks(spark, job).where("records IS NOT NULL").collect()
    return [row.records for row in tallies]


def longest_beside_median(counts):
    found = sorted(counts)
    return found[-1] / found[len(found) // 2]


def test_each_task_gets_about_as_many_records(spark, kafka, wanted):
    density = sample_density(kafka, {wanted.topic: (wanted.starts, wanted.ends)})[wanted.topic]
    refined = refine_density(kafka, wanted.topic, density, tasks=TASKS)
    found = records_of_tasks(spark, kafka, wanted, layers(refined, TASKS))

    assert len(found) == TASKS
    assert sum(found) == len(
        [m for m in present(kafka, wanted.topic) if (m.offset() or 0) < wanted.ends[0]]
    )
    assert longest_beside_median(found) <= 2

    # The twin: equal numbers of offsets are very different numbers of records.
    even = [((start,), (end,)) for start, end in strata_of(0, wanted.ends[0], TASKS)]
    assert longest_beside_median(records_of_tasks(spark, kafka, wanted, even)) > 2
