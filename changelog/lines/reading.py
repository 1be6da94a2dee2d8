"""Read a topic from one place to another, or on and on, and show each record once.

Records are shown before their places count as read: the group's place moves behind what standard
output has taken, never before. A partition's end is reached by the broker's word or by a record
behind it, since the last offsets before it may be gaps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogError, UnavailableLogError
from changelog.kafka.clients import READER, REQUEST_S, STALL_S, make_client
from changelog.kafka.cluster import Cluster
from changelog.kafka.errors import is_passing, log_error
from changelog.kafka.messages import MessageBatches
from changelog.lines.ask import bounds_of, chosen, find_topic, offsets_since
from changelog.lines.forms.render import LineRenderer
from changelog.lines.group import GroupPlaces
from changelog.lines.place import (
    Bounds,
    FirstRecord,
    Since,
    Start,
    Stored,
    Until,
    end_offsets,
    first_offsets,
)
from changelog.lines.progress import ReadProgress
from changelog.runtime.terminal import FileOutput

log = logging.getLogger("changelog.read")

_BATCH = 5_000
_POLL_S = 0.2
_STORE_S = 1.0
_SAY_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A range of a topic to read, and the group that reads it."""

    topic: str  # of which
    partitions: tuple[int, ...] = ()  # which ones; empty for all
    # where it begins; in a group, where partitions begin of which it has no place
    start: Start = field(default_factory=FirstRecord)
    until: Until | None = None  # where it ends; None to follow
    group: str = ""  # the consumer group; empty for none
    alone: bool = False  # whether this member of the group reads each partition, and shares none
    anew: bool = False  # whether the read begins at `start` although the group has a place
    # whether only what stands is read, or also records of open and aborted transactions
    committed: bool = True
    count: int | None = None  # the most records; None for any number
    look_s: float = 30.0  # how often a topic that is followed is looked at for new partitions

    def __post_init__(self) -> None:
        if self.start == Stored() and not self.group:
            raise ConfigurationError(
                "--from stored is the place of a consumer group", hint="name it: --group NAME"
            )

    @property
    def shares(self) -> bool:
        """Tell whether the members of the group share the partitions."""
        return bool(self.group) and not (self.alone or self.partitions)


