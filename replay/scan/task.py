"""A Spark task: from a range of a partition to the last record of each of its keys.

It reads with librdkafka and folds at once, so that Spark never sees a record that was superseded
in its range: neither moved, nor sorted, nor decoded. Imported where the task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from changelog.contract.base.connection import KafkaConnection
from replay.base.record_place import RECORD_SCHEMA
from replay.base.task_faults import MarkedError, TaskFault
from replay.scan.last_records import FoldRules, LastRecords, RecordBatch, StrangeRecordError
from replay.scan.range import PartitionRange, read_into

_ROWS, _BYTES = 5_000, 8 << 20
"""Size of a batch that a task returns to Spark: the worker holds one in memory."""

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("position", pa.binary()),
        ("fault", pa.string()),
        ("records", pa.int64()),
        ("tombstones", pa.int64()),
    ]
)
SPARK_SCHEMA = f"{RECORD_SCHEMA}, fault string, records bigint, tombstones bigint"
"""One row for each record, and one for each range, with only the counts of records read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanJob:
    """The values that the tasks of one scan share."""

    kafka: KafkaConnection  # the brokers; its options name no file
    topic: str  # the topic to read
    ranges: Sequence[PartitionRange]  # one for each task
    rules: FoldRules  # which records count
    # the number of partitions, if every key must be in the partition that its hash names; None if
    # keys may be in other partitions too
    homes: int | None = field(default=None)


def run(job: ScanJob, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last records of the ranges with the given numbers.

    Raises MarkedError: the range cannot be read, or holds a record that capture did not write.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            part = job.ranges[number]
            records = LastRecords(job.rules, partition=part.partition, homes=job.homes)
            read = partial(read_into, kafka=job.kafka, topic=job.topic, part=part)
            yield from folded(records, read, job.topic, part.partition)


def folded(
    records: LastRecords, read: Callable[[LastRecords], None], topic: str, partition: int
) -> Iterator[pa.RecordBatch]:
    """Yield the last records of what is read, in the columns of `SPARK_SCHEMA`.

    `read`: adds the records of a range of the partition.

    Raises MarkedError: a record is none that capture wrote.
    """
    with closing(records) as last:
        try:
            read(last)
            for columns in last.drain(_ROWS, _BYTES):
                yield _batch(partition, columns)
        except StrangeRecordError as error:
            place = f'topic "{topic}", partition {partition}, offset {error.offset}'
            raise MarkedError(TaskFault.CORRUPT, f"{place}: {error.why}") from error
        yield _tally(last)


def _batch(partition: int, columns: RecordBatch) -> pa.RecordBatch:
    count = len(columns.keys)
    nothing = pa.nulls(count, pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            columns.keys,
            columns.values,
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            columns.offsets,
            columns.positions,
            columns.faults,
            nothing,
            nothing,
        ],
        schema=_SCHEMA,
    )


def _tally(last: LastRecords) -> pa.RecordBatch:
    row = {"records": last.records, "tombstones": last.tombstones}
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)
