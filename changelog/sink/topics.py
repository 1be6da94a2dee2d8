"""Topics: make the missing ones, check the settings of those that are there.

An existing topic with other settings would lose rows in silence: a `delete` policy drops live
keys, CreateTime voids the compaction lag. So it is refused by name, or altered on request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from changelog.contract.connection import KafkaConnection
from changelog.contract.errors import LogError, TopicSettingsError, UnavailableLogError
from changelog.contract.topic import TopicSettings

REQUEST_S = 15.0
VISIBLE_S = 30.0
_NAP_S = 0.1
T = TypeVar("T")
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the broker has it.

    Attributes:
        topic_id: Kafka's identifier; a topic made anew has another.
        partitions: their number.
        settings: every setting, defaults included.
    """

    topic_id: str
    partitions: int
    settings: Mapping[str, str]


def log_error(error: KafkaException, what: str) -> LogError:
    """Turn an error of confluent-kafka into ours, by whether waiting may help."""
    inner = error.args[0] if error.args else None
    if isinstance(inner, KafkaError):
        said = f"{what}: {inner.str()}"
        if inner.code() in _AWAY or inner.retriable():
            return UnavailableLogError(said, hint="are the brokers running, the address right?")
        return LogError(said)
    return LogError(f"{what}: {error}")


def admin_client(kafka: KafkaConnection) -> AdminClient:
    """Give an admin client that keeps its own log lines to itself."""
    return AdminClient({**kafka.client_config(), "log_level": 0})


def answered(future: Future[T], what: str) -> T:
    """Wait for an answer of the broker.

    Raises:
        UnavailableLogError: it does not answer.
        LogError: it refuses.
    """
    try:
        return future.result(timeout=2 * REQUEST_S)
    except KafkaException as error:
        raise log_error(error, what) from error
    except TimeoutError as error:
        raise UnavailableLogError(f"{what}: no answer from the brokers") from error


def cluster_id(kafka: KafkaConnection) -> str:
    """Give the cluster's identifier; also shows that the brokers answer.

    Raises:
        UnavailableLogError: no broker answers at the address.
    """
    what = f"no Kafka broker answers at {kafka.brokers}"
    admin = admin_client(kafka)  # held: its requests end with it
    return str(answered(admin.describe_cluster(request_timeout=REQUEST_S), what).cluster_id)


def describe(kafka: KafkaConnection, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics; those that do not exist are left out."""
    return _describe(admin_client(kafka), sorted(set(names)))


def _describe(admin: AdminClient, names: list[str]) -> dict[str, TopicDescription]:
    if not names:
        return {}
    asked = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_S)
    found: dict[str, Any] = {}
    for name, future in asked.items():
        try:
            found[name] = future.result(timeout=2 * REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise log_error(error, f'cannot describe topic "{name}"') from error
    settings = _settings(admin, list(found))
    return {
        name: TopicDescription(str(topic.topic_id), len(topic.partitions), settings[name])
        for name, topic in found.items()
    }


def _settings(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    asked = admin.describe_configs(resources, request_timeout=REQUEST_S)
    return {
        resource.name: {
            name: entry.value
            for name, entry in answered(future, "cannot read topic settings").items()
            if entry.value is not None
        }
        for resource, future in asked.items()
    }


def ensure_topics(
    kafka: KafkaConnection,
    wanted: Mapping[str, int],
    *,
    replication: int,
    settings: TopicSettings,
    fix: bool = False,
    extra: Mapping[str, str] | None = None,
) -> dict[str, TopicDescription]:
    """Make the missing topics and check the others; nothing is made when one is refused.

    Args:
        kafka: the brokers.
        wanted: per topic its partitions when it is made; an existing one keeps its own.
        replication: of a new topic; -1 for the brokers' default.
        settings: what each topic must have.
        fix: alter a topic that differs instead of refusing it.
        extra: further settings of a new topic.

    Raises:
        TopicSettingsError: topics differ; names each with its settings.
        LogError: the brokers refuse.
        UnavailableLogError: the brokers do not answer.
    """
    admin = admin_client(kafka)
    there = _describe(admin, sorted(wanted))
    differing = {
        name: found
        for name, topic in sorted(there.items())
        if (found := settings.differences(topic.settings))
    }
    if differing and not fix:
        said = "; ".join(f'topic "{n}": {", ".join(found)}' for n, found in differing.items())
        raise TopicSettingsError(
            said, hint="--fix-topics alters them; what was compacted or deleted so far is gone"
        )
    if differing:
        _alter(admin, list(differing), settings)
    missing = {name: count for name, count in wanted.items() if name not in there}
    if missing:
        config = {**(extra or {}), **settings.to_config()}
        _create(admin, missing, replication, config)
    return _visible(admin, sorted(wanted)) if missing or differing else there


def _alter(admin: AdminClient, names: list[str], settings: TopicSettings) -> None:
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in settings.to_config().items()
            ],
        )
        for name in names
    ]
    for future in admin.incremental_alter_configs(resources, request_timeout=REQUEST_S).values():
        answered(future, "cannot alter topic settings")


def _create(
    admin: AdminClient, missing: Mapping[str, int], replication: int, config: dict[str, str]
) -> None:
    topics = [
        NewTopic(name, num_partitions=count, replication_factor=replication, config=config)
        for name, count in missing.items()
    ]
    for name, future in admin.create_topics(topics, request_timeout=REQUEST_S).items():
        try:
            future.result(timeout=2 * REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise log_error(error, f'cannot create topic "{name}"') from error


def _visible(admin: AdminClient, names: list[str]) -> dict[str, TopicDescription]:
    """Wait until every topic has been told to all who ask: creation is acknowledged earlier."""
    deadline = time.monotonic() + VISIBLE_S
    while time.monotonic() < deadline:
        found = _describe(admin, names)
        if len(found) == len(names):
            return found
        time.sleep(_NAP_S)
    raise UnavailableLogError(f"new topics do not appear after {VISIBLE_S:.0f} s")
