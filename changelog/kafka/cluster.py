"""Questions to the brokers about the cluster: topics, their settings, their first and last offsets.

Errors are of ours, name the topic and come by the one table (`changelog.kafka.errors`). Offsets are
asked for again while a partition is between two leaders (`until_led`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, ConfigSource, NewTopic, ResourceType

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    LogError,
    RefusedAccessError,
    TopicSettingsError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted
from changelog.contract.log.topic import check_name
from changelog.kafka.access import ClientErrors, access_hint
from changelog.kafka.clients import (
    REQUEST_S,
    WAIT_S,
    KeptKafka,
    admin_client,
    lent,
    make_client,
    reading_consumer,
)
from changelog.kafka.errors import ErrorMeaning, cause_of, is_missing, is_passing, log_error

_SOON_S = 10.0
"""Limit of the first answer for callers that do not wait for absent brokers."""
_NAP_S, _LONGEST_NAP_S = 0.05, 1.0
_NO_HINTS: Mapping[int, str] = MappingProxyType({})
Partition = tuple[str, int]
T = TypeVar("T")


class OffsetBounds(NamedTuple):
    """Offsets `[start, end)` of a partition, and the epoch of its leader; -1 if unknown."""

    start: int
    end: int
    epoch: int = -1


class TopicLeaders(NamedTuple):
    """A topic: Kafka's id, and the number of each partition's leader; -1 where it has none."""

    topic_id: str
    leaders: tuple[int, ...]

    @property
    def is_led(self) -> bool:
        """Tell whether each partition has a leader, so that records can be written."""
        return min(self.leaders, default=0) >= 0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the broker has it."""

    topic_id: str  # Kafka's identifier; a topic made anew has another
    partitions: int  # their number
    settings: Mapping[str, str]  # every setting, defaults included
    led: bool = True  # whether each partition has a leader, so that records can be written


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """A topic's id, and per partition its end offset, its leader's epoch and its start offset."""

    topic_id: str
    ends: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    starts: tuple[int, ...]


def nothing() -> None:
    """Stand in for a caller that needs nothing while it waits."""


