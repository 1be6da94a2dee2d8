"""Notices topics that get more partitions while they hold rows.

A key whose partition follows from their number is written elsewhere from then on, its tombstone
too. Once that tombstone is gone, nothing says that the row in the old partition is deleted. The
fold is right until then, since positions order records across partitions; so a frontier says when
a topic grew, until all that is alive was written afterwards (a resnapshot, a TRUNCATE).

When a producer takes notice of new partitions nobody can tell. So an attempt of capture that sees
them ends with the frontier that says so, and the next one has a producer that knows them from the
start: what it copies lies where its tombstones will.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Growth

log = logging.getLogger("changelog.capture")


class GrowthWatch:
    """Compares the partition counts of each frontier with the counts of the frontier before."""

    def __init__(
        self,
        grown: Mapping[str, Growth] | None = None,
        partitions: Mapping[str, int] | None = None,
        *,
        at_start: Mapping[str, int] | None = None,
        begun: Lsn = Lsn(0),  # noqa: B008 - immutable
        ms: int | None = None,
    ) -> None:
        """Begin with the partition counts of the last frontier.

        Args:
            grown: topics that it says to have grown.
            partitions: how many partitions of each topic it knew.
            at_start: how many of each topic this attempt has begun with.
            begun: where the source's WAL ended when this attempt began: rows that are alive from
                there on are of its own producer.
            ms: when the frontier was written, or before; milliseconds since 1970. Now, without
                one.
        """
        self._begun = begun
        self._grown = {
            topic: replace(growth, lsn=max(growth.lsn, begun))
            for topic, growth in (grown or {}).items()
        }
        self._at_start = dict(at_start or {})
        self._partitions = {**self._at_start, **(partitions or {})}
        self._ms = _now_ms() if ms is None else ms

    def look(
        self,
        ends: Mapping[str, tuple[int, ...]],
        since: Mapping[str, Position],
        *,
        lsn: Lsn,
        epoch: int,
    ) -> dict[str, Growth]:
        """Return the topics that have grown, as the frontier at `lsn` is to say it."""
        for topic, offsets in ends.items():
            count_before = self._partitions.get(topic, len(offsets))
            if len(offsets) > count_before:
                log.warning(
                    'topic "%s" has %d partitions, it had %d: before its tombstones are gone, copy '
                    "its table anew with `changelog resnapshot`",
                    topic,
                    len(offsets),
                    count_before,
                )
                before = self._grown.get(topic)
                ms = self._ms if before is None else before.ms
                self._grown[topic] = Growth(ms, max(lsn, self._begun))
            self._partitions[topic] = len(offsets)
        self._ms = _now_ms()
        for topic, growth in list(self._grown.items()):
            alive = since.get(topic)
            if alive is not None and alive >= Position(epoch, growth.lsn, 0):
                del self._grown[topic]
        return {topic: growth for topic, growth in self._grown.items() if topic in ends}

    def unknown(self) -> set[str]:
        """Return the topics that have partitions of which this attempt did not know."""
        return {t for t, count in self._partitions.items() if count > self._at_start.get(t, count)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
