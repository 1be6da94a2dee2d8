"""Tells records that somebody else has written to our topics (pure).

Capture is the only writer of its topics, so between two frontiers their ends move by what it has
written itself. What moves them further was sent by another attempt: by a process that was thought
dead and goes on, or by a broker that took in late what a connection of before still held. Such
records are old, yet lie behind newer ones. A reader that goes by position is not misled, but the
cleaner goes by offset: once the lag is over it keeps the old one and drops the newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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

        Args:
            ends: where the topics end now, after a flush.
            ours: how many records this attempt has written to each.

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
