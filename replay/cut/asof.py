"""Choose the frontier for a moment ("as of"), and list the alternatives. Pure.

A state is exact only at a frontier, not between two: a record before a later frontier's ends may
have a value from after the requested moment (`changelog.capture.state.progress` delays frontiers
for that reason). So the answer is the newest frontier at or before the moment, and only if it is
certain that there was no newer one, because the frontier topic is compacted too.

Two neighbours on the topic are certain to be neighbours while the later one is younger than the
topic's `min.compaction.lag.ms`: a record of that age has removed nothing. Between older ones,
frontiers may be gone; that changes nothing if no record was written between the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


@dataclass(frozen=True, slots=True)
class AsOf:
    """A requested moment: an LSN or a time."""

    text: str  # as it was written
    lsn: Lsn | None = None  # the LSN, or None for a time
    ts_us: int | None = None  # the time in microseconds since 1970, or None for an LSN
    epoch: int | None = None  # of the LSN, or None for the newest

    def reaches(self, frontier: Frontier, epoch: int) -> bool:
        """Tell whether a frontier is at or before this moment; `epoch` is the newest one."""
        if self.lsn is not None:
            return frontier.epoch == (self.epoch or epoch) and frontier.lsn <= self.lsn
        return self.ts_us is not None and frontier.ts_us <= self.ts_us

    def is_exactly(self, frontier: Frontier, epoch: int) -> bool:
        """Tell whether it names this very frontier."""
        if self.lsn is not None:
            return frontier.epoch == (self.epoch or epoch) and frontier.lsn == self.lsn
        return frontier.ts_us == self.ts_us


def parse_as_of(text: str) -> AsOf | None:
    """Read `latest` (None), an LSN, or a time as ISO 8601 writes it; without a zone it is UTC."""
    text = text.strip()
    if text == "latest":
        return None
    if _LSN.fullmatch(text):
        return AsOf(text, lsn=Lsn.parse(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f'"{text}" is neither an LSN nor a time',
            hint='write an LSN as 0/16B3748, a time as "2026-01-31T12:00:00Z", or latest',
        ) from error
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return AsOf(text, ts_us=(delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def chosen(
    records: Sequence[FrontierRecord],
    as_of: AsOf,
    topics: Sequence[str],
    *,
    is_next: Callable[[FrontierRecord], bool],
) -> FrontierRecord | None:
    """Return the frontier that answers, or None when none of them does for certain.

    `records`: the frontiers of a slot, in the order of their topic. `topics`: those that are to be
    read. `is_next`: tells of a frontier whether none can have been removed between the one before
    it and itself; see `is_young`.
    """
    steps = _advancing(records)
    if not steps:
        return None
    epoch = steps[-1].frontier.epoch
    place = max((n for n, r in enumerate(steps) if as_of.reaches(r.frontier, epoch)), default=-1)
    if place < 0:
        return None
    record = steps[place]
    if as_of.is_exactly(record.frontier, epoch):
        return record
    if place + 1 == len(steps):
        return None  # the log has not come so far
    following = steps[place + 1]
    is_certain = is_next(following) or _same_records(record, following, topics)
    return record if is_certain else None


def is_young(record: FrontierRecord, *, lag_ms: int, now_ms: int) -> bool:
    """Tell whether a frontier is so young that it has made the cleaner remove nothing.

    `lag_ms`: `min.compaction.lag.ms` of the frontier topic. `now_ms`: the broker's clock, at the
    latest.
    """
    return now_ms - record.appended_ms < lag_ms


def _advancing(records: Sequence[FrontierRecord]) -> list[FrontierRecord]:
    """Leave out late frontiers of a capture thought dead, and all but the last of equals."""
    steps: list[FrontierRecord] = []
    for record in records:
        this = (record.frontier.epoch, record.frontier.lsn)
        last = (steps[-1].frontier.epoch, steps[-1].frontier.lsn) if steps else None
        if last is not None and this < last:
            continue
        if last == this:
            steps.pop()
        steps.append(record)
    return steps


def _same_records(one: FrontierRecord, other: FrontierRecord, topics: Sequence[str]) -> bool:
    return all(
        one.frontier.ends.get(topic) == other.frontier.ends.get(topic)
        and one.frontier.since.get(topic) == other.frontier.since.get(topic)
        and one.frontier.topic_ids.get(topic) == other.frontier.topic_ids.get(topic)
        for topic in topics
    )


def nearest(frontiers: Sequence[Frontier], as_of: AsOf, epoch: int) -> tuple[Frontier, ...]:
    """Return the last frontier at or before the moment, and the first one after it."""
    ordered = sorted(frontiers, key=lambda frontier: (frontier.epoch, frontier.lsn))
    before = [frontier for frontier in ordered if as_of.reaches(frontier, epoch)]
    after = [frontier for frontier in ordered if frontier not in before]
    return (*before[-1:], *after[:1])
