"""The last record of each key of a range, in a dictionary; and its reader, confluent-kafka's.

Records come in the order of their offsets. The highest position decides, of equal ones the highest
offset. Keys that no longer fit into memory are written to a file in buckets, and at the end each
bucket is folded alone.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changelog.contract.base.headers import POSITION
from changelog.contract.base.position import POSITION_BYTES
from changelog.contract.log.partition import partition_of
from changelog.kafka.messages import MessageBatches
from changelog.native.records import (
    FoldColumns,
    FoldRecord,
    News,
    Strange,
    StrangePlaceError,
    TextColumn,
)

if TYPE_CHECKING:
    from changelog.native import protocols

_LAST = b"\xff" * POSITION_BYTES
"""The position of a record without one, after all others: nobody knows what it did to its key, so
it decides about the key."""
_BUCKETS = 128
_ENTRY_BYTES = 500  # of a key beside its bytes: five objects and a place in the dictionary
_STORED = struct.Struct("=qqqB")  # offset, sizes of key and value, fault
_MOST_MESSAGES, _BATCH_S = 512, 0.02
_NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_Headers = Sequence[tuple[str, str | bytes | None]] | None
_FAULTS = (None, Strange.KEY, Strange.POSITION)


class _KeptRecord(NamedTuple):
    """The last record of a key."""

    key: bytes | None
    value: bytes | None
    position: bytes
    offset: int
    fault: Strange | None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class Fold:
    """Folds the records of one range."""

    def __init__(
        self,
        *,
        prefix: bytes,
        since: bytes,
        before: bytes,
        keeps_faults: bool,
        most_bytes: int,
        partition: int,
        homes: int | None,
        by_offset: bool = False,
    ) -> None:
        self._prefix, self._since, self._before = prefix, since, before
        self._keeps_faults, self._most_bytes = keeps_faults, most_bytes
        self._by_offset = by_offset
        self._partition, self._homes = partition, homes
        self.raw: dict[bytes | int, _KeptRecord] = {}  # by the offset where there is no key
        self._held_bytes = 0
        self._file, self._file_end = -1, 0
        self._chunks: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]
        self.records = 0
        self.tombstones = 0

    @property
    def keys_held(self) -> int:
        return len(self.raw)

    @property
    def is_full(self) -> bool:
        return self._held_bytes > self._most_bytes

    def add(self, records: Sequence[FoldRecord]) -> None:
        for record in records:
            self._add(record)

    def _add(self, record: FoldRecord) -> None:
        key, value, position, offset = record
        self.records += 1
        self.tombstones += value is None
        if self._by_offset:
            self._keep(_KeptRecord(key, value, _LAST, offset, None))
            return
        if position is not None and len(position) != POSITION_BYTES:
            position = None
        if position is not None and position >= self._before:
            return
        has_key = key is not None and key.startswith(self._prefix)
        if position is not None and has_key:
            self._keep(_KeptRecord(key, value, position, offset, None))
            return
        fault = Strange.POSITION if has_key else Strange.KEY
        if not self._keeps_faults:
            raise StrangePlaceError(offset, fault, 0)
        self._keep(_KeptRecord(key, value, _LAST, offset, fault))

    def _keep(self, record: _KeptRecord) -> None:
        name = record.offset if record.key is None else record.key
        older = self.raw.get(name)
        if older is None:
            self._held_bytes += _ENTRY_BYTES + record.size
        elif older.position > record.position:
            return
        else:
            self._held_bytes += record.size - older.size
        self.raw[name] = record

    def _forget(self) -> None:
        self.raw.clear()
        self._held_bytes = 0

    def spill(self, file: int) -> None:
        self._file = file
        buckets: list[list[_KeptRecord]] = [[] for _ in range(_BUCKETS)]
        for name, record in self.raw.items():
            buckets[hash(name) % _BUCKETS].append(record)
        for chunks, bucket in zip(self._chunks, buckets, strict=True):
            stored = b"".join(map(_stored, bucket))
            self._write_bucket(stored)
            chunks.append((self._file_end, len(stored)))
            self._file_end += len(stored)
        self._forget()

    def _write_bucket(self, stored: bytes) -> None:
        view, at = memoryview(stored), self._file_end
        try:
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise _file_error(error.errno) from error

    def _read_bucket(self, at: int, size: int) -> bytes:
        content = b""
        try:
            while len(content) < size:
                some = os.pread(self._file, size - len(content), at + len(content))
                if not some:
                    raise _file_error(0)
                content += some
        except OSError as error:
            raise _file_error(error.errno) from error
        return content

    def drain(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        if self._file < 0:
            yield from self._parts(rows, most_bytes)
            return
        for chunks in self._chunks:
            self._forget()
            for at, size in chunks:
                for record in _unpacked(self._read_bucket(at, size)):
                    self._keep(record)
            yield from self._parts(rows, most_bytes)

    def _parts(self, rows: int, most_bytes: int) -> Iterator[FoldColumns]:
        part: list[_KeptRecord] = []
        size = 0
        for record in self.raw.values():
            if record.position < self._since:
                continue
            if record.position == self._since and record.value is None:
                continue
            if part and (len(part) == rows or size + record.size > most_bytes):
                yield _columns(part)
                part, size = [], 0
            self._check_partition(record)
            part.append(record)
            size += record.size
        if part:
            yield _columns(part)

    def _check_partition(self, record: _KeptRecord) -> None:
        if self._homes and record.fault is None and record.key is not None:
            home = partition_of(record.key, self._homes)
            if home != self._partition:
                raise StrangePlaceError(record.offset, Strange.STRAY, home)

    def close(self) -> None:
        self._forget()


def text_hashes(seed: int, of: TextColumn) -> bytes:
    """Return a hash of 64 bits for each text, concatenated."""
    ends, content = of
    key = seed.to_bytes(8)
    return b"".join(
        blake2b(content[ends[n] : ends[n + 1]], digest_size=8, key=key).digest()
        for n in range(len(ends) - 1)
    )


def _file_error(number: int | None) -> OSError:
    reason = os.strerror(number or 0)
    return OSError(number, f"{reason}: in the task's file of buckets")


def _stored(record: _KeptRecord) -> bytes:
    sizes = (-1 if text is None else len(text) for text in (record.key, record.value))
    head = _STORED.pack(record.offset, *sizes, _FAULTS.index(record.fault))
    return head + record.position + (record.key or b"") + (record.value or b"")


def _unpacked(stored: bytes) -> Iterator[_KeptRecord]:
    at = 0
    while at < len(stored):
        offset, key_size, value_size, fault = _STORED.unpack_from(stored, at)
        position_at = at + _STORED.size
        key_at = position_at + POSITION_BYTES
        value_at = key_at + max(0, key_size)
        at = value_at + max(0, value_size)
        yield _KeptRecord(
            None if key_size < 0 else stored[key_at:value_at],
            None if value_size < 0 else stored[value_at:at],
            stored[position_at:key_at],
            offset,
            _FAULTS[fault],
        )


def _columns(part: Sequence[_KeptRecord]) -> FoldColumns:
    faults = [record.fault for record in part]
    return FoldColumns(
        keys=pa.array([record.key for record in part], pa.binary()),
        positions=pa.array([record.position for record in part], pa.binary()),
        offsets=pa.array([record.offset for record in part], pa.int64()),
        values=pa.array([record.value for record in part], pa.binary()),
        faults=faults if any(faults) else None,
    )


class RangeReader:
    """Reads ranges of partitions, one after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer({**config, "error_cb": self._hear})
        self._messages = MessageBatches(self._consumer, _MOST_MESSAGES, lingers=False)
        self._following = 0
        self._errors: list[KafkaError] = []
        self._is_fatal = False

    def _hear(self, error: KafkaError) -> None:
        self._is_fatal |= error.fatal()
        self._errors.append(error)

    def assign(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> None:
        self._consumer.list_topics(topic, timeout=timeout_s)
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        self._following = offset

    def rest(self) -> None:
        self._consumer.unassign()

    def poll(self, into: protocols.Fold, end: int, *, timeout_ms: int) -> News:
        deadline = time.monotonic() + timeout_ms / 1000
        added, ends_at = 0, None
        self._errors.clear()
        while time.monotonic() < deadline:
            messages = self._messages.next(_BATCH_S, end - self._following)
            records = [_record(message) for message in messages if message.error() is None]
            into.add([record for record in records if record.offset < end])
            added += sum(record.offset < end for record in records)
            if records:
                self._following = records[-1].offset + 1
            for error, message in ((message.error(), message) for message in messages):
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ends_at = message.offset()
                elif error is not None:
                    self._hear(error)
            is_told = ends_at is not None or self._errors
            if is_told or self._following >= end or into.is_full:
                break
        news = News(added, self._following >= end, ends_at, is_fatal=self._is_fatal)
        if not self._errors:
            return news
        # The first error, unless a later one says why the brokers refuse the connection.
        refusals = (error for error in self._errors if error.code() in _NOT_LET_IN)
        error = next(refusals, self._errors[0])
        return news._replace(error=error.code(), message=error.str())

    def close(self) -> None:
        self._consumer.close()


def _record(message: Message) -> FoldRecord:
    offset = message.offset()
    assert offset is not None  # noqa: S101 - that of a record
    key, value = _bytes(message.key()), _bytes(message.value())
    return FoldRecord(key, value, position_of(cast(_Headers, message.headers())), offset)


def position_of(headers: _Headers) -> bytes | None:
    """Return the position header: the first, where capture writes it; else the last of the name."""
    pairs = list(headers or ())
    is_first = bool(pairs) and pairs[0][0] == POSITION
    return _bytes(pairs[0][1] if is_first else dict(pairs).get(POSITION))


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw
