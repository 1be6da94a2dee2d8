"""Lag of capture in time, and the reserves of WAL: bounds from few observations (pure).

PostgreSQL does not say when a WAL position was written, so the age of the oldest commit that the
log lacks is bounded: it is younger than the last transaction of the frontier, and younger than
any moment at which the WAL ended at or before the frontier. Both are by the source's own clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from changelog.contract.base.lsn import Lsn
from changelog.source.connect.retention import SourceState

_KEPT = 4096


class WalMark(NamedTuple):
    """Where the WAL ended at a moment of the source's clock, microseconds since 1970."""

    now_us: int
    lsn: Lsn


class LagClock:
    """Remembers where the WAL ended, to tell later how old an LSN is."""

    def __init__(self) -> None:
        self._marks: deque[WalMark] = deque(maxlen=_KEPT)

    def note(self, mark: WalMark) -> None:
        """Remember a mark; they come in the order of time."""
        self._marks.append(mark)

    def lag_s(self, frontier: Lsn, frontier_ts_us: int, now: WalMark) -> float:
        """Return the greatest possible age, in seconds, of the oldest commit that the log lacks.

        0 when it lacks nothing: the WAL ends at the frontier. Marks that can tell nothing new are
        forgotten; frontiers grow. `frontier_ts_us` is the commit time of the frontier's last
        transaction, microseconds since 1970.
        """
        if now.lsn <= frontier:
            return 0.0
        while len(self._marks) > 1 and self._marks[1].lsn <= frontier:
            self._marks.popleft()
        since_us = frontier_ts_us
        if self._marks and self._marks[0].lsn <= frontier:
            since_us = max(since_us, self._marks[0].now_us)
        return max(0.0, (now.now_us - since_us) / 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalRate:
    """How fast the source writes WAL, bytes a second."""

    now: float | None  # between two observations a moment apart; None when no time lay between
    average: float | None  # since its statistics began (`pg_stat_wal`); None when it does not say

    @classmethod
    def between(cls, first: WalMark, last: SourceState) -> WalRate:
        """Return the rate between two observations of a server."""
        seconds = (last.now_us - first.now_us) / 1e6
        return cls(
            now=(last.wal_lsn - first.lsn) / seconds if seconds > 0 else None,
            average=last.wal_bytes / last.wal_seconds if last.wal_seconds else None,
        )

    @property
    def highest(self) -> tuple[float, str] | None:
        """Return the higher of the two, and which it is: `now` or `average`."""
        rates = [
            (rate, name)
            for name, rate in (("now", self.now), ("average", self.average))
            if rate is not None
        ]
        return max(rates, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """How much WAL may still be written while nothing is acknowledged."""

    limit: str  # what ends it: `max_slot_wal_keep_size` or `disk`
    bytes_left: int  # until then
    seconds_left: float | None  # at the rate that was given; None when no WAL is written at all


def reserves(source: SourceState, rate: WalRate) -> tuple[Reserve, ...]:
    """Return the limits of the WAL that a slot keeps, the nearest first; none if none is known.

    The higher of the two rates counts: an estimate that is too short wakes somebody too early,
    one that is too long too late.
    """
    bytes_left = {
        "max_slot_wal_keep_size": source.slot.safe_bytes if source.slot else None,
        "disk": source.disk_free_bytes,
    }
    highest = rate.highest
    a_second = highest[0] if highest else 0.0
    limits = [
        Reserve(
            limit=limit,
            bytes_left=size,
            seconds_left=max(size, 0) / a_second if a_second > 0 else None,
        )
        for limit, size in bytes_left.items()
        if size is not None
    ]
    return tuple(sorted(limits, key=lambda reserve: reserve.bytes_left))
