"""Topics that requests name: whether they are there, and whether they may be written to."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import TopicMetadata

from changelog.connect.produce.errors import (
    FORBIDDEN,
    KAFKA,
    KAFKA_LATER,
    NO_PARTITION,
    NO_TOPIC,
    ProduceError,
)
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogError, UnavailableLogError
from changelog.contract.base.secret import redacted
from changelog.contract.log.topic import check_name
from changelog.kafka.clients import REQUEST_S, admin_client
from changelog.kafka.cluster import Cluster
from changelog.sink.claimed import check_unclaimed

_FRESH_S = 30.0
_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class _Look:
    """A topic as it was at a moment."""

    until: float  # from when on it is looked at again, by the monotonic clock
    partitions: int
    refusal: ProduceError | None  # why nobody may write to it


class TopicLooks:
    """Looks at topics, each once in half a minute; any number of threads may use it."""

    def __init__(self, kafka: KafkaConnection) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def check(self, topic: str, partitions: set[int]) -> None:
        """Check that records may be written to partitions of a topic.

        Raises ProduceError: they are not there, or a capture, rebuilds, workers or the brokers keep
        the topic for themselves.
        """
        look = self._looks.get(topic)
        if look is None or look.until < time.monotonic():
            with self._lock:
                look = self._looked(topic)
                if len(self._looks) >= _MOST_KEPT:
                    self._looks.clear()
                self._looks[topic] = look
        if look.refusal is not None:
            raise look.refusal
        if partitions and max(partitions) >= look.partitions:
            raise ProduceError(NO_PARTITION, "Partition not found.")

    def _looked(self, topic: str) -> _Look:
        _check_name(topic)
        try:
            there = Cluster(self._kafka).topics([topic])
            if topic not in there:
                raise ProduceError(NO_TOPIC, "Topic not found.")
            refusal = None
            try:
                check_unclaimed(self._kafka, topic)
            except ConfigurationError as error:
                refusal = ProduceError(FORBIDDEN, str(error.args[0]))
        except LogError as error:
            raise _unanswered(error) from error
        return _Look(time.monotonic() + _FRESH_S, len(there[topic].leaders), refusal)

    def names(self) -> list[str]:
        """Return the names of all topics; raises ProduceError if the brokers do not answer."""
        return sorted(self._metadata())

    def described(self, topic: str) -> dict[str, Any]:
        """Return a topic with its settings and partitions, as the proxy does.

        Raises ProduceError: it is not there, or the brokers do not answer.
        """
        metadata = self._metadata().get(topic)
        if metadata is None:
            raise ProduceError(NO_TOPIC, "Topic not found.")
        try:
            settings = Cluster(self._kafka).settings([topic])[topic]
        except LogError as error:
            raise _unanswered(error) from error
        return {
            "name": topic,
            "configs": dict(settings),
            "partitions": [
                {
                    "partition": number,
                    "leader": partition.leader,
                    "replicas": [
                        {
                            "broker": broker,
                            "leader": broker == partition.leader,
                            "in_sync": broker in partition.isrs,
                        }
                        for broker in partition.replicas
                    ],
                }
                for number, partition in sorted(metadata.partitions.items())
            ],
        }

    def _metadata(self) -> Mapping[str, TopicMetadata]:
        with admin_client(self._kafka) as admin:
            try:
                topics: Mapping[str, TopicMetadata] = admin.list_topics(timeout=REQUEST_S).topics
            except KafkaException as error:
                text = redacted(error.args[0].str())
                raise ProduceError(KAFKA_LATER, f"Retriable Kafka error: {text}") from error
        return topics


def _check_name(topic: str) -> None:
    """Refuse a name that no topic has: no broker can be asked about it."""
    try:
        check_name(topic)
    except ConfigurationError as error:
        raise ProduceError(NO_TOPIC, "Topic not found.") from error


def _unanswered(error: LogError) -> ProduceError:
    code = KAFKA_LATER if isinstance(error, UnavailableLogError) else KAFKA
    return ProduceError(code, f"Kafka error: {error.args[0]}")