class LinesRead:
    """One run of reading."""

    def __init__(
        self, kafka: KafkaConnection, request: ReadRequest, lines: LineRenderer, out: FileOutput
    ) -> None:
        self._kafka, self._request, self._lines, self._out = kafka, request, lines, out
        self._cluster = Cluster(kafka)
        self.shown = 0  # how many records were shown
        self._progress = ReadProgress()
        self._frozen: dict[int, Bounds] = {}
        self._group = GroupPlaces(request.group, request.topic, self._progress, anew=request.anew)
        self._was_assigned = not request.shares
        self._failure: Exception | None = None
        self._stored_at = self._looked_at = self._heard_at = time.monotonic()
        self._was_said = self._is_shaken = False

    def run(self, stop: Callable[[], bool]) -> bool:
        """Show records; tell whether all that is wanted was shown before `stop` told to end.

        Raises:
            ConfigurationError: there is no such topic, partition or offset.
            CorruptRecordError: a record cannot be shown; those before it were.
            UnavailableLogError: the brokers do not answer.
            LogError: they refuse, or what was to be read is gone.
            ClosedError: nobody reads the output any more.
        """
        topic = self._request.topic
        description = find_topic(self._cluster, topic)
        partitions = chosen(topic, description.partitions, self._request.partitions)
        consumer: Consumer = make_client(Consumer, self._settings())
        batches = MessageBatches(consumer, _BATCH, lingers=False)
        try:
            self._begin(consumer, partitions)
            while not self._is_over() and not stop():
                self._step(consumer, batches)
            self._group.store(consumer)
        except KafkaException as error:
            raise log_error(error, f'cannot read topic "{topic}"') from error
        finally:
            self._close(consumer)
        return self._is_over() or (self._request.until is None and self._request.count is None)

    def _settings(self) -> dict[str, Any]:
        return {
            "session.timeout.ms": 10_000,  # for so long nobody reads for a member that was killed
            "fetch.queue.backoff.ms": 10,  # a full queue is empty long before the default, a second
            "group.id": READER,
            **self._kafka.client_config(),
            **({"group.id": self._request.group} if self._request.group else {}),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if self._request.committed else "read_uncommitted",
            "enable.partition.eof": True,
            "error_cb": self._heard,
            "on_commit": self._group.answered,
            # At an end the broker would wait for more before it tells that there is none.
            **({} if self._request.until is None else {"fetch.wait.max.ms": 20}),
        }

    def _heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._group.is_away = True

    def _begin(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        self._freeze(partitions)
        if not self._request.shares:
            self._take(consumer, partitions)
            consumer.assign(self._open(partitions))
            return

        def assigned(_: Consumer, places: list[TopicPartition]) -> None:
            self._guarded(lambda: self._assigned(consumer, places))

        def taken(_: Consumer, places: list[TopicPartition]) -> None:
            self._guarded(lambda: self._taken(consumer, places))

        consumer.subscribe(
            [self._request.topic], on_assign=assigned, on_revoke=taken, on_lost=self._lost
        )

    def _guarded(self, call: Callable[[], None]) -> None:
        """Keep an error of a callback for the loop: the client would not pass it on as it is."""
        self._is_shaken = True
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised again by the loop
            self._failure = self._failure or error

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        partitions = [place.partition for place in places]
        self._freeze([n for n in partitions if n not in self._frozen])
        self._take(consumer, partitions)
        self._was_assigned = True
        consumer.assign(self._open(partitions))

    def _taken(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._group.store(consumer)
        self._forget(places)

    def _lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        if places:
            log.warning("the group gave partitions away: others may show the last lines too")
        self._is_shaken = True
        self._group.lose(place.partition for place in places)
        self._forget(places)

    def _forget(self, places: list[TopicPartition]) -> None:
        partitions = [place.partition for place in places]
        self._progress.forget(partitions)
        self._group.forget(partitions)

    def _freeze(self, partitions: Sequence[int]) -> None:
        if partitions:
            self._frozen |= self._bounds(partitions)

    def _bounds(self, partitions: Sequence[int]) -> dict[int, Bounds]:
        request = self._request
        return bounds_of(self._cluster, request.topic, partitions, committed=request.committed)

    def _take(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        """Find where partitions begin and end."""
        bounds = {n: self._frozen[n] for n in partitions}
        stored = self._still_there(self._group.find(consumer, partitions))
        fresh = {n: bound for n, bound in bounds.items() if n not in stored}
        since = self._since(self._request.start, list(fresh))
        starts = first_offsets(self._request.start, fresh, since)
        self._progress.take(starts | stored, self._ends(bounds))

    def _still_there(self, stored: dict[int, int]) -> dict[int, int]:
        """Return the places of the group; one that is gone is told, unless `--from` says more."""
        # Another member may have gone on since we looked.
        self._freeze([n for n, offset in stored.items() if offset > self._frozen[n].end])
        wrong = self._group.gone(stored, self._frozen)
        if wrong is not None and self._request.start == Stored():
            raise wrong
        return {
            n: offset
            for n, offset in stored.items()
            if self._frozen[n].first <= offset <= self._frozen[n].end
        }

    def _ends(self, bounds: dict[int, Bounds]) -> dict[int, int | None]:
        until = self._request.until
        now_ms = time.time_ns() // 1_000_000
        return end_offsets(until, bounds, self._since(until, list(bounds)), now_ms=now_ms)

    def _since(
        self, place: Start | Until | None, partitions: Sequence[int]
    ) -> dict[int, int | None]:
        if not isinstance(place, Since) or not partitions:
            return {}
        request = self._request
        return offsets_since(
            self._cluster, request.topic, partitions, place.ms, committed=request.committed
        )

    def _open(self, partitions: Sequence[int]) -> list[TopicPartition]:
        places = self._progress.places
        return [TopicPartition(self._request.topic, n, places[n]) for n in partitions]

    def _is_over(self) -> bool:
        if self._request.count is not None and self.shown >= self._request.count:
            return True
        return self._request.until is not None and self._was_assigned and self._progress.is_done

    def _step(self, consumer: Consumer, batches: MessageBatches) -> None:
        self._is_shaken = False
        batch = batches.next(_POLL_S)
        failure = self._failure or self._group.refusal
        if failure is not None:
            raise failure
        records = [record for record in batch if record.error() is None]
        kept = self._progress.kept(records, before_ms=self._before_ms(), twice=self._is_shaken)
        if self._request.count is not None:
            kept = kept[: self._request.count - self.shown]
        if kept:
            self._show(kept)
        else:
            self._out.check()
        if len(records) < len(batch):
            for record in batch:
                if record.error() is not None:
                    self._noticed(record)
        self._now_and_then(consumer)

    def _show(self, records: Sequence[Message]) -> None:
        self._heard_at, self._group.is_away = time.monotonic(), False
        rendered = self._lines.render(records)
        self._out.write(rendered.lines)
        self.shown += rendered.records
        self._progress.note(records[: rendered.records])
        if rendered.fault is not None:
            raise rendered.fault

    def _before_ms(self) -> int | None:
        """Return the time that ends partitions of which no record was that new at the start."""
        until = self._request.until
        has_open = isinstance(until, Since) and None in self._progress.ends.values()
        return until.ms if has_open and isinstance(until, Since) else None

    def _noticed(self, event: Message) -> None:
        """Take an event that comes in place of a record."""
        error, partition = event.error(), event.partition()
        assert error is not None  # noqa: S101 - the caller asked
        where = f'topic "{self._request.topic}", partition {partition}'
        if error.code() == KafkaError._PARTITION_EOF:
            self._progress.reach(partition or 0, event.offset() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            place = self._progress.places.get(partition or 0)
            raise LogError(
                f"{where}: the records from offset {place} on are no longer there",
                hint="they were removed, or the topic was made anew; `--from beginning` starts "
                "with what there is",
            )
        elif error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
            raise LogError(f'topic "{self._request.topic}" is gone', hint="somebody deleted it")
        elif not is_passing(error):
            raise log_error(error, f"cannot read {where}")

    def _now_and_then(self, consumer: Consumer) -> None:
        now = time.monotonic()
        if now - self._stored_at > _STORE_S:
            self._stored_at = now
            self._group.store_aside(consumer)
        if now - self._looked_at > self._request.look_s:
            self._looked_at = now
            self._take_new(consumer)
        before_ms = self._before_ms()
        if before_ms is not None and time.time_ns() // 1_000_000 >= before_ms:
            places = list(self._progress.ends)
            self._freeze(places)
            self._progress.end_at(self._ends({n: self._frozen[n] for n in places}))
        if now - self._heard_at > _SAY_S:
            self._is_quiet(consumer, now)

    def _take_new(self, consumer: Consumer) -> None:
        """Read the partitions that a topic has got meanwhile, from their beginning."""
        if self._request.until is not None or self._request.partitions or self._request.shares:
            return
        try:
            topics = consumer.list_topics(self._request.topic, timeout=REQUEST_S).topics
        except KafkaException:
            return  # asked again later
        new = sorted(topics[self._request.topic].partitions.keys() - self._progress.places.keys())
        if new:
            self._progress.take(dict.fromkeys(new, 0), dict.fromkeys(new))
            consumer.incremental_assign(self._open(new))

    def _is_quiet(self, consumer: Consumer, now: float) -> None:
        """Log a wait for the brokers; raise when records of the range do not come."""
        if self._group.is_away:
            if not self._was_said:
                log.warning("waiting for the brokers at %s", self._kafka.brokers)
            self._was_said = self._group.is_away = not self._answer(consumer)
        if self._request.until is None or now - self._heard_at < STALL_S:
            return
        Cluster(self._kafka).meet()
        ends = self._progress.ends
        owed = [n for n in self._progress.open if (ends[n] or 0) <= self._frozen[n].end]
        if owed and self._was_assigned:
            raise UnavailableLogError(
                f'topic "{self._request.topic}", partition {owed[0]}: no records within '
                f"{STALL_S:.0f} s, although it has some",
                hint="does each partition have a leader?",
            )
        self._heard_at = now

    def _answer(self, consumer: Consumer) -> bool:
        """Tell whether the brokers answer again: a topic may have nothing new to show it by."""
        try:
            consumer.list_topics(self._request.topic, timeout=1.0)
        except KafkaException:
            return False
        return True

    def _close(self, consumer: Consumer) -> None:
        """Store what was shown, also where something failed, and leave."""
        try:
            self._group.store(consumer)
        except LogError as error:
            log.warning("%s", error)
        consumer.close()
