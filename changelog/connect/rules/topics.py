"""Topics that no sink reads and that take no dead letters: this program has its records there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from changelog.connect.rules.settings import SinkConnectorSettings
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import STATE, TASKS, refused_topic, twin_of


def state_topic(group: str) -> str:
    """Return the topic of the state that workers share."""
    return f"{group}{STATE}"


def tasks_topic(group: str) -> str:
    """Return the topic that is empty, whose partitions are shares of the tasks."""
    return f"{group}{TASKS}"


def check_topics(settings: SinkConnectorSettings, group: str) -> None:
    """Refuse the topics of the workers and of the brokers.

    Raises ConfigurationError: a topic is one of those.
    """
    dead = settings.dead_letters
    for topic in (*settings.topics, *([dead] if dead else ())):
        if topic in {state_topic(group), tasks_topic(group)}:
            raise refused_topic(topic)
        if topic.startswith("__"):
            raise ConfigurationError(f'topic "{topic}" is the brokers\' own')


def check_dead_letters(topic: str, there: Collection[str], settings: Mapping[str, str]) -> None:
    """Refuse a topic that is there and is no place for dead letters.

    `there` holds the topic, and its `twin_of` if that is there.

    Raises ConfigurationError: it is a group's, or would lose them.
    """
    if twin_of(topic) in there:
        raise refused_topic(topic)
    if "compact" in settings.get("cleanup.policy", ""):
        raise ConfigurationError(
            f'topic "{topic}" cannot take dead letters: it is compacted',
            hint="errors.deadletterqueue.topic.name names one of its own",
        )
