"""Reads the log as a stranger would: confluent-kafka and fastavro, a dictionary for the fold."""

import io
import json
from dataclasses import dataclass, field

import httpx
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from fastavro import parse_schema, schemaless_reader

from changelog.contract.base.headers import decode_headers
from changelog.contract.base.position import Position
from changelog.runtime.tls_trust import authorities
from tests.support.beginnings import remove_before


@dataclass
class Log:
    """Everything between the start of a topic and a frontier's ends.

    Attributes:
        records: (partition, offset, key, value, headers), key and value decoded.
        rows: the fold: live rows by key.
        regressions: streamed records whose position does not grow within their partition.
    """

    records: list = field(default_factory=list)
    rows: dict = field(default_factory=dict)
    regressions: list = field(default_factory=list)


class LogReader:
    """Decodes by writer schema; timestamps and decimals stay as fastavro gives them."""

    def __init__(self, kafka, registry):
        self._kafka = kafka
        self._registry = registry
        self._schemas = {}

    def decode(self, raw, reader=None):
        if raw is None:
            return None
        number = int.from_bytes(raw[1:5], "big")
        if number not in self._schemas:
            answer = httpx.get(f"{self._registry.url}/schemas/ids/{number}", verify=authorities())
            schema = json.loads(answer.json()["schema"])
            self._schemas[number] = parse_schema(schema)
        return schemaless_reader(io.BytesIO(raw[5:]), self._schemas[number], reader)

    def newest(self, topic):
        """Return the newest version of a topic's value schema, as the registry numbers them."""
        answer = httpx.get(
            f"{self._registry.url}/subjects/{topic}-value/versions/latest", verify=authorities()
        )
        return parse_schema(json.loads(answer.json()["schema"]))

    def folded(self, frontier, topic):
        """Return the live rows by key, each read as the newest version of the table."""
        reader, since = self.newest(topic), frontier.since.get(topic)
        last: dict[tuple, tuple[Position, bytes | None]] = {}
        for message in self.messages(topic, frontier.ends[topic]):
            position = decode_headers(message.headers()).position
            key = tuple(self.decode(message.key()).values())
            alive = since is None or position >= since
            if alive and (key not in last or position >= last[key][0]):
                last[key] = position, message.value()
        rows = {key: raw for key, (_, raw) in last.items() if raw is not None}
        return {key: self.decode(raw, reader) for key, raw in rows.items()}

    def messages(self, topic, ends):
        """Return the messages before the ends, those of a partition in their order."""
        consumer = Consumer(
            self._kafka.client_config(
                **{
                    "group.id": "log-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 20,
                }
            )
        )
        open_until = {partition: end for partition, end in enumerate(ends) if end}
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in open_until])
            while open_until:
                for message in consumer.consume(1000, 0.05):
                    yield from self._before(message, open_until)
        finally:
            consumer.close()

    def delete_before(self, topic, partition, offset):
        """Remove the records before an offset, as retention does."""
        admin = AdminClient(self._kafka.client_config())
        remove_before(admin, TopicPartition(topic, partition, offset))

    @staticmethod
    def _before(message, open_until):
        partition = message.partition()
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            open_until.pop(partition, None)
            return
        end = open_until.get(partition, 0)
        if message.offset() < end:
            yield message
        if message.offset() + 1 >= end:
            open_until.pop(partition, None)

    def read(self, frontier, topic):
        log = Log()
        last: dict[int, Position] = {}
        folded: dict[tuple, tuple[Position, dict | None]] = {}
        since = frontier.since.get(topic)
        ends = frontier.ends[topic]
        begins = frontier.begins(topic, [0] * len(ends))
        for message in self.messages(topic, ends):
            if message.offset() < begins[message.partition()]:
                continue
            headers = decode_headers(message.headers())
            key, value = self.decode(message.key()), self.decode(message.value())
            log.records.append((message.partition(), message.offset(), key, value, headers))
            position = headers.position
            # Tombstones of dead keys stand at `since` itself, all at one position.
            if headers.op.value in b"cud" and position != since:
                before = last.get(message.partition())
                if before is not None and position <= before:
                    log.regressions.append((message.offset(), before, position))
                last[message.partition()] = position
            name = tuple(key.values())
            if since is not None and position < since:
                continue
            if name not in folded or position >= folded[name][0]:
                folded[name] = (position, value)
        log.rows = {name: value for name, (_, value) in folded.items() if value is not None}
        return log
