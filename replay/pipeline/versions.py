"""The versions of a table's rows at a frontier, read from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.lsn import Lsn
from replay.base.record_place import TopicRange
from replay.cut.cut import Cut
from replay.decode.schemas import TopicSchemas
from replay.decode.versions import alive, complete_from, of_log, versions
from replay.scan.java_source import JavaSource


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a table's rows."""

    frame: DataFrame  # a row for each, with the columns of the table and of versions
    complete_from: Lsn  # the LSN from which on none is missing


@contextmanager
def open_versions(
    spark: SparkSession, kafka: KafkaConnection, cut: Cut, schemas: TopicSchemas
) -> Iterator[Versions]:
    """Read the records of a table and yield the versions of its rows.

    The topic is read once and kept for the block: what is complete is known only behind its end.

    Raises VerdictError: the log cannot give the state, or no history, of this table.
    """
    cut.verdict.require()
    frontier, topic, starts = cut.record.frontier, schemas.topic, cut.start_offsets(schemas.topic)
    ends = frontier.ends[topic]
    read = TopicRange(topic=topic, starts=starts, ends=ends, key_schema_id=schemas.key_id)
    records = of_log(JavaSource(spark, kafka).raw(read), schemas)
    records.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        since = complete_from(records, frontier, topic, starts)
        yield Versions(versions(alive(records, frontier, topic), schemas, since), since)
    finally:
        records.unpersist()
