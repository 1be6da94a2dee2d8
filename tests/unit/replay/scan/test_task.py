"""What a task gives back to Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of
from replay.base.task_faults import TaskFault, marked
from replay.scan import task
from replay.scan.last_records import FoldRules
from replay.scan.range import PartitionRange
from tests.property.test_last import PLENTY, PREFIX, WANTED, Message, message
from tests.support.fold_records import add_records
from tests.support.model import Entry

PARTITIONS = 4
LATE = Position(9, Lsn(0), 0)


def entry(number, offset, value=b"v"):
    return Entry(offset, b"%d" % number, value, Position(1, Lsn(offset), 0))


def at_home(partition, count):
    """Return so many numbers whose keys lie in a partition."""
    found = (n for n in range(10_000) if partition_of(PREFIX + b"%d" % n, PARTITIONS) == partition)
    return [next(found) for _ in range(count)]


@pytest.fixture
def run(monkeypatch):
    """Run tasks on logs that are given, by their partitions."""

    def of(logs, *, homes=PARTITIONS):
        def read_into(last, *, kafka, topic, part):
            assert (kafka.brokers, topic) == ("", "t")
            log = logs[part.partition]
            add_records(last, [message(e) if isinstance(e, Entry) else e for e in log])

        monkeypatch.setattr(task, "read_into", read_into)
        job = task.ScanJob(
            kafka=KafkaConnection(brokers=""),
            topic="t",
            ranges=[PartitionRange(partition, 0, 99) for partition in logs],
            rules=FoldRules.of(WANTED, since=None, before=LATE, most_bytes=PLENTY),
            homes=homes,
        )
        numbers = pa.RecordBatch.from_pydict({"id": list(range(len(logs)))})
        return pa.Table.from_batches(list(task.run(job, [numbers]))).to_pylist()

    return of


def test_each_range_gives_its_last_records_and_one_tally(run):
    (one, two), (other,) = at_home(0, 2), at_home(3, 1)
    rows = run(
        {
            0: [entry(one, 0), entry(two, 1), entry(one, 2, b"new"), entry(two, 3, None)],
            3: [entry(other, 8)],
        }
    )
    found = {(r["partition"], r["offset"]): r["value"] for r in rows if r["records"] is None}
    assert found == {(0, 2): b"new", (0, 3): None, (3, 8): b"v"}
    tallies = [(r["records"], r["tombstones"]) for r in rows if r["records"] is not None]
    assert tallies == [(4, 1), (1, 0)]
    assert all(r["key"] is None for r in rows if r["records"] is not None)


def test_many_rows_and_large_ones_come_in_several_batches(run, monkeypatch):
    seen = []
    monkeypatch.setattr(task, "_ROWS", 3)
    monkeypatch.setattr(task, "_BYTES", 1_000)
    sound = task._batch

    def batch(partition, found):
        seen.append(len(found.keys))
        return sound(partition, found)

    monkeypatch.setattr(task, "_batch", batch)
    numbers = at_home(0, 8)
    run({0: [entry(n, at, b"v" * (900 if at < 4 else 1)) for at, n in enumerate(numbers)]})
    assert sum(seen) == 8
    assert max(seen) == 3
    assert len(seen) > 3


def test_a_key_away_from_home_is_loud_where_keys_have_one_partition(run):
    (away,) = at_home(1, 1)
    with pytest.raises(Exception, match="belongs to partition 1") as failed:
        run({0: [entry(away, 5)]})
    fault, text = marked(str(failed.value)) or (None, "")
    assert fault is TaskFault.CORRUPT
    assert text.startswith('topic "t", partition 0, offset 5')
    assert [r["offset"] for r in run({0: [entry(away, 5)]}, homes=None)] == [5, None]


def test_a_record_that_capture_did_not_write_is_named(run):
    with pytest.raises(Exception, match="offset 7: the header") as failed:
        run({2: [Message(7, PREFIX, b"v", None)]})
    assert marked(str(failed.value)) is not None
