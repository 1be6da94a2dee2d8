"""A topic as another program writes it."""

from __future__ import annotations

import io
import json
from contextlib import closing

import fastavro
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # noqa: TID251 - a newest time is told by it alone
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from changelog.contract.rows.codec import frame
from replay.broker.topics import inspect
from tests.support.wait import wait_until

COMPACT = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
    "delete.retention.ms": "3600000",
}
KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}


class Log:
    """A topic of another program."""

    def __init__(self, kafka, registry, topic, *, settings=KEEP, partitions=2):
        self.kafka, self.registry, self.topic = kafka, registry, topic
        self.admin = AdminClient(kafka.client_config())
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result()
        wait_until(lambda: topic in inspect(kafka, [topic]), 30, f"topic {topic}")
        self._producer = Producer(
            kafka.client_config(partitioner="murmur2_random", enable_idempotence=True)
        )

    def put(self, key, value, partition=None):
        raw = [
            part if part is None or isinstance(part, bytes) else json.dumps(part).encode()
            for part in (key, value)
        ]
        more = {} if partition is None else {"partition": partition}
        self._producer.produce(self.topic, key=raw[0], value=raw[1], **more)
        self._producer.flush(30)

    def last_ms(self):
        """Return when the newest record was appended, by the broker."""
        places = [TopicPartition(self.topic, n) for n in (0, 1)]
        spec = OffsetSpec.max_timestamp()
        found = self.admin.list_offsets(dict.fromkeys(places, spec))
        return max(each.result().timestamp for each in found.values())

    def register(self, part, schema):
        with closing(SchemaRegistryClient.new_client(self.registry.client_config())) as client:
            return client.register_schema(
                f"{self.topic}-{part}", Schema(json.dumps(schema), "AVRO")
            )

    def avro(self, schema_id, schema, found):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), found)
        return frame(schema_id) + out.getvalue()
