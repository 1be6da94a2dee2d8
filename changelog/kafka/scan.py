"""Read ranges of offsets, each to its end by position.

Compaction, aborted transactions and empty batches leave gaps, so the last record of a range may
lie anywhere before its end, or be missing. A range is over when a record at its end or the one
before has come, or the broker's word that the partition ends there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ChangelogError,
    CorruptRecordError,
    LogError,
    UnavailableLogError,
)
from changelog.contract.base.headers import RecordHeaders, decode_headers
from changelog.kafka.clients import REQUEST_S, STALL_S, WAIT_S, lent, reading_consumer
from changelog.kafka.cluster import Partition
from changelog.kafka.errors import explained, is_passing, log_error
from changelog.kafka.messages import MessageBatches

_BATCH = 5_000
TO_END = 2**63 - 1
"""As the end of a range: where its partition ends when that is reached."""


class OffsetRange(NamedTuple):
    """Places `[start, end)` of one partition; `end - start` bounds the number of records."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> str:
        """Return topic and partition, for people to read."""
        return f'topic "{self.topic}", partition {self.partition}'


def scan(
    kafka: KafkaConnection,
    ranges: Sequence[OffsetRange],
    *,
    stall_s: float = STALL_S,
    committed: bool = True,
    lost: Callable[[str], ChangelogError] | None = None,
) -> Iterator[Message]:
    """Return the records of all ranges, each partition's in the order of offsets.

    A range that starts at 0 starts at the first record there is; every other start must still be on
    the log, and a log that ends before `end` is waited for, then refused: neither is passed over in
    silence. Records of transactions that were aborted are left out, and an open one is waited for;
    not with `committed=False`. Of a kept connection the consumer is kept too. `stall_s` is how long
    it waits for the next record. `lost` makes the error of records that are gone; with it a start
    at 0 must be on the log too, and a log that ends before `end` is not waited for.

    Raises UnavailableLogError: no progress within `stall_s`; LogError: the records of a range are
    gone, or the broker refuses.
    """
    open_ranges = {(part.topic, part.partition): part for part in ranges if part.start < part.end}
    if not open_ranges:
        return
    topics = sorted({part.topic for part in open_ranges.values()})
    name = f"{'committed' if committed else 'all'} records of {', '.join(topics)}"
    beginning = 0 if lost is not None else OFFSET_BEGINNING
    places = [TopicPartition(*at, part.start or beginning) for at, part in open_ranges.items()]

    def make() -> Consumer:
        return reading_consumer(kafka, committed=committed, check_crcs=True)

    with explained(f"cannot read {', '.join(topics)}"), lent(kafka, name, make) as consumer:
        for topic in topics:
            # Without a known leader the search for the first offset is retried only 500 ms later.
            if any(place.topic == topic and place.offset == OFFSET_BEGINNING for place in places):
                consumer.list_topics(topic, timeout=REQUEST_S)
        consumer.assign(places)
        yield from _records(consumer, open_ranges, stall_s, lost)
        consumer.resume(places)  # a partition stays paused over assignments
        consumer.unassign()


def _records(
    consumer: Consumer,
    open_ranges: dict[Partition, OffsetRange],
    stall_s: float,
    lost: Callable[[str], ChangelogError] | None,
) -> Iterator[Message]:
    deadline = time.monotonic() + stall_s
    batches = MessageBatches(consumer, _BATCH, lingers=False)
    while open_ranges:
        batch = batches.next(WAIT_S)
        if batch:
            deadline = time.monotonic() + stall_s
        elif time.monotonic() > deadline:
            raise _stalled(open_ranges, stall_s)
        for record in batch:
            at = (record.topic() or "", record.partition() or 0)
            part = open_ranges.get(at)
            if part is None:
                continue
            offset = record.offset() or 0
            is_over = offset + 1 >= part.end
            if record.error() is not None:
                is_over = _is_ended(record, part, lost)
            elif offset < part.end:
                yield record
            if is_over:
                del open_ranges[at]
                if open_ranges:  # what lies behind the end need not be fetched
                    consumer.pause([TopicPartition(*at)])


def _is_ended(
    record: Message, part: OffsetRange, lost: Callable[[str], ChangelogError] | None
) -> bool:
    """Tell whether an event of the broker ends a range; raises when it makes it unreadable."""
    error, place = record.error(), part.place
    assert error is not None  # noqa: S101 - the caller asked
    if error.code() == KafkaError._PARTITION_EOF:
        is_short = (record.offset() or 0) < part.end
        if is_short and lost is not None and part.end != TO_END:
            raise lost(f"{place} ends before offset {part.end}")
        return not is_short or part.end == TO_END
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        if lost is not None:
            raise lost(f"{place}: offset {part.start} is not on the log")
        raise LogError(
            f"{place}: offsets {part.start} to {part.end} are no longer on the log",
            hint="the topic was truncated or made anew, or its records were deleted",
        )
    if not is_passing(error):
        raise log_error(error, f"cannot read {place}")
    return False


def _stalled(open_ranges: dict[Partition, OffsetRange], stall_s: float) -> UnavailableLogError:
    return UnavailableLogError(
        f"{', '.join(part.place for part in open_ranges.values())}: "
        f"the end was not reached and nothing came for {stall_s:.0f} s",
        hint="are the brokers running, and does each partition have a leader?",
    )


def headers_of(record: Message) -> RecordHeaders:
    """Decode the headers of a record.

    Raises CorruptRecordError: it is not one of the log's; names its place.
    """
    try:
        return decode_headers(record.headers())
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f'topic "{record.topic()}", partition {record.partition()}, '
            f"offset {record.offset()}: {error}",
            hint="another program writes to this topic; the log needs it for itself",
        ) from error
