"""Judge whether the records after a stored state can still be read exactly, and until when. Pure.

A stored state at a frontier F0 includes every record below F0. With the records of the topic in
`[ends(F0), ends(F1))` applied it is the state at F1, if no record that decides about a key is
missing there:

- A row's record in that range is removed only for a newer one. If that is in the range too, it is
  harmless; past `ends(F1)` the ordinary verdict on F1 covers it (`min.compaction.lag.ms`).
- A tombstone in that range is removed by itself. It was appended after F0's ends, the cleaner
  leaves records younger than `min.compaction.lag.ms` alone, and a tombstone stays for
  `delete.retention.ms` after its first cleaning (KIP-534). So none is gone before

      F0's append time + min.compaction.lag.ms + delete.retention.ms

  by the broker's clock, and a read that ends before that has met all of them. A later read may have
  missed a delete, and nothing on the log shows it: that is why a stored offset alone proves
  nothing. Of the settings when the state was stored and now, the shorter ones count; a setting that
  was lowered and raised again in between is not noticed.

Records past `ends(F0)` with a position below F0 are resends after a crash; the state includes them,
and the fold leaves them out. Therefore a stored state needs no tombstones: every record taken from
the range is newer than all of the state.

All of this holds for one and the same log only, so identity is checked first: slot, epoch, cluster,
topic id, partitions and their growth, `since`, the last copy (`whole`), scope, and the key schema.
And it holds only if the log has lost nothing: if a partition has another leader since F0, the
brokers are asked whether it still has everything before `ends(F0)`, because a truncated partition
may have other records at offsets that the state includes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.schema import SchemaPin
from replay.broker.topic_state import AfterEnds, TopicState
from replay.verdict.limits import Limit, VerdictTimes, lag_ms, retention_ms
from replay.verdict.problems import Problem
from replay.verdict.verdict import Verdict, judge, refused, together

_REMEDY = "rebuild from the start of the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBase:
    """The stored state of a topic, and the topic's settings when it was stored."""

    record: FrontierRecord  # the state's frontier
    lag_ms: int  # `min.compaction.lag.ms` of the topic when it was stored
    retention_ms: int  # `delete.retention.ms` at that time
    pin: SchemaPin  # the schema versions of keys and values at that time


def judge_increment(
    bases: Mapping[str, StoredBase],
    record: FrontierRecord,
    topics: Mapping[str, TopicState],
    times: VerdictTimes,
    *,
    after_ends: Mapping[str, AfterEnds] | None = None,
    after_bases: Mapping[str, AfterEnds] | None = None,
) -> Verdict:
    """Judge a read of each topic from its base's ends to the frontier.

    `bases`: the stored state of each topic to read. `record`: the frontier to read to. `topics`:
    the present states of the topics. `after_ends`: the first records after the frontier's ends, if
    they were read. `after_bases`: the same after the ends of the bases' frontiers.
    """

    def judged(topic: str, base: StoredBase) -> Verdict:
        state = topics.get(topic)
        faults = [
            Problem(f'topic "{topic}": {reason}', _REMEDY)
            for reason in obstacles(base, record, topic, state, (after_bases or {}).get(topic))
        ]
        if faults or state is None:
            return refused(faults, times.allowance_ms)
        # Records before the stored state are not read, so they may be gone.
        trimmed = replace(state, log_starts=(0,) * state.partitions)
        return judge(
            record,
            {topic: trimmed},
            (topic,),
            times,
            after_ends=after_ends,
            resumed=base.record,
            further=[limit_of(base, state)],
        )

    verdicts = {topic: judged(topic, base) for topic, base in bases.items()}
    return together(verdicts, times.allowance_ms)


def limit_of(base: StoredBase, state: TopicState) -> Limit:
    """Return the moment at which a tombstone after the base may be gone."""
    lag = min(base.lag_ms, lag_ms(state))
    retention = min(base.retention_ms, retention_ms(state))
    return Limit(
        base.record.appended_ms + lag + retention,
        f'topic "{state.topic}": min.compaction.lag.ms ({lag}) and delete.retention.ms '
        f"({retention}) of the stored state of LSN {base.record.frontier.lsn}: deletes may have "
        "been missed since,",
        _REMEDY,
    )


def obstacles(
    base: StoredBase,
    record: FrontierRecord,
    topic: str,
    state: TopicState | None,
    after_base: AfterEnds | None = None,
) -> Iterator[str]:
    """Yield the reasons why the log does not lead from a stored state to a frontier."""
    old, new = base.record.frontier, record.frontier
    if state is None:
        yield "it does not exist any more"
    if topic not in new.ends:
        yield f"the frontier at LSN {new.lsn} does not have it"
        return
    for subject, was, now in _identity(base, record, topic):
        if was != now:
            yield f"{subject} changed from {was} to {now} since the stored state"
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
    for partition in after_base.truncated if after_base is not None else ():
        yield (
            f"partition {partition} was truncated below the stored state's end "
            f"{starts[partition]} when its leader changed: records that the state has are lost"
        )


def is_one_log(base: StoredBase, record: FrontierRecord, topic: str) -> bool:
    """Tell whether a stored state and a frontier are of the same log."""
    return all(was == now for _, was, now in _identity(base, record, topic))


def _identity(
    base: StoredBase, record: FrontierRecord, topic: str
) -> tuple[tuple[str, object, object], ...]:
    old, new = base.record.frontier, record.frontier
    return (
        ("the slot", old.slot, new.slot),
        ("the epoch of the slot", old.epoch, new.epoch),
        ("the PostgreSQL cluster", old.system_id, new.system_id),
        ("the Kafka cluster", old.cluster_id, new.cluster_id),
        ("the topic's id", old.topic_ids.get(topic), new.topic_ids.get(topic)),
        ("when its partitions grew", _grown_ms(old, topic), _grown_ms(new, topic)),
        ("what is alive (since)", old.since.get(topic), new.since.get(topic)),
        ("the last copy of the table (LSN)", old.whole.get(topic), new.whole.get(topic)),
        ("what of the table is captured", old.scope_of(topic), new.scope_of(topic)),
    )


def _grown_ms(frontier: Frontier, topic: str) -> int | None:
    """Return the time at which a topic grew; the LSN of it changes with each start of capture."""
    growth = frontier.grown.get(topic)
    return None if growth is None else growth.ms
