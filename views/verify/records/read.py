"""Read a topic from the brokers: its identity, its offsets and its messages.

An end is reached by consumer position, never by "the last record is end - 1": compaction and
transactions leave gaps, and only committed records are read. The topic's id, partitions and log
start are asked before and after, since a topic that was deleted and made again, or whose start was
deleted, would look like an older, smaller one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
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
REQUEST_SECONDS = 30.0
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
    """Ask the brokers for the settings of a topic; see `settings_of`."""
    return settings_of(kafka, [topic])[topic]


def settings_of(kafka: KafkaConnection, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Ask the brokers for the settings of topics that are in force now.

    Raises LogError: one of them does not exist; UnavailableLogError: the brokers do not answer.
    """
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    settings = {}
    if resources:
        with _explained(*resources), admin_client(kafka) as admin:
            answers = admin.describe_configs([*resources.values()], request_timeout=REQUEST_SECONDS)
            for topic, resource in resources.items():
                with _about(topic):
                    entries = answers[resource].result()
                settings[topic] = {name: entry.value or "" for name, entry in entries.items()}
    return settings


def appended_ends(kafka: KafkaConnection, topic: str, count: int) -> list[tuple[int, int]]:
    """Return the present end of each partition, with the epoch of the leader that reported it.

    An epoch is -1 if it is not known.

    Raises LogError: the topic or one of the partitions does not exist; UnavailableLogError: the
    brokers do not answer.
    """
    with _explained(topic), _consumer(kafka, committed=False) as consumer:
        ends = _offsets(consumer, [(topic, number) for number in range(count)], OFFSET_END)
    epochs = [cast("int | None", end.leader_epoch) for end in ends]
    return [
        (end.offset, -1 if epoch is None else epoch)
        for end, epoch in zip(ends, epochs, strict=True)
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
    ((low, high),) = _places(kafka, {topic: 1})[topic]
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
    """Ask the brokers about a topic; see `facts_of`."""
    return facts_of(kafka, frontier, [topic])[topic]


def facts_of(
    kafka: KafkaConnection, frontier: Frontier, topics: Sequence[str]
) -> dict[str, TopicFacts]:
    """Ask the brokers what topics are now, and require that they are the frontier's.

    If an end is before the frontier's, it is asked for again for some seconds before it counts as a
    loss: a leader that has just taken over reports an end behind the acknowledged one (KIP-207).

    Raises:
        LogError: one is another topic, has fewer partitions, or ends before the frontier.
        VerdictError: it has lost its beginning.
        UnavailableLogError: the brokers do not answer.
    """
    ids = _topic_ids(kafka, topics)
    for topic, topic_id in ids.items():
        known_id = frontier.topic_ids.get(topic)
        if known_id and known_id != topic_id:
            raise LogError(
                f'topic "{topic}" has id {topic_id}, but the frontier was taken of {known_id}',
                hint="the topic was made anew: take a new snapshot of its table",
            )
    ends = {topic: frontier.ends.get(topic, ()) for topic in topics}
    counts, deadline = _counts(ends), None
    while behind := _behind(places := _places(kafka, counts, committed=False), ends):
        now = time.monotonic()
        deadline = deadline or now + _LAG_SECONDS
        if now > deadline:
            topic, partition, high = behind
            raise LogError(
                f'topic "{topic}", partition {partition} ends at {high}, '
                f"before the frontier's {ends[topic][partition]}",
                hint="the log lost records: take a new snapshot of its table",
            )
        time.sleep(_POLL_SECONDS)
    facts = {}
    for topic in topics:
        starts = [low for low, _ in places[topic]]
        if lost := frontier.missing_of(topic, starts):
            raise VerdictError(
                f'topic "{topic}": {"; ".join(lost)}, so rows may be missing',
                hint="copy the table anew with `changelog resnapshot`",
            )
        facts[topic] = TopicFacts(ids[topic], tuple(starts))
    return facts


def require_stable(kafka: KafkaConnection, ends: Mapping[str, Sequence[int]]) -> None:
    """Require that no open transaction hides records before the ends of topics."""
    deadline = time.monotonic() + _STABLE_SECONDS
    while behind := _behind(_places(kafka, _counts(ends)), ends):
        if time.monotonic() > deadline:
            topic, partition, stable = behind
            raise UnavailableLogError(
                f'topic "{topic}", partition {partition}: a transaction is open since '
                f"offset {stable}, before the frontier's end {ends[topic][partition]}",
                hint="a capture that died leaves one open for a minute at most; one that "
                "hangs is ended by `kafka-transactions.sh abort`",
            )
        time.sleep(_POLL_SECONDS)


@contextmanager
def unmoved(
    kafka: KafkaConnection, frontier: Frontier, topics: Sequence[str]
) -> Iterator[dict[str, TopicFacts]]:
    """Require that topics are the frontier's, before the block that reads them and after it.

    Raises:
        LogError: one is another topic, or moved meanwhile.
        VerdictError: it has lost its beginning.
        UnavailableLogError: the brokers do not answer.
    """
    before = facts_of(kafka, frontier, topics)
    require_stable(kafka, {topic: frontier.ends.get(topic, ()) for topic in topics})
    yield before
    after = facts_of(kafka, frontier, topics)
    for topic in topics:
        if after[topic] != before[topic]:
            raise LogError(
                f'topic "{topic}" moved while it was read: another topic id or log start',
                hint="run the verification again; look who made the topic anew or deleted records",
            )


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
    ((low, high),) = _places(kafka, {topic: 1})[topic]
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


def _offsets(
    consumer: Consumer, partitions: Sequence[tuple[str, int]], which: int
) -> list[TopicPartition]:
    """Return the first or the last offset of partitions, with the epoch of its leader."""
    places = [TopicPartition(topic, number, which) for topic, number in partitions]
    answers = consumer.offsets_for_times(places, timeout=REQUEST_SECONDS) if places else []
    if errors := [(answer.topic, answer.error) for answer in answers if answer.error is not None]:
        topic, error = errors[0]
        raise _AboutTopicError(topic, error)
    by_place = {(answer.topic, answer.partition): answer for answer in answers}
    for topic, number in partitions:
        if by_place[topic, number].offset < 0:  # the time was out before it was told
            raise _AboutTopicError(topic, KafkaError(KafkaError._TIMED_OUT))
    return [by_place[place] for place in partitions]


@contextmanager
def _consumer(kafka: KafkaConnection, *, committed: bool) -> Iterator[Consumer]:
    """Lend a consumer for questions about offsets; see docs/decisions/0217."""
    settings = consumer_settings(kafka, committed=committed)
    purpose = "committed" if committed else "appended"
    with lent(kafka, purpose, lambda: Consumer(settings)) as consumer:
        yield consumer


@retry(
    retry=retry_if_exception(lambda error: _code(error) in _WITHOUT_LEADER),
    stop=stop_after_delay(_LAG_SECONDS),
    wait=wait_fixed(_POLL_SECONDS),
    reraise=True,
)
def _watermarks(
    kafka: KafkaConnection, partitions: Sequence[tuple[str, int]], *, committed: bool
) -> list[tuple[int, int]]:
    """Return the low and high watermarks; asks again while a partition has no leader."""
    with _consumer(kafka, committed=committed) as consumer:
        starts = _offsets(consumer, partitions, OFFSET_BEGINNING)
        ends = _offsets(consumer, partitions, OFFSET_END)
    return [(start.offset, end.offset) for start, end in zip(starts, ends, strict=True)]


def _places(
    kafka: KafkaConnection, counts: Mapping[str, int], *, committed: bool = True
) -> dict[str, list[tuple[int, int]]]:
    """Return the start of each partition of topics, and its committed or appended end.

    `counts`: of each topic's partitions.
    """
    partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
    places: dict[str, list[tuple[int, int]]] = {topic: [] for topic in counts}
    with _explained(*counts):
        marks = _watermarks(kafka, partitions, committed=committed)
    for (topic, _), pair in zip(partitions, marks, strict=True):
        places[topic].append(pair)
    return places


def _counts(ends: Mapping[str, Sequence[int]]) -> dict[str, int]:
    return {topic: len(own) for topic, own in ends.items()}


def _behind(
    places: Mapping[str, Sequence[tuple[int, int]]], ends: Mapping[str, Sequence[int]]
) -> tuple[str, int, int] | None:
    """Return the first partition that ends before one of the ends, and where."""
    for topic, own in ends.items():
        for partition, ((_, high), end) in enumerate(zip(places[topic], own, strict=True)):
            if high < end:
                return topic, partition, high
    return None


class _AboutTopicError(KafkaException):
    """An error about one of several topics that were asked about."""

    def __init__(self, topic: str, error: KafkaError) -> None:
        super().__init__(error)
        self.topic = topic


@contextmanager
def _about(topic: str) -> Iterator[None]:
    """Say of an error that it is about a topic."""
    try:
        yield
    except KafkaException as error:
        raise _AboutTopicError(topic, error.args[0]) from error


@contextmanager
def _explained(topic: str = "", *_more: str) -> Iterator[None]:
    """Raise the client's errors about topics as ours; by default they are of the first one.

    Raises LogError: the topic does not exist; UnavailableLogError: the brokers do not answer.
    """
    try:
        yield
    except _AboutTopicError as error:
        raise _unavailable(error.topic, error) from error
    except KafkaException as error:
        raise _unavailable(topic, error) from error


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
            metadata = admin.list_topics(timeout=REQUEST_SECONDS)
    except KafkaException as error:
        raise _unavailable(topic, error) from error
    return topic in metadata.topics


def _topic_ids(kafka: KafkaConnection, topics: Sequence[str]) -> dict[str, str]:
    from confluent_kafka import TopicCollection  # noqa: PLC0415

    if not topics:
        return {}
    ids = {}
    with _explained(*topics), admin_client(kafka) as admin:
        answers = admin.describe_topics(TopicCollection([*topics]), request_timeout=REQUEST_SECONDS)
        for topic in topics:
            with _about(topic):
                ids[topic] = str(answers[topic].result().topic_id)
    return ids


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
