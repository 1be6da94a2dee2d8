"""The frontier topic: written by capture, last record per slot wins."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import UnavailableLogError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.sink.producer import LogProducer
from changelog.sink.scan import scan
from changelog.sink.topics import REQUEST_S, admin_client, answered, describe

WRITE_S = 60.0


class FrontierLog:
    """Reads and writes the frontiers of one topic."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._admin = admin_client(kafka)
        self._partitions: dict[str, int] = {}
        self._producer: LogProducer | None = None

    def last(self, slot: str) -> FrontierRecord | None:
        """Give the newest frontier of a slot, or None.

        Raises:
            CorruptRecordError: a record of the slot is not a frontier.
            UnavailableLogError: the broker does not answer.
        """
        if not describe(self._kafka, [self._topic]):
            return None
        (end,) = self.ends([self._topic])[self._topic]
        key, found = slot.encode("utf-8"), None
        for message in scan(self._kafka, self._topic, 0, 0, end):
            if message.key() == key and message.value() is not None:
                found = message
        if found is None:
            return None
        _, appended_ms = found.timestamp()
        return FrontierRecord(
            Frontier.from_json(found.value() or b""), found.offset() or 0, appended_ms
        )

    def write(self, frontier: Frontier) -> None:
        """Append a frontier and wait for the broker's acknowledgement.

        Raises:
            UnavailableLogError: none within a minute.
        """
        if self._producer is None:
            self._producer = LogProducer(self._kafka, {"linger.ms": 0})
        key = frontier.slot.encode("utf-8")
        self._producer.produce(self._topic, key, frontier.to_json().encode("utf-8"), [])
        self._producer.flush(WRITE_S)

    def ends(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Give the end offset of each partition of topics, in one request.

        Raises:
            UnavailableLogError: the broker does not answer.
        """
        unknown = [topic for topic in topics if topic not in self._partitions]
        for topic, found in describe(self._kafka, unknown).items():
            self._partitions[topic] = found.partitions
        missing = [topic for topic in topics if topic not in self._partitions]
        if missing:
            raise UnavailableLogError(f"no such topic: {', '.join(missing)}")
        places = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic in topics
            for partition in range(self._partitions[topic])
        }
        if not places:
            return {}
        asked = self._admin.list_offsets(
            places, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_S
        )
        ends = {topic: [0] * self._partitions[topic] for topic in topics}
        for place, future in asked.items():
            ends[place.topic][place.partition] = answered(future, "cannot read end offsets").offset
        return {topic: tuple(each) for topic, each in ends.items()}

    def close(self) -> None:
        """Let go of the producer."""
        if self._producer is not None:
            self._producer.close()
