"""Judge whether the log can still give the exact state at a frontier, until when, or why not. Pure.

The records of `[0, ends)` fold to the state at the frontier as long as the cleaner has not removed
one of them because of a record past `ends`, and as long as the scan meets every tombstone it needs:

- The cleaner removes a record only once a newer one of its key is `min.compaction.lag.ms` old by
  its append time, the broker's clock (KIP-58). So for each partition the lag counts from the first
  record past its end. If there is none, it counts from our request, because a record that does not
  exist yet cannot be older. The first record past the end that exists now is the first that ever
  was: whatever the cleaner had used for a removal would be older than the lag, and so would its
  replacement, unless that was a tombstone whose own retention is over too. Once such a tombstone is
  possible, the lag counts from the frontier's append time instead.
- A tombstone stays for `delete.retention.ms` from the start of the cleaning that removed the values
  before it (KIP-534). A scan that met such a value did so before that cleaning ended. So a scan
  that is shorter than the retention less the duration of a cleaning meets the tombstone too. A
  cleaning is assumed to take at most a tenth of the retention, and at most an hour.
- A reader that continues a state of an earlier frontier needs every tombstone since then. The first
  one to go was appended after that frontier, cleaned after the lag, and kept for the retention.

The deadline is the earliest of these moments. It is by the broker's clock and `now_ms` is by ours;
the allowance is the assumed difference, and the deadline is used only up to the allowance before
it. A larger difference of the clocks is not detected.

After a frontier's lag is over, a newer frontier, past all present records, is exact again: that is
`FOLLOW`. Of a topic without a lag no bounded read is exact, but a read up to its head within the
retention gives the state there.

No client can see some things, which are taken on trust: settings that were changed and changed back
before our request, a replica whose cleaner is `delete.retention.ms` behind another's, and a cleaner
that had too little memory for the keys and then paused that long
(`docs/decisions/0020-verdict.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from changelog.contract.base.errors import VerdictError
from changelog.contract.log.frontier import FrontierRecord
from replay.broker.topic_state import AfterEnds, TopicState
from replay.verdict.limits import (
    Limit,
    VerdictTimes,
    lag_ms,
    limits,
    moment_iso,
    moment_text,
    scan_limit,
)
from replay.verdict.problems import Problem, problems, problems_of_foreign, problems_of_resuming

_COMFORT = 2  # estimates may be wrong: a read is called exact if it may take twice as long


class VerdictKind(Enum):
    """The answer of the verdict."""

    EXACT = "exact"
    EXACT_UNTIL = "exact-until"
    FOLLOW = "follow"
    NOT_EXACT = "not-exact"


_WORDS = {
    VerdictKind.EXACT: "exact now",
    VerdictKind.EXACT_UNTIL: "exact if finished by",
    VerdictKind.FOLLOW: "exact only after following to the head",
    VerdictKind.NOT_EXACT: "not exact",
}
_RANK = {kind: rank for rank, kind in enumerate(VerdictKind)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a read now is exact."""

    # EXACT; EXACT_UNTIL if the deadline may come before the scan ends; FOLLOW if only a later state
    # can be read; NOT_EXACT if something has to be repaired first
    kind: VerdictKind
    # when the scan must have ended, by the broker's clock, milliseconds since 1970; None if there
    # is no limit, or no bounded scan is exact
    deadline_ms: int | None
    reasons: tuple[str, ...]  # why the read is refused, otherwise what limits it
    allowance_ms: int = 0  # the assumed difference between our clock and the broker's
    remedies: tuple[str, ...] = ()  # how to repair the cause of a refusal
    # the expected end of the scan by our clock, or None if it is not known
    finish_ms: int | None = None
    # the verdict on each topic, if there are several
    topics: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def allows_read(self) -> bool:
        """Tell whether a read up to the frontier can give the exact state."""
        return self.kind in {VerdictKind.EXACT, VerdictKind.EXACT_UNTIL}

    def is_late(self, now_ms: int) -> bool:
        """Tell whether a scan that ends now ends too late."""
        if self.deadline_ms is None:
            return not self.allows_read
        return now_ms + self.allowance_ms >= self.deadline_ms

    def require(self) -> None:
        """Raise VerdictError if the log cannot give the exact state."""
        if not self.allows_read:
            raise VerdictError(
                "the log cannot give the exact state any more: " + "; ".join(self.reasons),
                hint="; ".join(self.remedies),
            )

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values, with times in UTC."""
        return {
            "verdict": self.kind.value,
            "text": str(self),
            "deadline": moment_iso(self.deadline_ms),
            "finish": moment_iso(self.finish_ms),
            "reasons": list(self.reasons),
            "remedies": list(self.remedies),
        }

    def __str__(self) -> str:
        """Return the verdict as one line of text."""
        line = _WORDS[self.kind]
        notes = list(self.reasons)
        if self.kind is VerdictKind.EXACT_UNTIL:
            line += f" {moment_text(self.deadline_ms or 0)}"
            if self.finish_ms is not None:
                notes.insert(0, f"done at about {moment_text(self.finish_ms)}")
        elif self.deadline_ms is not None:
            notes.insert(0, f"until {moment_text(self.deadline_ms)}")
        line += f" ({'; '.join(notes)})" if notes else ""
        return f"{line} | {'; '.join(self.remedies)}" if self.remedies else line


def judge(
    record: FrontierRecord,
    topics: Mapping[str, TopicState],
    names: tuple[str, ...],
    times: VerdictTimes,
    *,
    after_ends: Mapping[str, AfterEnds] | None = None,
    resumed: FrontierRecord | None = None,
    further: Sequence[Limit] = (),
) -> Verdict:
    """Judge whether a scan of `names` to the frontier is exact.

    `record`: the frontier and its append time by the broker's clock. `topics`: the present states
    of the topics; a missing one does not exist. `after_ends`: the first records after the
    frontier's ends, if they were read. `resumed`: the frontier of a state that the scan continues,
    or None to scan from the start. `further`: limits in addition to those of the topics.
    """

    def judged(topic: str) -> Verdict:
        state, own_after_ends = topics.get(topic), (after_ends or {}).get(topic)
        faults = list(problems(record.frontier, topic, state, own_after_ends))
        if resumed is not None:
            faults += problems_of_resuming(resumed.frontier, record.frontier, topic)
        if faults or state is None:
            return refused(faults, times.allowance_ms)
        if not record.frontier.scope_of(topic).keyed:
            return _of_whole_history(state, times)
        return _timed([*limits(record, state, own_after_ends, resumed, times), *further], times)

    return together({topic: judged(topic) for topic in names}, times.allowance_ms)


def _of_whole_history(state: TopicState, times: VerdictTimes) -> Verdict:
    """Judge a topic without keys that has its first record: only retention removes records.

    No client can predict when; afterwards the start offsets of the partitions show it.
    """
    kept = ", ".join(
        f"{name} {state.settings.get(name)}" for name in ("retention.ms", "retention.bytes")
    )
    why = f'topic "{state.topic}" has no keys: exact until its first records go ({kept})'
    return Verdict(VerdictKind.EXACT, None, (why,), times.allowance_ms)


def judge_foreign(state: TopicState, times: VerdictTimes) -> Verdict:
    """Judge whether a read of a topic without frontiers, up to its present end, is exact.

    It is trusted that the writers keep each key in one partition, and its records in order.
    """
    faults = list(problems_of_foreign(state))
    if faults:
        return refused(faults, times.allowance_ms)
    if "compact" not in state.settings.get("cleanup.policy", ""):
        return Verdict(VerdictKind.EXACT, None, ("nothing is ever removed",), times.allowance_ms)
    scan = scan_limit(state, times)
    if times.is_over(scan):
        return _past_limit(scan, times)
    why = _why_no_lag(state, times.allowance_ms)
    if why is not None:
        remedy = f"read from the start and on to the head, by {moment_text(scan.at_ms)}"
        return Verdict(VerdictKind.FOLLOW, None, (why,), times.allowance_ms, (remedy,))
    lag = lag_ms(state)
    subject = f'topic "{state.topic}": min.compaction.lag.ms ({lag}) of the present end'
    return _timed([Limit(times.asked_ms + lag, subject, ""), scan], times)


def _timed(limits: list[Limit], times: VerdictTimes) -> Verdict:
    first = min(limits)
    over = [limit for limit in sorted(limits) if times.is_over(limit)]
    if over:
        # A limit that a newer frontier does not cure is reported first.
        return _past_limit(min(over, key=lambda limit: limit.is_of_frontier), times)
    finish = None if times.estimate_ms is None else times.started_ms + times.estimate_ms
    is_sure = (
        times.estimate_ms is not None
        and times.started_ms + _COMFORT * times.estimate_ms + times.allowance_ms < first.at_ms
    )
    return Verdict(
        VerdictKind.EXACT if is_sure else VerdictKind.EXACT_UNTIL,
        first.at_ms,
        (f"limit: {first.why}",),
        times.allowance_ms,
        finish_ms=finish,
    )


def _past_limit(limit: Limit, times: VerdictTimes) -> Verdict:
    late = (
        f"{limit.why} ended at {moment_text(limit.at_ms)}, it is {moment_text(times.now_ms)} "
        f"(clocks may differ by {times.allowance_ms} ms)"
    )
    kind = VerdictKind.FOLLOW if limit.is_of_frontier else VerdictKind.NOT_EXACT
    return Verdict(kind, None, (late,), times.allowance_ms, (limit.remedy,))


def refused(faults: Sequence[Problem], allowance_ms: int) -> Verdict:
    """Return the verdict on a topic with problems."""
    return Verdict(
        VerdictKind.NOT_EXACT,
        None,
        tuple(problem.reason for problem in faults),
        allowance_ms,
        tuple(dict.fromkeys(problem.remedy for problem in faults)),
    )


def together(verdicts: Mapping[str, Verdict], allowance_ms: int) -> Verdict:
    """Return the verdict on all topics: no better than the worst, and until the first deadline."""
    if not verdicts:
        return Verdict(VerdictKind.EXACT, None, (), allowance_ms)
    judged = list(verdicts.values())
    worst = max(judged, key=lambda verdict: _RANK[verdict.kind])
    if not worst.allows_read:
        judged = [verdict for verdict in judged if not verdict.allows_read]
        return Verdict(
            worst.kind,
            None,
            tuple(reason for verdict in judged for reason in verdict.reasons),
            allowance_ms,
            tuple(dict.fromkeys(remedy for verdict in judged for remedy in verdict.remedies)),
            topics=verdicts,
        )
    first = min(judged, key=lambda verdict: (verdict.deadline_ms is None, verdict.deadline_ms or 0))
    return Verdict(
        worst.kind,
        first.deadline_ms,
        first.reasons,
        allowance_ms,
        finish_ms=first.finish_ms,
        topics=verdicts,
    )


def _why_no_lag(state: TopicState, allowance_ms: int) -> str | None:
    kind, lag = state.settings.get("message.timestamp.type"), lag_ms(state)
    name = f'topic "{state.topic}"'
    if kind != "LogAppendTime":
        return f"{name}: message.timestamp.type is {kind}, so records may be cleaned away at once"
    if lag <= allowance_ms:
        return f"{name}: min.compaction.lag.ms is {lag}, so records may be cleaned away at once"
    return None
