"""Force the broker's cleaner to work, and see what it has left."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.error import KafkaError

from changelog.contract.base.connection import KafkaConnection
from replay.broker.topics import inspect
from tests.support.wait import wait_until


def present(
    kafka: KafkaConnection, topic: str, *, start: int = 0, most: int | None = None
) -> list[Message]:
    """Return the records that are really there, gaps apart; at most so many of the first ones."""
    consumer = Consumer(
        kafka.client_config(
            group_id=str(uuid.uuid4()),
            enable_partition_eof=True,
            isolation_level="read_uncommitted",
            fetch_wait_max_ms=10,
        )
    )
    state = inspect(kafka, [topic])[topic]
    consumer.assign([TopicPartition(topic, n, start) for n in range(state.partitions)])
    left = state.partitions
    found: list[Message] = []
    while left and (most is None or len(found) < most):
        message = consumer.poll(10)
        assert message is not None
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left -= 1
    consumer.close()
    return found


def wait_cleaned(
    kafka: KafkaConnection,
    stir: Callable[[], None],
    gone: Mapping[str, Collection[tuple[int, int]]],
    *,
    deadline_s: float = 90,
) -> None:
    """Wait until records have been cleaned away.

    Args:
        kafka: the broker.
        stir: appends to each topic, so that segments roll: the active one is never cleaned.
        gone: per topic partition and offset of what has to go.
        deadline_s: how long that may take.
    """

    left = dict(gone)

    def all_gone() -> bool:
        stir()
        for topic, places in [*left.items()]:
            if not set(places) & {(m.partition(), m.offset()) for m in present(kafka, topic)}:
                del left[topic]
        return not left

    wait_until(all_gone, deadline_s, f"the cleaner has removed records of {', '.join(gone)}")
