"""A task of a sink: its share of the partitions, read from its places in the target.

The places live in the target alone, moved with the rows, so a task may be killed, started twice or
started elsewhere at any moment. Servers that are away are waited for; anything else ends the task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.connect.rules.events import BadRecordError, operations
from changelog.connect.rules.settings import SinkSettings
from changelog.connect.target import Asked, OvertakenError, Partition, Refused, Target
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, SinkError, UnavailableError
from changelog.runtime.edge import one_line
from changelog.sink.client import REQUEST_S, log_error, make_client

log = logging.getLogger("changelog.connect")

_POLL_S = 0.2
_LOOK_S = 10.0
"""How often it looks whether topics have got partitions."""
_AGAIN_S = 1.0
_MOST = 50_000
"""Records of a batch, whatever is asked for: a producer of dead letters holds 100,000."""
_PREFIX = "__connect.errors."
_CLIENT = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Places are checked before; one that vanishes while it is read must not be jumped over.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
}


@dataclass(frozen=True, slots=True)
class Share:
    """Which task of how many: each has every `of`-th partition."""

    task: int
    of: int


def run_task(
    kafka: KafkaConnection,
    settings: SinkSettings,
    share: Share,
    stop: threading.Event,
    *,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Write the records of a share until stopped.

    Raises:
        ChangelogError: it cannot go on, and waiting would not help; says why.
    """
    bad = _BadRecords(kafka, settings, share)
    with closing(bad):
        while not stop.is_set():
            try:
                _attempt(kafka, settings, share, stop, bad=bad, started=started)
            except OvertakenError as error:
                log.info("%s", one_line(error))
                stop.wait(_POLL_S)
            except UnavailableError as error:
                log.warning("%s: waiting: %s", settings.name, one_line(error))
                stop.wait(_AGAIN_S)


def _attempt(
    kafka: KafkaConnection,
    settings: SinkSettings,
    share: Share,
    stop: threading.Event,
    *,
    bad: _BadRecords,
    started: Callable[[], None],
) -> None:
    """Read from the places until stopped, or until the partitions are others."""
    config = {**kafka.client_config(group_id=f"connect-{settings.name}"), **_CLIENT}
    consumer = make_client(Consumer, config)
    try:
        with closing(Target(settings)) as target:
            partitions = shared(_partitions(consumer, settings.topics), share)
            places = _places(consumer, target, settings, partitions)
            consumer.assign([TopicPartition(*each, place) for each, place in places.items()])
            started()
            looked = time.monotonic()
            while not stop.is_set():
                messages = consumer.consume(min(settings.batch_size, _MOST), _POLL_S)
                if messages:
                    _write(target, settings, messages, places, bad)
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    if shared(_partitions(consumer, settings.topics), share) != partitions:
                        return
    except KafkaException as error:
        raise log_error(error, f'cannot read the topics of connector "{settings.name}"') from error
    finally:
        consumer.close()


def shared(partitions: Sequence[Partition], share: Share) -> list[Partition]:
    """Return the partitions of a task.

    >>> shared([("a", 0), ("a", 1), ("b", 0)], Share(0, 2))
    [('a', 0), ('b', 0)]
    """
    return [each for n, each in enumerate(partitions) if n % share.of == share.task]


def _partitions(consumer: Consumer, topics: Sequence[str]) -> list[Partition]:
    found: list[Partition] = []
    for topic in topics:
        said = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if said.error is not None or not said.partitions:
            error = said.error
            if (
                error is not None
                and error.retriable()
                and error.code() != error.UNKNOWN_TOPIC_OR_PART
            ):
                raise log_error(error, f'cannot see topic "{topic}"')
            raise LogError(
                f'there is no topic "{topic}"',
                hint="make it, `changelog topics --create`, and restart the task",
            )
        found += [(topic, partition) for partition in sorted(said.partitions)]
    return found


def _places(
    consumer: Consumer, target: Target, settings: SinkSettings, partitions: Sequence[Partition]
) -> dict[Partition, int]:
    """Return where each partition goes on; writes down where new ones begin.

    Raises:
        LogError: a place is not on the log any more.
    """
    stored, places, begun = target.places(), {}, {}
    for each in partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(*each), timeout=REQUEST_S)
        place = stored.get(each)
        if place is None:
            place = begun[each] = end if settings.latest else first
        elif not first <= place <= end:
            raise LogError(
                f'connector "{settings.name}" is at {place} of partition {each[1]} of topic '
                f'"{each[0]}", which has {first} to {end}',
                hint="records were removed, or the topic was made anew: stop the connector and "
                "alter or reset its offsets",
            )
        places[each] = place
    if begun:
        target.begin(begun)
    return places


