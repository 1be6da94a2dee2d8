"""Records one by one, with their headers: what became of a key, and what changed between two cuts.

The brokers' client gives each record as an object, so this is for few partitions or few offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError, UnavailableLogError
from changelog.contract.base.headers import RecordHeaders, decode_headers
from replay.base.task_faults import Fault, error_of
from replay.broker.topics import consumer_of, explained
from replay.local.records import Version
from replay.scan.range import STALL_S, PartitionRange

_BATCH = 10_000
_WAIT_S = 0.2


def versions(
    kafka: KafkaConnection,
    topic: str,
    ranges: Sequence[PartitionRange],
    told: Callable[[int], None],
    *,
    wanted: bytes | None = None,
) -> list[Version]:
    """Return the records of some ranges, in the order of changes.

    Args:
        kafka: the brokers.
        topic: where they are.
        ranges: of different partitions.
        told: is told how many records were read.
        wanted: the key whose records are returned; None for those of all keys.

    Raises:
        CorruptRecordError: a record is none that capture writes; names its place.
        VerdictError: a range is not on the log.
        UnavailableLogError: the brokers do not answer.
    """
    found = [
        _version(topic, message)
        for message in _messages(kafka, topic, ranges, told)
        if wanted is None or message.key() == wanted
    ]
    return sorted(found, key=lambda each: (each.position, each.offset))


def _version(topic: str, message: Message) -> Version:
    place = f'topic "{topic}", partition {message.partition()}, offset {message.offset()}'
    key = message.key()
    if not isinstance(key, bytes):
        raise error_of(Fault.CORRUPT, f"{place}: it has no key")
    try:
        headers: RecordHeaders = decode_headers(message.headers())
    except CorruptRecordError as error:
        raise error_of(Fault.CORRUPT, f"{place}: {error.args[0]}") from error
    return Version(
        key=key,
        value=message.value(),
        position=headers.position,
        op=headers.op,
        ts_us=headers.ts_us,
        appended_ms=message.timestamp()[1],
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def _messages(
    kafka: KafkaConnection,
    topic: str,
    ranges: Sequence[PartitionRange],
    told: Callable[[int], None],
) -> Iterator[Message]:
    left = {each.partition: each for each in ranges if each.start < each.end}
    if not left:
        return
    count, heard = 0, time.monotonic()
    with closing(consumer_of(kafka)) as consumer:
        consumer.assign([TopicPartition(topic, each.partition, each.start) for each in ranges])
        while left:
            batch = _consumed(kafka, consumer)
            if batch:
                heard = time.monotonic()
            elif time.monotonic() > heard + STALL_S:
                raise UnavailableLogError(f'topic "{topic}": nothing came for {STALL_S:.0f} s')
            for message in batch:
                partition = message.partition() or 0
                wanted = left.get(partition)
                if wanted is None:
                    continue
                if _is_end(topic, wanted, message):
                    del left[partition]
                    continue
                offset = message.offset() or 0
                if offset < wanted.end:
                    count += 1
                    yield message
                if offset + 1 >= wanted.end:
                    del left[partition]
            told(count)


def _consumed(kafka: KafkaConnection, consumer: Consumer) -> list[Message]:
    try:
        return consumer.consume(_BATCH, _WAIT_S)
    except KafkaException as error:
        raise explained(kafka, error) from error


def _is_end(topic: str, wanted: PartitionRange, message: Message) -> bool:
    """Tell whether a message says that its partition ends here."""
    error = message.error()
    if error is None:
        return False
    where = f'topic "{topic}", partition {wanted.partition}'
    if error.code() == KafkaError._PARTITION_EOF:
        if (message.offset() or 0) < wanted.end:
            raise error_of(Fault.LOST, f"{where} ends before offset {wanted.end}")
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise error_of(Fault.LOST, f"{where}: offset {wanted.start} is not on the log")
    raise LogError(f"{where} cannot be read: {error.str()}")
