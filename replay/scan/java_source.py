"""A range of a topic -> its records, each with its position.

Start and end are explicit for every partition, so that each action on the frame reads the same
records; `latest` would be another end at every action. An end is reached by the consumer's
position, since a cleaned log has gaps everywhere, at its end too.

Only committed records are read: with `--exactly-once`, aborted ones may lie before the ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.headers import POSITION
from changelog.contract.base.position import POSITION_BYTES
from replay.base.failures import fail
from replay.base.record_place import FAULT, LAST, NO_POSITION, Layer, TopicRange, key_prefix, no_key
from replay.base.task_faults import Fault
from replay.broker.client_options import java_options

# At a topic's end the Java client waits `fetch.max.wait.ms` for more: 500 ms by default, which
# was most of the time of a small scan. Batches are larger since a replay reads everything.
_SPEED = {
    "fetch.max.wait.ms": "10",
    "max.poll.records": "20000",
    "fetch.max.bytes": str(64 << 20),
    "max.partition.fetch.bytes": str(16 << 20),
    "receive.buffer.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True)
class JavaSource:
    """Reads topics with Spark's Kafka source."""

    spark: SparkSession
    kafka: KafkaConnection
    options: Mapping[str, str] = field(default_factory=dict)

    def raw(self, wanted: TopicRange) -> DataFrame:
        """Return the records as the source gives them."""
        client = {**_SPEED, **java_options(self.kafka.options)}
        reader = self.spark.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.kafka.brokers,
                "kafka.isolation.level": "read_committed",
                "assign": json.dumps({wanted.topic: list(range(len(wanted.ends)))}),
                "startingOffsets": _offsets(wanted.topic, wanted.starts),
                "endingOffsets": _offsets(wanted.topic, wanted.ends),
                "includeHeaders": "true",
                "failOnDataLoss": "true",
                **{f"kafka.{name}": value for name, value in client.items()},
                **self.options,
            }
        )
        return reader.load()

    def read(self, wanted: TopicRange, layers: Sequence[Layer] = ()) -> DataFrame:
        """Return `key`, `value`, `partition`, `offset`, `position` of each record.

        With layers, which are starts and ends that together make up the range, each part of a
        partition is a task of its own; Spark's own splitting (`minPartitions`) goes by offsets.

        A record without a position, or with a key under another schema than the pinned one,
        fails the action: the cleaner compares key bytes, so another id is another key, and the
        old key's record would stay for ever. Where faults are kept, `fault` says so beside it,
        and its position is past all others: what it would have done to its key is not known, so
        that it decides about it.
        """
        parts = [replace(wanted, starts=starts, ends=ends) for starts, ends in layers] or [wanted]
        raw = reduce(DataFrame.unionAll, map(self.raw, parts))
        if wanted.keeps_faults:
            return with_faults(raw, wanted.key_schema_id)
        return positioned(raw, wanted.topic, wanted.key_schema_id)


def _offsets(topic: str, offsets: tuple[int, ...]) -> str:
    return json.dumps({topic: {str(partition): each for partition, each in enumerate(offsets)}})


def positioned(raw: DataFrame, topic: str, key_schema_id: int | None) -> DataFrame:
    """Return `key`, `value`, `partition`, `offset` and `position`, checked, of raw records."""
    position = _position()
    return raw.select(
        F.when(_is_key(key_schema_id), F.col("key"))
        .otherwise(_corrupt(topic, no_key(key_schema_id)))
        .alias("key"),
        F.col("value"),
        F.col("partition"),
        F.col("offset"),
        F.when(F.length(position) == POSITION_BYTES, position)
        .otherwise(_corrupt(topic, NO_POSITION))
        .alias("position"),
    )


def with_faults(raw: DataFrame, key_schema_id: int | None) -> DataFrame:
    """Return the same and `fault`; a record with one comes after all others of its key."""
    position = _position()
    fault = F.when(~_is_key(key_schema_id), F.lit(no_key(key_schema_id))).when(
        ~F.coalesce(F.length(position) == POSITION_BYTES, F.lit(False)), F.lit(NO_POSITION)
    )
    found = raw.select(
        "key", "value", "partition", "offset", position.alias("position"), fault.alias(FAULT)
    )
    is_sound = F.col(FAULT).isNull()
    return found.withColumn(
        "position", F.when(is_sound, F.col("position")).otherwise(F.lit(bytearray(LAST)))
    )


def _is_key(schema_id: int | None) -> Column:
    prefix = key_prefix(schema_id)
    begins = F.substring("key", 1, len(prefix)) == F.lit(bytearray(prefix))
    return F.coalesce(begins, F.lit(False))


def _position() -> Column:
    """Take the header by its name; capture writes it first, which saves a search each record.

    Without a lambda, which would keep Spark from compiling the scan to one loop.
    """
    headers = F.col("headers")
    first = F.get(headers, F.lit(0))
    place = F.array_position(headers["key"], F.lit(POSITION)).cast("int") - F.lit(1)
    named = F.get(headers["value"], place)
    return F.when(first["key"] == POSITION, first["value"]).otherwise(named)


def _corrupt(topic: str, why: str) -> Column:
    return fail(Fault.CORRUPT, *place(topic), f": {why}")


def place(topic: str) -> tuple[str | Column, ...]:
    """Return the parts of a message that say where a record stands."""
    return (f'topic "{topic}", partition ', F.col("partition"), ", offset ", F.col("offset"))