class Cluster:
    """Asks the brokers, by one admin client: that of a kept connection, or one of its own.

    All methods raise:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        *,
        answer_s: float | None = None,
        on_wait: Callable[[], None] = nothing,
    ) -> None:
        """Ask nothing yet.

        The brokers may take `answer_s` to answer, by default `REQUEST_S`.
        """
        # called again and again while the brokers are slow: a replication connection is lost when
        # nobody speaks on it for `wal_sender_timeout`
        self.on_wait = on_wait
        self._kafka = kafka if isinstance(kafka, KeptKafka) else KeptKafka.of(kafka)
        self._answer_s = REQUEST_S if answer_s is None else answer_s
        self._cluster_id = ""

    def meet(self, *, patient: bool = True) -> str:
        """Return the cluster's identifier: a first question, which is asked once.

        It says why, where the brokers do not let us in.

        What goes wrong on connections is told to a callback alone. An admin client is no safe place
        for one (a run of the tests with it ended in `abort`), so a producer, which has nothing to
        send, connects beside it and listens. If `patient`, it waits for brokers that are not there,
        since they may be on their way.

        Raises RefusedAccessError: none of them lets us in; says why.
        """
        if self._cluster_id:
            return self._cluster_id
        heard = ClientErrors()
        listener = make_client(Producer, {**self._kafka.client_config(), "error_cb": heard})
        brokers = self._kafka.brokers
        failure = f"no Kafka broker answers at {brokers}"

        def listen() -> None:
            listener.poll(0)
            refusal = redacted(heard.refusal())
            if refusal:
                raise RefusedAccessError(
                    f"Kafka at {brokers} does not let us in: {refusal}", hint=access_hint(refusal)
                )
            if not patient and heard.absence():
                raise UnavailableLogError(
                    f"{failure}: {redacted(heard.absence())}", hint=ErrorMeaning.AWAY.value.hint
                )

        answer_s = self._answer_s if patient else min(self._answer_s, _SOON_S)
        with admin_client(self._kafka) as admin:
            future = admin.describe_cluster(request_timeout=answer_s)
            try:
                self._cluster_id = str(answered(future, answer_s, listen).cluster_id)
            except KafkaException as error:
                raise log_error(error, failure) from error
        return self._cluster_id

    def id(self) -> str:
        """Return the cluster's identifier."""
        with admin_client(self._kafka) as admin:
            future = admin.describe_cluster(request_timeout=self._answer_s)
            return str(self._answer(future, "").cluster_id)

    def names(self) -> list[str]:
        """Return the names of all topics, in order."""
        with admin_client(self._kafka) as admin:
            try:
                return sorted(admin.list_topics(timeout=self._answer_s).topics)
            except KafkaException as error:
                raise self._error(error, "cannot list the topics") from error

    def topics(self, names: Iterable[str]) -> dict[str, TopicLeaders]:
        """Return the topics that exist.

        Raises ConfigurationError: a name is none.
        """
        ordered, topics = sorted(set(names)), {}
        for name in ordered:
            check_name(name)
        if not ordered:
            return {}
        with admin_client(self._kafka) as admin:
            futures = admin.describe_topics(
                TopicCollection(ordered), request_timeout=self._answer_s
            )
            for name, future in futures.items():
                try:
                    description = self._answer(future, f'cannot describe topic "{name}"')
                except LogError as error:
                    if not is_missing(error.__cause__):
                        raise
                else:
                    leaders = (partition.leader for partition in description.partitions)
                    topics[name] = TopicLeaders(
                        str(description.topic_id),
                        tuple(-1 if leader is None else leader.id for leader in leaders),
                    )
        return topics

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return every setting of topics, defaults included."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        with admin_client(self._kafka) as admin:
            futures = admin.describe_configs(resources, request_timeout=self._answer_s)
            return {
                resource.name: {
                    name: entry.value
                    for name, entry in self._answer(
                        future, f'cannot read the settings of topic "{resource.name}"'
                    ).items()
                    if entry.value is not None
                }
                for resource, future in futures.items()
            }

    def own_settings(self, name: str) -> dict[str, str]:
        """Return the settings that a topic itself has, without the brokers' defaults."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        with admin_client(self._kafka) as admin:
            future = admin.describe_configs([resource], request_timeout=self._answer_s)[resource]
            entries = self._answer(future, f'cannot read the settings of topic "{name}"')
        of_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            key: entry.value
            for key, entry in entries.items()
            if cast("int", entry.source) == of_topic and entry.value is not None
        }

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist, with their settings."""
        topics = self.topics(names)
        settings = self.settings(topics)
        return {
            name: TopicDescription(
                topic.topic_id, len(topic.leaders), settings[name], led=topic.is_led
            )
            for name, topic in topics.items()
        }

    def created(self, name: str) -> TopicDescription:
        """Return a topic that was just created, once the brokers tell of it."""

        def ask() -> TopicDescription:
            there = self.describe([name])
            if name not in there:
                cause = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                raise LogError(f'the brokers do not tell of topic "{name}"') from cause
            return there[name]

        return until_led(ask)

    def standing(self, names: Iterable[str], *, committed: bool = False) -> dict[str, TopicEnds]:
        """Return the id, start and end offsets of each topic that exists; see `bounds`."""
        ordered = list(names)

        def ask() -> dict[str, TopicEnds]:
            topics, standings = self.topics(ordered), {}
            offsets = self._bounds(
                [(name, n) for name, topic in topics.items() for n in range(len(topic.leaders))],
                committed=committed,
            )
            for name, topic in topics.items():
                bounds = [offsets[name, n] for n in range(len(topic.leaders))]
                starts, ends, epochs = zip(*bounds, strict=True)
                standings[name] = TopicEnds(topic.topic_id, ends, epochs, starts)
            return standings

        return self._until_led(ask)

    def bounds(
        self, partitions: Iterable[Partition], *, committed: bool = False
    ) -> dict[Partition, OffsetBounds]:
        """Return the start and end offsets of partitions.

        With `committed` one ends where its first open transaction begins.
        """
        places = list(partitions)
        return self._until_led(lambda: self._bounds(places, committed=committed))

    def _bounds(
        self, places: Sequence[Partition], *, committed: bool
    ) -> dict[Partition, OffsetBounds]:
        first, last = (
            self._offsets(dict.fromkeys(places, which), committed=committed)
            for which in (OFFSET_BEGINNING, OFFSET_END)
        )
        return {at: OffsetBounds(first[at][0], *last[at]) for at in places}

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = False
    ) -> dict[Partition, int]:
        """Return the ends of partitions, as `bounds` does."""
        return self._listed(dict.fromkeys(partitions, OFFSET_END), committed=committed)

    def since(
        self, times_ms: Mapping[Partition, int], *, committed: bool = False
    ) -> dict[Partition, int | None]:
        """Return the first record of each partition since a time, or None if there is none."""
        offsets = self._listed(times_ms, committed=committed, least=OFFSET_END)
        return {at: None if offset < 0 else offset for at, offset in offsets.items()}

    def _listed(
        self, times: Mapping[Partition, int], *, committed: bool, least: int = 0
    ) -> dict[Partition, int]:
        def ask() -> dict[Partition, int]:
            offsets = self._offsets(times, committed=committed, least=least)
            return {at: offset for at, (offset, _) in offsets.items()}

        return self._until_led(ask)

    def _until_led(self, ask: Callable[[], T]) -> T:
        return until_led(ask, on_wait=self.on_wait, patience_s=self._answer_s)

    def create(
        self,
        topics: Sequence[NewTopic],
        *,
        hints: Mapping[int, str] = _NO_HINTS,
        only_ask: bool = False,
    ) -> None:
        """Make topics; one that is there is left as it is.

        Hints are by the code of an error. With `only_ask` the brokers only say if they would.

        Raises TopicSettingsError: a setting is none, or has a value that is none.
        """
        with admin_client(self._kafka) as admin:
            futures = admin.create_topics(
                list(topics), validate_only=only_ask, request_timeout=self._answer_s
            )
            for name, future in futures.items():
                try:
                    self._answer(future, f'cannot create topic "{name}"')
                except LogError as error:
                    cause = cause_of(error.__cause__)
                    code = KafkaError.NO_ERROR if cause is None else cause.code()
                    if code == KafkaError.TOPIC_ALREADY_EXISTS:
                        continue
                    error.hint = hints.get(code, error.hint)
                    if code == KafkaError.INVALID_CONFIG:
                        raise TopicSettingsError(*error.args, hint=error.hint) from error
                    raise

    def delete(self, names: Sequence[str]) -> Iterator[tuple[str, LogError | None]]:
        """Delete topics, and yield each with why the brokers refuse, or None; one may be gone."""
        with admin_client(self._kafka) as admin:
            futures = admin.delete_topics(list(names), request_timeout=self._answer_s)
            for name, future in futures.items():
                refused = None
                try:
                    self._answer(future, f'cannot delete topic "{name}"')
                except LogError as error:
                    refused = None if is_missing(error.__cause__) else error
                yield name, refused

    def alter(self, resources: Sequence[ConfigResource], *, only_ask: bool = False) -> None:
        """Alter settings of topics, or only ask the brokers whether they would."""
        with admin_client(self._kafka) as admin:
            futures = admin.incremental_alter_configs(
                list(resources), validate_only=only_ask, request_timeout=self._answer_s
            )
            for resource, future in futures.items():
                self._answer(future, f'cannot alter topic "{resource.name}"')

    def _offsets(
        self, times: Mapping[Partition, int], *, committed: bool, least: int = 0
    ) -> dict[Partition, tuple[int, int]]:
        """Return offset and leader's epoch of each partition; -1 for an epoch that is not known.

        `times`: milliseconds since 1970, `OFFSET_BEGINNING` or `OFFSET_END`, which are -2 and -1 in
        a ListOffsets request too (https://kafka.apache.org/protocol).

        A consumer is asked: `AdminClient.list_offsets` crashes the process now and then
        (docs/decisions/0217-offsets-by-a-consumer.md).
        """
        if not times:
            return {}
        failure = f'cannot read the offsets of topic "{min(times)[0]}"'
        places = [TopicPartition(*at, time_ms) for at, time_ms in times.items()]
        name = f"offsets of {'committed' if committed else 'all'} records"

        def make() -> Consumer:
            return reading_consumer(self._kafka, committed=committed)

        with lent(self._kafka, name, make) as consumer:
            ask = partial(consumer.offsets_for_times, places, timeout=self._answer_s)
            try:
                answers = self._waited(ask)
            except KafkaException as error:
                raise self._error(error, failure) from error
            offsets = {}
            for place in answers:
                failure = f'cannot read the offsets of topic "{place.topic}"'
                if place.error is not None:
                    raise self._error(KafkaException(place.error), failure)
                if place.offset < least:
                    raise self._error(_unanswered(), failure)
                epoch = cast("int | None", place.leader_epoch)
                offsets[place.topic, place.partition] = (
                    place.offset,
                    -1 if epoch is None else epoch,
                )
        return offsets

    def _waited(self, ask: Callable[[], T]) -> T:
        """Call a function that waits for the brokers' answer; `on_wait` is called meanwhile."""
        # Signals are for the main thread, which must not stand in a call of C's.
        if self.on_wait is nothing and threading.current_thread() is not threading.main_thread():
            return ask()
        with ThreadPoolExecutor(1) as beside:
            future = beside.submit(ask)
            while not wait([future], timeout=WAIT_S).done:
                self.on_wait()
            return future.result()

    def _answer(self, future: Future[T], failure: str) -> T:
        try:
            return answered(future, self._answer_s, self.on_wait)
        except KafkaException as error:
            raise self._error(error, failure) from error

    def _error(self, error: KafkaException, failure: str) -> LogError:
        """Return an error as ours; brokers are not asked why while somebody else waits for us."""
        ours = log_error(error, failure, kafka=self._kafka if self.on_wait is nothing else None)
        ours.__cause__ = error
        return ours


