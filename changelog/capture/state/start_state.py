"""Where an attempt of capture begins, and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console

from changelog.capture.state.report import CaptureReport
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, Growth, LastCommit
from changelog.runtime.failpoints import Told


@dataclass(slots=True, kw_only=True)
class StartState:
    """The place in the WAL and the state of the topics with which an attempt begins."""

    epoch: int  # of the positions written
    lsn: Lsn  # where the stream begins; what lies before is on the log
    ts_us: int = 0  # commit time that belongs to `lsn`, microseconds since 1970
    # the last transaction before `lsn`, where the last frontier names it
    commit: LastCommit | None = None
    has_frontier: bool = False  # whether the log has a frontier of this epoch
    # per topic the first position that is alive
    since: dict[str, Position] = field(default_factory=dict)
    # per topic where its records may be alive, see `Frontier`
    alive_from: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # per topic the position of the last rows that were copied to it
    whole: dict[str, Lsn] = field(default_factory=dict)
    # topics that got more partitions, as the last frontier says
    grown: dict[str, Growth] = field(default_factory=dict)
    # per topic how many the last frontier knew
    partitions: dict[str, int] = field(default_factory=dict)
    # per topic and partition the last position behind the last frontier
    written: Mapping[str, Mapping[int, Position]] = field(default_factory=dict)
    # topics that hold only what has changed since they began
    uncopied: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)  # those of them that begin in this attempt
    # no frontier before the stream has passed this: the records that were found behind the last one
    # have been sent again, so that none is newer than the next
    hold_until: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    # what the last frontier says of the signal table
    signals: Mapping[int, str] = field(default_factory=dict)
    paused: int | None = None  # the signal that holds the stream where it begins

    def skip(self, topics: Collection[str], ends: Mapping[str, tuple[int, ...]]) -> None:
        """Begin topics with the stream's changes; all their records up to `ends` are dead."""
        self.skipped |= {*topics}
        self.uncopied |= {*topics}
        self.since |= dict.fromkeys(topics, Position(self.epoch, self.lsn, 0))
        self.alive_from |= {topic: ends[topic] for topic in topics}
        # What an earlier attempt has sent of them lies before these ends: it is sent again.
        self.written = {t: places for t, places in self.written.items() if t not in self.skipped}

    def resend_grown(self, partitions: Mapping[str, int]) -> None:
        """Skip nothing of topics that got more partitions than the last frontier knew.

        In which of them a key's last records lie, if they were written at all, is not known; what
        is sent twice does no harm.
        """
        grown = {t for t, count in self.partitions.items() if partitions.get(t, count) != count}
        grown |= self.grown.keys()
        self.written = {t: places for t, places in self.written.items() if t not in grown}

    @classmethod
    def resumed(
        cls,
        frontier: Frontier,
        topics: set[str],
        written: Mapping[str, Mapping[int, Position]],
    ) -> Self:
        """Begin at a frontier, without its facts about topics that are left out."""
        return cls(
            epoch=frontier.epoch,
            lsn=frontier.lsn,
            ts_us=frontier.ts_us,
            commit=frontier.commit,
            has_frontier=True,
            since={topic: at for topic, at in frontier.since.items() if topic in topics},
            alive_from={t: offsets for t, offsets in frontier.alive_from.items() if t in topics},
            whole={topic: at for topic, at in frontier.whole.items() if topic in topics},
            grown={topic: growth for topic, growth in frontier.grown.items() if topic in topics},
            partitions={topic: len(offsets) for topic, offsets in frontier.ends.items()},
            written=written,
            signals=frontier.signals,
            paused=frontier.paused,
        )


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of an attempt besides its servers."""

    report: CaptureReport  # counts
    console: Console  # where the progress bar goes
    stop: Callable[[], bool]  # asked between chunks
    failpoint: Told  # told of each moment at which a crash is tested
