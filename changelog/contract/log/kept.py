"""Topics that brokers and workers of `changelog serve` keep for themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from changelog.contract.base.errors import ConfigurationError

STATE, TASKS = "-state", "-tasks"
"""Suffixes of the two topics that a group of workers keeps."""

_OF_BROKERS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def twin_of(topic: str) -> str:
    """Return the other topic of a worker group's pair; empty for a topic of no group.

    >>> twin_of("changelog-connect-state"), twin_of("orders")
    ('changelog-connect-tasks', '')
    """
    for suffix, other in ((STATE, TASKS), (TASKS, STATE)):
        if topic.endswith(suffix):
            return topic.removesuffix(suffix) + other
    return ""


def check_not_kept(
    topics: Collection[str], existing: Callable[[Iterable[str]], Collection[str]]
) -> None:
    """Refuse to write to topics that brokers or workers keep for themselves.

    `existing` returns those of some names that exist.

    Raises:
        ConfigurationError: one is kept so.
    """
    for topic in sorted(_OF_BROKERS & set(topics)):
        raise ConfigurationError(f'topic "{topic}" is the brokers\' own')
    twins = existing([twin for twin in map(twin_of, topics) if twin])
    for topic in sorted(topics):
        if twin_of(topic) in twins:
            raise refused_topic(topic)


def refused_topic(topic: str) -> ConfigurationError:
    """Return the error about a topic of a group of workers, which holds passwords."""
    return ConfigurationError(
        f'topic "{topic}" is where workers of `changelog serve` keep what they know'
    )
