"""Topics: make the missing ones, check the settings of the existing ones.

An existing topic with other settings would lose rows in silence: a `delete` policy drops live
keys, CreateTime voids the compaction lag. So it is refused by name, or altered on request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import TopicSettingsError, UnavailableLogError
from changelog.contract.log.topic import LARGEST, TopicSettings, check_not_kept, twin_of
from changelog.kafka.cluster import Cluster, TopicDescription, until_led

log = logging.getLogger("changelog.capture")

FRONTIER_SETTINGS = {"segment.ms": "3600000", "segment.bytes": str(16 * 1024 * 1024)}
"""For a frontier topic: the active segment is never cleaned, and one record a second is little.

With the brokers' defaults the topic would grow for a week before old frontiers go.
"""

VISIBLE_S = 30.0
_NAP_S = 0.05
_LONGEST_LAG = "max.compaction.lag.ms"

_MAY_CREATE = "allow this user to create topics, or make them by hand"
_CREATE_HINTS = {
    KafkaError.INVALID_CONFIG: "see capture.topic (-T); the names are Kafka's",
    KafkaError.INVALID_REPLICATION_FACTOR: "see capture.replication_factor",
    KafkaError.POLICY_VIOLATION: "the brokers' policy; see capture.topic (-T) and --partitions",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _MAY_CREATE,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _MAY_CREATE,
}

Must = Callable[[str], TopicSettings]  # returns what a topic must have


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Topics to make and to alter, none of which the brokers refuse."""

    there: Mapping[str, TopicDescription]  # the topics that exist, as they are
    missing: tuple[NewTopic, ...]  # those to be made
    differing: Mapping[str, list[str]]  # those to be altered, with what differs
    must: Must  # gives what each topic must have


def plan_topics(
    kafka: KafkaConnection,
    counts: Mapping[str, int],
    *,
    replication: int,
    settings: TopicSettings,
    fix: bool = False,
    extra: Mapping[str, Mapping[str, str]] | None = None,
    unkeyed: Collection[str] = (),
    known_ids: Mapping[str, str] = MappingProxyType({}),
) -> TopicPlan:
    """List the missing topics and check the existing ones; changes nothing.

    `counts` has the partitions of topics that are made, for which `replication` is -1 for the
    brokers' default, and `extra` has further settings, such as `FRONTIER_SETTINGS`. With `fix` a
    topic that differs is altered, not refused. Topics of `unkeyed` cannot be compacted. A log goes
    on with topics of `known_ids`, though they differ.

    Raises:
        ConfigurationError: one is kept by brokers or workers for themselves.
        TopicSettingsError: other topics differ; names each with its settings.
        LogError: the brokers refuse.
        UnavailableLogError: the brokers do not answer.
    """
    cluster = Cluster(kafka)
    there = cluster.describe(counts)
    # Where both topics of a pair are wanted, they are of tables with such names.
    check_not_kept([name for name in there if twin_of(name) not in counts], cluster.topics)
    unlike = replace(settings, compacted=False)

    def must(name: str) -> TopicSettings:
        return unlike if name in unkeyed else settings

    differing = _differing(there, must)
    if not fix:
        for name in sorted(differing):
            is_wish = any(difference.startswith(LARGEST) for difference in differing[name])
            if there[name].topic_id == known_ids.get(name) and not is_wish:
                log.error("%s", altered(name, differing.pop(name)))
    if differing and not fix:
        small = all(
            difference.startswith(LARGEST)
            for differences in differing.values()
            for difference in differences
        )
        lost = "" if small else "; what was compacted or deleted is gone"
        raise _differ(differing, f"--fix-topics alters them{lost}")
    policy = "cleanup.policy"
    compacted = {
        name: differences
        for name, differences in differing.items()
        if name in unkeyed and there[name].settings.get(policy) != unlike.to_config()[policy]
    }
    if compacted:
        raise _differ(compacted, "its records would be lost: delete it, or take another prefix")
    missing = tuple(
        NewTopic(
            name,
            num_partitions=count,
            replication_factor=replication,
            config={**(extra or {}).get(name, {}), **must(name).to_config()},
        )
        for name, count in sorted(counts.items())
        if name not in there
    )
    plan = TopicPlan(there, missing, differing, must)
    _carry_out(cluster, plan, only_ask=True)
    return plan


