"""Write a table's log by hand, as the contract says and without capture."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, FrontierRecord, Growth
from changelog.contract.log.topic import TopicSettings, frontier_topic
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import Relation, Row
from changelog.contract.rows.schema import key_schema, value_schema
from replay.broker.topics import inspect, read_frontier
from tests.support.wait import wait_until

KEEP = TopicSettings().to_config()
CLEAN_AT_ONCE = {
    **KEEP,
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "100",
    "segment.bytes": str(1 << 20),
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "1000",
}


class LogWriter:
    """A table's topic, its schemas and a frontier topic of its own."""

    def __init__(
        self,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        relation: Relation,
        *,
        prefix: str,
        partitions: int = 2,
        settings: Mapping[str, str] = KEEP,
    ) -> None:
        self.kafka = kafka
        self.relation = relation
        self.topic = f"{prefix}.{relation.name.table}"
        self.frontier_topic = frontier_topic(prefix)
        self._admin = AdminClient(kafka.client_config())
        self._registry = registry
        self._refused: list[object] = []
        self._grown: dict[str, Growth] = {}
        self.reconnect()
        self._lsn = 100
        self.create(self.topic, partitions, settings)
        self.create(self.frontier_topic, 1, KEEP)
        self.evolve(relation)

    def reconnect(self) -> None:
        """Write from here on as another process does: with no memory of what it has sent.

        A broker that has lost records refuses the sequence numbers of the one before for ever.
        """
        self._producer = Producer(
            {
                **self.kafka.client_config(partitioner="murmur2_random", enable_idempotence=True),
                "on_delivery": self._delivered,
            }
        )

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(settings))])
        made[topic].result()
        wait_until(lambda: topic in inspect(self.kafka, [topic]), 30, f"topic {topic}")

    def delete(self) -> None:
        """Delete the table's topic and wait until it is gone."""
        self._admin.delete_topics([self.topic])[self.topic].result()
        wait_until(lambda: not inspect(self.kafka, [self.topic]), 30, "the topic is gone")

    def alter(self, **settings: object) -> None:
        """Change settings of the table's topic; `_` stands for `.`."""
        entries = [
            ConfigEntry(
                name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result()
        wanted = {entry.name: entry.value for entry in entries}
        wait_until(
            lambda: (
                wanted.items() <= inspect(self.kafka, [self.topic])[self.topic].settings.items()
            ),
            30,
            f"settings {wanted}",
        )

    def grow(self, partitions: int) -> None:
        """Add partitions to the table's topic, and write with a producer that knows them."""
        self.flush()
        self._admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result()
        wait_until(
            lambda: inspect(self.kafka, [self.topic])[self.topic].partitions == partitions,
            30,
            f"{partitions} partitions",
        )
        self._grown = {self.topic: Growth(time.time_ns() // 1_000_000, Lsn(self._lsn + 1))}
        self.reconnect()

    def evolve(self, relation: Relation) -> None:
        """Write from here on under the schemas of another version of the table."""
        self.relation = relation
        client = SchemaRegistryClient.new_client(self._registry.client_config())
        with closing(client):
            key, value = (
                client.register_schema(f"{self.topic}-{part}", Schema(schema, "AVRO"))
                for part, schema in (
                    ("key", key_schema(relation)),
                    ("value", value_schema(relation)),
                )
            )
        self.codec = RowCodec(relation, key_schema_id=key, value_schema_id=value)

    def put(self, row: Row, op: Op = Op.CREATE) -> Position:
        key = tuple(row[index] for index in self.relation.key_indexes)
        raw = self.codec.encode_key(key)  # type: ignore[arg-type]
        return self.put_raw(raw, self.codec.encode_value(row), op)

    def delete_key(self, *key: bytes) -> Position:
        """Write a tombstone in a transaction of its own."""
        return self.put_raw(self.codec.encode_key(key), None, Op.DELETE)

    @contextmanager
    def sent_again(self) -> Iterator[None]:
        """Return what is put inside the positions from before the first record of the log."""
        lsn, self._lsn = self._lsn, 0
        yield
        assert self._lsn <= lsn, "more was sent again than was sent"
        self._lsn = lsn

    def put_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        op: Op = Op.CREATE,
        *,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> Position:
        self._lsn += 8
        position = Position(1, Lsn(self._lsn), 0)
        made: list[tuple[str, str | bytes | None]] = [
            *(encode_headers(position, op, 0) if headers is None else headers)
        ]
        self._producer.produce(self.topic, key=key, value=value, headers=made)
        self._producer.poll(0)
        return position

    def flush(self) -> None:
        """Wait for the broker."""
        assert self._producer.flush(30) == 0
        assert not self._refused

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.append(error)

    def freeze(self, **changes: Any) -> FrontierRecord:
        """Write a frontier over all that was put, and read it back as a replay does."""
        self.flush()
        state = inspect(self.kafka, [self.topic])[self.topic]
        frontier = Frontier(
            slot="slot",
            epoch=1,
            lsn=Lsn(self._lsn + 1),
            ts_us=time.time_ns() // 1000,
            cluster_id=state.cluster_id,
            tables={self.topic: self.relation.name},
            topic_ids={self.topic: state.topic_id},
            ends={self.topic: state.ends},
            leader_epochs={self.topic: state.leader_epochs},
            grown=self._grown,
        )
        frontier = replace(frontier, **changes)
        self._producer.produce(self.frontier_topic, key=frontier.slot, value=frontier.to_json())
        self.flush()
        return read_frontier(self.kafka, self.frontier_topic, frontier.slot)
