"""Read a range of offsets of a topic, to its end by consumer position.

Compaction, aborted transactions and empty batches leave gaps, so the last record of a range may
lie anywhere before its end, or be missing. The end is reached when the consumer's position is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import LogError, UnavailableLogError

REQUEST_S = 30.0
_BATCH = 2000
_POLL_S = 1.0
_SILENCE_POLLS = 60


def scan(
    kafka: KafkaConnection, topic: str, partition: int, start: int, end: int
) -> Iterator[Message]:
    """Give the records of `[start, end)` of one partition, in the order of offsets.

    Raises:
        UnavailableLogError: the broker has not answered for a minute.
    """
    if start >= end:
        return
    consumer = Consumer(
        {
            **kafka.client_config(),
            "group.id": "changelog-scan",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start or OFFSET_BEGINNING)])
        yield from _until(consumer, TopicPartition(topic, partition), end)
    except KafkaException as error:
        raise UnavailableLogError(f'cannot read topic "{topic}": {error}') from error
    finally:
        consumer.close()


def _until(consumer: Consumer, place: TopicPartition, end: int) -> Iterator[Message]:
    silent = 0
    while True:
        messages: Sequence[Message] = consumer.consume(_BATCH, _POLL_S)
        silent = 0 if messages else silent + 1
        if silent > _SILENCE_POLLS:
            raise UnavailableLogError(
                f'topic "{place.topic}", partition {place.partition}: no answer before offset {end}'
            )
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    continue
                raise LogError(f'cannot read topic "{place.topic}": {error.str()}')
            if (message.offset() or 0) >= end:
                return
            yield message
        (at,) = consumer.position([place])
        if at.offset >= end:
            return
