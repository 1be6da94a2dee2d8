"""The last value of each key on a small compacted topic of one partition."""

from __future__ import annotations

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog


def last_values(kafka: KafkaConnection, frontiers: FrontierLog, topic: str) -> dict[bytes, bytes]:
    """Return the last value of each key that has one.

    Raises:
        UnavailableLogError: the broker does not answer.
        LogError: the topic is missing, or refused.
    """
    (end, *_) = frontiers.ends([topic])[topic]
    values: dict[bytes, bytes] = {}
    for record in scan(kafka, [OffsetRange(topic, 0, 0, end)]):
        key, value = record.key() or b"", record.value()
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return values
