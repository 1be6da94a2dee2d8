"""A task of a sink: its share of the partitions, read from its places in the target.

The places live in the target, moved with the rows, so a task may be killed, started twice or
started elsewhere at any moment; its group has a copy for monitors, which nobody reads back. Servers
that are away are waited for; anything else ends the task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from changelog.connect.bad_records import BadRecords
from changelog.connect.postgres.places import OvertakenError, Partition
from changelog.connect.postgres.target import RefusedRecord, SinkDatabase, WriteRequest
from changelog.connect.rules.records.events import Events
from changelog.connect.rules.records.reading import BadRecordError, RecordReading
from changelog.connect.rules.settings import PkMode, SinkConnectorSettings
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import LogError, UnavailableError
from changelog.contract.log.topic import refused_topic, twin_of
from changelog.kafka.clients import REQUEST_S, make_client
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import is_missing, is_passing, log_error
from changelog.kafka.messages import MessageBatches
from changelog.runtime.edge import one_line
from changelog.sink.registry import Schemas

log = logging.getLogger("changelog.connect")

_POLL_S = 0.2
_LOOK_S = 10.0  # how often it looks whether topics have got partitions
_AGAIN_S = 1.0
_FETCH_BYTES = 4 << 20  # compressed, of all partitions of a broker: what is fetched is held whole
_RECORD_BYTES = 64 << 20  # of a record that is read: JSON of this size is a gigabyte of objects
_CLIENT = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Places are checked before; one that vanishes while it is read must not be jumped over.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
    # The group has no members; it is so long that a commit waits for a coordinator.
    "session.timeout.ms": 6_000,
}


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Which task of how many: each has every `of`-th partition."""

    task: int
    of: int


