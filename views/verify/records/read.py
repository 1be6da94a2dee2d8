"""Read a topic from the brokers: its identity, its offsets and its messages.

An end is reached by consumer position, never by "the last record is end - 1": compaction and
transactions leave gaps, and only committed records are read. The topic's id, partitions and log
start are asked before and after, since a topic that was deleted and made again, or whose start was
deleted, would look like an older, smaller one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, ResourceType
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.frontier import Frontier, frontier_of, is_strange
from changelog.contract.log.topic import schema_noted
from changelog.kafka.clients import QUIET, admin_client, lent

BATCH_RECORDS = 20_000
_POLLED = 500  # messages of one poll: few enough to stay in the processor's cache
_REQUEST_SECONDS = 30.0
STALL_SECONDS = 60.0
_STABLE_SECONDS = 10.0  # the brokers mark a transaction's end in each partition a moment later
_LAG_SECONDS = 10.0  # an end behind what was acknowledged catches up when its broker has a leader
_WITHOUT_LEADER = {
    KafkaError._NOENT,  # librdkafka's word for partitions without a leader
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_POLL_SECONDS = 0.05  # `consume` waits for a whole batch or for this long


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts about a topic that must not change while it is read."""

    topic_id: str
    starts: tuple[int, ...]


def topic_settings(kafka: KafkaConnection, topic: str) -> dict[str, str]:
    """Ask the brokers for the settings of a topic that are in force now.

    Raises LogError: the topic does not exist; UnavailableLogError: the brokers do not answer.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        with admin_client(kafka) as admin:
            answers = admin.describe_configs([resource], request_timeout=_REQUEST_SECONDS)
            entries = answers[resource].result()
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    return {name: entry.value or "" for name, entry in entries.items()}


def appended_ends(kafka: KafkaConnection, topic: str, count: int) -> list[tuple[int, int]]:
    """Return the present end of each partition, with the epoch of the leader that reported it.

    An epoch is -1 if it is not known.

    Raises LogError: the topic or one of the partitions does not exist; UnavailableLogError: the
    brokers do not answer.
    """
    places = [TopicPartition(topic, number, OFFSET_END) for number in range(count)]
    settings = consumer_settings(kafka, committed=False)
    try:
        with lent(kafka, "appended", lambda: Consumer(settings)) as consumer:
            ends = consumer.offsets_for_times(places, timeout=_REQUEST_SECONDS)
        if errors := [end.error for end in ends if end.error is not None]:
            raise KafkaException(errors[0])
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    epochs = {end.partition: cast("int | None", end.leader_epoch) for end in ends}
    offsets = {end.partition: end.offset for end in ends}
    return [
        (offsets[number], -1 if (epoch := epochs[number]) is None else epoch)
        for number in range(count)
    ]


def appended_ms(kafka: KafkaConnection, topic: str, offset: int, frontier: Frontier) -> int | None:
    """Return when a frontier was appended to its topic, by the broker's clock.

    Returns:
        Milliseconds since 1970; None where another record, or none, is at the offset, or its time
        is not the broker's.

    Raises LogError: the topic does not exist; UnavailableLogError: the brokers do not answer.
    """
    for message in messages(kafka, topic, {0: offset}, {0: offset + 1}):
        clock, at = message.timestamp()
        value = message.value()
        is_same = value is not None and not is_strange(message.key(), value)
        is_same = is_same and frontier_of(message.key(), value or b"") == frontier
        return at if is_same and clock == TIMESTAMP_LOG_APPEND_TIME else None
    return None


def read_schema_topic(kafka: KafkaConnection, topic: str) -> dict[str, list[str]]:
    """Return the schemas that capture stores without a registry, by subject, the oldest first.

    Raises LogError: the topic does not exist; UnavailableLogError: the brokers do not answer.
    """
    ((low, high),) = _places(kafka, topic, 1)
    schemas: dict[str, list[str]] = {}
    for message in messages(kafka, topic, {0: low}, {0: high}):
        noted = schema_noted(message.key(), message.value())
        if noted is not None:
            schemas.setdefault(noted[0], []).append(noted[1])
    return schemas


def beginnings(frontier: Frontier, topic: str, starts: Sequence[int]) -> tuple[int, ...]:
    """Return per partition the first offset that is read of a topic.

    Records before it are superseded by a fresh copy of the table; or they are no part of a declared
    log that is read from a time on.
    """
    alive = frontier.alive_from.get(topic, ())
    firsts = (*alive, *[0] * (len(starts) - len(alive)))
    return tuple(max(pair) for pair in zip(starts, firsts, strict=True))


def topic_facts(kafka: KafkaConnection, frontier: Frontier, topic: str) -> TopicFacts:
    """Ask the brokers what a topic is now, and require that it is the frontier's.

    If an end is before the frontier's, it is asked for again for some seconds before it counts as a
    loss: a leader that has just taken over reports an end behind the acknowledged one (KIP-207).

    Raises:
        LogError: it is another one, has fewer partitions, or ends before the frontier.
        VerdictError: it has lost its beginning.
        UnavailableLogError: the brokers do not answer.
    """
    ends = frontier.ends.get(topic, ())
    topic_id = _topic_id(kafka, topic)
    known_id = frontier.topic_ids.get(topic)
    if known_id and known_id != topic_id:
        raise LogError(
            f'topic "{topic}" has id {topic_id}, but the frontier was taken of {known_id}',
            hint="the topic was made anew: take a new snapshot of its table",
        )
    deadline = None
    while behind := _behind(places := _places(kafka, topic, len(ends), committed=False), ends):
        now = time.monotonic()
        deadline = deadline or now + _LAG_SECONDS
        if now > deadline:
            partition, high = behind
            raise LogError(
                f'topic "{topic}", partition {partition} ends at {high}, '
                f"before the frontier's {ends[partition]}",
                hint="the log lost records: take a new snapshot of its table",
            )
        time.sleep(_POLL_SECONDS)
    starts = [low for low, _ in places]
    lost = frontier.missing_of(topic, starts)
    if lost:
        raise VerdictError(
            f'topic "{topic}": {"; ".join(lost)}, so rows may be missing',
            hint="copy the table anew with `changelog resnapshot`",
        )
    return TopicFacts(topic_id, tuple(starts))


def require_stable(kafka: KafkaConnection, topic: str, ends: Sequence[int]) -> None:
    """Require that no open transaction hides records before the ends."""
    deadline = time.monotonic() + _STABLE_SECONDS
    while behind := _behind(_places(kafka, topic, len(ends)), ends):
        if time.monotonic() > deadline:
            partition, stable = behind
            raise UnavailableLogError(
                f'topic "{topic}", partition {partition}: a transaction is open since '
                f"offset {stable}, before the frontier's end {ends[partition]}",
                hint="a capture that died leaves one open for a minute at most; one that "
                "hangs is ended by `kafka-transactions.sh abort`",
            )
        time.sleep(_POLL_SECONDS)


def read_frontiers(kafka: KafkaConnection, topic: str, slot: str) -> Iterator[Frontier]:
    """Return the frontiers of a slot that are on their topic now, in order.

    A frontier older than the previous one was written by a capture that was replaced, and is left
    out.

    Raises NoFrontierError: the topic does not exist; UnavailableLogError: the brokers do not
    answer.
    """
    if not _exists(kafka, topic):
        raise NoFrontierError(
            f'topic "{topic}" does not exist',
            hint="start `changelog capture`, or correct the topic prefix",
        )
    ((low, high),) = _places(kafka, topic, 1)
    last: Frontier | None = None
    for message in messages(kafka, topic, {0: low}, {0: high}):
        key, value = message.key(), message.value()
        if key == slot.encode() and value is None:  # the log was given up, and began anew
            last = None
        if key != slot.encode() or value is None or is_strange(key, value):
            continue
        frontier = frontier_of(key, value)
        if last is None or not frontier.is_before(last):
            last = frontier
            yield frontier


def stalled(topic: str) -> UnavailableLogError:
    """Return the error about a topic from which no record arrives."""
    return UnavailableLogError(
        f'nothing came from topic "{topic}" for {STALL_SECONDS:.0f} s',
        hint="check that Kafka runs",
    )


def ended_early(topic: str, partition: int, offset: int, end: int) -> LogError:
    """Return the error about a partition that ends before the frontier's end."""
    return LogError(
        f'topic "{topic}", partition {partition} ended at {offset} while it was read, before {end}',
        hint="the log lost records: take a new snapshot of its table",
    )


