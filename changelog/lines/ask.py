"""Asks the brokers for a topic's partitions, leaders, and first and last offsets.

Each question raises UnavailableLogError where no broker answers, and LogError where they refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, UnavailableLogError
from changelog.kafka.clients import REQUEST_S
from changelog.kafka.cluster import Cluster, TopicDescription
from changelog.kafka.errors import explained
from changelog.lines.place import Bounds


def find_topic(cluster: Cluster, topic: str) -> TopicDescription:
    """Return a topic as the broker has it; no broker makes it because it is asked for.

    Raises ConfigurationError: there is no such topic.
    """
    cluster.meet()
    description = cluster.describe([topic]).get(topic)
    if description is not None:
        return description
    names = cluster.names()
    near = get_close_matches(topic, names, n=3)
    raise ConfigurationError(
        f'there is no topic "{topic}"',
        hint=f"near it: {', '.join(near)}" if near else f"the cluster has {len(names)} topics",
    )


class Leaders:
    """Tells which broker leads the partition of a record; asked once for each leader's term."""

    def __init__(self, kafka: KafkaConnection) -> None:
        self._cluster = Cluster(kafka)
        self._brokers: dict[tuple[int, int | None], int] = {}

    def of(self, record: Message) -> int:
        """Return the broker's number; -1 where the topic or its leader is gone."""
        partition = record.partition() or 0
        term = partition, record.leader_epoch()
        if term not in self._brokers:
            topic = record.topic() or ""
            description = self._cluster.topics([topic]).get(topic)
            self._brokers[term] = -1 if description is None else description.leaders[partition]
        return self._brokers[term]


def chosen(topic: str, count: int, picked: Collection[int]) -> list[int]:
    """Return the partitions to read: the picked ones, else all.

    Raises ConfigurationError: a topic does not have one.
    """
    lacking = sorted(n for n in picked if n >= count)
    if lacking:
        raise ConfigurationError(
            f'topic "{topic}" has no partition {lacking[0]}', hint=f"it has 0 to {count - 1}"
        )
    return sorted(picked) or list(range(count))


def bounds_of(
    cluster: Cluster, topic: str, partitions: Iterable[int], *, committed: bool = True
) -> dict[int, Bounds]:
    """Return the first and the end offset of partitions; `committed` ends at open transactions."""
    bounds = cluster.bounds([(topic, n) for n in partitions], committed=committed)
    return {n: Bounds(place.start, max(place.start, place.end)) for (_, n), place in bounds.items()}


def offsets_since(
    cluster: Cluster, topic: str, partitions: Iterable[int], ms: int, *, committed: bool = True
) -> dict[int, int | None]:
    """Return the first record of each partition since a time, or None if there is none."""
    offsets = cluster.since({(topic, n): ms for n in partitions}, committed=committed)
    return {n: offset for (_, n), offset in offsets.items()}


def stored_offsets(
    consumer: Consumer, topic: str, partitions: Iterable[int]
) -> dict[int, int | None]:
    """Return per partition where the consumer's group ended, or None if it has read nothing yet."""
    failure = f'cannot read where the group is in topic "{topic}"'
    with explained(failure):
        answers = consumer.committed(
            [TopicPartition(topic, n) for n in partitions], timeout=REQUEST_S
        )
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
    if len(answers) != len({answer.partition for answer in answers}):
        raise UnavailableLogError(f"{failure}: no answer from the brokers")
    return {answer.partition: answer.offset if answer.offset >= 0 else None for answer in answers}
