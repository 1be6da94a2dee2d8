"""The place of a consumer group in a topic: read at the start, moved past the shown records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from changelog.contract.base.errors import LogError
from changelog.kafka.errors import is_passing, log_error
from changelog.lines.ask import stored_offsets
from changelog.lines.place import Bounds
from changelog.lines.progress import ReadProgress

log = logging.getLogger("changelog.read")

_REBALANCES = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
}


class GroupPlaces:
    """Stores the places of a read for its group; does nothing without one."""

    def __init__(
        self, group: str, topic: str, progress: ReadProgress, *, anew: bool = False
    ) -> None:
        # With `anew` the place that the group has counts for nothing at the start.
        self._group, self._topic, self._progress, self._anew = group, topic, progress, anew
        self._stored: dict[int, int] = {}
        self._shown: dict[int, int] = {}
        self.is_away = False  # whether brokers are away, so that nothing is asked of them
        # why the group's places cannot be stored, now or later; None while they may be
        self.refusal: LogError | None = None

    def find(self, consumer: Consumer, partitions: Iterable[int]) -> dict[int, int]:
        """Return the places of the group, in the partitions in which it has one.

        Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
        """
        if not self._group:
            return {}
        numbers = [*partitions]
        stored = {} if self._anew else stored_offsets(consumer, self._topic, numbers)
        there = {n: offset for n, offset in stored.items() if offset is not None}
        self._stored |= there
        # What is lost and comes back, as after an outage, is not shown by us once more.
        shown = {n: self._shown[n] for n in {*numbers} & self._shown.keys()}
        return there | {n: max(offset, there.get(n, 0)) for n, offset in shown.items()}

    def gone(self, places: Mapping[int, int], bounds: Mapping[int, Bounds]) -> LogError | None:
        """Return the error about offsets that a topic no longer has, or None if it has all."""
        faults = [
            f"{place} of partition {n}, which has {bounds[n].first} to {bounds[n].end}"
            for n, place in sorted(places.items())
            if not bounds[n].first <= place <= bounds[n].end
        ]
        if not faults:
            return None
        return LogError(
            f'group "{self._group}" is at offsets of topic "{self._topic}" that are not there any '
            f"more: {', '.join(faults)}",
            hint="records were removed, or the topic was made anew: `--from beginning`, "
            "`--from end` or a time says where to go on",
        )

    def lose(self, partitions: Iterable[int]) -> None:
        """Keep the places of partitions that were lost before these could be stored."""
        places = self._progress.places
        self._shown |= {n: places[n] for n in partitions if n in places}

    def forget(self, partitions: Iterable[int]) -> None:
        """Leave partitions to other members."""
        for partition in partitions:
            self._stored.pop(partition, None)

    def _moved(self) -> list[TopicPartition]:
        if not self._group:
            return []
        places = self._progress.places.items()
        moved = {n: place for n, place in places if self._stored.get(n) != place}
        return [TopicPartition(self._topic, n, place) for n, place in moved.items()]

    def store_aside(self, consumer: Consumer) -> None:
        """Ask for the places to be stored; `answered` is told while the read goes on."""
        moved = self._moved()
        if moved and not self.is_away:
            consumer.commit(offsets=moved, asynchronous=True)

    def answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Take an answer; a passing failure is asked again."""
        wrong = error or next((place.error for place in places if place.error is not None), None)
        if wrong is None:
            for place in places:
                if place.partition in self._progress.places:
                    self._stored[place.partition] = place.offset
        elif is_passing(wrong) or wrong.code() in _REBALANCES:
            log.debug("%s", self._not_stored(wrong))
        else:
            self.refusal = self._not_stored(wrong)

    def store(self, consumer: Consumer) -> None:
        """Store the places, and wait for it.

        Raises UnavailableLogError: the brokers are away; LogError: they refuse: another member has
        the partitions.
        """
        moved = self._moved()
        if not moved:
            return
        if self.is_away:  # the client would ask for a minute before it said so
            raise self._not_stored(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        try:
            for place in consumer.commit(offsets=moved, asynchronous=False) or ():
                if place.error is not None:
                    raise KafkaException(place.error)
        except KafkaException as error:
            raise self._not_stored(error) from error
        self._stored |= {place.partition: place.offset for place in moved}

    def _not_stored(self, error: KafkaException | KafkaError) -> LogError:
        return log_error(
            error,
            f'cannot store where group "{self._group}" is in topic "{self._topic}"',
            hint="the last lines will be shown once more",
        )
