"""Messages of a consumer in batches, bounded by their number and by their bytes."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message

BATCH_BYTES = 32 << 20
_MOST_STEP = 64
_LARGE = 64 << 10


class MessageBatches:
    """Takes messages from a consumer.

    The client unpacks a batch of compressed records whole, whatever its settings are, and copies
    each message that it gives, as many as it is asked for: what was less than a megabyte may be
    gigabytes, twice. So it is asked for few at a time, and for one alone where they are large.
    """

    def __init__(self, consumer: Consumer, most: int, *, lingers: bool = True) -> None:
        """Take a consumer.

        If it `lingers`, a batch is waited for until it is full or the time is over; else it is
        given with what has come.
        """
        self._consumer, self._most, self._lingers, self._step = consumer, most, lingers, 1

    def next(self, wait_s: float, most: int | None = None) -> list[Message]:
        """Return a batch: what comes in a time, up to the bounds, or fewer if `most` says so."""
        most = self._most if most is None else min(most, self._most)
        deadline = time.monotonic() + wait_s
        batch: list[Message] = []
        size = 0
        while len(batch) < most and size < BATCH_BYTES:
            count = min(self._step, most - len(batch))
            waits = self._lingers or not batch
            left_s = max(0.0, deadline - time.monotonic()) if waits else 0.0
            some = self._consumer.consume(count, left_s)
            came = sum(map(_size, some))
            is_large = came > _LARGE * len(some)
            self._step = 1 if is_large else min(_MOST_STEP, 2 * self._step)
            batch += some
            size += came
            if len(some) < count:
                break
        return batch


def _size(message: Message) -> int:
    return len(message) + len(message.key() or b"")
