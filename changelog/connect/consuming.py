"""Batches of messages, bounded by their number and by their bytes."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message

BATCH_BYTES = 32 << 20
_MOST_STEP = 64
_LARGE = 64 << 10


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


def _size(message: Message) -> int:
    return len(message) + len(message.key() or b"")
