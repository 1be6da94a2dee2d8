"""Dead letters: records that cannot be written, with the reason in headers."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from changelog.contract.base.connection import KafkaConnection
from changelog.kafka.clients import REQUEST_S, make_client
from changelog.kafka.errors import explained
from changelog.kafka.send import OutgoingRecord, send
from changelog.native.loads import BatchRecord

_PREFIX = "__changelog.errors."


class DeadLetters:
    """A topic; several threads may use it."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        """Connect in the background; the topic is there."""
        self._topic = topic
        config = kafka.client_config(enable_idempotence=True, partitioner="murmur2_random")
        self._producer = make_client(Producer, config)

    def put(self, refused: Sequence[tuple[BatchRecord, str]]) -> None:
        """Send records, acknowledged when this returns.

        Raises:
            LogError: the topic does not take them.
        """
        failure = f'topic "{self._topic}" does not take dead letters'
        with explained(failure):
            send(self._producer, self._topic, map(_letter, refused), answer_s=2 * REQUEST_S)


def _letter(refused: tuple[BatchRecord, str]) -> OutgoingRecord:
    record, reason = refused
    headers = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "reason": reason,
    }
    own = [(_PREFIX + name, str(value).encode()) for name, value in headers.items()]
    return OutgoingRecord(record.key, record.value, [*record.headers, *own])
