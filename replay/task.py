"""What a task of Spark runs: a range of a partition -> the last record of each of its keys.

It reads with librdkafka and folds at once, so that Spark never sees a record that was superseded
in its range: neither moved, nor sorted, nor decoded. Imported where the task runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa

from changelog.batch.partition import partitions_of
from changelog.contract.connection import KafkaConnection
from replay.fetch import PartitionRange, batches
from replay.last import Columns, LastRecords, Rules, StrangeRecordError
from replay.marks import Fault, MarkedError

_ROWS, _BYTES = 5_000, 8 << 20
"""Of a batch that goes back to Spark."""

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
SPARK_SCHEMA = (
    "key binary, value binary, partition int, offset bigint, position binary, fault string, "
    "records bigint, tombstones bigint"
)
"""One row a record; and one a range, which has nothing but the numbers of what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the tasks of one scan have to know.

    Attributes:
        kafka: the brokers; its options name no file.
        topic: what is read.
        ranges: one a task.
        rules: which records count.
        homes: the partitions of the topic, where each key has to lie in the one that its hash
            names; None where keys may lie in others too.
    """

    kafka: KafkaConnection
    topic: str
    ranges: Sequence[PartitionRange]
    rules: Rules
    homes: int | None = field(default=None)


def run(job: Job, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the last records of the ranges whose numbers come in.

    Raises:
        MarkedError: the range cannot be read, or holds a record that capture did not write.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _folded(job, job.ranges[number])


def _folded(job: Job, wanted: PartitionRange) -> Iterator[pa.RecordBatch]:
    with _no_search_for_cycles(), closing(LastRecords(job.rules)) as last:
        try:
            for batch in batches(job.kafka, job.topic, wanted):
                last.add(batch)
        except StrangeRecordError as error:
            raise _corrupt(job, wanted, error.offset, error.why) from error
        for found in last.drain(_ROWS):
            if job.homes is not None:
                _check_homes(job, wanted, found, job.homes)
            for part in found.within(_BYTES):
                yield _batch(wanted.partition, part)
        yield _tally(last)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Spare Python the search for cycles among records, which hold none: it took half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_homes(job: Job, wanted: PartitionRange, found: Columns, homes: int) -> None:
    """Check that no other range can hold one of these keys."""
    keys, offsets = found.keys, found.offsets
    if job.rules.keeps_faults:
        sound = [n for n, fault in enumerate(found.faults) if fault is None]
        keys, offsets = [keys[n] for n in sound], [offsets[n] for n in sound]
    places = partitions_of(cast("Sequence[bytes]", keys), homes)
    strays = np.flatnonzero(places != wanted.partition)
    if strays.size:
        first = int(strays[0])
        why = f"its key belongs to partition {places[first]}, so it may be there too"
        raise _corrupt(job, wanted, offsets[first], why)


def _corrupt(job: Job, wanted: PartitionRange, offset: int, why: str) -> MarkedError:
    place = f'topic "{job.topic}", partition {wanted.partition}, offset {offset}'
    return MarkedError(Fault.CORRUPT, f"{place}: {why}")


def _batch(partition: int, found: Columns) -> pa.RecordBatch:
    count = len(found.keys)
    nothing = pa.nulls(count, pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(found.keys, pa.binary()),
            pa.array(found.values, pa.binary()),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(found.offsets, pa.int64()),
            pa.array(found.positions, pa.binary()),
            pa.array(found.faults, pa.string()),
            nothing,
            nothing,
        ],
        schema=_SCHEMA,
    )


def _tally(last: LastRecords) -> pa.RecordBatch:
    row = {"records": last.records, "tombstones": last.tombstones}
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)
