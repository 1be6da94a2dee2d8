"""The newest record of each key on a topic of frontiers, read backwards from its end.

Capture writes the topic alone and frontiers in their order, so one that is older than one before
it, or that cannot be read, is somebody else's: a copy, or the late word of a capture that was
thought dead. It is passed over. It would give an old cut a new age, and the verdict counts from
that. Of the other keys (`slot#…`) the last record counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, LogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import is_frontier_key
from changelog.kafka.cluster import TopicEnds
from changelog.kafka.scan import OffsetRange, scan

log = logging.getLogger("changelog.kafka")
T = TypeVar("T")
Age = tuple[int, Lsn]

_WINDOW = 1000
_GROWTH = 8
_KEPT = 8
_NO_AGE: Age = (-1, Lsn(0))


def age_of(record: Message) -> Age:
    """Return the epoch and LSN of a frontier; the least of all for any other record."""
    value = record.value()
    if not is_frontier_key(record.key() or b""):
        return _NO_AGE
    try:
        raw = json.loads(value or b"")
        return int(raw["epoch"]), Lsn.parse(raw["lsn"])
    except (ValueError, KeyError, TypeError, AttributeError, ConfigurationError):
        return _NO_AGE


class NewestRecords:
    """The newest records of a topic with one partition, for a caller that asks repeatedly.

    What was read once is not read again, since each reading makes a client of its own.
    """

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Read nothing yet."""
        self._kafka, self._topic = kafka, topic
        self._id = ""
        self._start = self._end = 0
        self._records: dict[bytes, list[Message]] = {}
        self._passed_over: set[int] = set()

    def read(
        self, key: bytes, ends: TopicEnds, parse: Callable[[bytes], T]
    ) -> tuple[T, Message] | None:
        """Return the content of the newest record of a key, or None if it has none or a tombstone.

        `parse` raises CorruptRecordError for a value that capture cannot have written.

        Raises LogError: the topic has several partitions, or the broker refuses;
        UnavailableLogError: the broker does not answer.
        """
        self._go_on(ends)
        window = _WINDOW
        while True:
            newest = self._newest(key, parse)
            if newest is not None or self._start <= ends.starts[0]:
                break
            if any(record.value() is None for record in self._records.get(key, ())):
                break
            self._go_back(max(ends.starts[0], self._start - window))
            window *= _GROWTH
        is_left = newest is not None and (newest[1].offset() or 0) >= ends.starts[0]
        return newest if is_left else None

    def keys(self, ends: TopicEnds) -> list[bytes]:
        """Return all keys, in order; raises as `read`."""
        self._go_on(ends)
        if self._start > ends.starts[0]:
            self._go_back(ends.starts[0])
        return sorted(self._records)

    def _newest(self, key: bytes, parse: Callable[[bytes], T]) -> tuple[T, Message] | None:
        records = self._records.get(key, [])
        for record in _newest_first(records):
            value = record.value()
            if value is None:
                return None
            try:
                content = parse(value)
            except CorruptRecordError as error:
                self._pass_over(record, str(error.args[0]))
                continue
            if record is not records[-1]:
                self._pass_over(records[-1], "it is older than one before it")
            return content, record
        return None

    def _pass_over(self, record: Message, why: str) -> None:
        offset = record.offset() or 0
        if offset not in self._passed_over:  # said once, however often it is asked
            self._passed_over.add(offset)
            place = f'topic "{self._topic}", partition 0, offset {offset}'
            log.warning("%s is passed over: %s", place, why)

    def _go_on(self, ends: TopicEnds) -> None:
        """Read what came since the last time."""
        if len(ends.ends) != 1:
            raise LogError(
                f'topic "{self._topic}" has {len(ends.ends)} partitions, a frontier topic has one',
                hint="delete the topic, or choose another --topic-prefix",
            )
        (end,) = ends.ends
        if self._id != ends.topic_id or end < self._end:
            self._id, self._start, self._end, self._records = ends.topic_id, end, end, {}
            self._passed_over.clear()
        if self._end < end:
            for record in self._scan(self._end, end):
                _take(self._records, record)
            self._end = end

    def _go_back(self, start: int) -> None:
        older: dict[bytes, list[Message]] = {}
        for record in self._scan(start, self._start):
            _take(older, record)
        for key, records in self._records.items():
            for record in records:
                _take(older, record, key)
        self._records, self._start = older, start

    def _scan(self, start: int, end: int) -> Iterator[Message]:
        return scan(self._kafka, [OffsetRange(self._topic, 0, start, end)])


def _newest_first(records: list[Message]) -> list[Message]:
    """Return records by age, the newest first; of the same age the last one first."""
    return sorted(records, key=age_of)[::-1]


def _take(records: dict[bytes, list[Message]], record: Message, key: bytes | None = None) -> None:
    """Take in the next record; records before a tombstone are dropped."""
    of_key = records.setdefault(key or record.key() or b"", [])
    if record.value() is None:
        of_key.clear()
    of_key.append(record)
    if len(of_key) > 2 * _KEPT:
        newest = _newest_first(of_key)[:_KEPT]
        # A tombstone stays: what is read later, further back, lies before it.
        of_key[:] = [
            kept for kept in of_key if kept in newest or kept is record or kept.value() is None
        ]
