"""Can a log of another program give a state, until when, and by which rule? (pure).

There is no frontier: what is read is what stood on each partition when the read began, and no
moment cuts transactions, topics or partitions. What can be told is whether a key's last record is
still there:

- A partition whose start has moved has lost records, and nobody knows of which keys.
- On a compacted topic the cleaner may use a record behind the ends to remove one before them, as
  soon as that one is `min.compaction.lag.ms` old. By the broker's clock (LogAppendTime) that
  gives a deadline; by the writer's there is none, and then nothing may be appended meanwhile.
- A tombstone that the scan needs stays `delete.retention.ms` from the scan's start.
- Where an update may change the key in one record, compaction loses the old key's delete with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from changelog.contract.declared import DeclaredLog, Shape
from replay.topic_state import TopicState
from replay.verdict import Kind, Verdict


def judge_declared(
    logs: Sequence[DeclaredLog],
    topics: Mapping[str, TopicState],
    *,
    started_ms: int,
    allowance_ms: int,
) -> Verdict:
    """Judge whether a scan of some logs that begins now finds the last record of each key."""
    reasons = [why for log in logs for why in _reasons(log, topics.get(log.topic))]
    if reasons:
        return Verdict(Kind.PAST, None, tuple(reasons), allowance_ms)
    words = tuple(f'topic "{log.topic}": {log.rule()}' for log in logs)
    limits = [limit for log in logs for limit in _limits(topics[log.topic], started_ms)]
    if any(limit is None for limit in limits):
        words += ("exact only if nothing is appended while it is read",)
    known = [limit for limit in limits if limit is not None]
    kind = Kind.EXACT_UNTIL if known else Kind.EXACT
    return Verdict(kind, min(known, default=None), words, allowance_ms)


def lost_meanwhile(
    logs: Sequence[DeclaredLog],
    before: Mapping[str, TopicState],
    after: Mapping[str, TopicState],
    *,
    started_ms: int,
    now_ms: int,
    allowance_ms: int,
) -> list[str]:
    """Say what a scan may have missed, once it is over; empty when nothing."""
    return [
        f'topic "{log.topic}": {why}'
        for log in logs
        for why in _lost(before[log.topic], after[log.topic], started_ms, now_ms + allowance_ms)
    ]


def _lost(was: TopicState, now: TopicState, started_ms: int, now_ms: int) -> Iterator[str]:
    if "compact" not in was.settings.get("cleanup.policy", ""):
        return
    retention = int(was.settings.get("delete.retention.ms") or 0)
    if now_ms >= started_ms + retention:
        yield f"the scan took longer than delete.retention.ms ({retention})"
    lag = _lag_ms(was)
    if was.ends != now.ends and now_ms >= started_ms + (lag or 0):
        yield (
            f"records were appended while it was read, and min.compaction.lag.ms ({lag or 0} that "
            "count) does not keep older ones from being cleaned away"
        )


def _limits(state: TopicState, started_ms: int) -> Iterator[int | None]:
    """Give each moment by which the scan must have ended; None where there is none to give."""
    if "compact" not in state.settings.get("cleanup.policy", ""):
        return
    yield started_ms + int(state.settings.get("delete.retention.ms") or 0)
    lag = _lag_ms(state)
    yield started_ms + lag if lag else None


def _lag_ms(state: TopicState) -> int | None:
    """Give the lag that keeps a record safe; None where it runs by the writers' clocks."""
    if state.settings.get("message.timestamp.type") != "LogAppendTime":
        return None
    return int(state.settings.get("min.compaction.lag.ms") or 0) or None


def _reasons(log: DeclaredLog, state: TopicState | None) -> Iterator[str]:
    name = f'topic "{log.topic}"'
    if state is None:
        yield f"{name} does not exist"
        return
    policy = state.settings.get("cleanup.policy", "")
    for partition, start in enumerate(state.log_starts):
        if start > 0:
            yield (
                f"{name}: partition {partition} starts at offset {start}: older records were "
                "deleted, so rows may be missing"
            )
    if "compact" in policy and "delete" in policy:
        yield f"{name}: cleanup.policy is {policy}: it deletes live rows with time"
    if "compact" in policy and log.shape is Shape.CUD_JSON and log.key_changes:
        yield (
            f"{name} is compacted, and a record that changes a key may be gone and the delete of "
            f"the old key with it: set logs.{log.table.table}.key_changes = false if updates never "
            "change keys"
        )