def run_task(
    kafka: KafkaConnection,
    settings: SinkConnectorSettings,
    share: TaskShare,
    stop: threading.Event,
    *,
    registry: RegistryConnection | None = None,
    started: Callable[[], None] = lambda: None,
    waits: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the records of a share until stopped.

    `registry` is for settings that name none. `started` is called when it reads, `waits` with the
    reason why it waits, empty once it goes on.

    Raises ChangelogError: it cannot go on, and waiting would not help; says why.
    """
    schemas = Schemas(settings.registry or registry)
    bad = BadRecords(kafka, settings, share.task)
    reading = RecordReading(
        key_form=settings.key_form,
        value_form=settings.value_form,
        schema=schemas.schema if schemas.is_there else None,
    )

    awaited: set[str] = set()
    reason = ""

    def wait_for(waiting_for: str) -> None:
        nonlocal reason
        if waiting_for and waiting_for != reason:
            log.warning("%s: waiting: %s", settings.name, waiting_for)
        reason = waiting_for
        waits(waiting_for)

    def began(missing: Sequence[str]) -> None:
        started()
        awaited.update(missing)
        wait_for(f"topics that are not there: {', '.join(missing)}" if missing else "")

    with closing(schemas), closing(bad):
        while not stop.is_set():
            try:
                _attempt(
                    kafka,
                    settings,
                    share,
                    stop,
                    bad=bad,
                    reading=reading,
                    awaited=awaited,
                    began=began,
                )
            except OvertakenError as error:
                log.info("%s", one_line(error))
                stop.wait(_POLL_S)
            except UnavailableError as error:
                wait_for(one_line(error))
                stop.wait(_AGAIN_S)


def _attempt(
    kafka: KafkaConnection,
    settings: SinkConnectorSettings,
    share: TaskShare,
    stop: threading.Event,
    *,
    bad: BadRecords,
    reading: RecordReading,
    awaited: Collection[str],
    began: Callable[[Sequence[str]], None],
) -> None:
    """Read from the places until stopped, or until the partitions are others.

    Topics of `awaited` were not there before: they are read from their start. `began` is told which
    topics are not there, once the others are read.
    """
    watched = Watched(settings.name)
    config = {**kafka.client_config(group_id=settings.group), **_CLIENT}
    config["fetch.max.bytes"] = max(_FETCH_BYTES, int(str(config.get("message.max.bytes", 0))))
    consumer = make_client(Consumer, config)
    try:
        with ExitStack() as opened:
            target = opened.enter_context(closing(SinkDatabase(settings)))
            partitions, missing = _partitions(consumer, settings.topics, share)
            _check_there(target, settings, missing)
            places = _places(Cluster(kafka), target, settings, partitions, awaited)
            consumer.assign(
                [TopicPartition(*partition, place) for partition, place in places.items()]
            )
            batches = opened.enter_context(
                closing(_Batches(target, settings, reading, places, bad))
            )
            read = MessageBatches(consumer, settings.batch_size)
            began(missing)
            looked = time.monotonic()
            while not stop.is_set():
                messages = read.next(_POLL_S)
                if messages:
                    batches.take(messages)
                else:
                    batches.settle()
                watched.tell(consumer, places)
                if time.monotonic() - looked > (_AGAIN_S if missing else _LOOK_S):
                    looked = time.monotonic()
                    if _partitions(consumer, settings.topics, share) != (partitions, missing):
                        break
            batches.settle()
            watched.tell(consumer, places, at_once=True)
    except KafkaException as error:
        raise log_error(error, f'cannot read the topics of connector "{settings.name}"') from error
    finally:
        consumer.close()


def shared(partitions: Sequence[Partition], share: TaskShare) -> list[Partition]:
    """Return the partitions of a task.

    >>> shared([("a", 0), ("a", 1), ("b", 0)], Share(0, 2))
    [('a', 0), ('b', 0)]
    """
    return [partition for n, partition in enumerate(partitions) if n % share.of == share.task]


def _partitions(
    consumer: Consumer, topics: Sequence[str], share: TaskShare
) -> tuple[list[Partition], list[str]]:
    """Return the partitions of a task, and the topics that are not there.

    As a consumer of Kafka's that has subscribed to it, a task waits for a topic that is made later.
    """
    partitions: list[Partition] = []
    missing: list[str] = []
    for topic in topics:
        twin = twin_of(topic)
        if twin and consumer.list_topics(twin, timeout=REQUEST_S).topics[twin].partitions:
            raise refused_topic(topic)  # of another group
        metadata = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if metadata.error is not None or not metadata.partitions:
            error = metadata.error
            if error is not None and not is_missing(error):
                raise log_error(error, f'cannot see topic "{topic}"')
            missing.append(topic)
        partitions += [(topic, partition) for partition in sorted(metadata.partitions)]
    return shared(partitions, share), missing


def _check_there(
    target: SinkDatabase, settings: SinkConnectorSettings, missing: Collection[str]
) -> None:
    """Check that no topic is gone of which records were read.

    Raises LogError: one is; made anew, it would have other records at the same places.
    """
    for topic in sorted({topic for topic, _ in target.places()} & {*missing}):
        raise LogError(
            f'there is no topic "{topic}" any more, and connector "{settings.name}" has places in '
            "it: records that it had not read are lost",
            hint="stop the connector and reset its offsets: it waits for the topic then",
        )


def _places(
    cluster: Cluster,
    target: SinkDatabase,
    settings: SinkConnectorSettings,
    partitions: Sequence[Partition],
    awaited: Collection[str],
) -> dict[Partition, int]:
    """Return the next offset of each partition; store the first one of new partitions.

    Raises LogError: a place is not on the log any more.
    """
    stored, places, begun = target.places(), {}, {}
    for partition, (first, end, _) in cluster.bounds(partitions, committed=True).items():
        place = stored.get(partition)
        if place is None:
            at_end = settings.latest and partition[0] not in awaited
            place = begun[partition] = end if at_end else first
        elif not first <= place <= end:
            raise LogError(
                f'connector "{settings.name}" is at {place} of partition {partition[1]} of topic '
                f'"{partition[0]}", which has {first} to {end}',
                hint="records were removed, or the topic was made anew: stop the connector and "
                "alter or reset its offsets",
            )
        places[partition] = place
    if begun:
        target.begin(begun)
    return places


class _Batches:
    """Writes batches one after the other in a thread, while the next one is read."""

    def __init__(
        self,
        target: SinkDatabase,
        settings: SinkConnectorSettings,
        reading: RecordReading,
        places: dict[Partition, int],
        bad: BadRecords,
    ) -> None:
        self._target, self._settings, self._reading = target, settings, reading
        self._places, self._bad = places, bad
        self._events = Events(settings, reading)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{settings.name}-writer")
        self._pending: Future[None] | None = None

    def take(self, messages: Sequence[Message]) -> None:
        """Read a batch, wait for the one before, and have this one written."""
        batch = self._read(messages)
        self.settle()
        self._pending = self._writer.submit(self._write, batch)

    def settle(self) -> None:
        """Wait for the batch that is being written; raises its error."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait for the batch that is being written, whatever becomes of it."""
        self._writer.shutdown()

    def _read(self, messages: Sequence[Message]) -> _ReadBatch:
        batch = _ReadBatch({}, [], [], {})
        has_key = self._settings.pk_mode is PkMode.RECORD_KEY
        for message in messages:
            error = message.error()
            if error is not None:
                raise log_error(
                    error, f'cannot read the topics of connector "{self._settings.name}"'
                )
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            key, value = message.key(), message.value()
            batch.messages[place] = message
            batch.moved[place[:2]] = place[2] + 1
            if value is not None and len(value) > _RECORD_BYTES:
                fault = f"the value has {len(value):,} bytes, more than {_RECORD_BYTES:,}"
                batch.unread.append(RefusedRecord(place, fault))
                continue
            try:
                operations = self._events.operations(key, value)
                shape = self._reading.shape(key if has_key else None, value)
            except BadRecordError as why:
                batch.unread.append(RefusedRecord(place, str(why)))
            else:
                batch.requests.append(WriteRequest(place, operations, *shape))
        return batch

    def _write(self, batch: _ReadBatch) -> None:
        moves = {
            partition: (self._places[partition], end) for partition, end in batch.moved.items()
        }
        count = self._bad.count

        def refuse(refused: Sequence[RefusedRecord]) -> None:
            self._bad.tell([*batch.unread, *refused], batch.messages)

        try:
            self._target.write(batch.requests, moves, refuse=refuse)
        except BaseException:
            self._bad.count = count  # these records come again
            raise
        self._places |= batch.moved


@dataclass(frozen=True, slots=True)
class _ReadBatch:
    """Records of a batch, read."""

    messages: dict[tuple[str, int, int], Message]  # by their places
    requests: list[WriteRequest]  # what those ask for that could be read
    unread: list[RefusedRecord]  # those that could not
    moved: dict[Partition, int]  # where each partition goes on behind them


_TELL_S = 1.0
_ALL_S = 60.0


class Watched:
    """Commits the places of a consumer to its group, for tools that watch its lag.

    Nobody goes on from there: the target has the places. So a commit that fails is tried again
    later, told in the log once, and ends nothing. All are committed again now and then, since
    brokers forget the places of a group without members.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._committed: dict[tuple[str, int], int] = {}
        self._next = self._all = 0.0
        self._has_failed = False

    def tell(
        self, consumer: Consumer, places: Mapping[tuple[str, int], int], *, at_once: bool = False
    ) -> None:
        """Commit the places that have moved, once a second, or at once unless that failed."""
        now = time.monotonic()
        if now > self._all:
            self._committed, self._all = {}, now + _ALL_S
        moved = {
            partition: place
            for partition, place in places.items()
            if self._committed.get(partition) != place
        }
        if not moved or (now < self._next and (self._has_failed or not at_once)):
            return
        self._next = now + _TELL_S
        offsets = [TopicPartition(*partition, place) for partition, place in moved.items()]
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False) or []
            errors = [partition.error for partition in committed if partition.error]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            self._committed |= moved
            return
        self._next = now + (_TELL_S if is_passing(errors[0]) else _ALL_S)
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "%s: its group does not show how far it is, since the brokers do not take the "
                "places: %s",
                self._owner,
                errors[0].str(),
            )
