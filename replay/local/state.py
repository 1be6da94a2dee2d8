"""The rows of a table at a cut, folded in this process: partition by partition, in threads.

It reads and folds as the tasks of Spark do (`replay.scan`), by the same C, and needs no session:
what is left of each partition is decoded here. A single row lies in the partition that its key's
hash names, as capture writes it; only of a topic that got more partitions all are read. A key that
lies elsewhere is met, and refused, by whoever reads the partition that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.partition import partition_of
from replay.base.record_place import TopicRange, cut_of
from replay.base.task_faults import MarkedError, TaskFault, error_of, marked
from replay.cut.cut import Cut
from replay.decode.schemas import TopicSchemas
from replay.local.records import Last, WrittenRecord
from replay.local.rows import RowReader
from replay.scan.last_records import FoldRules, LastRecords, RecordBatch, StrangeRecordError
from replay.scan.range import PartitionRange, read_into

OnProgress = Callable[[int], None]
"""Called with the number of records read so far."""
_ROWS, _BYTES = 20_000, 32 << 20
_LOOK_S = 0.1


def ignore_progress(_records: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class LocalScan:
    """Reads one topic up to a cut."""

    kafka: KafkaConnection  # the brokers
    cut: Cut  # what is read; its verdict allows it
    schemas: TopicSchemas  # of the topic
    on_progress: OnProgress = ignore_progress  # called while records are read

    @property
    def _frontier(self) -> Frontier:
        return self.cut.record.frontier

    @property
    def has_grown(self) -> bool:
        """Return whether a key may be in several partitions."""
        return self.schemas.topic in self._frontier.grown

    def ranges(self) -> list[PartitionRange]:
        """Return the range to read of each partition, without empty ones."""
        topic = self.schemas.topic
        starts, ends = self.cut.start_offsets(topic), self._frontier.ends[topic]
        return [
            PartitionRange(number, start, end)
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
            if start < end
        ]

    def ranges_of(self, key: bytes) -> list[PartitionRange]:
        """Return the ranges to read for one key."""
        ranges = self.ranges()
        if self.has_grown:
            return ranges
        home = partition_of(key, len(self._frontier.ends[self.schemas.topic]))
        return [part for part in ranges if part.partition == home]

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows, in no order.

        Raises:
            CorruptRecordError: a record cannot be read; names topic, partition and offset.
            LogError: a value has no place in its column's type.
            VerdictError: records vanished while they were read.
            UnavailableLogError: the brokers stopped answering.
        """
        schema = RowReader(self.schemas, columns).schema
        tables = self.tables(self.ranges(), columns)
        return pa.concat_tables([schema.empty_table(), *tables])

    def tables(
        self, ranges: Sequence[PartitionRange], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of ranges one after the other; of a topic that grew, all at once.

        Raises LogError: as `table`.
        """
        reader = RowReader(self.schemas, columns)
        with ExitStack() as stack:
            folds = self._folded(ranges, stack)
            if self.has_grown:
                yield reader.table(_written(_merged(self._each_batch(folds))))
                return
            for partition, columns_read in self._drained(folds):
                yield reader.table(list(_with_values(partition, columns_read)))

    def last(self, keys: Iterable[bytes]) -> dict[bytes, Last]:
        """Return the last record of some keys, tombstones left out; raises as `table`."""
        names = set(keys)
        places = {part for key in names for part in self.ranges_of(key)}
        array = pa.array(sorted(names), pa.binary())
        with ExitStack() as stack:
            newest = _merged(
                row
                for partition, columns in self._drained(self._folded(sorted(places), stack))
                for row in _rows(partition, columns, pc.is_in(columns.keys, value_set=array))
            )
        return {key: row for key, row in newest.items() if row.value is not None}

    def _folded(
        self, ranges: Sequence[PartitionRange], stack: ExitStack
    ) -> list[tuple[int, LastRecords]]:
        """Read ranges to the last record of each of their keys."""
        topic, frontier = self.schemas.topic, self._frontier
        topic_range = TopicRange(
            topic=topic,
            starts=self.cut.start_offsets(topic),
            ends=frontier.ends[topic],
            key_schema_id=self.schemas.key_id,
        )
        rules = FoldRules.of(
            topic_range,
            since=frontier.since.get(topic),
            before=cut_of(frontier),
            most_bytes=self.cut.settings.task_memory_mb << 20,
        )
        homes = None if self.has_grown else len(frontier.ends[topic])
        folds = [LastRecords(rules, partition=part.partition, homes=homes) for part in ranges]
        for fold in folds:
            stack.callback(fold.close)
        if not ranges:
            return []
        with ThreadPoolExecutor(min(len(ranges), os.cpu_count() or 1), "replay-read") as pool:
            jobs = {
                pool.submit(self._read_range, fold, part)
                for fold, part in zip(folds, ranges, strict=True)
            }
            running = jobs
            while running:
                done, running = wait(running, _LOOK_S, FIRST_COMPLETED)
                self.on_progress(sum(fold.records for fold in folds))
                for job in done:
                    job.result()
        return [(part.partition, fold) for fold, part in zip(folds, ranges, strict=True)]

    def _read_range(self, fold: LastRecords, part: PartitionRange) -> None:
        try:
            read_into(fold, self.kafka, self.schemas.topic, part)
        except MarkedError as error:
            mark = marked(str(error))
            raise error_of(*mark) if mark else error from error
        except StrangeRecordError as error:
            raise self._strange(error, part.partition) from error

    def _strange(self, error: StrangeRecordError, partition: int) -> Exception:
        place = f'topic "{self.schemas.topic}", partition {partition}, offset {error.offset}'
        return error_of(TaskFault.CORRUPT, f"{place}: {error.why}")

    def _drained(
        self, folds: Iterable[tuple[int, LastRecords]]
    ) -> Iterator[tuple[int, RecordBatch]]:
        for partition, fold in folds:
            try:
                for columns in fold.drain(_ROWS, _BYTES):
                    yield partition, columns
            except StrangeRecordError as error:
                raise self._strange(error, partition) from error

    def _each_batch(self, folds: Iterable[tuple[int, LastRecords]]) -> Iterator[Last]:
        for partition, columns in self._drained(folds):
            yield from _rows(partition, columns, None)


def _with_values(partition: int, columns: RecordBatch) -> Iterator[WrittenRecord]:
    for value, offset in zip(columns.values.to_pylist(), columns.offsets.to_pylist(), strict=True):
        if value is not None:
            yield WrittenRecord(value, partition, offset)


def _rows(partition: int, columns: RecordBatch, chosen: pa.BooleanArray | None) -> Iterator[Last]:
    arrays = [columns.keys, columns.positions, columns.values, columns.offsets]
    if chosen is not None:
        arrays = [array.filter(chosen) for array in arrays]
    for key, position, value, offset in zip(*(array.to_pylist() for array in arrays), strict=True):
        yield Last(key, position, value, partition, offset)


def _merged(records: Iterable[Last]) -> dict[bytes, Last]:
    """Return the deciding record of each key, tombstones included."""
    last: dict[bytes, Last] = {}
    for record in records:
        there = last.get(record.key)
        if there is None or there.order < record.order:
            last[record.key] = record
    return last


def _written(last: dict[bytes, Last]) -> list[WrittenRecord]:
    return [
        WrittenRecord(record.value, record.partition, record.offset)
        for record in last.values()
        if record.value is not None
    ]
