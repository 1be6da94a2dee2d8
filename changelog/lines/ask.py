"""What the broker says of a topic before it is read: its partitions, their beginnings and ends."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, UnavailableLogError
from changelog.kafka.errors import Meaning, cause_of, log_error, meaning
from changelog.lines.place import Bounds
from changelog.sink.client import REQUEST_S, admin_client, answered_offset, meet
from changelog.sink.topics import TopicDescription, describe

_AGAIN_S = 0.1
READER = "changelog-read"
"""As whom is read without a group: the client demands one. Nothing is stored for it."""


def find_topic(kafka: KafkaConnection, topic: str) -> TopicDescription:
    """Return a topic as the broker has it; no broker makes it because it is asked for.

    Raises:
        ConfigurationError: there is no such topic.
        UnavailableLogError: no broker answers.
        LogError: they refuse.
    """
    meet(kafka)
    try:
        found = describe(kafka, [topic])
    except KafkaException as error:
        raise log_error(error, f'cannot describe topic "{topic}"') from error
    if topic not in found:
        raise _unknown(kafka, topic)
    return found[topic]


def _unknown(kafka: KafkaConnection, topic: str) -> ConfigurationError:
    try:
        known = sorted(admin_client(kafka).list_topics(timeout=REQUEST_S).topics)
    except KafkaException as error:
        raise log_error(error, "cannot list the topics") from error
    near = get_close_matches(topic, known, n=3)
    return ConfigurationError(
        f'there is no topic "{topic}"',
        hint=f"near it: {', '.join(near)}" if near else f"the cluster has {len(known)} topics",
    )


class Leaders:
    """Tells which broker leads the partition of a record; asked once for each leader's term."""

    def __init__(self, kafka: KafkaConnection) -> None:
        """Prepare; nothing is asked yet."""
        self._kafka = kafka
        self._found: dict[tuple[int, int | None], int] = {}

    def of(self, record: Message) -> int:
        """Return the broker's number.

        Raises:
            UnavailableLogError: the brokers do not answer.
            LogError: they refuse.
        """
        partition = record.partition() or 0
        term = partition, record.leader_epoch()
        if term not in self._found:
            topic = record.topic() or ""
            try:
                told = admin_client(self._kafka).list_topics(topic, timeout=REQUEST_S)
            except KafkaException as error:
                raise log_error(error, f'cannot tell who leads topic "{topic}"') from error
            self._found[term] = told.topics[topic].partitions[partition].leader
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
    kafka: KafkaConnection, topic: str, partitions: Iterable[int], *, committed: bool = True
) -> dict[int, Bounds]:
    """Return what partitions hold now; with `committed`, up to the first open transaction.

    The leader of a topic that was just made may not know yet that it is: it is asked again.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    deadline, asked = time.monotonic() + REQUEST_S, [*partitions]
    while True:
        try:
            return _bounds(kafka, topic, asked, committed=committed)
        except UnavailableLogError as error:
            cause = cause_of(error.__cause__)
            is_busy = cause is not None and meaning(cause) is Meaning.BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)


def _bounds(
    kafka: KafkaConnection, topic: str, partitions: Sequence[int], *, committed: bool
) -> dict[int, Bounds]:
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    places = [TopicPartition(topic, n) for n in partitions]
    admin = admin_client(kafka)  # held: its requests end with it
    asked = [
        admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=REQUEST_S
        )
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    ]
    what = f'cannot read where topic "{topic}" begins and ends'
    first, end = (
        {place.partition: answered_offset(answer, what).offset for place, answer in each.items()}
        for each in asked
    )
    return {n: Bounds(first[n], max(first[n], end[n])) for n in first}


def offsets_since(
    consumer: Consumer, topic: str, partitions: Iterable[int], ms: int
) -> dict[int, int | None]:
    """Return per partition the first record since a time; None where there is none.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    what = f'cannot find a time in topic "{topic}"'
    try:
        found = consumer.offsets_for_times(
            [TopicPartition(topic, n, ms) for n in partitions], timeout=REQUEST_S
        )
    except KafkaException as error:
        raise log_error(error, what) from error
    for each in found:
        if each.error is not None:
            raise log_error(each.error, what)
    return {each.partition: each.offset if each.offset >= 0 else None for each in found}


def stored_offsets(
    consumer: Consumer, topic: str, partitions: Iterable[int]
) -> dict[int, int | None]:
    """Return per partition where the consumer's group ended; None where it never was.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    what = f'cannot read where the group is in topic "{topic}"'
    try:
        found = consumer.committed(
            [TopicPartition(topic, n) for n in partitions], timeout=REQUEST_S
        )
    except KafkaException as error:
        raise log_error(error, what) from error
    for each in found:
        if each.error is not None:
            raise log_error(each.error, what)
    if len(found) != len({each.partition for each in found}):
        raise UnavailableLogError(f"{what}: no answer from the brokers")
    return {each.partition: each.offset if each.offset >= 0 else None for each in found}
