"""A range of a topic of another program -> its records, by Spark's own source.

Start and end are explicit for every partition, so that each action on the frame reads the same
records; `latest` would be another end at every action. An end is reached by the consumer's
position, since a cleaned log has gaps everywhere, at its end too.

Only committed records are read: with `--exactly-once`, aborted ones may lie before the ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.connection import KafkaConnection
from replay.base.record_place import TopicRange
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

    def raw(self, topic_range: TopicRange) -> DataFrame:
        """Return the records as the source gives them."""
        client = {**_SPEED, **java_options(self.kafka.options)}
        reader = self.spark.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.kafka.brokers,
                "kafka.isolation.level": "read_committed",
                "assign": json.dumps({topic_range.topic: list(range(len(topic_range.ends)))}),
                "startingOffsets": _offsets(topic_range.topic, topic_range.starts),
                "endingOffsets": _offsets(topic_range.topic, topic_range.ends),
                "includeHeaders": "true",
                "failOnDataLoss": "true",
                **{f"kafka.{name}": value for name, value in client.items()},
                **self.options,
            }
        )
        return reader.load()


def _offsets(topic: str, offsets: tuple[int, ...]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})


def place(topic: str) -> tuple[str | Column, ...]:
    """Return the parts of an error text that name a record's place."""
    return (f'topic "{topic}", partition ', F.col("partition"), ", offset ", F.col("offset"))
