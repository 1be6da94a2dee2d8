"""Can what came after a stored state still be read exactly, until when, and why not? Pure.

A stored state at a frontier F0 has taken in every record below F0. Reading `[ends(F0), ends(F1))`
of the topic on top of it gives the state at F1, if nothing that changes a key is missing there:

- A row's record in that range goes only for a newer one. Within the range that is harmless; past
  `ends(F1)` the ordinary verdict on F1 covers it (`min.compaction.lag.ms`).
- A tombstone in that range goes by itself. It was appended after F0's ends were taken, the cleaner
  touches no record younger than `min.compaction.lag.ms`, and a tombstone stays
  `delete.retention.ms` from its first cleaning on (KIP-534). So none of them is gone before

      F0's append time + min.compaction.lag.ms + delete.retention.ms

  by the broker's clock, and a read that ends before that has met them all. Later it may have
  missed a delete, and nothing on the log tells: that is why a stored offset proves nothing by
  itself. The settings count as they were when the state was stored or as they are now, whichever
  is shorter; a setting that was lowered and raised again in between is not seen.

Records past `ends(F0)` whose position is below F0 were sent again after a crash; the state has them
and the fold leaves them out. Therefore a stored state needs no tombstones of its own: whatever is
taken from the range is newer than all that it holds.

All of that is about one and the same log, so identity comes first: slot, epoch, cluster, topic id,
partitions, `since`, what was copied (`whole`), scope, and the schema that keys bear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from changelog.contract.frontier import FrontierRecord
from replay.topic_state import TopicState
from replay.verdict import Kind, Verdict, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where the stored state of a topic stands.

    Attributes:
        record: the frontier that it is true at.
        lag_ms: `min.compaction.lag.ms` of the topic when it was stored.
        retention_ms: `delete.retention.ms` then.
        key_schema_id: the schema id of its keys.
    """

    record: FrontierRecord
    lag_ms: int
    retention_ms: int
    key_schema_id: int


def judge_increment(
    bases: Mapping[str, Base],
    record: FrontierRecord,
    topics: Mapping[str, TopicState],
    *,
    started_ms: int,
    now_ms: int,
    estimate_ms: int | None,
    allowance_ms: int,
) -> Verdict:
    """Judge a read of each topic from its base's ends to the frontier.

    Args:
        bases: the stored state of each topic to read.
        record: the frontier to read to.
        topics: how the topics stand now.
        started_ms: when the read began, or now when it has not.
        now_ms: our clock.
        estimate_ms: how long the read may take from `started_ms`; None when not known.
        allowance_ms: how far our clock may be from the broker's.
    """
    reasons = [
        f'topic "{topic}": {reason}'
        for topic, base in bases.items()
        for reason in obstacles(base, record, topic, topics.get(topic))
    ]
    if reasons:
        return _refused(tuple(reasons), allowance_ms)
    deadlines = [(deadline_ms(base, topics[topic]), topic) for topic, base in bases.items()]
    deadline, topic = min(deadlines)
    if now_ms + allowance_ms >= deadline:
        why = (
            f'topic "{topic}": deletes may have been missed: tombstones written after the stored '
            f"state of LSN {bases[topic].record.frontier.lsn} may be gone since {_moment(deadline)}"
        )
        return _refused((why,), allowance_ms)
    # What lies before the stored state is not read, so it may be gone.
    trimmed = {
        topic: replace(topics[topic], log_starts=(0,) * topics[topic].partitions) for topic in bases
    }
    verdict = judge(
        record,
        trimmed,
        tuple(bases),
        started_ms=started_ms,
        now_ms=now_ms,
        estimate_ms=estimate_ms,
        allowance_ms=allowance_ms,
    )
    if not verdict.allows_read or verdict.deadline_ms is None or verdict.deadline_ms <= deadline:
        return verdict
    return replace(
        verdict,
        deadline_ms=deadline,
        reasons=(f'limit: tombstones of topic "{topic}" after the stored state',),
    )


def _refused(reasons: tuple[str, ...], allowance_ms: int) -> Verdict:
    return Verdict(Kind.PAST, None, reasons, allowance_ms)


def deadline_ms(base: Base, state: TopicState) -> int:
    """Give the moment from which a tombstone after the base may be gone, by the broker's clock."""
    lag_ms = min(base.lag_ms, setting_ms(state, "min.compaction.lag.ms"))
    retention_ms = min(base.retention_ms, setting_ms(state, "delete.retention.ms"))
    return base.record.appended_ms + lag_ms + retention_ms


def setting_ms(state: TopicState, name: str) -> int:
    """Give a topic's setting in milliseconds."""
    return int(state.settings.get(name) or 0)


def obstacles(
    base: Base, record: FrontierRecord, topic: str, state: TopicState | None
) -> Iterator[str]:
    """Say why the log between a stored state and a frontier does not lead from one to the other."""
    old, new = base.record.frontier, record.frontier
    if state is None:
        yield "it does not exist any more"
    for what, was, now in _identity(base, record, topic):
        if was != now:
            yield f"{what} changed from {was} to {now} since the stored state"
    starts, ends = old.ends.get(topic, ()), new.ends.get(topic, ())
    if len(starts) != len(ends):
        yield f"it has {len(ends)} partitions, the stored state knows {len(starts)}"
    elif new.lsn < old.lsn or any(end < start for start, end in zip(starts, ends, strict=True)):
        yield f"the stored state of LSN {old.lsn} is newer than LSN {new.lsn}"
    if state is not None:
        for partition, (start, first) in enumerate(zip(starts, state.log_starts, strict=False)):
            if first > start:
                yield (
                    f"partition {partition} starts at offset {first}: records after the stored "
                    f"state's {start} were deleted"
                )


def is_one_log(base: Base, record: FrontierRecord, topic: str) -> bool:
    """Tell whether a stored state and a frontier speak of the same records."""
    return all(was == now for _, was, now in _identity(base, record, topic))


def _identity(
    base: Base, record: FrontierRecord, topic: str
) -> tuple[tuple[str, object, object], ...]:
    old, new = base.record.frontier, record.frontier
    return (
        ("the slot", old.slot, new.slot),
        ("the epoch of the slot", old.epoch, new.epoch),
        ("the PostgreSQL cluster", old.system_id, new.system_id),
        ("the Kafka cluster", old.cluster_id, new.cluster_id),
        ("the topic's id", old.topic_ids.get(topic), new.topic_ids.get(topic)),
        ("what is alive (since)", old.since.get(topic), new.since.get(topic)),
        ("the last copy of the table (LSN)", old.whole.get(topic), new.whole.get(topic)),
        ("what of the table is captured", old.scope_of(topic), new.scope_of(topic)),
    )


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"  # a retention of "for ever"
