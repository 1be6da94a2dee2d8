"""Ranges of a topic's partitions -> their records, one by one, as the client gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import UnavailableLogError
from changelog.kafka.errors import log_error
from changelog.kafka.messages import Batches
from changelog.runtime.kafka_clients import lent
from replay.base.task_faults import Fault, error_of
from replay.broker.topics import consumer_of
from replay.scan.range import STALL_S, PartitionRange

_BATCH = 10_000
_WAIT_S = 0.2


def messages(
    kafka: KafkaConnection,
    topic: str,
    ranges: Sequence[PartitionRange],
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[Message]:
    """Return the committed records of some ranges, of each partition in its order.

    Args:
        kafka: the brokers; of a kept connection the client is kept too.
        topic: where they are.
        ranges: of different partitions.
        told: is told now and then how many records were read.

    Raises:
        VerdictError: a range is not on the log.
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    left = {each.partition: each for each in ranges if each.start < each.end}
    if not left:
        return

    def make() -> Consumer:
        return consumer_of(kafka, check_crcs=True, fetch_queue_backoff_ms=2, fetch_wait_max_ms=10)

    with lent(kafka, f"records of {topic}", make) as consumer:
        yield from _read(kafka, consumer, topic, left, told)
        consumer.unassign()


def _read(
    kafka: KafkaConnection,
    consumer: Consumer,
    topic: str,
    left: dict[int, PartitionRange],
    told: Callable[[int], None],
) -> Iterator[Message]:
    count, heard = 0, time.monotonic()
    consumer.assign([TopicPartition(topic, each.partition, each.start) for each in left.values()])
    batches = Batches(consumer, _BATCH, lingers=False)
    while left:
        batch = _next(kafka, batches)
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


def _next(kafka: KafkaConnection, batches: Batches) -> list[Message]:
    """Return the records that have arrived, without waiting for a full batch."""
    try:
        return batches.next(_WAIT_S)
    except KafkaException as error:
        raise log_error(error, kafka=kafka) from error


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
    raise log_error(error, f"{where} cannot be read")
