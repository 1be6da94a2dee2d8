"""A log written by hand, record by record, as the contract says: for readers of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.partition import partition_of
from changelog.contract.log.topic import TopicSettings, topic_name
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import Relation
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.runtime.tls_trust import authorities
from replay.broker.topics import inspect
from tests.support.wait import wait_until

Texts = Sequence[str | None]


class HandmadeLog:
    """Topics of some relations and the frontier over them; `lsn` grows with each record."""

    def __init__(
        self,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        relations: Sequence[Relation],
        *,
        prefix: str,
        partitions: int = 2,
    ) -> None:
        self.kafka = kafka
        self.registry = registry
        self.prefix = prefix
        self.partitions = partitions
        self.relations = {relation.name: relation for relation in relations}
        self.topics = {name: topic_name(name, prefix) for name in self.relations}
        self.lsn = 1000
        self.since: dict[str, Position] = {}
        self._astray: list[str] = []
        self._ends: dict[str, list[int]] = {t: [0] * partitions for t in self.topics.values()}
        self._codecs = {name: self._codec(relation) for name, relation in self.relations.items()}
        self._producer = Producer(
            kafka.client_config(partitioner="murmur2_random", enable_idempotence=True)
        )
        admin = AdminClient(kafka.client_config())
        made = admin.create_topics(
            [
                NewTopic(topic, partitions, 1, config=TopicSettings().to_config())
                for topic in self.topics.values()
            ]
        )
        for future in made.values():
            future.result(30)
        # Each partition's leader has to know of it, as one that tells where it ends does. In topics
        # that were written to before, now and then the first batch was acknowledged and not there.
        wanted = {*self.topics.values()}
        wait_until(lambda: {*inspect(kafka, wanted)} == wanted, 60, f"topics of {prefix}")

    def put(self, relation: Relation, row: Texts, *, lsn: int | None = None, epoch: int = 1) -> int:
        """Write a row; give its commit LSN."""
        fields = [None if text is None else text.encode() for text in row]
        key = tuple(fields[index] or b"" for index in relation.key_indexes)
        value = self._codecs[relation.name].encode_value(fields)
        return self._produce(relation, key, value, Op.UPDATE, lsn, epoch)

    def delete(
        self, relation: Relation, key: Sequence[str], *, lsn: int | None = None, epoch: int = 1
    ) -> int:
        """Write a tombstone; give its commit LSN."""
        raw = tuple(text.encode() for text in key)
        return self._produce(relation, raw, None, Op.DELETE, lsn, epoch)

    def raw(self, relation: Relation, key: Sequence[str], value: bytes) -> None:
        """Write any bytes as a value."""
        self._produce(relation, tuple(t.encode() for t in key), value, Op.CREATE, None, 1)

    def schema_id(self, relation: Relation) -> int:
        """Return the id of a table's value schema."""
        return self.register(f"{self.topics[relation.name]}-value", value_schema(relation))

    def evolve(self, relation: Relation) -> None:
        self.relations[relation.name] = relation
        self._codecs[relation.name] = self._codec(relation)

    def frontier(self, *, epoch: int = 1) -> Frontier:
        """Deliver all and give the cut behind it."""
        assert self._producer.flush(30) == 0
        assert not self._astray, self._astray[:5]
        admin = AdminClient(self.kafka.client_config())
        from confluent_kafka import TopicCollection

        described = admin.describe_topics(TopicCollection([*self.topics.values()]))
        ids: Mapping[str, str] = {t: str(f.result().topic_id) for t, f in described.items()}
        return Frontier(
            slot=self.prefix,
            epoch=epoch,
            lsn=Lsn(self.lsn + 1),
            ts_us=1_700_000_000_000_000,
            tables={topic: name for name, topic in self.topics.items()},
            topic_ids=ids,
            ends={topic: tuple(ends) for topic, ends in self._ends.items()},
            since=self.since,
        )

    def _produce(
        self,
        relation: Relation,
        key: tuple[bytes, ...],
        value: bytes | None,
        op: Op,
        lsn: int | None,
        epoch: int,
    ) -> int:
        if lsn is None:
            self.lsn += 10
            lsn = self.lsn
        topic = self.topics[relation.name]
        raw_key = self._codecs[relation.name].encode_key(key)
        headers = encode_headers(Position(epoch, Lsn(lsn), 0), op, 1_700_000_000_000_000)
        self._producer.poll(0)
        place = partition_of(raw_key, self.partitions)
        offset = self._ends[topic][place]

        def on_delivery(error, message):
            delivered = (message.partition(), message.offset())
            if error is not None or delivered != (place, offset):
                wanted = f"instead of {(place, offset)}: {error}"
                self._astray.append(f"{topic}: {delivered} {wanted}")

        self._producer.produce(topic, value, raw_key, headers=headers, on_delivery=on_delivery)
        self._ends[topic][place] += 1
        return lsn

    def _codec(self, relation: Relation) -> RowCodec:
        topic = self.topics[relation.name]
        return RowCodec(
            relation,
            key_schema_id=self.register(f"{topic}-key", key_schema(relation)),
            value_schema_id=self.register(f"{topic}-value", value_schema(relation)),
        )

    def register(self, subject: str, schema: str) -> int:
        answer = httpx.post(
            f"{self.registry.url}/subjects/{subject}/versions",
            json={"schema": schema},
            timeout=30,
            verify=authorities(),
        )
        answer.raise_for_status()
        return int(answer.json()["id"])
