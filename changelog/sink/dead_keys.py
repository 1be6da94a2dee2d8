"""Keys that a fresh snapshot or a TRUNCATE leaves alive on the topic, though dead at the source.

Memory is bounded: one partition at a time, and of it at most `MAX_KEYS` keys. When there are more,
the keys are split in two halves by their hash; the second half waits for a pass of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.headers import OP, POSITION
from changelog.contract.base.position import POSITION_BYTES, Position
from changelog.kafka.cluster import nothing
from changelog.kafka.scan import OffsetRange, scan

MAX_KEYS = 2_000_000  # keys held at once: about 200 bytes each beside the key itself

_WAIT_EVERY = 10_000
_ALIVE, _DEAD = b"1", b"0"


class DeadKeys(NamedTuple):
    """The rows of a topic that live, though their records are before a position."""

    ends: Sequence[int]  # of the partitions: the records before them are read
    keys: Iterable[tuple[int, bytes]]  # partition and key


def dead_keys(
    kafka: KafkaConnection,
    topic: str,
    since: Position,
    ends: Sequence[int],
    *,
    prefix: bytes = b"",
    alive_from: Sequence[int] = (),
    starts: Sequence[int] = (),
    max_keys: int = MAX_KEYS,
    on_wait: Callable[[], None] = nothing,
) -> Iterator[tuple[int, bytes]]:
    """Return partition and key whose last record by position is before `since` and has a value.

    A partition is read whole before its first key is given, so the caller may write tombstones
    to it meanwhile. `on_wait` is called again and again: a topic may be long.

    A record that capture did not write counts as older than all of its own. Keys that do not begin
    with `prefix` are left alone: no reader takes a tombstone of theirs, and without one nobody
    reads them. What lies before `alive_from` is dead, whatever position it bears; what lies before
    `starts` has its tombstones, and is not read.

    Raises UnavailableLogError: the broker does not answer.
    """
    mark = since.to_bytes()
    for partition, end in enumerate(ends):
        first_alive = alive_from[partition] if partition < len(alive_from) else 0
        start = starts[partition] if partition < len(starts) else 0
        waiting = [(0, 1)]
        while waiting:
            share, shares = waiting.pop()
            last: dict[bytes, bytes] = {}
            records = scan(kafka, [OffsetRange(topic, partition, start, end)])
            for count, record in enumerate(records):
                if not count % _WAIT_EVERY:
                    on_wait()
                key = record.key() or b""
                if not key.startswith(prefix):
                    continue
                if shares > 1 and zlib.crc32(key) % shares != share:
                    continue
                is_dead = (record.offset() or 0) < first_alive
                place = bytes(POSITION_BYTES) if is_dead else _position_of(record)
                if place < last.get(key, b"")[:POSITION_BYTES]:
                    continue  # sent again after a crash: older than what precedes it
                last[key] = place + (_DEAD if record.value() is None else _ALIVE)
                while len(last) > max_keys:
                    waiting.append((share + shares, 2 * shares))
                    shares *= 2
                    last = {k: v for k, v in last.items() if zlib.crc32(k) % shares == share}
            for key, newest in last.items():
                if newest[POSITION_BYTES:] == _ALIVE and newest < mark:
                    yield partition, key


def _position_of(record: Message) -> bytes:
    """Return the position of a record as bytes; one that is not capture's has the lowest."""
    # Millions are read while the stream waits: no more is decoded than is compared.
    values = dict(record.headers() or ())
    place = values.get(POSITION)
    is_ours = isinstance(place, bytes) and len(place) == POSITION_BYTES and OP in values
    return place if is_ours and isinstance(place, bytes) else bytes(POSITION_BYTES)
