"""A range of a partition -> its records, in batches.

The range is over when a record at or behind its end has come, or the broker's word that the
partition ends there: a cleaned log has gaps everywhere, at its end too. The isolation level is
`read_uncommitted`, under which a frontier's ends were taken: capture writes without transactions,
and `read_committed` would wait for whatever transaction another program left open.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from operator import methodcaller
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import LogError, UnavailableLogError
from replay.marks import Fault, MarkedError
from replay.offsets import TIMEOUT_S, consumer_of, explained

BATCH = 500
"""Records at a time: so many stay in the processor's cache until they are folded. Batches of
10,000 took half as long again (decision 0025)."""
STALL_S = 60.0
"""How long a range waits for the next sign of progress."""
_POLL_S = 0.02
_ERROR_OF = methodcaller("error")
_TUNING = {
    "check_crcs": True,
    "enable_auto_offset_store": False,
    "fetch_max_bytes": 64 << 20,
    "fetch_message_max_bytes": 4 << 20,
    # With enough messages in hand the client asks for more only after this; by default a second.
    "fetch_queue_backoff_ms": 2,
    "fetch_wait_max_ms": 10,
    "queued_max_messages_kbytes": 16 << 10,
    "queued_min_messages": 20_000,
}
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class PartitionRange(NamedTuple):
    """Offsets `[start, end)` of one partition of a topic."""

    partition: int
    start: int
    end: int


def batches(
    kafka: KafkaConnection, topic: str, wanted: PartitionRange, *, stall_s: float = STALL_S
) -> Iterator[list[Message]]:
    """Give the records of a range in the order of their offsets; no batch is empty.

    Raises:
        MarkedError: the range is not on the log, or the brokers do not answer.
    """
    if wanted.start >= wanted.end:
        return
    try:
        with closing(consumer_of(kafka, **_TUNING)) as consumer:
            consumer.list_topics(topic, timeout=TIMEOUT_S)  # the leader, before it is looked for
            consumer.assign([TopicPartition(topic, wanted.partition, wanted.start)])
            yield from _batches(consumer, topic, wanted, stall_s)
    except KafkaException as error:
        raise _marked(explained(kafka, error)) from error


def _batches(
    consumer: Consumer, topic: str, wanted: PartitionRange, stall_s: float
) -> Iterator[list[Message]]:
    following, is_over, is_short = wanted.start, False, False
    deadline = time.monotonic() + stall_s
    while not is_over:
        batch = consumer.consume(min(BATCH, wanted.end - following), _POLL_S)
        if any(map(_ERROR_OF, batch)):
            events = [each for each in batch if each.error() is not None]
            batch = [each for each in batch if each.error() is None]
            ends = [end for each in events if (end := _end_told(each, topic, wanted)) is not None]
            is_over = any(end >= wanted.end for end in ends)
            is_short = is_short or bool(ends)
        while batch and _offset(batch[-1]) >= wanted.end:
            batch.pop()
            is_over = True
        if batch:
            following = _offset(batch[-1]) + 1
            is_over = is_over or following >= wanted.end
            is_short = False
            deadline = time.monotonic() + stall_s
            yield batch
        elif time.monotonic() > deadline and not is_over:
            raise _stalled(topic, wanted, stall_s, is_short=is_short)


def _offset(record: Message) -> int:
    found = record.offset()
    return -1 if found is None else found


def _end_told(event: Message, topic: str, wanted: PartitionRange) -> int | None:
    """Give where the broker says that the partition ends; raises when it cannot be read on."""
    error = event.error()
    assert error is not None  # noqa: S101 - the caller asked
    if error.code() == KafkaError._PARTITION_EOF:
        return _offset(event)
    where = f'topic "{topic}", partition {wanted.partition}'
    if error.code() in _GONE:
        raise MarkedError(
            Fault.LOST, f"{where}: offsets {wanted.start} to {wanted.end} are not on the log"
        )
    if error.code() in _REFUSED or error.fatal():
        raise MarkedError(Fault.REFUSED, f"{where} cannot be read: {error.str()}")
    return None  # the client tries again by itself


def _stalled(topic: str, wanted: PartitionRange, stall_s: float, *, is_short: bool) -> MarkedError:
    where = f'topic "{topic}", partition {wanted.partition}'
    if is_short:
        return MarkedError(Fault.LOST, f"{where} ends before offset {wanted.end}")
    return MarkedError(Fault.SILENT, f"{where}: nothing came for {stall_s:.0f} s")


def _marked(error: LogError) -> MarkedError:
    is_away = isinstance(error, UnavailableLogError)
    return MarkedError(Fault.SILENT if is_away else Fault.REFUSED, str(error))
