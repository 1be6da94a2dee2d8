"""Records after the last frontier that are on the log already, and that the stream brings again.

After a crash the stream begins again at the last frontier, and some of what it sends is on the
log already. Positions grow within a partition and come out the same when a transaction is sent
again, so a record is skipped exactly when its partition holds that position or a later one.
"""

from __future__ import annotations

from collections.abc import Mapping

from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of, partition_without_key
from changelog.native import WrittenPlaces

_ALL = ((1 << 64) - 1, (1 << 64) - 1)


class Written:
    """Last position in each partition after the last frontier, until the stream has passed it."""

    def __init__(
        self,
        epoch: int,
        partitions: Mapping[str, int],
        written: Mapping[str, Mapping[int, Position]],
    ) -> None:
        """Begin with the partition counts, and per topic and partition the last position."""
        self._epoch = epoch
        self.partitions = partitions
        self._written = {topic: dict(places) for topic, places in written.items() if places}
        places = [p for by_partition in self._written.values() for p in by_partition.values()]
        self._catch_up_until = max(places, default=None)
        self._in_bulk: dict[str, WrittenPlaces] = {}

    def forget(self, topic: str) -> None:
        """Forget the records of a topic after the last frontier: the stream brings them again."""
        self._written.pop(topic, None)
        self._in_bulk.pop(topic, None)

    def partition(self, topic: str, position: Position) -> int:
        """Return the partition of a record without a key."""
        return partition_without_key(position, self.partitions[topic])

    def has(self, topic: str, key: bytes | None, position: Position) -> bool:
        """Tell whether a record of the stream is on the log already."""
        if self._catch_up_until is None:
            return False
        if position > self._catch_up_until:
            self._catch_up_until = None
            return False
        if key is None:
            partition = self.partition(topic, position)
        else:
            partition = partition_of(key, self.partitions[topic])
        last = self.last(topic, partition)
        return last is not None and position <= last

    def last(self, topic: str, partition: int) -> Position | None:
        """Return the last position in a partition after the last frontier, if there is one."""
        return self._written.get(topic, {}).get(partition)

    def places(self, topic: str, first: Position) -> WrittenPlaces | None:
        """Return the last positions in a topic from one on; None if all of it is to be written."""
        if self._catch_up_until is not None and first > self._catch_up_until:
            self._catch_up_until = None
        if self._catch_up_until is None or topic not in self._written:
            return None
        if topic not in self._in_bulk:
            places = self._written[topic]
            lasts = (places.get(place) for place in range(self.partitions[topic]))
            self._in_bulk[topic] = WrittenPlaces([self._last_of_epoch(last) for last in lasts])
        return self._in_bulk[topic]

    def _last_of_epoch(self, last: Position | None) -> tuple[int, int]:
        """Return LSN and sequence up to which a partition holds all records of this epoch."""
        if last is None or last.epoch < self._epoch:
            return 0, 0
        return (last.commit_lsn, last.sequence) if last.epoch == self._epoch else _ALL