def _write(
    target: Target,
    settings: SinkSettings,
    messages: Sequence[Message],
    places: dict[Partition, int],
    bad: _BadRecords,
) -> None:
    asked, unread = [], []
    moved: dict[Partition, int] = {}
    by_place: dict[tuple[str, int, int], Message] = {}
    for message in messages:
        error = message.error()
        if error is not None:
            raise log_error(error, f'cannot read the topics of connector "{settings.name}"')
        place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        by_place[place] = message
        moved[place[:2]] = place[2] + 1
        try:
            wanted = operations(settings, message.key(), message.value())
        except BadRecordError as why:
            unread.append(Refused(place, str(why)))
        else:
            asked.append(Asked(place, wanted))
    moves = {each: (places[each], end) for each, end in moved.items()}
    count = bad.count

    def refuse(refused: Sequence[Refused]) -> None:
        bad.tell([*unread, *refused], by_place)

    try:
        target.write(asked, moves, refuse=refuse)
    except BaseException:
        bad.count = count  # these records come again
        raise
    places |= moved


class _BadRecords:
    """Where bad records go, and how many are too many."""

    def __init__(self, kafka: KafkaConnection, settings: SinkSettings, share: Share) -> None:
        self._kafka, self._settings, self._share = kafka, settings, share
        self._producer: Producer | None = None
        self.count = 0

    def tell(
        self, refused: Sequence[Refused], messages: Mapping[tuple[str, int, int], Message]
    ) -> None:
        """Send records to the dead letters, acknowledged before their places are moved.

        Raises:
            SinkError: these are too many.
            LogError: the topic does not take them.
        """
        if not refused:
            return
        limit = self._settings.error_limit
        if limit is not None and self.count + len(refused) > limit:
            topic, partition, offset = refused[0].place
            raise SinkError(
                f'the record at offset {offset} of partition {partition} of topic "{topic}" cannot '
                f"be written: {refused[0].reason}"
                + (
                    f" (bad records: {self.count + len(refused)}, errorLimit {limit})"
                    if limit
                    else ""
                ),
                hint="mend the table or the configuration and restart the task, or set "
                "errors.tolerance=all with errors.deadletterqueue.topic.name",
            )
        if not self._settings.dead_letters:
            self.count += len(refused)
            for each in refused:
                log.warning("%s: left out %s: %s", self._settings.name, each.place, each.reason)
            return
        producer = self._opened()
        failures: list[object] = []
        for each in refused:
            message = messages[each.place]
            producer.produce(
                self._settings.dead_letters,
                key=message.key(),
                value=message.value(),
                headers=[*(message.headers() or ()), *self._headers(each)],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        if producer.flush(2 * REQUEST_S) or failures:
            raise LogError(
                f'topic "{self._settings.dead_letters}" does not take dead letters: '
                f"{failures[0] if failures else 'no answer'}"
            )
        self.count += len(refused)

    def _headers(self, refused: Refused) -> list[tuple[str, str | bytes | None]]:
        topic, partition, offset = refused.place
        said = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "connector.name": self._settings.name,
            "task.id": self._share.task,
            "stage": "TASK_PUT",
            "exception.class.name": "changelog.BadRecordError",
            "exception.message": refused.reason,
        }
        return [(_PREFIX + name, str(value).encode()) for name, value in said.items()]

    def _opened(self) -> Producer:
        if self._producer is None:
            name = self._settings.dead_letters
            admin = make_client(AdminClient, self._kafka.client_config())
            if name not in admin.list_topics(timeout=REQUEST_S).topics:
                try:
                    admin.create_topics([NewTopic(name, 1, -1)])[name].result(2 * REQUEST_S)
                except KafkaException as error:
                    if error.args[0].code() != error.args[0].TOPIC_ALREADY_EXISTS:
                        raise log_error(error, f'cannot make topic "{name}"') from error
            config = self._kafka.client_config(enable_idempotence=True)
            self._producer = make_client(Producer, config)
        return self._producer

    def close(self) -> None:
        """Let go of the producer; all it had is acknowledged."""
        if self._producer is not None:
            self._producer.flush(_AGAIN_S)