def refused(topic: str, partition: int, reason: str) -> LogError:
    """Return the error about a partition that the brokers refuse to send."""
    return LogError(f'topic "{topic}", partition {partition} cannot be read: {reason}')


def consumer_settings(kafka: KafkaConnection, *, committed: bool = True) -> dict[str, Any]:
    """Return the settings of a consumer that is assigned its offsets."""
    settings = kafka.client_config(
        group_id="changelog-verify",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="error",
        fetch_wait_max_ms=20,
        fetch_queue_backoff_ms=2,  # by default the client pauses a second when its queue is full
        queued_max_messages_kbytes=8_192,
    )
    return {**settings, **QUIET}


def _code(error: BaseException) -> int | None:
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return cause.code() if isinstance(cause, KafkaError) else None


@retry(
    retry=retry_if_exception(lambda error: _code(error) in _WITHOUT_LEADER),
    stop=stop_after_delay(_LAG_SECONDS),
    wait=wait_fixed(_POLL_SECONDS),
    reraise=True,
)
def _watermarks(
    kafka: KafkaConnection, topic: str, count: int, *, committed: bool
) -> list[tuple[int, int]]:
    """Return the low and high watermarks; asks again while a partition has no leader."""
    settings = consumer_settings(kafka, committed=committed)
    purpose = "committed" if committed else "appended"
    with lent(kafka, purpose, lambda: Consumer(settings)) as consumer:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_REQUEST_SECONDS)
            for number in range(count)
        ]


