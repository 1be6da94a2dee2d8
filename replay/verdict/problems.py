"""Problems that forbid an exact read of a topic, each with its remedy. Pure.

Nothing here depends on time: what is found stays until somebody does something about it. What
time does is in `replay/verdict/verdict.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import deletes_by_age
from replay.broker.topic_state import AfterEnds, TopicState


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why no exact state can be read."""

    reason: str  # is wrong, with the topic's name
    remedy: str  # what to do about it


_ASK_CAPTURE = "start `changelog capture`: it says how the log goes on"
_FIX = "`changelog capture --fix-topics`, then copy the table anew with `changelog resnapshot`"
_COPY = "copy the table anew with `changelog resnapshot`"
_WAIT = "let capture write a newer frontier"


def problems(
    frontier: Frontier, topic: str, state: TopicState | None, after_ends: AfterEnds | None
) -> Iterator[Problem]:
    """Yield the problems of reading a topic of our log up to a frontier.

    `frontier`: what is to be read. `state`: how it stands; None when it does not exist.
    `after_ends`: the first records after the frontier's ends, where they were read.
    """
    name = f'topic "{topic}"'
    if state is None:
        yield Problem(f"{name} does not exist any more", _ASK_CAPTURE)
        return
    scope = frontier.scope_of(topic)
    for why in scope.obstacles():
        remedy = "it holds no state of its table by its settings: see `changelog status`"
        yield Problem(f"{name} cannot be rebuilt: {why}", remedy if scope.copied else _COPY)
    for reason, remedy in (
        *_of_identity(frontier, state),
        *_of_settings(state, keyed=scope.keyed),
        *_of_offsets(frontier, state),
        *_of_truncation(frontier, state, after_ends),
    ):
        yield Problem(f"{name}: {reason}", remedy)


def problems_of_foreign(state: TopicState) -> Iterator[Problem]:
    """Yield the problems of reading a topic that no frontier of ours covers."""
    name = f'topic "{state.topic}"'
    if deletes_by_age(state.settings):
        policy = state.settings.get("cleanup.policy")
        yield Problem(
            f"{name}: cleanup.policy is {policy}: keys vanish with the oldest segments",
            "set cleanup.policy=compact and have every key written again",
        )
    yield from problems_of_starts(state)


def problems_of_starts(state: TopicState) -> Iterator[Problem]:
    """Return the partitions of a topic that is not ours whose first records are gone."""
    for partition, start in enumerate(state.log_starts):
        if start > 0:
            yield Problem(
                f'topic "{state.topic}": partition {partition} starts at offset {start}: older '
                "records were deleted, so rows may be missing",
                "have every key written again",
            )


def problems_of_resuming(stored: Frontier, frontier: Frontier, topic: str) -> Iterator[Problem]:
    """Yield the problems of resuming from a state at `stored` up to `frontier`."""
    name, remedy = f'topic "{topic}"', "rebuild from the start of the log"
    ids = stored.topic_ids.get(topic), frontier.topic_ids.get(topic)
    if stored.cluster_id != frontier.cluster_id or ids[0] != ids[1]:
        yield Problem(f"{name} is another one than that of the stored state", remedy)
        return
    old, new = stored.ends.get(topic, ()), frontier.ends.get(topic, ())
    if len(old) != len(new):
        reason = (
            f"{name} had {len(old)} partitions at the stored state, the frontier knows {len(new)}"
        )
        yield Problem(reason, remedy)
    elif any(was > now for was, now in zip(old, new, strict=True)):
        yield Problem(f"{name}: the frontier lies before the stored state", "choose a newer one")
    if stored.since.get(topic) != frontier.since.get(topic):
        yield Problem(f"{name} was emptied or copied anew since the stored state", remedy)


def _of_identity(frontier: Frontier, state: TopicState) -> Iterator[tuple[str, str]]:
    if frontier.cluster_id != state.cluster_id:
        reason = f"the Kafka cluster is {state.cluster_id}, the frontier is of"
        yield f"{reason} {frontier.cluster_id!r}", "read from the cluster that capture writes to"
    topic_id = frontier.topic_ids.get(state.topic)
    if topic_id != state.topic_id:
        reason = f"it was made anew: its id is {state.topic_id}, the frontier knows {topic_id}"
        yield reason, _ASK_CAPTURE


def _of_settings(state: TopicState, *, keyed: bool) -> Iterator[tuple[str, str]]:
    if not keyed:
        policy = state.settings.get("cleanup.policy")
        if policy != "delete":
            yield f"cleanup.policy is {policy}, must be delete: its records have no key", _FIX
        return
    for setting, must in (
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "LogAppendTime"),
    ):
        has = state.settings.get(setting)
        if has != must:
            yield f"{setting} is {has}, must be {must}", _FIX


def _of_offsets(frontier: Frontier, state: TopicState) -> Iterator[tuple[str, str]]:
    ends = frontier.ends.get(state.topic)
    if ends is None:
        yield "the frontier has no ends for it", _WAIT
        return
    if len(ends) != state.partitions:
        yield f"it has {state.partitions} partitions, the frontier knows {len(ends)}", _WAIT
        return
    for reason in frontier.missing_of(state.topic, state.log_starts):
        yield reason, _COPY
    for reason in frontier.lost_of(state.topic, state.ends):
        yield reason, _COPY


def _of_truncation(
    frontier: Frontier, state: TopicState, after_ends: AfterEnds | None
) -> Iterator[tuple[str, str]]:
    ends = frontier.ends.get(state.topic, ())
    for partition in after_ends.truncated if after_ends is not None else ():
        reason = (
            f"partition {partition} was truncated below the frontier's end {ends[partition]} when "
            "its leader changed: records are lost, others may stand in their place"
        )
        yield reason, _COPY
