"""Dead letters: records that cannot be written, with the reason in headers."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError
from changelog.kafka.clients import REQUEST_S, make_client
from changelog.kafka.errors import log_error
from changelog.native.batches import BatchRecord

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
        failures: list[KafkaException] = []
        for record, reason in refused:
            said = {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "reason": reason,
            }
            own = [(_PREFIX + name, str(value).encode()) for name, value in said.items()]
            self._producer.produce(
                self._topic,
                key=record.key,
                value=record.value,
                headers=[*record.headers, *own],
                on_delivery=lambda error, _: (
                    failures.append(KafkaException(error)) if error else None
                ),
            )
            self._producer.poll(0)
        left = self._producer.flush(2 * REQUEST_S)
        what = f'topic "{self._topic}" does not take dead letters'
        if failures:
            raise log_error(failures[0], what)
        if left:
            raise LogError(f"{what}: no answer from the brokers")