def _places(
    kafka: KafkaConnection, topic: str, count: int, *, committed: bool = True
) -> list[tuple[int, int]]:
    """Return the start of each partition, and its committed or appended end."""
    try:
        return _watermarks(kafka, topic, count, committed=committed)
    except KafkaException as error:
        raise _unavailable(topic, error) from error


def _behind(places: Sequence[tuple[int, int]], ends: Sequence[int]) -> tuple[int, int] | None:
    """Return the first partition that ends before one of the ends, and where."""
    for partition, ((_, high), end) in enumerate(zip(places, ends, strict=True)):
        if high < end:
            return partition, high
    return None


def _unavailable(topic: str, error: Exception) -> LogError:
    if _code(error) in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}:
        return LogError(
            f'topic "{topic}" or one of its partitions does not exist',
            hint="start `changelog capture`, or correct the topic prefix",
        )
    return UnavailableLogError(
        f'the brokers do not answer about topic "{topic}": {error}',
        hint="check that Kafka runs and that its address is right",
    )


def _exists(kafka: KafkaConnection, topic: str) -> bool:
    try:
        with admin_client(kafka) as admin:
            metadata = admin.list_topics(timeout=_REQUEST_SECONDS)
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    return topic in metadata.topics


def _topic_id(kafka: KafkaConnection, topic: str) -> str:
    from confluent_kafka import TopicCollection  # noqa: PLC0415

    topics = TopicCollection([topic])
    try:
        with admin_client(kafka) as admin:
            answers = admin.describe_topics(topics, request_timeout=_REQUEST_SECONDS)
            return str(answers[topic].result().topic_id)
    except KafkaException as error:
        raise _unavailable(topic, error) from error


def messages(
    kafka: KafkaConnection, topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[Message]:
    """Return the messages of some partitions of a topic, each from its start to its end."""
    return chain.from_iterable(_polled(kafka, topic, starts, ends))


def _polled(
    kafka: KafkaConnection, topic: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[list[Message]]:
    open_ = {part for part, end in ends.items() if end > starts[part]}
    if not open_:
        return
    with closing(Consumer(consumer_settings(kafka))) as consumer:
        consumer.assign([TopicPartition(topic, part, starts[part]) for part in sorted(open_)])
        deadline = time.monotonic() + STALL_SECONDS
        while open_:
            polled = consumer.consume(_POLLED, _POLL_SECONDS)
            if not polled and time.monotonic() > deadline:
                raise stalled(topic)
            if polled:
                deadline = time.monotonic() + STALL_SECONDS
            reading = len(open_)
            yield list(_before_ends(polled, topic, ends, open_))
            if len(open_) < reading:  # partitions that were read to their ends need no more fetches
                consumer.pause(
                    [TopicPartition(topic, part) for part in starts if part not in open_]
                )


def _before_ends(
    polled: Iterable[Message], topic: str, ends: dict[int, int], open_: set[int]
) -> Iterator[Message]:
    """Yield the messages before the ends; removes partitions from `open_` as they reach theirs."""
    for message in polled:
        error = message.error()
        part, offset = message.partition() or 0, message.offset() or 0
        if error is None:
            if offset < ends[part]:
                yield message
            if offset >= ends[part] - 1:
                open_.discard(part)
        elif error.code() == KafkaError._PARTITION_EOF:
            if offset >= ends[part]:
                open_.discard(part)
            else:
                raise ended_early(topic, part, offset, ends[part])
        elif error.retriable() or error.code() in {
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        }:
            continue
        else:
            raise refused(topic, part, error.str())


def place(topic: str, partition: int, offset: int) -> str:
    """Return a record's place as text for messages."""
    return f'topic "{topic}", partition {partition}, offset {offset}'
