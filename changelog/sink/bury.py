"""Keys that a fresh snapshot or a TRUNCATE leaves alive on the topic, though dead at the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changelog.contract.connection import KafkaConnection
from changelog.contract.headers import decode_headers
from changelog.contract.position import Position
from changelog.sink.scan import scan


def dead_keys(
    kafka: KafkaConnection, topic: str, since: Position, ends: Sequence[int]
) -> Iterator[tuple[int, bytes]]:
    """Give partition and key whose last record by position is before `since` and has a value.

    One partition is held in memory at a time: its live keys, and nothing of their values.

    Raises:
        CorruptRecordError: a record has not the headers of the log.
        UnavailableLogError: the broker does not answer.
    """
    for partition, end in enumerate(ends):
        last: dict[bytes, Position | None] = {}
        places: dict[bytes, Position] = {}
        for message in scan(kafka, topic, partition, 0, end):
            key = message.key() or b""
            position = decode_headers(message.headers()).position
            if key in places and position < places[key]:
                continue
            places[key] = position
            last[key] = position if message.value() is not None else None
        for key, alive_at in last.items():
            if alive_at is not None and alive_at < since:
                yield partition, key
