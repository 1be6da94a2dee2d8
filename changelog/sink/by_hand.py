"""Topics that a person makes, as capture makes its own, or deletes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, UnavailableLogError
from changelog.kafka.cluster import Cluster
from changelog.runtime.progress.steps import UNSEEN, Steps
from changelog.sections import CaptureSettings
from changelog.sink.topics import VISIBLE_S, make_topics, plan_topics

_NAP_S = 0.05


class MadeTopics(NamedTuple):
    """Topics as they are after they were made by hand."""

    made: list[str]  # names of the new topics
    altered: list[str]  # names of those whose settings were altered
    partitions: dict[str, int]  # of each topic, new or not, their number


def create_topics(
    kafka: KafkaConnection,
    names: Sequence[str],
    capture: CaptureSettings,
    *,
    unkeyed: bool = False,
    steps: Steps = UNSEEN,
) -> MadeTopics:
    """Make topics with the settings of tables' topics; one that is there so is left as it is.

    With `unkeyed` records will have no key, so that the topics are not compacted. `steps` counts
    topics twice: what they are like, and those that are made or altered.

    Raises:
        TopicSettingsError: one is there with other settings, and these are not to be altered.
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    count = len({*names})
    steps.more(1 + 2 * count)
    steps.begin("brokers")
    Cluster(kafka).meet()  # says why nobody answers, if nobody does
    steps.done()
    steps.begin("which are there")
    plan = plan_topics(
        kafka,
        dict.fromkeys(names, capture.partitions),
        replication=capture.replication_factor,
        settings=capture.topics,
        fix=capture.fix_topics,
        extra=dict.fromkeys(names, capture.topic),
        unkeyed=names if unkeyed else (),
    )
    steps.done(count)
    steps.begin(", ".join(topic.topic for topic in plan.missing) or "nothing")
    descriptions = make_topics(kafka, plan)
    steps.done(count)
    return MadeTopics(
        [topic.topic for topic in plan.missing],
        list(plan.differing),
        {name: description.partitions for name, description in descriptions.items()},
    )


def delete_topics(kafka: KafkaConnection, names: Sequence[str], steps: Steps = UNSEEN) -> None:
    """Delete topics and wait until nobody is told of them any more.

    `steps` counts them when the brokers have agreed, and when they are gone.

    Raises UnavailableLogError: the brokers do not answer, or still tell of one after half a minute;
    LogError: they refuse; says which topics are gone.
    """
    cluster = Cluster(kafka)
    gone: list[str] = []
    refused: LogError | None = None
    steps.more(2 * len(names))
    for name, error in cluster.delete(names):
        steps.begin(name)
        refused = refused or error
        steps.done(1 if error is None else 2)
        if error is None:
            gone.append(name)
    deadline = time.monotonic() + VISIBLE_S
    shown = len(gone)
    while there := cluster.topics(gone):
        steps.begin(next(iter(there)))
        steps.done(shown - len(there))
        shown = len(there)
        if time.monotonic() > deadline:
            raise UnavailableLogError(f"the brokers still tell of {', '.join(gone)}")
        time.sleep(_NAP_S)
    steps.done(shown)
    if refused is not None:
        refused.hint = refused.hint or (f"{', '.join(gone)} are deleted" if gone else "")
        raise refused
