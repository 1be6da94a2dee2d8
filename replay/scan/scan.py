"""A range of a topic -> the last record of each key there, as a frame; reads nothing yet.

The tasks read and fold by themselves (`replay.scan.task`). Usually their result is already the last
record of each key, because a key has one partition. If a key may be in several ranges, because its
topic grew or its partition was cut for more tasks, Spark folds the tasks' results once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.utils import is_remote

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.position import Position
from changelog.native.choice import warn_if_slow
from replay.base.config import ReplaySettings
from replay.base.record_place import FAULT, RECORD, Layer, TopicRange
from replay.broker.client_options import travelling
from replay.broker.probe import refine_density, sample_density
from replay.broker.splits import layers, tasks_of
from replay.result.metrics import counted_by_tasks
from replay.scan import fold
from replay.scan.last_records import FoldRules
from replay.scan.range import PartitionRange
from replay.scan.task import SPARK_SCHEMA, ScanJob, run
from replay.spark.server_look import PARALLELISM

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The Spark session, brokers and settings with which topics are read."""

    spark: SparkSession  # runs the tasks
    kafka: KafkaConnection  # the brokers
    settings: ReplaySettings  # how much memory a task has

    def last_records(
        self,
        topic_range: TopicRange,
        *,
        since: Position | None,
        before: Position,
        has_grown: bool,
        seen: Observation,
    ) -> DataFrame:
        """Return each key's last record, tombstones included, in the columns of `RECORD`.

        If faults are kept, there is a column `fault` too.

        `since`: records before this position are dead; None if there are none. `before`: the first
        position that does not count. `has_grown`: keys may be in several partitions. `seen`: counts
        the `records` read, and the `tombstones` among them.

        Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
        """
        parts = layers_of(self.kafka, topic_range, cores=cores_of(self.spark))
        warn_if_slow()
        ranges = ranges_of(topic_range, parts)
        may_repeat = has_grown or len(ranges) > len({part.partition for part in ranges})
        job = ScanJob(
            kafka=replace(self.kafka, options=travelling(self.kafka.options)),
            topic=topic_range.topic,
            ranges=ranges,
            rules=FoldRules.of(
                topic_range,
                since=since,
                before=before,
                most_bytes=self.settings.task_memory_mb << 20,
            ),
            homes=None if may_repeat else len(topic_range.ends),
        )
        records = counted_by_tasks(by_tasks(self.spark, job), seen)
        if not topic_range.keeps_faults:
            records = records.drop(FAULT)
        return fold.last_of_each_key(records, RECORD[1:]) if may_repeat else records


def by_tasks(spark: SparkSession, job: ScanJob) -> DataFrame:
    """Return the tasks' results, in the columns of `SPARK_SCHEMA`."""

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(job, numbers)

    count = len(job.ranges)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(task, SPARK_SCHEMA)


def ranges_of(topic_range: TopicRange, parts: Iterable[Layer]) -> list[PartitionRange]:
    """Return the ranges of a topic that hold offsets, one a task."""
    return [
        PartitionRange(partition, start, end)
        for starts, ends in list(parts) or [(topic_range.starts, topic_range.ends)]
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
        if start < end
    ]


def layers_of(kafka: KafkaConnection, topic_range: TopicRange, *, cores: int) -> list[Layer]:
    """Cut a range so that its tasks have about as many records; none where partitions suffice.

    Reads a few records here and there, if so many offsets could be worth more tasks.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    topic, partitions = topic_range.topic, len(topic_range.ends)
    offsets = sum(topic_range.ends) - sum(topic_range.starts)
    if tasks_of(offsets, partitions=partitions, cores=cores) <= partitions:
        return []
    density = sample_density(kafka, {topic: (topic_range.starts, topic_range.ends)})[topic]
    tasks = tasks_of(density.records, partitions=partitions, cores=cores)
    if tasks <= partitions:
        return []
    return layers(refine_density(kafka, topic, density, tasks=tasks), tasks)


def cores_of(spark: SparkSession) -> int:
    """Return the number of tasks that run at once; a session on a server has noted it."""
    if is_remote():
        return int(spark.conf.get(PARALLELISM) or 1)
    return spark.sparkContext.defaultParallelism
