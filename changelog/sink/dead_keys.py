"""Keys that a fresh snapshot or a TRUNCATE leaves alive on the topic, though dead at the source.

Memory is bounded: one partition at a time, and of it at most `MAX_KEYS` keys. When there are more,
the keys are split in two halves by their hash; the second half waits for a pass of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.position import POSITION_BYTES, Position
from changelog.kafka.cluster import nothing
from changelog.kafka.scan import OffsetRange, headers_of, scan

MAX_KEYS = 2_000_000  # keys held at once: about 200 bytes each beside the key itself

_WAIT_EVERY = 10_000
_ALIVE, _DEAD = b"1", b"0"


def dead_keys(
    kafka: KafkaConnection,
    topic: str,
    since: Position,
    ends: Sequence[int],
    *,
    prefix: bytes = b"",
    alive_from: Sequence[int] = (),
    max_keys: int = MAX_KEYS,
    on_wait: Callable[[], None] = nothing,
) -> Iterator[tuple[int, bytes]]:
    """Return partition and key whose last record by position is before `since` and has a value.

    A partition is read whole before its first key is given, so the caller may write tombstones
    to it meanwhile. `on_wait` is called again and again: a topic may be long.

    A record that capture did not write counts as older than all of its own. Keys that do not begin
    with `prefix` are left alone: no reader takes a tombstone of theirs, and without one nobody
    reads them. What lies before `alive_from` is dead, whatever position it bears.

    Raises UnavailableLogError: the broker does not answer.
    """
    mark = since.to_bytes()
    for partition, end in enumerate(ends):
        first_alive = alive_from[partition] if partition < len(alive_from) else 0
        waiting = [(0, 1)]
        while waiting:
            share, shares = waiting.pop()
            last: dict[bytes, bytes] = {}
            records = scan(kafka, [OffsetRange(topic, partition, 0, end)])
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
    try:
        return headers_of(record).position.to_bytes()
    except CorruptRecordError:
        return bytes(POSITION_BYTES)
