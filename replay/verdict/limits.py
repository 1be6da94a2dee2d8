"""The moments up to which a read is exact, by the cleaner and the tombstones. Pure.

`replay/verdict/verdict.py` explains why these are the limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from changelog.contract.log.frontier import FrontierRecord
from replay.broker.topic_state import AfterEnds, TopicState

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """A moment from which on a read is not exact."""

    at_ms: int  # the moment, by the broker's clock, milliseconds since 1970
    why: str  # the topic and setting that cause it
    remedy: str = field(compare=False)  # what to do once it has passed
    # whether a newer frontier would be exact after it
    is_of_frontier: bool = field(compare=False, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictTimes:
    """Moments of a read by our clock, and their uncertainty; milliseconds."""

    started_ms: int  # when the scan began, or now
    asked_ms: int  # before the request for the topics' states
    now_ms: int  # now
    estimate_ms: int | None  # the expected duration of the scan, or None if it is not known
    allowance_ms: int  # the assumed difference between our clock and the broker's

    def is_over(self, limit: Limit) -> bool:
        """Tell whether a limit has passed, or may have."""
        return self.now_ms + self.allowance_ms >= limit.at_ms


def limits(
    record: FrontierRecord,
    state: TopicState,
    after_ends: AfterEnds | None,
    resumed: FrontierRecord | None,
    times: VerdictTimes,
) -> Iterator[Limit]:
    """Return the limits of reading a topic of our log up to a frontier.

    `state`: of the topic, with the frontier's partitions. `after_ends`: the first records after the
    frontier's ends, if they were read. `resumed`: the frontier of a state that the scan continues,
    or None to scan from the start.
    """
    name, lag, retention = f'topic "{state.topic}"', lag_ms(state), retention_ms(state)
    has_lag = lag > times.allowance_ms
    yield Limit(
        min(_starts(record, state, after_ends, times)) + lag,
        f"{name}: min.compaction.lag.ms ({lag}) of the frontier",
        "let capture write a newer frontier, or choose a newer one"
        if has_lag
        else "run `changelog capture --fix-topics`: a longer min.compaction.lag.ms",
        is_of_frontier=has_lag,
    )
    growth = record.frontier.grown.get(state.topic)
    if growth is not None:
        yield Limit(
            growth.ms + lag + retention,
            f"{name}: min.compaction.lag.ms ({lag}) and delete.retention.ms ({retention}) since it "
            "got more partitions",
            "copy the table anew with `changelog resnapshot`",
        )
    if resumed is None:
        yield scan_limit(state, times)
        return
    yield Limit(
        resumed.appended_ms + lag + retention,
        f"{name}: min.compaction.lag.ms ({lag}) and delete.retention.ms ({retention}) of the "
        "stored state: deletes may have been missed since,",
        "rebuild from the start of the log",
    )


def scan_limit(state: TopicState, times: VerdictTimes) -> Limit:
    """Return the limit on a scan from the start: until then it meets every tombstone."""
    retention = retention_ms(state)
    return Limit(
        times.started_ms + retention - longest_cleaning_ms(retention),
        f'topic "{state.topic}": delete.retention.ms ({retention}) of the scan',
        "give the topic a longer delete.retention.ms"
        if retention <= times.allowance_ms
        else "run it again; a longer delete.retention.ms gives it more time",
    )


def longest_cleaning_ms(retention: int) -> int:
    """Return the longest duration of a cleaning that a scan's deadline allows for."""
    return min(retention // 10, _HOUR_MS)


def _starts(
    record: FrontierRecord, state: TopicState, after_ends: AfterEnds | None, times: VerdictTimes
) -> Iterator[int]:
    """Yield the moments from which the lag counts, for each partition."""
    ends = record.frontier.ends[state.topic]
    no_tombstone_gone_ms = record.appended_ms + lag_ms(state) + retention_ms(state)
    is_whole = times.now_ms + times.allowance_ms < no_tombstone_gone_ms
    first_ms = after_ends.first_ms if after_ends is not None else (record.appended_ms,) * len(ends)
    yield times.asked_ms  # for partitions without a record after their end
    for end, now, first in zip(ends, state.ends, first_ms, strict=True):
        if now > end and is_whole:
            yield times.asked_ms if first is None else first
        elif now > end:
            yield record.appended_ms if first is None else min(first, record.appended_ms)


def lag_ms(state: TopicState) -> int:
    """Return the age at which a newer record lets the cleaner remove an older one."""
    return int(state.settings.get("min.compaction.lag.ms") or 0)


def retention_ms(state: TopicState) -> int:
    """Return the time that a tombstone stays after its first cleaning."""
    return int(state.settings.get("delete.retention.ms") or 0)


def moment_iso(ms: int | None) -> str | None:
    """Return milliseconds since 1970 in ISO 8601, UTC; None for None or a year past 9999."""
    try:
        return None if ms is None else datetime.fromtimestamp(ms // 1000, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def moment_text(ms: int) -> str:
    """Return milliseconds since 1970 as a time for people."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"  # a retention of "for ever"
