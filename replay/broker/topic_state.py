"""The state of a topic at one moment, and the differences between two moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the broker describes it at one moment."""

    topic: str  # its name
    topic_id: str  # Kafka's id; a topic made anew has another
    cluster_id: str  # the cluster's id
    settings: Mapping[str, str]  # every setting in force, by Kafka's names
    log_starts: tuple[int, ...]  # per partition the first offset that is still there
    ends: tuple[int, ...]  # per partition the first offset that is not there yet
    # per partition a number that grows when its leader changes; -1 if the broker does not say
    leader_epochs: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterEnds:
    """The first records after a frontier's ends in one topic, by the broker's answer."""

    # per partition when the first record there was appended, by the broker's clock, milliseconds
    # since 1970; None where there is no record
    first_ms: tuple[int | None, ...]
    # partitions whose leader no longer has all records before the ends
    truncated: tuple[int, ...] = ()


def changes(before: Mapping[str, TopicState], after: Mapping[str, TopicState]) -> tuple[str, ...]:
    """Return the changes of topics during a scan: each makes its result doubtful.

    So does another leader: each replica has its own cleaner, and the new leader may have removed a
    tombstone after the old one still gave the deleted value.
    """
    return tuple(
        f'topic "{topic}": {problem}'
        for topic, was in before.items()
        for problem in _moved(was, after.get(topic))
    )


# The settings by which a verdict computes what the cleaner may have removed.
_WATCHED = (
    "cleanup.policy",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)


def _moved(was: TopicState, now: TopicState | None) -> Iterator[str]:
    if now is None:
        yield "was deleted during the scan"
        return
    if (was.topic_id, was.cluster_id) != (now.topic_id, now.cluster_id):
        yield "was made anew during the scan"
    if was.log_starts != now.log_starts:
        yield f"its start moved during the scan from {was.log_starts} to {now.log_starts}"
    if was.partitions != now.partitions:
        yield f"grew during the scan from {was.partitions} to {now.partitions} partitions"
    elif was.leader_epochs != now.leader_epochs:
        yield "a partition's leader changed during the scan: read it again"
    for setting in _WATCHED:
        if was.settings.get(setting) != now.settings.get(setting):
            has, had = now.settings.get(setting), was.settings.get(setting)
            yield f"{setting} changed during the scan from {had} to {has}"
