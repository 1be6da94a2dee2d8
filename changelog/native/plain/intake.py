"""Convert records of a topic to columns by the rule of `intake.c`; rows are left to the caller."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changelog.contract.base.headers import POSITION
from changelog.contract.base.position import POSITION_BYTES
from changelog.native.columns import (
    NO_PLACE,
    SCHEMA,
    IntakeNews,
    ReadOutcome,
    RecordFault,
    RowColumn,
    RowField,
)

if TYPE_CHECKING:
    from changelog.native import protocols

_PLACE = struct.Struct(">IQQ")
_POLLED = 500
_POLL_S = 0.02
_ROW_BYTES = 41
_CONNECTS_AGAIN = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_Headers = Sequence[tuple[str, bytes | None]]


class RecordColumns:
    """Records by column, in buckets by a hash of their key."""

    def __init__(self, *, prefix: bytes, buckets: int) -> None:
        self._prefix = prefix
        self.raw: list[list[tuple[Any, ...]]] = [[] for _ in range(buckets)]
        self.held_bytes = 0

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        place, fault = _place_of(headers), RecordFault.SOUND
        if key is None:
            fault, key = RecordFault.NO_KEY, f"{partition}:{offset}".encode()  # a unique one
        elif not key.startswith(self._prefix):
            fault = RecordFault.OTHER_KEY
        elif place is None:
            fault = RecordFault.NO_PLACE
        order = NO_PLACE if fault or place is None else _PLACE.unpack(place)
        bucket = self.raw[crc32(key) % len(self.raw)]
        bucket.append((partition, offset, *order, key, value, int(fault)))
        self.held_bytes += _size(bucket[-1])

    def take(self, bucket: int) -> pa.Table:
        rows, self.raw[bucket] = self.raw[bucket], []
        self.held_bytes -= sum(map(_size, rows))
        columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
        arrays = [pa.array(column, of.type) for column, of in zip(columns, SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _size(row: tuple[Any, ...]) -> int:
    return _ROW_BYTES + len(row[5]) + len(row[6] or b"")


def _place_of(headers: _Headers) -> bytes | None:
    for name, content in headers:
        if name == POSITION and content is not None and len(content) == POSITION_BYTES:
            return content
    return None


class Intake:
    """Reads slices of some partitions of a topic into columns, of one topic after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(config))
        self._into: protocols.RecordColumns = RecordColumns(prefix=b"", buckets=1)
        self._topic = ""
        self._next: dict[int, int] = {}
        self._open: dict[int, int] = {}

    def assign(
        self,
        topic: str,
        slices: Mapping[int, tuple[int, int]],
        into: protocols.RecordColumns,
        *,
        timeout_s: float,
    ) -> None:
        # A client that has other topics waits a second before it asks who leads this one.
        self._consumer.list_topics(topic, timeout=timeout_s)
        self._topic, self._into = topic, into
        self._next = {part: first for part, (first, _) in slices.items()}
        self._open = {part: end for part, (first, end) in slices.items() if first < end}
        places = [TopicPartition(topic, part, first) for part, first in self._next.items()]
        self._consumer.assign(places)

    def rest(self) -> None:
        # A partition that is paused stays so when it is assigned again.
        self._consumer.resume([TopicPartition(self._topic, part) for part in self._next])
        self._consumer.unassign()
        self._next, self._open = {}, {}

    def poll(self, *, timeout_ms: int, most_bytes: int) -> IntakeNews:
        deadline, added = time.monotonic() + timeout_ms / 1000, 0
        while self._open and self._into.held_bytes < most_bytes and time.monotonic() < deadline:
            reading = {*self._open}
            for message in self._consumer.consume(_POLLED, _POLL_S):
                news = self._add(message)
                if news.outcome:
                    return news._replace(added=added, open=len(self._open))
                added += news.added
            closed = reading - self._open.keys()
            if closed and self._open:
                # Partitions that were read to their ends need no more fetches.
                self._consumer.pause([TopicPartition(self._topic, part) for part in closed])
        return IntakeNews(added, len(self._open), ReadOutcome.OK)

    def _add(self, message: Message) -> IntakeNews:
        error, part, offset = message.error(), message.partition() or 0, message.offset() or 0
        nothing = IntakeNews(0, 0, ReadOutcome.OK, part, offset)
        if error is not None and error.code() in _CONNECTS_AGAIN:
            return nothing
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return nothing._replace(
                outcome=ReadOutcome.REFUSED, error=error.code(), message=error.str() or ""
            )
        end = self._open.get(part) if message.topic() == self._topic else None
        if end is None:
            return nothing  # it may be of what was read before
        if offset >= end:
            del self._open[part]
            return nothing
        if error is not None or offset < self._next[part]:
            is_short = error is not None
            return nothing._replace(outcome=ReadOutcome.SHORT if is_short else ReadOutcome.DISORDER)
        headers = cast(_Headers, message.headers() or ())
        self._into.add(part, offset, _bytes(message.key()), _bytes(message.value()), headers)
        self._next[part] = offset + 1
        if offset + 1 >= end:
            del self._open[part]
        return nothing._replace(added=1)

    def close(self) -> None:
        self._consumer.close()


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw


class RowDecoder:
    """Leaves rows to its caller."""

    def __init__(self, frame: bytes, fields: Sequence[RowField]) -> None:
        """Take the frame of 5 bytes that each row begins with, and its fields."""

    def decode(self, rows: pa.BinaryArray) -> list[RowColumn] | None:  # noqa: ARG002
        return None
