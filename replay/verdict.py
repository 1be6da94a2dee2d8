"""Can the log still give the exact state at a frontier, until when, and why not?

The records of `[0, ends)` fold to the state at the frontier as long as the cleaner has not used a
record past `ends` to remove one before it, and as long as no tombstone goes that the scan needs:

- The cleaner removes a record for a newer one only when that one is `min.compaction.lag.ms` old
  by its append time, the broker's clock (KIP-58). A record past the ends was appended after the
  frontier's ends were taken; with records there, the clock runs from the frontier's own append
  time. A partition without any record past its end has nothing that could remove anything: for
  it the clock starts now.
- A tombstone stays `delete.retention.ms` after the cleaning that removed the values before it. A
  scan that met such a value did so before that cleaning, so a scan shorter than the retention
  meets the tombstone too.

The deadline is the earlier of the two. It counts by the broker's clock while `now_ms` is ours: the
allowance says how far apart the two may be, and the deadline is used only up to that much before
it. A wider gap between the clocks is not detected.

What the broker cannot tell: a topic that once had fewer partitions keeps a key's old records in
the old partition, where no tombstone of the new one reaches. The fold is right about them while
the tombstone exists; a grown topic is therefore not to be trusted with deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from changelog.contract.errors import VerdictError
from changelog.contract.frontier import FrontierRecord
from replay.topic_state import TopicState

_COMFORT = 2  # the finish may be that many times as far as estimated


class Kind(Enum):
    """What the log can give."""

    EXACT = "exact"
    EXACT_UNTIL = "exact-until"
    PAST = "past"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a read now is exact.

    Attributes:
        kind: EXACT, EXACT_UNTIL when the deadline may come before our own finish, or PAST.
        deadline_ms: when the scan must have ended, by the broker's clock, milliseconds since
            1970; None when PAST.
        reasons: why it is PAST; else what limits it.
        allowance_ms: how far our clock may be from the broker's.
    """

    kind: Kind
    deadline_ms: int | None
    reasons: tuple[str, ...]
    allowance_ms: int = 0

    @property
    def allows_read(self) -> bool:
        """Tell whether reading can give the exact state at all."""
        return self.kind is not Kind.PAST

    def is_late(self, now_ms: int) -> bool:
        """Tell whether a scan that ends now ends too late."""
        return self.deadline_ms is None or now_ms + self.allowance_ms >= self.deadline_ms

    def require(self) -> None:
        """Refuse when the log cannot give the exact state.

        Raises:
            VerdictError: PAST; names every reason.
        """
        if not self.allows_read:
            raise VerdictError(
                "the log cannot give the exact state any more: " + "; ".join(self.reasons),
                hint="let capture write a newer frontier, or take a new snapshot of what is named",
            )

    def __str__(self) -> str:
        """Give one line for people."""
        until = f" until {_moment(self.deadline_ms)}" if self.deadline_ms is not None else ""
        why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        name = {Kind.EXACT: "exact", Kind.EXACT_UNTIL: "exact if finished", Kind.PAST: "not exact"}
        return f"{name[self.kind]}{until}{why}"


def judge(
    record: FrontierRecord,
    topics: Mapping[str, TopicState],
    wanted: tuple[str, ...],
    *,
    started_ms: int,
    now_ms: int,
    estimate_ms: int | None,
    allowance_ms: int,
) -> Verdict:
    """Judge whether a scan of `wanted` from the log's start to the frontier is exact.

    Args:
        record: the frontier and when it was appended, by the broker's clock.
        topics: how the topics stand now; one that is missing does not exist.
        wanted: the topics to read.
        started_ms: when the scan began, or now when it has not.
        now_ms: our clock.
        estimate_ms: how long the scan may take from `started_ms`; None when not known.
        allowance_ms: how far our clock may be from the broker's.
    """
    reasons = [reason for topic in wanted for reason in _reasons(record, topic, topics.get(topic))]
    if reasons:
        return Verdict(Kind.PAST, None, tuple(reasons), allowance_ms)
    limits = [limit for topic in wanted for limit in _limits(record, topics[topic], started_ms)]
    if not limits:
        return Verdict(Kind.EXACT, None, (), allowance_ms)
    deadline_ms, why = min(limits)
    if now_ms + allowance_ms >= deadline_ms:
        late = (
            f"{why} ended at {_moment(deadline_ms)}, it is {_moment(now_ms)} "
            f"(clocks may differ by {allowance_ms} ms)"
        )
        return Verdict(Kind.PAST, None, (late,), allowance_ms)
    is_sure = (
        estimate_ms is not None and started_ms + _COMFORT * estimate_ms + allowance_ms < deadline_ms
    )
    return Verdict(
        Kind.EXACT if is_sure else Kind.EXACT_UNTIL, deadline_ms, (f"limit: {why}",), allowance_ms
    )


def _limits(
    record: FrontierRecord, state: TopicState, started_ms: int
) -> Iterator[tuple[int, str]]:
    lag, retention = _lag_ms(state), _retention_ms(state)
    ends = record.frontier.ends[state.topic]
    has_later = any(now > end for now, end in zip(state.ends, ends, strict=True))
    base = record.appended_ms if has_later else started_ms
    yield base + lag, f'topic "{state.topic}": min.compaction.lag.ms ({lag}) of the frontier'
    yield (
        started_ms + retention,
        f'topic "{state.topic}": delete.retention.ms ({retention}) of the scan',
    )


def _reasons(record: FrontierRecord, topic: str, state: TopicState | None) -> Iterator[str]:
    name = f'topic "{topic}"'
    if state is None:
        yield f"{name} does not exist any more"
        return
    obstacles = record.frontier.scope_of(topic).obstacles()
    yield from (f"{name} cannot be rebuilt: {why}" for why in obstacles)
    yield from (f"{name}: {problem}" for problem in _identity_problems(record, state))
    yield from (f"{name}: {problem}" for problem in _setting_problems(state))
    yield from (f"{name}: {problem}" for problem in _offset_problems(record, state))


def _identity_problems(record: FrontierRecord, state: TopicState) -> Iterator[str]:
    frontier = record.frontier
    if frontier.cluster_id != state.cluster_id:
        yield (
            f"the Kafka cluster is {state.cluster_id}, the frontier is of {frontier.cluster_id!r}"
        )
    known = frontier.topic_ids.get(state.topic)
    if known != state.topic_id:
        yield f"it was made anew: its id is {state.topic_id}, the frontier knows {known}"


def _setting_problems(state: TopicState) -> Iterator[str]:
    for setting, must in (
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "LogAppendTime"),
    ):
        has = state.settings.get(setting)
        if has != must:
            yield f"{setting} is {has}, must be {must}"


def _offset_problems(record: FrontierRecord, state: TopicState) -> Iterator[str]:
    ends = record.frontier.ends.get(state.topic)
    if ends is None:
        yield "the frontier has no ends for it"
        return
    if len(ends) != state.partitions:
        yield f"it has {state.partitions} partitions, the frontier knows {len(ends)}"
        return
    for partition, (start, now, end) in enumerate(
        zip(state.log_starts, state.ends, ends, strict=True)
    ):
        if start > 0:
            yield f"partition {partition} starts at offset {start}: older records were deleted"
        if now < end:
            yield f"partition {partition} ends at {now}, before the frontier's {end}: records lost"


def _lag_ms(state: TopicState) -> int:
    return int(state.settings.get("min.compaction.lag.ms") or 0)


def _retention_ms(state: TopicState) -> int:
    return int(state.settings.get("delete.retention.ms") or 0)


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"  # a retention of "for ever"
