"""Asks the brokers for a topic's partitions, leaders, and first and last offsets."""

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

    Raises:
        ConfigurationError: there is no such topic.
        UnavailableLogError: no broker answers.
        LogError: they refuse.
    """
    cluster.meet()
    found = cluster.describe([topic]).get(topic)
    if found is not None:
        return found
    known = cluster.names()
    near = get_close_matches(topic, known, n=3)
    raise ConfigurationError(
        f'there is no topic "{topic}"',
        hint=f"near it: {', '.join(near)}" if near else f"the cluster has {len(known)} topics",
    )


class Leaders:
    """Tells which broker leads the partition of a record; asked once for each leader's term."""

    def __init__(self, kafka: KafkaConnection) -> None:
        """Prepare; nothing is asked yet."""
        self._cluster = Cluster(kafka)
        self._found: dict[tuple[int, int | None], int] = {}

    def of(self, record: Message) -> int:
        """Return the broker's number; -1 where the topic or its leader is gone.

        Raises:
            UnavailableLogError: the brokers do not answer.
            LogError: they refuse.
        """
        partition = record.partition() or 0
        term = partition, record.leader_epoch()
        if term not in self._found:
            topic = record.topic() or ""
            found = self._cluster.topics([topic]).get(topic)
            self._found[term] = -1 if found is None else found.leaders[partition]
        return self._found[term]


def chosen(topic: str, count: int, wanted: Collection[int]) -> list[int]:
    """Return the partitions to read: those that are wanted, else all.

    Raises:
        ConfigurationError: a topic does not have one.
    """
    lacking = sorted(n for n in wanted if n >= count)
    if lacking:
        raise ConfigurationError(
            f'topic "{topic}" has no partition {lacking[0]}', hint=f"it has 0 to {count - 1}"
        )
    return sorted(wanted) or list(range(count))


def bounds_of(
    cluster: Cluster, topic: str, partitions: Iterable[int], *, committed: bool = True
) -> dict[int, Bounds]:
    """Return the first and the end offset of partitions; `committed` ends at open transactions.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    bounds = cluster.bounds([(topic, n) for n in partitions], committed=committed)
    return {n: Bounds(each.start, max(each.start, each.end)) for (_, n), each in bounds.items()}


def offsets_since(
    cluster: Cluster, topic: str, partitions: Iterable[int], ms: int, *, committed: bool = True
) -> dict[int, int | None]:
    """Return the first record of each partition since a time, or None if there is none.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    offsets = cluster.since({(topic, n): ms for n in partitions}, committed=committed)
    return {n: offset for (_, n), offset in offsets.items()}


def stored_offsets(
    consumer: Consumer, topic: str, partitions: Iterable[int]
) -> dict[int, int | None]:
    """Return per partition where the consumer's group ended, or None if it has read nothing yet.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    what = f'cannot read where the group is in topic "{topic}"'
    with explained(what):
        found = consumer.committed(
            [TopicPartition(topic, n) for n in partitions], timeout=REQUEST_S
        )
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
    if len(found) != len({each.partition for each in found}):
        raise UnavailableLogError(f"{what}: no answer from the brokers")
    return {each.partition: each.offset if each.offset >= 0 else None for each in found}
