"""Ask the brokers for the frontier and the state of each topic.

Offsets are resolved here, on the driver, by one ListOffsets request each for starts and ends. The
ends count every record that the replicas have, as the frontier's do. Only committed records are
read (`read_committed`): with `--exactly-once`, a crash leaves aborted ones before the ends of the
next frontier. Records behind an open transaction cannot be read, and a read would silently wait for
its end, so `require_stable` looks for one before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.backfill import is_frontier_key
from changelog.contract.log.frontier import Frontier, FrontierRecord, frontier_of, is_strange
from changelog.contract.log.topic import schema_noted
from changelog.kafka.cluster import Cluster, TopicEnds, until_led
from changelog.kafka.newest import NewestRecords
from changelog.kafka.scan import OffsetRange, scan
from replay.broker.topic_state import TopicState

STABLE_S = 10.0
"""How long to wait for an open transaction before a frontier's ends."""
_ASK_AGAIN_S = 0.05
_WINDOW = 1000
"""Records that `frontiers_back` reads first."""


def inspect(kafka: KafkaConnection, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return the state of each topic that exists.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    names = list(topics)
    cluster = Cluster(kafka)

    def ask() -> dict[str, TopicState]:
        cluster_id, standings = cluster.id(), cluster.standing(names)
        settings = cluster.settings(standings)
        return {
            name: TopicState(
                topic=name,
                topic_id=place.topic_id,
                cluster_id=cluster_id,
                settings=settings[name],
                log_starts=place.starts,
                ends=place.ends,
                leader_epochs=place.leader_epochs,
            )
            for name, place in standings.items()
        }

    return until_led(ask)


def list_topics(kafka: KafkaConnection) -> list[str]:
    """Return the names of all topics but Kafka's own.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    return [name for name in Cluster(kafka).names() if not name.startswith("__")]


def cleanable_ends(
    kafka: KafkaConnection,
    states: Mapping[str, TopicState],
    *,
    lags_ms: Mapping[str, int],
    now_ms: int,
) -> dict[str, tuple[int, ...]]:
    """Return per partition the first offset that the cleaner has not reached yet.

    `lags_ms`: per topic how old a record must be before it makes the cleaner remove an older one.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    times_ms = {
        (topic, partition): max(0, now_ms - lags_ms[topic])
        for topic, state in states.items()
        for partition in range(state.partitions)
    }
    offsets = Cluster(kafka).since(times_ms)
    places = {
        at: states[at[0]].ends[at[1]] if offset is None else offset
        for at, offset in offsets.items()
    }
    return _by_topic(states, places)


def stable_ends(
    kafka: KafkaConnection, states: Mapping[str, TopicState]
) -> dict[str, tuple[int, ...]]:
    """Return each partition's first unreadable offset: of an open transaction, or the end.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    partitions = [(topic, n) for topic, state in states.items() for n in range(state.partitions)]
    return _by_topic(states, Cluster(kafka).ends(partitions, committed=True))


def _by_topic(
    states: Mapping[str, TopicState], offsets: Mapping[tuple[str, int], int]
) -> dict[str, tuple[int, ...]]:
    return {
        topic: tuple(offsets[topic, n] for n in range(state.partitions))
        for topic, state in states.items()
    }


def require_stable(
    kafka: KafkaConnection,
    frontier: Frontier,
    states: Mapping[str, TopicState],
    *,
    patience_s: float = STABLE_S,
) -> None:
    """Check that no transaction is open before a frontier's ends; waits for one a moment.

    The transaction of the frontier itself has been committed when the frontier can be read, but the
    brokers may still have to write its markers to each partition. A log that ends before the
    frontier is not reported here: that it lost records is for the verdict to say.

    Raises UnavailableLogError: one stays open, or the brokers do not answer; LogError: they refuse.
    """
    deadline = time.monotonic() + patience_s
    while record := _held_back(stable_ends(kafka, states), frontier, states):
        if time.monotonic() > deadline:
            topic, partition, offset = record
            raise UnavailableLogError(
                f'topic "{topic}", partition {partition}: a transaction is open since offset '
                f"{offset}, and nothing behind it can be read up to the frontier",
                hint="the brokers end it after its producer's timeout, which is a minute for a "
                "capture that died; one that hangs is ended by `kafka-transactions.sh abort`",
            )
        time.sleep(_ASK_AGAIN_S)


def _held_back(
    stable: Mapping[str, tuple[int, ...]], frontier: Frontier, states: Mapping[str, TopicState]
) -> tuple[str, int, int] | None:
    for topic, offsets in stable.items():
        places = zip(offsets, frontier.ends.get(topic, ()), states[topic].ends, strict=False)
        for partition, (offset, end, log_end) in enumerate(places):
            if offset < min(end, log_end):
                return topic, partition, offset
    return None


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
    state = _frontier_topic(kafka, topic)
    return _newest_frontier(NewestRecords(kafka, topic), state, slot)


class NewestFrontier:
    """The newest frontier of a slot, for a caller that asks for it repeatedly.

    It is read again only when the topic has changed since the last time.
    """

    def __init__(self, kafka: KafkaConnection, topic: str, slot: str) -> None:
        """Connect to nothing yet; the first `read` asks the brokers."""
        self._kafka, self._topic, self._slot = kafka, topic, slot
        self._records = NewestRecords(kafka, topic)
        self._last: tuple[TopicState, FrontierRecord] | None = None

    def read(self) -> FrontierRecord:
        """Return the newest frontier; raises as `read_frontier`."""
        state = _frontier_topic(self._kafka, self._topic)
        if self._last is None or self._last[0] != state:
            self._last = state, _newest_frontier(self._records, state, self._slot)
        return self._last[1]


def _newest_frontier(records: NewestRecords, state: TopicState, slot: str | None) -> FrontierRecord:
    topic = state.topic
    ends = TopicEnds(state.topic_id, state.ends, state.leader_epochs, state.log_starts)
    keys = [slot.encode("utf-8")] if slot is not None else records.keys(ends)
    by_slot = {}
    for key in filter(is_frontier_key, keys):
        newest = records.read(key, ends, partial(frontier_of, key))
        if newest is not None:
            by_slot[key.decode("utf-8", "replace")] = newest
    if len(by_slot) > 1:
        raise ConfigurationError(
            f'several slots write to "{topic}": {", ".join(sorted(by_slot))}',
            hint="name the slot to read",
        )
    if not by_slot:
        whose = f' of slot "{slot}"' if slot is not None else ""
        raise NoFrontierError(
            f'there is no frontier{whose} on "{topic}" yet',
            hint="let `changelog capture` finish its first snapshot, or correct the slot's name",
        )
    ((frontier, record),) = by_slot.values()
    return FrontierRecord(frontier, record.offset() or 0, _appended_ms(topic, record))


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

    The cleaner decides how many there are: all that are younger than the topic's
    `min.compaction.lag.ms`, and of the older ones at least the last.

    Raises:
        NoFrontierError: the topic is not there.
        VerdictError: the topic's timestamps are not the broker's.
        CorruptRecordError: a record is not a frontier.
    """
    state = _frontier_topic(kafka, topic)
    own_key = slot.encode("utf-8")
    frontiers: list[FrontierRecord] = []
    for record in _records(kafka, state):
        value = record.value()
        if record.key() == own_key and value is None:  # capture gave the log up and began a new one
            frontiers.clear()
        if record.key() != own_key or value is None or is_strange(own_key, value):
            continue
        frontier = frontier_of(own_key, value)
        if not frontiers or not frontier.is_before(frontiers[-1].frontier):
            appended_ms = _appended_ms(topic, record)
            frontiers.append(FrontierRecord(frontier, record.offset() or 0, appended_ms))
    return frontiers


def frontiers_back(
    kafka: KafkaConnection, topic: str, slot: str, *, before: int
) -> Iterator[Frontier]:
    """Yield the frontiers of a slot before an offset of their topic, the newest first.

    Ends where capture gave a log up. Reads a thousand records first, then more at a time.

    Raises NoFrontierError: the topic is not there; UnavailableLogError: the brokers do not answer.
    """
    state, own_key = _frontier_topic(kafka, topic), slot.encode("utf-8")
    end, window = before, _WINDOW
    while end > state.log_starts[0]:
        start = max(state.log_starts[0], end - window)
        for record in reversed(list(scan(kafka, [OffsetRange(topic, 0, start, end)]))):
            value = record.value()
            if record.key() == own_key and value is None:
                return
            if record.key() == own_key and value is not None and not is_strange(own_key, value):
                yield frontier_of(own_key, value)
        end, window = start, window * 8


def _records(kafka: KafkaConnection, state: TopicState, begin: int = 0) -> Iterator[Message]:
    """Return the records of a topic of one partition, from `begin` or its first offset on."""
    start = max(state.log_starts[0], begin)
    return scan(kafka, [OffsetRange(state.topic, 0, start, state.ends[0])])


def read_schema_topic(kafka: KafkaConnection, topic: str) -> dict[str, list[str]]:
    """Read the schemas that capture stores without a registry, by subject, the oldest first.

    Raises LogError: the topic is not there; UnavailableLogError: the brokers do not answer.
    """
    state = inspect(kafka, [topic]).get(topic)
    if state is None:
        raise LogError(
            f'there is no topic "{topic}", which says what columns the documents have',
            hint="check the topic prefix; `changelog capture` makes it at its first start",
        )
    versions: dict[str, list[str]] = {}
    for message in _records(kafka, state):
        noted = schema_noted(message.key(), message.value())
        if noted is not None:
            versions.setdefault(noted[0], []).append(noted[1])
    return versions


def _appended_ms(topic: str, record: Message) -> int:
    kind, appended_ms = record.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise VerdictError(
            f'topic "{topic}": message.timestamp.type is not LogAppendTime, so the age of a '
            "frontier is not known",
            hint="run `changelog capture --fix-topics`",
        )
    return appended_ms
