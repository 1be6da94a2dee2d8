"""Cut off the beginning of topics on a real broker, as people and settings do."""

from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from replay.broker.topics import inspect
from tests.support.wait import wait_until


def alter(kafka, topic, **settings):
    """Alter settings of a topic, `_` for `.`; None takes one back to the broker's default."""
    kinds = AlterConfigOpType
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            None if value is None else str(value),
            incremental_operation=kinds.DELETE if value is None else kinds.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(kafka.client_config())
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def delete_records(kafka, topic, share=0.5):
    """Have a share of each partition's records deleted; returns the new starts."""
    ends = inspect(kafka, [topic])[topic].ends
    return delete_before(kafka, topic, [int(end * share) for end in ends])


def delete_before(kafka, topic, offsets):
    """Have the records of each partition before an offset deleted; returns the new starts."""
    # The broker deletes none on request where the policy is to compact and nothing else.
    alter(kafka, topic, cleanup_policy="delete", retention_ms=-1)
    remove_before(
        AdminClient(kafka.client_config()),
        *(TopicPartition(topic, n, offset) for n, offset in enumerate(offsets)),
    )
    alter(kafka, topic, cleanup_policy="compact", retention_ms=None)
    return inspect(kafka, [topic])[topic].log_starts


def remove_before(admin, *places):
    """Have the records before some places deleted, as soon as a policy just set allows it."""
    wait_until(partial(_is_removed, admin, places), 30, "the broker deletes the records")


def _is_removed(admin, places):
    try:
        for future in admin.delete_records([*places]).values():
            future.result(30)
    except KafkaException as error:
        # An altered policy is answered for before the partition's leader goes by it.
        if error.args[0].code() != KafkaError.POLICY_VIOLATION:
            raise
        return False
    return True


def expire(kafka, topic, policy="compact"):
    """Let a topic lose its records by their age, and give it its own policy again."""
    alter(kafka, topic, cleanup_policy="delete", retention_ms=1)
    try:
        wait_until(
            lambda: sum(inspect(kafka, [topic])[topic].log_starts), 60, f"{topic} has expired"
        )
    finally:
        alter(kafka, topic, cleanup_policy=policy, retention_ms=None)
    return inspect(kafka, [topic])[topic].log_starts
