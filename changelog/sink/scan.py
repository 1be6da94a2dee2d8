"""Read ranges of offsets, each to its end by consumer position.

Compaction, aborted transactions and empty batches leave gaps, so the last record of a range may
lie anywhere before its end, or be missing. A range is over when the consumer's position, or the
broker's word that a partition ends here, has reached its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError, UnavailableLogError
from changelog.contract.base.headers import RecordHeaders, decode_headers
from changelog.kafka.errors import is_passing, log_error
from changelog.kafka.messages import Batches
from changelog.sink.client import REQUEST_S, admin_client, answered_offset, make_client

_BATCH = 2000
_POLL_S = 0.05
STALL_S = 60.0
"""How long a scan waits for the next sign of progress."""


class OffsetRange(NamedTuple):
    """Places `[start, end)` of one partition; `end - start` bounds the number of records."""

    topic: str
    partition: int
    start: int
    end: int


def left_of(kafka: KafkaConnection, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return ranges without the records that were removed from the start of their topics.

    Raises:
        UnavailableLogError: the broker does not answer.
        LogError: it refuses.
    """
    earliest = {
        TopicPartition(each.topic, each.partition): OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        for each in ranges
        if 0 < each.start < each.end
    }
    if not earliest:
        return list(ranges)
    admin = admin_client(kafka)  # held: its requests end with it
    asked = admin.list_offsets(
        earliest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_S
    )
    starts = {
        (place.topic, place.partition): answered_offset(
            answer, f'cannot read the start of topic "{place.topic}"'
        ).offset
        for place, answer in asked.items()
    }
    return [
        each._replace(start=max(each.start, starts.get((each.topic, each.partition), 0)))
        for each in ranges
    ]


def scan(
    kafka: KafkaConnection,
    ranges: Sequence[OffsetRange],
    *,
    stall_s: float = STALL_S,
    committed: bool = True,
) -> Iterator[Message]:
    """Return the records of all ranges, each partition's in the order of offsets.

    A range that starts at 0 starts at the first record there is; every other start must still be
    on the log, and a log that ends before `end` is waited for, then refused: neither is passed
    over in silence. Records of transactions that were aborted are left out, and an open one is
    waited for; not with `committed=False`.

    Raises:
        UnavailableLogError: no progress within `stall_s`.
        LogError: the records of a range are gone, or the broker refuses.
    """
    left = {(each.topic, each.partition): each for each in ranges if each.start < each.end}
    if not left:
        return
    consumer = make_client(
        Consumer,
        {
            **kafka.client_config(),
            "group.id": "changelog-scan",  # the client demands one; nothing is committed to it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        },
    )
    try:
        for topic in sorted({each.topic for each in left.values()}):
            # Without a known leader the search for the first offset is retried only 500 ms later.
            consumer.list_topics(topic, timeout=REQUEST_S)
        consumer.assign(
            [
                TopicPartition(each.topic, each.partition, each.start or OFFSET_BEGINNING)
                for each in left.values()
            ]
        )
        yield from _records(consumer, left, stall_s)
    except KafkaException as error:
        topics = ", ".join(sorted({each.topic for each in ranges}))
        raise log_error(error, f"cannot read {topics}") from error
    finally:
        consumer.close()


def _records(
    consumer: Consumer, left: dict[tuple[str, int], OffsetRange], stall_s: float
) -> Iterator[Message]:
    deadline = time.monotonic() + stall_s
    messages = Batches(consumer, _BATCH, lingers=False)
    while left:
        batch = messages.next(_POLL_S)
        if batch:
            deadline = time.monotonic() + stall_s
        elif time.monotonic() > deadline:
            raise _stalled(left, stall_s)
        for record in batch:
            wanted = left.get((record.topic() or "", _int(record.partition())))
            if wanted is None:
                continue
            if record.error() is not None:
                if _ended(record, wanted):
                    _finish(consumer, left, wanted)
            elif _int(record.offset()) >= wanted.end:
                _finish(consumer, left, wanted)
            else:
                yield record
        _finish_reached(consumer, left)


def _ended(record: Message, wanted: OffsetRange) -> bool:
    """Tell whether an event of the broker ends a range; raises when it makes it unreadable."""
    error = record.error()
    assert error is not None  # noqa: S101 - the caller asked
    if error.code() == KafkaError._PARTITION_EOF:
        return _int(record.offset()) >= wanted.end
    where = f'topic "{wanted.topic}", partition {wanted.partition}'
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise LogError(
            f"{where}: offsets {wanted.start} to {wanted.end} are no longer on the log",
            hint="the topic was truncated or made anew, or its records were deleted",
        )
    if not is_passing(error):
        raise log_error(error, f"cannot read {where}")
    return False


def _finish_reached(consumer: Consumer, left: dict[tuple[str, int], OffsetRange]) -> None:
    """Finish the ranges whose end the consumer's position has passed; gaps are no records."""
    places = [TopicPartition(topic, partition) for topic, partition in left]
    for place in consumer.position(places) if places else ():
        wanted = left[place.topic, place.partition]
        if place.offset >= wanted.end:
            _finish(consumer, left, wanted)


def _finish(
    consumer: Consumer, left: dict[tuple[str, int], OffsetRange], wanted: OffsetRange
) -> None:
    del left[wanted.topic, wanted.partition]
    if left:  # what lies behind the end need not be fetched
        consumer.pause([TopicPartition(wanted.topic, wanted.partition)])


def _stalled(left: dict[tuple[str, int], OffsetRange], stall_s: float) -> UnavailableLogError:
    said = ", ".join(f'topic "{r.topic}", partition {r.partition}' for r in left.values())
    return UnavailableLogError(
        f"{said}: the end was not reached and nothing came for {stall_s:.0f} s",
        hint="are the brokers running, and does each partition have a leader?",
    )


def _int(number: int | None) -> int:
    """Return a place of a record; consumed ones always have it."""
    return -1 if number is None else number


def headers_of(record: Message) -> RecordHeaders:
    """Decode the headers of a record.

    Raises:
        CorruptRecordError: it is not one of the log's; names its place.
    """
    try:
        return decode_headers(record.headers())
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f'topic "{record.topic()}", partition {record.partition()}, '
            f"offset {record.offset()}: {error}",
            hint="another program writes to this topic; the log needs it for itself",
        ) from error