def say_unlike(there: Mapping[str, TopicDescription], settings: Mapping[str, str]) -> None:
    """Log the settings of new topics that the existing topics do not have."""
    for topic, description in sorted(there.items()):
        unlike = [
            name
            for name, value in settings.items()
            if name != LARGEST and description.settings.get(name) != value
        ]
        if unlike:
            log.warning(
                'topic "%s" exists, and capture.topic (-T) is for new topics: it has other values '
                "of %s",
                topic,
                ", ".join(sorted(unlike)),
            )


def make_topics(kafka: KafkaConnection, plan: TopicPlan) -> dict[str, TopicDescription]:
    """Make and alter what a plan says; returns every topic as it is then.

    Raises:
        TopicSettingsError: somebody made one of them otherwise meanwhile.
        LogError: the brokers refuse.
        UnavailableLogError: the brokers do not answer.
    """
    if not plan.missing and not plan.differing:
        return dict(plan.there)
    cluster = Cluster(kafka)
    _carry_out(cluster, plan)
    names = {*plan.there, *(topic.topic for topic in plan.missing)}
    return _settled(cluster, names, plan.must)


def _carry_out(cluster: Cluster, plan: TopicPlan, *, only_ask: bool = False) -> None:
    """Alter and make, or only ask the brokers whether they would."""
    if plan.differing:
        _alter(cluster, {name: plan.there[name] for name in plan.differing}, plan.must, only_ask)
    if plan.missing:
        cluster.create(plan.missing, hints=_CREATE_HINTS, only_ask=only_ask)


def _differing(topics: Mapping[str, TopicDescription], must: Must) -> dict[str, list[str]]:
    return {
        name: differences
        for name, topic in sorted(topics.items())
        if (differences := must(name).differences(topic.settings))
    }


def altered(topic: str, differences: Iterable[str]) -> str:
    """Return the text that a topic's settings were altered, with the way out."""
    return (
        f'topic "{topic}": {", ".join(differences)}; its settings were altered, and readers refuse '
        "it: start capture with --fix-topics"
    )


def _differ(differing: Mapping[str, list[str]], hint: str) -> TopicSettingsError:
    text = "; ".join(
        f'topic "{name}": {", ".join(differences)}' for name, differences in differing.items()
    )
    return TopicSettingsError(text, hint=hint)


def changes(actual: Mapping[str, str], settings: TopicSettings) -> dict[str, str | None]:
    """Return the settings of a topic to alter; None takes one back to the brokers' default.

    Only those that differ: a longer lag or retention than asked for stays. A longest lag below
    the least one is taken back with it, since the brokers refuse the two together.
    """
    config = settings.to_config()
    names = [difference.partition(" ")[0] for difference in settings.differences(actual)]
    changed: dict[str, str | None] = {name: config.get(name) for name in names}
    if int(actual.get(_LONGEST_LAG) or 2**63 - 1) < settings.min_compaction_lag_ms:
        changed[_LONGEST_LAG] = None
    return changed


def _alter(
    cluster: Cluster, differing: Mapping[str, TopicDescription], must: Must, only_ask: bool
) -> None:
    kinds = AlterConfigOpType
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(
                    key, value, incremental_operation=kinds.DELETE if value is None else kinds.SET
                )
                for key, value in changes(topic.settings, must(name)).items()
            ],
        )
        for name, topic in differing.items()
    ]
    cluster.alter(resources, only_ask=only_ask)


def _settled(cluster: Cluster, names: Collection[str], must: Must) -> dict[str, TopicDescription]:
    """Wait until all who ask are told of every topic: the brokers acknowledge earlier.

    Another process may have made one of them at the same time, so all are checked again.
    """
    deadline = time.monotonic() + VISIBLE_S
    while True:
        descriptions = until_led(partial(cluster.describe, names))
        ready = len(descriptions) == len(names) and all(
            topic.led for topic in descriptions.values()
        )
        differing = _differing(descriptions, must)
        if ready and not differing:
            return descriptions
        if time.monotonic() > deadline:
            break
        time.sleep(_NAP_S)
    if differing:
        raise _differ(differing, "the brokers did not take these settings: alter them by hand")
    raise UnavailableLogError(
        f"new topics have no leader after {VISIBLE_S:.0f} s", hint="are all brokers running?"
    )
