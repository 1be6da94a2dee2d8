"""Commits of a consumer's offsets to its group, for lag monitors."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from changelog.kafka.errors import is_passing

log = logging.getLogger("changelog.connect")

_TELL_S = 1.0
_AGAIN_S = 60.0


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
            self._committed, self._all = {}, now + _AGAIN_S
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
        self._next = now + (_TELL_S if is_passing(errors[0]) else _AGAIN_S)
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "%s: its group does not show how far it is, since the brokers do not take the "
                "places: %s",
                self._owner,
                errors[0].str(),
            )
