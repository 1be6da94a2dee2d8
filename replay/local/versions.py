"""Records one by one, with their headers: what became of a key, and what changed between two cuts.

The brokers' client gives each record as an object, so this is for few partitions or few offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import Message

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import RecordHeaders, decode_headers
from changelog.kafka.scan import OffsetRange, scan
from replay.base.task_faults import Fault, error_of, lost
from replay.local.records import Version
from replay.scan.range import PartitionRange

_TOLD_EVERY = 10_000


def versions(
    kafka: KafkaConnection,
    topic: str,
    ranges: Sequence[PartitionRange],
    progress: Callable[[int], None],
    *,
    key: bytes | None = None,
) -> list[Version]:
    """Return the records of some ranges, in the order of changes.

    Args:
        kafka: the brokers.
        topic: where they are.
        ranges: of different partitions.
        progress: is told how many records were read.
        key: the key whose records are returned; None for those of all keys.

    Raises:
        CorruptRecordError: a record is none that capture writes; names its place.
        VerdictError: a range is not on the log.
        UnavailableLogError: the brokers do not answer.
    """
    records, read = [], 0
    places = [OffsetRange(topic, *part) for part in ranges]
    for read, message in enumerate(scan(kafka, places, lost=lost), 1):
        if key is None or message.key() == key:
            records.append(_version(topic, message))
        if not read % _TOLD_EVERY:
            progress(read)
    progress(read)
    return sorted(records, key=lambda version: (version.position, version.offset))


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
