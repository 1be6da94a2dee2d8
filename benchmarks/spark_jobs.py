"""What a rebuild is measured beside: its limit, a decoding of all, and the job most people write.

All of them read the offsets of one frontier, in the session of the rebuild.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from benchmarks.order_log import ORDERS
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.schema import value_schema
from replay.base.record_place import TopicRange
from replay.scan.java_source import JavaSource

_BARE = {"includeHeaders": "false"}
_UNTUNED = {
    # The Java client's own defaults.
    "kafka.fetch.max.wait.ms": "500",
    "kafka.max.poll.records": "500",
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.max.partition.fetch.bytes": str(1 << 20),
    "kafka.receive.buffer.bytes": str(64 << 10),
}
_COLUMNS = [column.name for column in ORDERS.columns]


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs on one log.

    Attributes:
        spark: the session.
        kafka: the brokers.
        frontier: what is read up to.
        topic: of the table.
    """

    spark: SparkSession
    kafka: KafkaConnection
    frontier: Frontier
    topic: str

    def read(self) -> None:
        """Read every record to nowhere, without headers: one part of the limit."""
        _to_nowhere(self._raw())

    def record_bytes(self) -> int:
        """Return the bytes of all keys and values, as they are before compression."""
        length = F.length("key") + F.coalesce(F.length("value"), F.lit(0))
        found = self._raw().agg(F.sum(length)).head()
        return int(found[0]) if found else 0

    def decode(self) -> None:
        """Read and decode every record to nowhere."""
        _to_nowhere(self._raw().select(_decoded()))

    def naive(self, target: Path, *, tuned: bool) -> None:
        """Decode everything, number each key's records from the last, keep the first."""
        newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
        decoded = self._raw(tuned=tuned).select("key", "offset", _decoded().alias("row"))
        last = decoded.withColumn("number", F.row_number().over(newest)).where("number = 1")
        rows = last.where("row IS NOT NULL").select("row.*")
        _save(rows.select(*(_plain(rows, name) for name in _COLUMNS)), target)

    def _raw(self, *, tuned: bool = True) -> DataFrame:
        ends = self.frontier.ends[self.topic]
        wanted = TopicRange(topic=self.topic, starts=(0,) * len(ends), ends=ends, key_schema_id=0)
        options = _BARE if tuned else {**_BARE, **_UNTUNED}
        return JavaSource(self.spark, self.kafka, options).raw(wanted)


class FinalRows:
    """The final rows, held in memory: what writing them alone costs is the limit's other part."""

    def __init__(self, spark: SparkSession, source: Path) -> None:
        """Take the rows of a Delta table."""
        self._rows = spark.read.format("delta").load(str(source))
        self._rows.persist(StorageLevel.MEMORY_AND_DISK)
        _to_nowhere(self._rows)

    def write(self, target: Path) -> None:
        """Write them to a new Delta table."""
        _save(self._rows, target)

    def forget(self) -> None:
        """Let go of them."""
        self._rows.unpersist(blocking=True)


def digest(spark: SparkSession, table: Path) -> tuple[int, str]:
    """Return the number of rows of a Delta table, and a hash whatever their order."""
    rows = spark.read.format("delta").load(str(table)).select(*_COLUMNS)
    found = rows.agg(
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.xxhash64(*_COLUMNS).cast("decimal(38,0)")).alias("hash"),
    ).head()
    if found is None:
        raise SystemExit(f"{table} cannot be read")
    return int(found["rows"]), str(found["hash"])


def _decoded() -> Column:
    body = F.expr("substring(value, 6)")
    return from_avro(body, value_schema(ORDERS), {"mode": "FAILFAST"})


def _plain(rows: DataFrame, name: str) -> Column:
    """Take the value out of a union with an escape."""
    column = F.col(name)
    is_union = isinstance(rows.schema[name].dataType, StructType)
    return column.getField("member0").alias(name) if is_union else column


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _save(frame: DataFrame, target: Path) -> None:
    frame.write.format("delta").mode("errorifexists").save(str(target))
