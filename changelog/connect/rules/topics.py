"""Topics that no sink reads and that take no dead letters: this program has its records there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from changelog.connect.rules.settings import SinkSettings
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import frontier_topic

_STATE, _TASKS = "-state", "-tasks"


def state_topic(group: str) -> str:
    """Return the topic of what all workers know."""
    return f"{group}{_STATE}"


def tasks_topic(group: str) -> str:
    """Return the topic that is empty, whose partitions are shares of the tasks."""
    return f"{group}{_TASKS}"


def twin_of(topic: str) -> str:
    """Return the topic that is there beside a topic of a group; empty for none.

    >>> twin_of("changelog-connect-state"), twin_of("orders")
    ('changelog-connect-tasks', '')
    """
    for suffix, other in ((_STATE, _TASKS), (_TASKS, _STATE)):
        if topic.endswith(suffix):
            return topic.removesuffix(suffix) + other
    return ""


def check_topics(settings: SinkSettings, group: str) -> None:
    """Refuse the topics of the workers and of the brokers.

    Raises:
        ConfigurationError: a topic is one of those.
    """
    dead = settings.dead_letters
    for topic in (*settings.topics, *([dead] if dead else ())):
        if topic in {state_topic(group), tasks_topic(group)}:
            raise refused_topic(topic)
        if topic.startswith("__"):
            raise ConfigurationError(f'topic "{topic}" is the brokers\' own')


def refused_topic(topic: str) -> ConfigurationError:
    """Return the error about a topic of a group of workers, which holds passwords."""
    return ConfigurationError(
        f'topic "{topic}" is where workers of `changelog serve` keep what they know'
    )


def beside_dead_letters(topic: str) -> list[str]:
    """Return the topics that tell what a topic is, itself among them."""
    parts = topic.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts))]
    return [topic, *map(frontier_topic, prefixes), *filter(None, [twin_of(topic)])]


def check_dead_letters(topic: str, there: Collection[str], settings: Mapping[str, str]) -> None:
    """Refuse a topic that is there and is no place for dead letters.

    Args:
        topic: that is there.
        there: those of `beside_dead_letters` that are.
        settings: of the topic.

    Raises:
        ConfigurationError: it is a log or a group's, or would lose them.
    """
    if twin_of(topic) in there:
        raise refused_topic(topic)
    what = f'topic "{topic}" cannot take dead letters: '
    if "compact" in settings.get("cleanup.policy", ""):
        raise ConfigurationError(
            f"{what}it is compacted, as the topics of captures are",
            hint="errors.deadletterqueue.topic.name names one of its own",
        )
    is_logged = settings.get("message.timestamp.type") == "LogAppendTime"
    if is_logged and any(frontier_topic(_before(topic, each)) == each for each in there):
        raise ConfigurationError(
            f"{what}a capture writes a table without a key to it",
            hint="errors.deadletterqueue.topic.name names one of its own",
        )


def _before(topic: str, frontier: str) -> str:
    """Return the prefix of a topic of frontiers if it is that of a topic too."""
    prefix = frontier.removesuffix(frontier_topic()).removesuffix(".")
    return prefix if not prefix or topic.startswith(f"{prefix}.") else topic
