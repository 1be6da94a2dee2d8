"""Can a log of another program give a state, until when, and by which rule? (pure).

There is no frontier: what is read is what stood on each partition when the read began, and no
moment cuts transactions, topics or partitions. What can be told is whether a key's last record is
still there:

- A partition whose start has moved has lost records, and nobody knows of which keys. Who declares
  `beginning = "earliest"` accepts that, and is told of it each time.
- On a compacted topic the cleaner may use a record behind the ends to remove one before them, as
  soon as that one is `min.compaction.lag.ms` old. By the broker's clock (LogAppendTime) that
  gives a deadline; by the writer's there is none, and then nothing may be appended meanwhile.
- A tombstone that the scan needs stays for as long as `replay/verdict/verdict.py` says.
- Where an update may change the key in one record, compaction loses the old key's delete with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from changelog.contract.forms.declared import Beginning, DeclaredLog, From, Unavailable, ValueShape
from replay.broker.topic_state import TopicState
from replay.verdict.limits import VerdictTimes, lag_ms, retention_ms, scan_limit
from replay.verdict.problems import Problem, problems_of_starts
from replay.verdict.verdict import Verdict, VerdictKind, refused, together

_WITHOUT = {
    Unavailable.FAIL: "the record cannot be read",
    Unavailable.NULL: "it is null",
    Unavailable.KEEP: "its placeholder stays",
}


def judge_declared(
    logs: Sequence[DeclaredLog], topics: Mapping[str, TopicState], times: VerdictTimes
) -> Verdict:
    """Judge whether a scan of some logs that begins now finds the last record of each key.

    `logs`: what is to be read. `topics`: how their topics stand; one that is missing does not
    exist. `times`: when it is judged; its beginning is that of the scan.
    """
    verdicts = {log.topic: _judged(log, topics.get(log.topic), times) for log in logs}
    whole = together(verdicts, times.allowance_ms)
    if not whole.allows_read:
        return whole
    # By which rule a log is read is no limit: it holds of each, not of the first to end.
    rules = tuple(reason for verdict in verdicts.values() for reason in verdict.reasons)
    return replace(whole, reasons=rules)


def _judged(log: DeclaredLog, state: TopicState | None, times: VerdictTimes) -> Verdict:
    faults = list(_problems(log, state))
    if faults or state is None:
        return refused(faults, times.allowance_ms)
    words = [f'topic "{log.topic}": {log.rule()}']
    deadline = _deadline_ms(state, times)
    if isinstance(log.beginning, From):
        words[0] += (
            f"; it is read from {log.beginning} on, so rows whose last record is older are missing"
        )
    elif any(state.log_starts):
        begins = ", ".join(f"{n} at {at}" for n, at in enumerate(state.log_starts) if at)
        words[0] += (
            f"; its first records were deleted (partition {begins}), so rows whose last record was "
            'among them are missing, as beginning = "earliest" accepts'
        )
    if is_cleaned(state) and log.leaves_out:
        words[0] += (
            "; a value that the source left out is that of an older record, and where compaction "
            f"has taken this, {_WITHOUT[log.on_unavailable]}"
        )
    if is_cleaned(state) and _safe_ms(state) is None:
        words.append("exact only if nothing is appended while it is read")
    kind = VerdictKind.EXACT if deadline is None else VerdictKind.EXACT_UNTIL
    finish = None if times.estimate_ms is None else times.started_ms + times.estimate_ms
    return Verdict(kind, deadline, tuple(words), times.allowance_ms, finish_ms=finish)


def lost_meanwhile(
    logs: Sequence[DeclaredLog],
    before: Mapping[str, TopicState],
    after: Mapping[str, TopicState],
    times: VerdictTimes,
) -> list[str]:
    """Return the reasons why a scan under way may have missed records; empty if there are none."""
    return [
        f'topic "{log.topic}": {why}'
        for log in logs
        for why in _lost(before[log.topic], after[log.topic], times)
    ]


def _lost(was: TopicState, now: TopicState, times: VerdictTimes) -> Iterator[str]:
    if not is_cleaned(was):
        return
    if times.is_over(scan_limit(was, times)):
        yield (
            f"the scan took longer than delete.retention.ms ({retention_ms(was)}), less what a "
            "cleaning takes, allows"
        )
    safe = _safe_ms(was) or 0
    if was.ends != now.ends and times.now_ms + times.allowance_ms >= times.started_ms + safe:
        yield (
            f"records were appended while it was read, and min.compaction.lag.ms ({safe} that "
            "count) does not keep older ones from being cleaned away"
        )


def lost_between(
    was: TopicState, held_ends: Sequence[int], *, has_gaps: bool, times: VerdictTimes
) -> str | None:
    """Return the reason why records between two cuts may be missing, or None.

    Whoever holds the rows at the first cut needs every record that came since. One that the cleaner
    has removed leaves a gap, and so does the end of a transaction. None can be removed before it is
    as old as the lag, by the broker's clock; and it came after the first cut was made, unless its
    transaction was open then.

    `was`: how the topic stood at the first cut. `held_ends`: the ends of that cut. `has_gaps`:
    whether offsets between the cuts gave no record. `times`: since that cut was made; its beginning
    is that of the cut.
    """
    if not has_gaps or not is_cleaned(was):
        return None
    safe = _safe_ms(was)
    if safe is None:
        return "offsets hold no record, and nothing says that none was cleaned away"
    if any(end < log_end for end, log_end in zip(held_ends, was.ends, strict=True)):
        return "offsets hold no record, and a transaction was open: how old it is is not known"
    if times.now_ms + times.allowance_ms >= times.started_ms + safe:
        return (
            f"offsets hold no record, and min.compaction.lag.ms ({safe}) has passed since what is "
            "held was read"
        )
    return None


def _deadline_ms(state: TopicState, times: VerdictTimes) -> int | None:
    """Return when the scan must have ended; None for a topic that is never cleaned."""
    if not is_cleaned(state):
        return None
    scan, safe = scan_limit(state, times).at_ms, _safe_ms(state)
    return scan if safe is None else min(scan, times.started_ms + safe)


def is_cleaned(state: TopicState) -> bool:
    """Tell whether newer records of a key make older ones go."""
    return "compact" in state.settings.get("cleanup.policy", "")


def _safe_ms(state: TopicState) -> int | None:
    """Return the lag that keeps a record safe, or None if writers' clocks decide."""
    if state.settings.get("message.timestamp.type") != "LogAppendTime":
        return None
    return lag_ms(state) or None


def _problems(log: DeclaredLog, state: TopicState | None) -> Iterator[Problem]:
    name = f'topic "{log.topic}"'
    if state is None:
        remedy = f"correct `topic` of logs.{log.table.table} in changelog.toml"
        yield Problem(f"{name} does not exist", remedy)
        return
    if log.beginning is Beginning.START:
        yield from problems_of_starts(state)
    policy = state.settings.get("cleanup.policy", "")
    if "compact" in policy and "delete" in policy and log.beginning is Beginning.START:
        yield Problem(
            f"{name}: cleanup.policy is {policy}: it deletes live rows with time",
            "set cleanup.policy=compact and have every key written again",
        )
    if "compact" in policy and log.shape is ValueShape.CUD_JSON and log.key_changes:
        yield Problem(
            f"{name} is compacted, and a record that changes a key may be gone and the delete of "
            "the old key with it",
            f"set logs.{log.table.table}.key_changes = false if updates never change keys",
        )
