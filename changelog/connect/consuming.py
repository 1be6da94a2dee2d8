"""Batches of messages, bounded by their number and by their bytes, and places told to brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from changelog.kafka.errors import is_passing

log = logging.getLogger("changelog.connect")

BATCH_BYTES = 32 << 20
_MOST_STEP = 64
_LARGE = 64 << 10
_TELL_S = 1.0
_AGAIN_S = 60.0


class Batches:
    """Takes messages from a consumer.

    The client copies each message that it gives, and gives as many as it is asked for: a batch of
    compressed records that was less than a megabyte may be gigabytes. So it is asked for few at a
    time, and for one alone where they are large.
    """

    def __init__(self, consumer: Consumer, most: int) -> None:
        """Take a consumer, and how many messages a batch has at most."""
        self._consumer, self._most, self._step = consumer, most, 1

    def next(self, wait_s: float) -> list[Message]:
        """Return a batch: what comes in a time, up to the bounds."""
        deadline = time.monotonic() + wait_s
        found: list[Message] = []
        size = 0
        while len(found) < self._most and size < BATCH_BYTES:
            asked = min(self._step, self._most - len(found))
            some = self._consumer.consume(asked, max(0.0, deadline - time.monotonic()))
            came = sum(map(_size, some))
            is_large = came > _LARGE * len(some)
            self._step = 1 if is_large else min(_MOST_STEP, 2 * self._step)
            found += some
            size += came
            if len(some) < asked:
                break
        return found


class Watched:
    """Commits the places of a consumer to its group, for those who watch how far behind it is.

    Nobody goes on from there: the target has the places. So a commit that fails is tried again
    later, told in the log once, and ends nothing. All are committed again now and then, since
    brokers forget the places of a group without members.
    """

    def __init__(self, what: str) -> None:
        """Take whose places they are."""
        self._what = what
        self._told: dict[tuple[str, int], int] = {}
        self._next = self._all = 0.0
        self._has_failed = False

    def tell(
        self, consumer: Consumer, places: Mapping[tuple[str, int], int], *, at_once: bool = False
    ) -> None:
        """Commit the places that have moved, once a second, or at once unless that failed."""
        now = time.monotonic()
        if now > self._all:
            self._told, self._all = {}, now + _AGAIN_S
        moved = {each: place for each, place in places.items() if self._told.get(each) != place}
        if not moved or (now < self._next and (self._has_failed or not at_once)):
            return
        self._next = now + _TELL_S
        asked = [TopicPartition(*each, place) for each, place in moved.items()]
        try:
            found = consumer.commit(offsets=asked, asynchronous=False) or []
            errors = [each.error for each in found if each.error]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            self._told |= moved
            return
        self._next = now + (_TELL_S if is_passing(errors[0]) else _AGAIN_S)
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "%s: its group does not show how far it is, since the brokers do not take the "
                "places: %s",
                self._what,
                errors[0].str(),
            )


def _size(message: Message) -> int:
    return len(message) + len(message.key() or b"")
