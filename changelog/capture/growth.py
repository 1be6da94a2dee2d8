"""Notices topics that get more partitions while they hold rows.

A key whose partition follows from their number is written elsewhere from then on, its tombstone
too. Once that tombstone is gone, nothing says that the row in the old partition is deleted. The
fold is right until then, since positions order records across partitions; so a frontier says when
a topic grew, until all that is alive was written afterwards (a resnapshot, a TRUNCATE).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from changelog.contract.frontier import Growth
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position


class GrowthWatch:
    """Compares the partitions of each frontier with those of the one before."""

    def __init__(
        self,
        grown: Mapping[str, Growth] | None = None,
        partitions: Mapping[str, int] | None = None,
        *,
        ms: int | None = None,
    ) -> None:
        """Go on from what the last frontier says.

        Args:
            grown: topics that it says to have grown.
            partitions: how many partitions of each topic it knew.
            ms: when it was written, or before; milliseconds since 1970. Now, without one.
        """
        self._grown = dict(grown or {})
        self._partitions = dict(partitions or {})
        self._ms = _now_ms() if ms is None else ms

    def look(
        self,
        ends: Mapping[str, tuple[int, ...]],
        since: Mapping[str, Position],
        *,
        lsn: Lsn,
        epoch: int,
    ) -> dict[str, Growth]:
        """Give the topics that have grown, as the frontier at `lsn` is to say it."""
        for topic, each in ends.items():
            if len(each) > self._partitions.get(topic, len(each)):
                before = self._grown.get(topic)
                self._grown[topic] = Growth(self._ms if before is None else before.ms, lsn)
            self._partitions[topic] = len(each)
        self._ms = _now_ms()
        for topic, growth in list(self._grown.items()):
            alive = since.get(topic)
            if alive is not None and alive >= Position(epoch, growth.lsn, 0):
                del self._grown[topic]
        return {topic: each for topic, each in self._grown.items() if topic in ends}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
