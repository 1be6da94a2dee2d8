"""A range of a partition -> its records, added to a fold.

The range is over when a record at or after its end has come, or when the broker says that the
partition ends there. The last record need not be at `end - 1`: a cleaned log has gaps everywhere,
and so has one with transactions, of which only committed records are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.clients import REQUEST_S, STALL_S, lent, reading_config
from changelog.kafka.errors import ErrorMeaning, log_error, meaning
from changelog.native import RangeReader
from changelog.native.records import News
from replay.base.task_faults import MarkedError, TaskFault, of_brokers
from replay.scan.last_records import LastRecords

_POLL_MS = 100
_TUNING = {
    "check_crcs": True,
    "fetch_max_bytes": 64 << 20,
    "fetch_message_max_bytes": 4 << 20,
    # With enough messages in hand the client asks for more only after this; by default a second.
    "fetch_queue_backoff_ms": 2,
    "queued_max_messages_kbytes": 16 << 10,
    "queued_min_messages": 20_000,
}
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_REFUSED = {ErrorMeaning.NOT_LET_IN, ErrorMeaning.FORBIDDEN}


class PartitionRange(NamedTuple):
    """Offsets `[start, end)` of one partition of a topic."""

    partition: int
    start: int
    end: int


def read_into(
    last: LastRecords,
    kafka: KafkaConnection,
    topic: str,
    part: PartitionRange,
    *,
    stall_s: float = STALL_S,
) -> None:
    """Add the records of a range to a fold, in the order of their offsets.

    Raises MarkedError: the range is not on the log, or the brokers do not answer;
    StrangeRecordError: a record has no place, and faults are not kept.
    """
    if part.start >= part.end:
        return
    try:
        config = reading_config(kafka, committed=True, **_TUNING)
        with lent(kafka, f"range of {topic}", lambda: RangeReader(config)) as reader:
            reader.assign(topic, part.partition, part.start, timeout_s=REQUEST_S)

            def poll() -> News:
                with last.adding() as fold:
                    return reader.poll(fold, part.end, timeout_ms=_POLL_MS)

            read_to_end(poll, topic, part, stall_s)
            reader.rest()
    except KafkaException as error:
        raise of_brokers(log_error(error, kafka=kafka)) from error


def read_to_end(poll: Callable[[], News], topic: str, part: PartitionRange, stall_s: float) -> None:
    """Poll until a range is over.

    Raises MarkedError: it is not on the log, or the brokers do not answer.
    """
    is_short = False
    deadline = time.monotonic() + stall_s
    while True:
        news = poll()
        if news.error or news.is_fatal:
            _check(news, topic, part)
        if news.is_over or (news.ends_at is not None and news.ends_at >= part.end):
            return
        is_short = not news.added and (is_short or news.ends_at is not None)
        if news.added:
            deadline = time.monotonic() + stall_s
        elif time.monotonic() > deadline:
            raise _stalled(topic, part, stall_s, is_short=is_short)


def _check(news: News, topic: str, part: PartitionRange) -> None:
    """Raise if a partition cannot be read any further; otherwise the client retries by itself."""
    where = f'topic "{topic}", partition {part.partition}'
    if news.error in _GONE:
        raise MarkedError(
            TaskFault.LOST, f"{where}: offsets {part.start} to {part.end} are not on the log"
        )
    error = KafkaError(news.error, news.message)
    if meaning(error) in _REFUSED or news.is_fatal:
        raise of_brokers(log_error(error, f"{where} cannot be read"))


def _stalled(topic: str, part: PartitionRange, stall_s: float, *, is_short: bool) -> MarkedError:
    where = f'topic "{topic}", partition {part.partition}'
    if is_short:
        return MarkedError(TaskFault.LOST, f"{where} ends before offset {part.end}")
    return MarkedError(TaskFault.SILENT, f"{where}: nothing came for {stall_s:.0f} s")
