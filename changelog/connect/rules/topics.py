"""The worker's own topics, which no sink may read and which take no dead letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import REQUESTS, STATE, TASKS, refused_topic, twin_of


def state_topic(group: str) -> str:
    """Return the name of the topic of the state that workers share."""
    return f"{group}{STATE}"


def tasks_topic(group: str) -> str:
    """Return the name of the empty topic whose partitions stand for shares of the tasks."""
    return f"{group}{TASKS}"


def requests_topic(group: str) -> str:
    """Return the name of the topic of the ids of requests that wrote records by HTTP."""
    return f"{group}{REQUESTS}"


def check_topics(settings: SinkConnectorSettings, group: str) -> None:
    """Refuse topics that belong to the workers or the brokers.

    Raises ConfigurationError: the settings name one.
    """
    dead = settings.dead_letters
    for topic in (*settings.topics, *([dead] if dead else ())):
        if topic in {state_topic(group), tasks_topic(group), requests_topic(group)}:
            raise refused_topic(topic)
        if topic.startswith("__"):
            raise ConfigurationError(f'topic "{topic}" belongs to the brokers')


def check_dead_letters(topic: str, existing: Collection[str], settings: Mapping[str, str]) -> None:
    """Refuse an existing topic that is unsuitable for dead letters.

    `existing` has the topic, and the one that `twin_of` names if it exists.

    Raises ConfigurationError: the topic belongs to a group of workers, or is compacted.
    """
    if twin_of(topic) in existing:
        raise refused_topic(topic)
    if "compact" in settings.get("cleanup.policy", ""):
        raise ConfigurationError(
            f'topic "{topic}" cannot take dead letters: it is compacted',
            hint="set errors.deadletterqueue.topic.name to a topic of its own",
        )
