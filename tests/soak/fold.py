"""The log folded by a stranger: confluent-kafka, fastavro and a dictionary; no code of ours."""

import io
import json

import httpx
from confluent_kafka import Consumer, KafkaError, TopicPartition
from fastavro import parse_schema, schemaless_reader


class Log:
    def __init__(self, brokers, registry, prefix):
        self._brokers, self._registry, self._prefix = brokers, registry, prefix
        self._schemas = {}

    def newest_frontier(self):
        """Return the last frontier, as the JSON of its record."""
        found = None
        for message in self._messages(f"{self._prefix}._frontier"):
            value = json.loads(message.value()) if message.value() else {}
            if "ends" in value and "lsn" in value:
                found = value
        return found

    def rows(self, frontier, topic):
        """Return the live rows of a topic by key, each read as the newest version of the table."""
        since = _position(frontier["since"].get(topic))
        last: dict[bytes, tuple[bytes, bytes | None]] = {}
        for message in self._messages(topic, frontier["ends"][topic]):
            position = dict(message.headers())["position"]
            if since is None or position >= since:
                key = message.key()
                if key not in last or position >= last[key][0]:
                    last[key] = position, message.value()
        reader = self._newest(topic)
        return [self._decode(raw, reader) for _, raw in last.values() if raw is not None]

    def _newest(self, topic):
        answer = httpx.get(
            f"{self._registry}/subjects/{topic}-value/versions/latest", trust_env=False
        )
        return parse_schema(json.loads(answer.raise_for_status().json()["schema"]))

    def _decode(self, raw, reader):
        number = int.from_bytes(raw[1:5], "big")
        if number not in self._schemas:
            answer = httpx.get(f"{self._registry}/schemas/ids/{number}", trust_env=False)
            self._schemas[number] = parse_schema(
                json.loads(answer.raise_for_status().json()["schema"])
            )
        return schemaless_reader(io.BytesIO(raw[5:]), self._schemas[number], reader)

    def _messages(self, topic, ends=None):
        """Return what was committed of a topic, up to its ends or to the end of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": "soak",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(topic, 30).topics[topic].partitions
            reading = set(partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in reading])
            while reading:
                for message in consumer.consume(1000, 0.2):
                    number = message.partition()
                    if (error := message.error()) is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, str(error)
                        reading.discard(number)
                    elif ends is None or message.offset() < ends[number]:
                        yield message
        finally:
            consumer.close()


def _position(text):
    """Return `epoch:LSN:sequence` as the bytes of the header, which compare as positions do."""
    if text is None:
        return None
    epoch, lsn, sequence = text.split(":")
    high, low = (int(half, 16) for half in lsn.split("/"))
    return b"".join(
        (int(epoch).to_bytes(4), ((high << 32) + low).to_bytes(8), int(sequence).to_bytes(8))
    )
