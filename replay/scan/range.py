"""A range of a partition -> its records, added to a fold.

The range is over when a record at or behind its end has come, or the broker's word that the
partition ends there: a cleaned log has gaps everywhere, at its end too, and so has one with
transactions, of which only the committed records are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.native.consumer import SAID_BYTES, Settings, client_error, load
from changelog.native.library import ffi, lib
from replay.base.task_faults import Fault, MarkedError
from replay.broker.topics import TIMEOUT_S, consumer_config, explained
from replay.scan.last_records import LastRecords

STALL_S = 60.0
"""How long a range waits for the next sign of progress."""
_POLL_MS = 100
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


class News(NamedTuple):
    """What a moment of reading has brought.

    Attributes:
        added: records that went into the fold.
        is_over: a record at or behind the end has come.
        ends_at: where the broker says that the partition ends; None when it says nothing.
        error: the client's code; 0 for none.
        said: what it means.
        is_fatal: the client cannot go on.
    """

    added: int
    is_over: bool = False
    ends_at: int | None = None
    error: int = 0
    said: str = ""
    is_fatal: bool = False


def read_into(
    last: LastRecords,
    kafka: KafkaConnection,
    topic: str,
    wanted: PartitionRange,
    *,
    stall_s: float = STALL_S,
) -> None:
    """Add the records of a range to a fold, in the order of their offsets.

    Raises:
        MarkedError: the range is not on the log, or the brokers do not answer.
        StrangeRecordError: a record has no place, and faults are not kept.
    """
    if wanted.start >= wanted.end:
        return
    try:
        with closing(_Reader(kafka)) as reader:
            reader.assign(topic, wanted)
            read_to_end(lambda: reader.poll(last, wanted.end), topic, wanted, stall_s)
    except KafkaException as error:
        raise _marked(explained(kafka, error)) from error


class _Reader:
    """librdkafka's consumer in the compiled library."""

    def __init__(self, kafka: KafkaConnection) -> None:
        load()
        settings = Settings(consumer_config(kafka, committed=True, **_TUNING))
        said = ffi.new("char[]", SAID_BYTES)
        self._handle = lib.reader_open(
            settings.names, settings.values, settings.count, said, SAID_BYTES
        )
        if self._handle == ffi.NULL:
            raise client_error(KafkaError._INVALID_ARG, ffi.string(said).decode())
        self._news = ffi.new("reader_news *")

    def assign(self, topic: str, wanted: PartitionRange) -> None:
        code = lib.reader_assign(
            self._handle, topic.encode(), wanted.partition, wanted.start, int(TIMEOUT_S * 1000)
        )
        if code:
            raise client_error(code)

    def poll(self, last: LastRecords, end: int) -> News:
        news = self._news
        lib.reader_poll(self._handle, last.handle, end, _POLL_MS, news)
        last.settle(news.outcome)
        return News(
            news.added,
            bool(news.is_over),
            news.ends_at if news.ends_at >= 0 else None,
            news.error,
            ffi.string(lib.reader_said(self._handle)).decode("utf-8", "replace"),
            bool(news.is_fatal),
        )

    def close(self) -> None:
        lib.reader_close(self._handle)


def read_to_end(
    poll: Callable[[], News], topic: str, wanted: PartitionRange, stall_s: float
) -> None:
    """Poll until a range is over.

    Raises:
        MarkedError: it is not on the log, or the brokers do not answer.
    """
    is_short = False
    deadline = time.monotonic() + stall_s
    while True:
        news = poll()
        if news.error or news.is_fatal:
            _check(news, topic, wanted)
        if news.is_over or (news.ends_at is not None and news.ends_at >= wanted.end):
            return
        is_short = not news.added and (is_short or news.ends_at is not None)
        if news.added:
            deadline = time.monotonic() + stall_s
        elif time.monotonic() > deadline:
            raise _stalled(topic, wanted, stall_s, is_short=is_short)


def _check(news: News, topic: str, wanted: PartitionRange) -> None:
    """Raise when a partition cannot be read on; else the client tries again by itself."""
    where = f'topic "{topic}", partition {wanted.partition}'
    if news.error in _GONE:
        raise MarkedError(
            Fault.LOST, f"{where}: offsets {wanted.start} to {wanted.end} are not on the log"
        )
    if news.error in _REFUSED or news.is_fatal:
        raise MarkedError(Fault.REFUSED, f"{where} cannot be read: {news.said}")


def _stalled(topic: str, wanted: PartitionRange, stall_s: float, *, is_short: bool) -> MarkedError:
    where = f'topic "{topic}", partition {wanted.partition}'
    if is_short:
        return MarkedError(Fault.LOST, f"{where} ends before offset {wanted.end}")
    return MarkedError(Fault.SILENT, f"{where}: nothing came for {stall_s:.0f} s")


def _marked(error: LogError) -> MarkedError:
    is_away = isinstance(error, UnavailableLogError)
    return MarkedError(Fault.SILENT if is_away else Fault.REFUSED, str(error))
