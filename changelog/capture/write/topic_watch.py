"""Our topics from one frontier to the next: records of others, records gone, partitions added.

**Records of others.** Capture is the only writer of its topics, so between two frontiers their ends
move by what it has written itself. What moves them further was sent by another attempt: by a
process that was thought dead and goes on, or by a broker that took in late what a connection of
before still held. Such records are old, yet lie behind newer ones. A reader that goes by position
is not misled, but the cleaner goes by offset: once the lag is over it keeps the old one and drops
the newer one.

**Records that are gone.** The cleaner never moves the start of a topic. DeleteRecords does, and so
does a `cleanup.policy` that deletes, if only for a while; what was there is missing from the state
that the log gives, and nobody can say which rows.

Nor does a topic end before the frontier's ends, unless its leader has not the records of the one
before: an election that was unclean, or a disk that lost its last writes.

**Partitions that were added.** A key whose partition follows from their number is written elsewhere
from then on, its tombstone too. Once that tombstone is gone, nothing says that the row in the old
partition is deleted. The fold is right until then, since positions order records across partitions;
so a frontier says when a topic grew, until all that is alive was written afterwards (a resnapshot,
a TRUNCATE).

When a producer takes notice of new partitions nobody can tell. So an attempt of capture that sees
them ends with the frontier that says so, and the next one has a producer that knows them from the
start: what it copies lies where its tombstones will.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from changelog.contract.base.errors import RecordsRemovedError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.pattern import pasted, quoted
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, Growth


class SoleWriter:
    """Compares ends with counts, from one frontier to the next."""

    def __init__(self, ends: Mapping[str, tuple[int, ...]]) -> None:
        """Begin where the topics end before this attempt has written anything."""
        self._ends = {topic: sum(offsets) for topic, offsets in ends.items()}
        self._ours: dict[str, int] = {}
        self._blind: set[str] = set()

    def lose_count(self, topics: Iterable[str]) -> None:
        """Note that records of topics were not counted: foreign ones are no longer reported."""
        self._blind |= {*topics}

    def foreign(
        self, ends: Mapping[str, tuple[int, ...]], ours: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the number of records of others in each topic since the last call.

        Topics end at `ends` after a flush; `ours` is how many records this attempt has written to
        each.

        Returns:
            Only topics with another number than ours; fewer than none where records are gone.
        """
        foreign = {}
        for topic, offsets in ends.items():
            end, count = sum(offsets), ours.get(topic, 0)
            grown = end - self._ends.get(topic, end)
            written = count - self._ours.get(topic, 0)
            self._ends[topic], self._ours[topic] = end, count
            if grown != written and topic not in self._blind:
                foreign[topic] = grown - written
        return foreign


Starts = Mapping[str, Sequence[int]]
"""Per topic the first offset of each partition that is still there."""
Ends = Mapping[str, Sequence[int]]
"""Per topic the end of each partition."""


def watched(frontier: Frontier) -> list[str]:
    """Return the keyed topics of a frontier, which must not lose their first records."""
    return [topic for topic in frontier.tables if frontier.scope_of(topic).keyed]


def removed(
    frontier: Frontier, topic: str, starts: Starts, ends: Ends | None = None
) -> RecordsRemovedError | None:
    """Return the error about a topic that has lost records, or None if all are there.

    Without `ends` the frontier is no older than where the topic ends now.
    """
    gaps = [
        *frontier.missing_of(topic, starts.get(topic, ())),
        *frontier.lost_of(topic, (ends or {}).get(topic, ())),
    ]
    if not gaps:
        return None
    table = frontier.tables[topic]
    return RecordsRemovedError(
        f'topic "{topic}": {"; ".join(gaps)}, so rows of table {table.said} may be missing',
        hint=f"`changelog resnapshot {pasted(quoted(*table))}` and start again",
    )


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

        It says which topics have grown, and how many partitions each had. This attempt has begun
        with `at_start`, when the source's WAL ended at `begun`: rows alive from there on are of its
        own producer. The frontier was written at `ms`, milliseconds since 1970; now, without one.
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
