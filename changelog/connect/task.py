"""A task of a sink: reads its share of the partitions and writes it to the target.

The offsets are stored in the target, in the transactions of the rows, so a task may be killed,
started twice or started elsewhere at any moment. Its consumer group has a copy for monitors, which
is never read. The task waits for servers that do not answer; any other error ends it.
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
_LOOK_S = 10.0  # how often the task checks whether topics have got partitions
_AGAIN_S = 1.0
_FETCH_BYTES = 4 << 20  # one fetch from a broker, compressed: all of it is held in memory
_RECORD_BYTES = 64 << 20  # the longest record: JSON of this size takes a gigabyte as objects
_CLIENT = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Offsets are checked at the start; records that are removed later must not be skipped silently.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
    # The group has no members; this bounds how long a commit waits for a coordinator.
    "session.timeout.ms": 6_000,
}


@dataclass(frozen=True, slots=True)
class TaskShare:
    """A task's share of the partitions: every `task_count`-th, beginning with its own number."""

    task: int
    task_count: int


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

    `registry` is used if the settings name none. `started` is called when the task begins to read,
    `waits` with the reason why it waits, and with an empty one when it continues.

    Raises ChangelogError: the task cannot continue, and waiting would not help.
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
        wait_for(f"topics that do not exist: {', '.join(missing)}" if missing else "")

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
    """Read from the stored offsets until stopped, or until the partitions have changed.

    Topics in `awaited` did not exist when the task began: they are read from their start. `began`
    is called with the topics that do not exist, once the existing ones are being read.
    """
    group_offsets = GroupOffsets(settings.name)
    config = {**kafka.client_config(group_id=settings.group), **_CLIENT}
    config["fetch.max.bytes"] = max(_FETCH_BYTES, int(str(config.get("message.max.bytes", 0))))
    consumer = make_client(Consumer, config)
    try:
        with ExitStack() as opened:
            target = opened.enter_context(closing(SinkDatabase(settings)))
            partitions, missing = _partitions(consumer, settings.topics, share)
            _check_exists(target, settings, missing)
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
                group_offsets.commit(consumer, places)
                if time.monotonic() - looked > (_AGAIN_S if missing else _LOOK_S):
                    looked = time.monotonic()
                    if _partitions(consumer, settings.topics, share) != (partitions, missing):
                        break
            batches.settle()
            group_offsets.commit(consumer, places, at_once=True)
    except KafkaException as error:
        raise log_error(error, f'cannot read the topics of connector "{settings.name}"') from error
    finally:
        consumer.close()


def shared(partitions: Sequence[Partition], share: TaskShare) -> list[Partition]:
    """Return the partitions of a task.

    >>> shared([("a", 0), ("a", 1), ("b", 0)], TaskShare(0, 2))
    [('a', 0), ('b', 0)]
    """
    return [
        partition
        for number, partition in enumerate(partitions)
        if number % share.task_count == share.task
    ]


def _partitions(
    consumer: Consumer, topics: Sequence[str], share: TaskShare
) -> tuple[list[Partition], list[str]]:
    """Return the partitions of a task, and the topics that do not exist.

    A task waits for them, as Kafka's consumer waits for a topic that it subscribed to.
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


def _check_exists(
    target: SinkDatabase, settings: SinkConnectorSettings, missing: Collection[str]
) -> None:
    """Check that no topic is missing whose records were read before.

    Raises LogError: one is; a new topic of its name would have other records at the same offsets.
    """
    for topic in sorted({topic for topic, _ in target.places()} & {*missing}):
        raise LogError(
            f'topic "{topic}" no longer exists, and connector "{settings.name}" has read a part of '
            "it: the records that it had not read are lost",
            hint="stop the connector and reset its offsets; then it waits for the topic",
        )


def _places(
    cluster: Cluster,
    target: SinkDatabase,
    settings: SinkConnectorSettings,
    partitions: Sequence[Partition],
    awaited: Collection[str],
) -> dict[Partition, int]:
    """Return the next offset of each partition, and store the first one of new partitions.

    Raises LogError: the records at a stored offset no longer exist.
    """
    stored, places, new_places = target.places(), {}, {}
    for partition, (first, end, _) in cluster.bounds(partitions, committed=True).items():
        place = stored.get(partition)
        if place is None:
            at_end = settings.latest and partition[0] not in awaited
            place = new_places[partition] = end if at_end else first
        elif not first <= place <= end:
            raise LogError(
                f'connector "{settings.name}" is at offset {place} of partition {partition[1]} of '
                f'topic "{partition[0]}", which has {first} to {end}',
                hint="records were removed, or the topic was created again: stop the connector and "
                "alter or reset its offsets",
            )
        places[partition] = place
    if new_places:
        target.begin(new_places)
    return places


class _Batches:
    """Writes batches one after another in a thread, while the next one is read."""

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
        """Decode a batch, wait until the previous one is written, and start to write this one."""
        batch = self._read(messages)
        self.settle()
        self._pending = self._writer.submit(self._write, batch)

    def settle(self) -> None:
        """Wait for the batch that is being written; raises its error."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait for the batch that is being written, and ignore its error."""
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
            self._bad.count = count  # the task reads these records again
            raise
        self._places |= batch.moved


@dataclass(frozen=True, slots=True)
class _ReadBatch:
    """The decoded records of a batch."""

    messages: dict[tuple[str, int, int], Message]  # by topic, partition and offset
    requests: list[WriteRequest]  # the changes that the readable records ask for
    unread: list[RefusedRecord]  # the records that could not be decoded
    moved: dict[Partition, int]  # the next offset of each partition after the batch


_TELL_S = 1.0
_ALL_S = 60.0


class GroupOffsets:
    """Commits the offsets of a task to its consumer group, for tools that show its lag.

    They are never read back: the target has the offsets. So a commit that fails is tried again
    later, logged once, and ends nothing. All offsets are committed again now and then, because
    brokers remove those of a group without members.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._committed: dict[tuple[str, int], int] = {}
        self._next = self._next_full = 0.0
        self._has_failed = False

    def commit(
        self, consumer: Consumer, places: Mapping[tuple[str, int], int], *, at_once: bool = False
    ) -> None:
        """Commit the offsets that have changed, at most once a second.

        With `at_once` it does not wait for the second, unless a commit has failed.
        """
        now = time.monotonic()
        if now > self._next_full:
            self._committed, self._next_full = {}, now + _ALL_S
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
                "%s: its group does not show how far it has read, because the brokers refuse the "
                "offsets: %s",
                self._owner,
                errors[0].str(),
            )
