"""Ask the broker: the frontier, and how each topic stands.

Offsets are resolved here, on the driver, by one ListOffsets request each for starts and ends. The
ends count every record that the replicas have, as the frontier's do. Records are read only when
they are committed (`read_committed`): with `--exactly-once`, a crash leaves aborted ones before the
ends of the next frontier. Nobody sees what lies behind a transaction that is still open, so before
a read it is asked whether one is (`require_stable`): a read would wait for its end without a word.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.backfill import is_frontier_key
from changelog.contract.log.frontier import Frontier, FrontierRecord, is_strange
from changelog.contract.log.topic import schema_noted
from changelog.kafka.errors import Meaning, cause_of, is_missing, log_error, meaning
from changelog.runtime.kafka_clients import QUIET, admin_client
from replay.broker.topic_state import TopicState

log = logging.getLogger("changelog.replay")
TIMEOUT_S = 30.0
STABLE_S = 10.0
"""How long an open transaction before a frontier's ends is waited for."""
_NAP_S = 0.05
_BATCH = 1_000


def inspect(kafka: KafkaConnection, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return the state of each topic that exists.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    wanted = list(topics)
    try:
        return _inspected(kafka, wanted)
    except KafkaException as error:
        raise log_error(error, kafka=kafka) from error


def list_topics(kafka: KafkaConnection) -> list[str]:
    """Return the names of all topics but Kafka's own.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    try:
        with admin_client(kafka) as admin:
            names = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise log_error(error, kafka=kafka) from error
    return sorted(name for name in names if not name.startswith("__"))


def cleanable_ends(
    kafka: KafkaConnection,
    states: Mapping[str, TopicState],
    *,
    lags_ms: Mapping[str, int],
    now_ms: int,
) -> dict[str, tuple[int, ...]]:
    """Return per partition the offset that the cleaner has not passed: all from it on is younger.

    Args:
        kafka: the brokers.
        states: the topics.
        lags_ms: per topic how old a record must be before one before it is removed.
        now_ms: the time.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    asked = {
        (topic, partition): OffsetSpec.for_timestamp(max(0, now_ms - lags_ms[topic]))
        for topic, state in states.items()
        for partition in range(state.partitions)
    }
    try:
        found = _resolved(kafka, asked)
    except KafkaException as error:
        raise log_error(error, kafka=kafka) from error
    return {
        topic: tuple(
            found[topic, partition][0] if found[topic, partition][0] >= 0 else end
            for partition, end in enumerate(state.ends)
        )
        for topic, state in states.items()
    }


def stable_ends(
    kafka: KafkaConnection, states: Mapping[str, TopicState]
) -> dict[str, tuple[int, ...]]:
    """Return per partition the end of what can be read: where the first open transaction begins.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {(topic, n): latest for topic, each in states.items() for n in range(each.partitions)}
    try:
        found = _resolved(kafka, asked, IsolationLevel.READ_COMMITTED)
    except KafkaException as error:
        raise log_error(error, kafka=kafka) from error
    return {
        topic: tuple(found[topic, n][0] for n in range(each.partitions))
        for topic, each in states.items()
    }


def require_stable(
    kafka: KafkaConnection,
    frontier: Frontier,
    states: Mapping[str, TopicState],
    *,
    patience_s: float = STABLE_S,
) -> None:
    """Check that no transaction is open before a frontier's ends; waits for one a moment.

    The one of the frontier itself is over when the frontier can be seen, but for the marks that
    the brokers still have to write to each partition. A log that ends before the frontier holds
    nothing back: that it lost records is for the verdict to say.

    Raises:
        UnavailableLogError: one stays open, or the brokers do not answer.
        LogError: they refuse.
    """
    deadline = time.monotonic() + patience_s
    while held := _held_back(stable_ends(kafka, states), frontier, states):
        if time.monotonic() > deadline:
            topic, partition, offset = held
            raise UnavailableLogError(
                f'topic "{topic}", partition {partition}: a transaction is open since offset '
                f"{offset}, and nothing behind it can be read up to the frontier",
                hint="the brokers end it after its producer's timeout, which is a minute for a "
                "capture that died; one that hangs is ended by `kafka-transactions.sh abort`",
            )
        time.sleep(_NAP_S)


def _held_back(
    stable: Mapping[str, tuple[int, ...]], frontier: Frontier, states: Mapping[str, TopicState]
) -> tuple[str, int, int] | None:
    for topic, offsets in stable.items():
        places = zip(offsets, frontier.ends.get(topic, ()), states[topic].ends, strict=False)
        for partition, (offset, end, log_end) in enumerate(places):
            if offset < min(end, log_end):
                return topic, partition, offset
    return None


def _is_passing(error: BaseException) -> bool:
    """Tell whether a topic is between two leaders, or so new that not every broker knows it."""
    cause = cause_of(error)
    return cause is not None and meaning(cause) in {Meaning.BUSY, Meaning.MISSING}


_until_led = retry(
    retry=retry_if_exception(_is_passing),
    stop=stop_after_delay(10),
    wait=wait_exponential(multiplier=0.05, max=1),
    reraise=True,
)


@_until_led
def _inspected(kafka: KafkaConnection, topics: list[str]) -> dict[str, TopicState]:
    """Ask, and again while a partition is between two leaders, as that of a new topic is."""
    with admin_client(kafka) as admin:
        cluster_id = str(_within(admin.describe_cluster(request_timeout=TIMEOUT_S)).cluster_id)
        described = _describe(admin, topics)
        settings = _settings(admin, described)
        places = [(name, n) for name, each in described.items() for n in range(each.partitions)]
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        starts = _offsets(admin, dict.fromkeys(places, earliest))
        ends = _offsets(admin, dict.fromkeys(places, latest))
        return {
            name: TopicState(
                topic=name,
                topic_id=each.topic_id,
                cluster_id=cluster_id,
                settings=settings[name],
                log_starts=tuple(starts[name, n][0] for n in range(each.partitions)),
                ends=tuple(ends[name, n][0] for n in range(each.partitions)),
                leader_epochs=tuple(ends[name, n][1] for n in range(each.partitions)),
            )
            for name, each in described.items()
        }


@_until_led
def _resolved(
    kafka: KafkaConnection,
    wanted: Mapping[tuple[str, int], OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[tuple[str, int], tuple[int, int]]:
    """Ask for offsets alone, by a client that has met the brokers.

    Where they are the first thing that is asked for, it sometimes waits a second or three first.
    """
    with admin_client(kafka) as admin:
        _within(admin.describe_cluster(request_timeout=TIMEOUT_S))
        return _offsets(admin, wanted, isolation)


@dataclass(frozen=True, slots=True)
class _Described:
    topic_id: str
    partitions: int


def _describe(admin: AdminClient, topics: list[str]) -> dict[str, _Described]:
    found: dict[str, _Described] = {}
    if not topics:
        return found
    futures = admin.describe_topics(TopicCollection(topics), request_timeout=TIMEOUT_S)
    for name, future in futures.items():
        try:
            described = _within(future)
        except KafkaException as error:
            if is_missing(error):
                continue
            raise
        found[name] = _Described(str(described.topic_id), len(described.partitions))
    return found


def _settings(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    if not resources:
        return {}
    futures = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    return {
        resource.name: {name: entry.value or "" for name, entry in _within(future).items()}
        for resource, future in futures.items()
    }


def _offsets(
    admin: AdminClient,
    wanted: Mapping[tuple[str, int], OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return offset and leader epoch of each partition; -1 for an epoch that is not known."""
    if not wanted:
        return {}
    asked = {TopicPartition(*place): spec for place, spec in wanted.items()}
    futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
    found = {}
    for place, future in futures.items():
        answer = _within(future)
        if answer.offset == OFFSET_INVALID:  # what a request that was timed out gives, no error
            raise UnavailableLogError(
                f'where partition {place.partition} of topic "{place.topic}" begins or ends: '
                "no answer from the brokers",
                hint="are they running?",
            )
        epoch = -1 if answer.leader_epoch is None else int(answer.leader_epoch)
        found[place.topic, place.partition] = (int(answer.offset), epoch)
    return found


def _within(future: Future[Any]) -> Any:  # noqa: ANN401 - what the client answers has many types
    return future.result(timeout=TIMEOUT_S + 5)


def read_frontier(kafka: KafkaConnection, topic: str, slot: str | None = None) -> FrontierRecord:
    """Read the newest frontier of a slot; without a slot, of the only one on the topic.

    With a slot it reads backwards from the topic's end, so that it costs the same however long
    the topic is; without one it has to see every record.

    Raises:
        NoFrontierError: the topic or the slot's frontier is not there.
        ConfigurationError: no slot is named and the topic has several.
        VerdictError: the topic's timestamps are not the broker's, so no deadline follows.
        CorruptRecordError: a record is not a frontier.
    """
    return _frontier_of(kafka, _frontier_topic(kafka, topic), slot)


class NewestFrontier:
    """The newest frontier of a slot, for who asks for it again and again.

    What stands at the topic's end is read once: the brokers are asked whether it is the end still.
    """

    def __init__(self, kafka: KafkaConnection, topic: str, slot: str) -> None:
        """Ask nothing yet."""
        self._kafka, self._topic, self._slot = kafka, topic, slot
        self._read: tuple[TopicState, FrontierRecord] | None = None

    def read(self) -> FrontierRecord:
        """Return it; raises as `read_frontier`."""
        state = _frontier_topic(self._kafka, self._topic)
        if self._read is None or self._read[0] != state:
            self._read = state, _frontier_of(self._kafka, state, self._slot)
        return self._read[1]


def _frontier_of(kafka: KafkaConnection, state: TopicState, slot: str | None) -> FrontierRecord:
    topic, newest = state.topic, _newest(kafka, state, slot)
    strange = [each for each in newest.values() if is_strange(each.key(), each.value())]
    if strange:
        for each in strange:
            log.warning(
                'topic "%s", offset %d is passed over: it is no frontier', topic, each.offset()
            )
        newest = _newest(kafka, state, slot, checked=True)
    if slot is None and len(newest) > 1:
        raise ConfigurationError(
            f'several slots write to "{topic}": {", ".join(sorted(newest))}',
            hint="name the slot to read",
        )
    found = newest.get(slot) if slot is not None else next(iter(newest.values()), None)
    if found is None:
        whose = f' of slot "{slot}"' if slot is not None else ""
        raise NoFrontierError(
            f'there is no frontier{whose} on "{topic}" yet',
            hint="let `changelog capture` finish its first snapshot, or correct the slot's name",
        )
    return _frontier_record(topic, found)


def _frontier_topic(kafka: KafkaConnection, topic: str) -> TopicState:
    state = inspect(kafka, [topic]).get(topic)
    if state is None:
        raise NoFrontierError(
            f'there is no frontier topic "{topic}"',
            hint="let `changelog capture` finish its first snapshot, or correct the topic prefix",
        )
    return state


def read_frontiers(kafka: KafkaConnection, topic: str, slot: str) -> list[FrontierRecord]:
    """Read every frontier of a slot that is still on its topic, in the topic's order.

    How many those are is the cleaner's doing: all that are younger than the topic's
    `min.compaction.lag.ms`, and of the older ones at least the last.

    Raises:
        NoFrontierError: the topic is not there.
        VerdictError: the topic's timestamps are not the broker's.
        CorruptRecordError: a record is not a frontier.
    """
    state = _frontier_topic(kafka, topic)
    with closing(consumer_of(kafka)) as consumer:
        begin = TopicPartition(topic, 0, state.log_starts[0])
        wanted = slot.encode("utf-8")
        found = [each for each in _messages(consumer, begin, state.ends[0]) if each.key() == wanted]
    theirs = [each for each in found if is_strange(each.key(), each.value())]
    return [
        _frontier_record(topic, each)
        for each in found
        if each.value() is not None and each not in theirs
    ]


def _newest(
    kafka: KafkaConnection, state: TopicState, slot: str | None, *, checked: bool = False
) -> dict[str, Message]:
    """Return the newest record of each slot; where it is `checked`, of those that are frontiers."""
    start, end = state.log_starts[0], state.ends[0]
    step = _BATCH
    with closing(consumer_of(kafka)) as consumer:
        while True:
            begin = start if slot is None else max(start, end - step)
            newest = _scan(consumer, TopicPartition(state.topic, 0, begin), end, checked=checked)
            if begin <= start or slot in newest:
                return newest
            step *= 10


def _scan(
    consumer: Consumer, begin: TopicPartition, end: int, *, checked: bool
) -> dict[str, Message]:
    """Return the newest frontier of each slot between two offsets."""
    newest: dict[str, Message] = {}
    for message in _messages(consumer, begin, end):
        raw = message.key() or b""
        if is_frontier_key(raw) and not (checked and is_strange(raw, message.value())):
            newest[raw.decode("utf-8", "replace")] = message
    return newest


def _messages(consumer: Consumer, begin: TopicPartition, end: int) -> Iterator[Message]:
    """Read up to the end by position: the last offsets of a cleaned topic may hold nothing."""
    if begin.offset >= end:
        return
    consumer.assign([begin])
    while True:
        # `consume` would wait for a whole batch, at the end of the topic for ever.
        message = consumer.poll(TIMEOUT_S)
        if message is None:
            raise UnavailableLogError(
                f'the topic "{begin.topic}" cannot be read: no answer in {TIMEOUT_S:.0f} s'
            )
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if error is not None:
            raise log_error(error, f'the topic "{begin.topic}" cannot be read')
        yield message
        if (message.offset() or 0) + 1 >= end:
            return


def read_schema_topic(kafka: KafkaConnection, topic: str) -> dict[str, list[str]]:
    """Read the schemas that capture notes where no registry is, by subject, the oldest first.

    Raises:
        LogError: the topic is not there.
        UnavailableLogError: the brokers do not answer.
    """
    state = inspect(kafka, [topic]).get(topic)
    if state is None:
        raise LogError(
            f'there is no topic "{topic}", which says what columns the documents have',
            hint="check the topic prefix; `changelog capture` makes it at its first start",
        )
    versions: dict[str, list[str]] = {}
    begin = TopicPartition(topic, 0, state.log_starts[0])
    with closing(consumer_of(kafka)) as consumer:
        for message in _messages(consumer, begin, state.ends[0]):
            noted = schema_noted(message.key(), message.value())
            if noted is not None:
                versions.setdefault(noted[0], []).append(noted[1])
    return versions


def consumer_of(kafka: KafkaConnection, *, committed: bool = True, **options: float) -> Consumer:
    """Make a consumer that reads places of our choice, commits nothing and tells each end.

    Args:
        kafka: the brokers.
        committed: whether only records are read that are committed.
        options: further settings of librdkafka, with underscores for dots.
    """
    return Consumer(consumer_config(kafka, committed=committed, **options))


def consumer_config(
    kafka: KafkaConnection, *, committed: bool = True, **options: float
) -> dict[str, Any]:
    """Return the settings of a consumer that reads explicit ranges."""
    config = kafka.client_config(
        group_id=f"changelog-{uuid.uuid4()}",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="error",
        **options,
    )
    return {**config, **QUIET}


def _frontier_record(topic: str, message: Message) -> FrontierRecord:
    kind, appended_ms = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise VerdictError(
            f'topic "{topic}": message.timestamp.type is not LogAppendTime, so the age of a '
            "frontier is not known",
            hint="run `changelog capture --fix-topics`",
        )
    value, offset = message.value(), message.offset() or 0
    if value is None:
        raise NoFrontierError(f'the frontier on "{topic}" at offset {offset} was deleted')
    try:
        return FrontierRecord(Frontier.from_json(value), offset, appended_ms)
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f'topic "{topic}", partition 0, offset {offset}: {error.args[0]}'
        ) from error
