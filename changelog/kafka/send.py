"""Send a few records and wait until the brokers have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog.kafka.clients import WAIT_S

_BY_KEY = -1


class OutgoingRecord(NamedTuple):
    """A record to be sent; without a partition its key decides."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = _BY_KEY


def send(
    producer: Producer, topic: str, records: Iterable[OutgoingRecord], *, answer_s: float
) -> int:
    """Send records in their order, and return the offset after the last one; 0 without records.

    The producer is of the caller alone until this returns. More records than its queue holds may
    wait for the brokers, which may take `answer_s` once all are queued.

    Raises KafkaException: the brokers refuse a record, or do not answer (`_TIMED_OUT`): then some
    may be written, now or later.
    """
    refusals: list[KafkaError] = []
    end = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal end
        if error is not None:
            refusals.append(error)
        else:
            end = max(end, (message.offset() or 0) + 1)

    for record in records:
        queue_record(producer, topic, record, delivered)
    unanswered = producer.flush(answer_s)
    if refusals:
        raise KafkaException(refusals[0])
    if unanswered:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return end


def queue_record(producer: Producer, topic: str, record: OutgoingRecord, delivered: object) -> None:
    """Queue a record for sending; wait while the queue is full.

    `delivered` is called with the error, or None, and the message.

    Raises KafkaException: the client refuses it.
    """
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=[*record.headers],
                on_delivery=delivered,  # type: ignore[arg-type]
            )
        except BufferError:
            producer.poll(WAIT_S)
        else:
            return