def answered(future: Future[T], answer_s: float, on_wait: Callable[[], None] = nothing) -> T:
    """Wait for an answer of the brokers; `on_wait` is called again and again meanwhile.

    Raises KafkaException: they refuse, or do not answer.
    """
    deadline = time.monotonic() + 2 * answer_s  # the client itself ends a request before
    while not wait([future], timeout=WAIT_S).done:
        on_wait()
        if time.monotonic() > deadline:
            raise _unanswered()
    return future.result()


def _unanswered() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer from the brokers"))


def until_led(
    ask: Callable[[], T], *, on_wait: Callable[[], None] = nothing, patience_s: float | None = None
) -> T:
    """Ask, and again while partitions have no leader or are too new for every broker to know them.

    `ask` raises an error of the brokers as ours, as `Cluster` does; `on_wait` is called before each
    further question. Without a `patience_s` it is asked for `REQUEST_S`.

    Raises LogError: it did not pass.
    """
    deadline = time.monotonic() + (REQUEST_S if patience_s is None else patience_s)
    nap_s = _NAP_S
    while True:
        try:
            return ask()
        except LogError as error:
            cause = cause_of(error.__cause__)
            passes = cause is not None and (is_passing(cause) or is_missing(cause))
            if not passes or time.monotonic() > deadline:
                raise
        on_wait()
        time.sleep(nap_s)
        nap_s = min(2 * nap_s, _LONGEST_NAP_S)


def describe(kafka: KafkaConnection, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Return the topics that exist, with their settings; raises as `Cluster` does."""
    return Cluster(kafka).describe(names)
