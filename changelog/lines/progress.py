"""How far each partition is read, and which records of a batch are to be shown. Pure.

A batch may hold records of a partition that was taken away while it was fetched, and once more
those that were fetched before; it may reach past an end. Each record between a partition's place
and its end is kept once, in the order of offsets, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from changelog.lines.forms.render import TopicRecord

R = TypeVar("R", bound=TopicRecord)


class ReadProgress:
    """Places and ends of the partitions that are read now."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}  # per partition the first offset that was not shown
        # per partition the first offset that is not wanted; None where that is not known
        self.ends: dict[int, int | None] = {}
        self._done: set[int] = set()

    def take(self, starts: Mapping[int, int], ends: Mapping[int, int | None]) -> None:
        """Begin to read partitions."""
        self.places |= starts
        self.end_at(ends)

    def end_at(self, ends: Mapping[int, int | None]) -> None:
        """Set the ends of partitions; a partition that is at its end is done."""
        self.ends |= ends
        for partition, end in ends.items():
            self.reach(partition, self.places[partition])
            if end is None:
                self._done.discard(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """Stop reading partitions."""
        for partition in partitions:
            self.places.pop(partition, None)
            self.ends.pop(partition, None)
            self._done.discard(partition)

    def reach(self, partition: int, offset: int) -> None:
        """Note that no record is between a partition's place and an offset."""
        end = self.ends.get(partition)
        if end is not None and offset >= end:
            self._done.add(partition)

    @property
    def is_done(self) -> bool:
        """Tell whether each partition is read to its end."""
        return len(self._done) == len(self.ends)

    @property
    def open(self) -> dict[int, int]:
        """Return the places of the partitions that are not done."""
        return {n: place for n, place in self.places.items() if n not in self._done}

    def kept(
        self, batch: Sequence[R], *, before_ms: int | None = None, twice: bool = False
    ) -> Sequence[R]:
        """Return the records to be shown, and note which partitions have reached their end.

        Where a partition's end is not known, it is the first record with the time `before_ms`. With
        `twice` partitions came or went while the batch was fetched, so that it may hold records
        twice.
        """
        if before_ms is not None or twice:
            return self._one_by_one(batch, before_ms)
        first = {record.partition(): record.offset() for record in reversed(batch)}
        last = {record.partition(): record.offset() for record in batch}
        if all(self._holds(n, first[n], last[n]) for n in last):
            return batch
        return self._one_by_one(batch, before_ms)

    def _holds(self, partition: int | None, first: int | None, last: int | None) -> bool:
        """Tell whether all offsets of a batch are wanted; None is of no record."""
        if partition is None or first is None or last is None:
            return False
        end = self.ends.get(partition)
        return (
            partition in self.places
            and self.places[partition] <= first <= last
            and (end is None or last < end)
        )

    def _one_by_one(self, batch: Sequence[R], before_ms: int | None) -> list[R]:
        kept, places = [], dict(self.places)
        for record in batch:
            partition, offset = record.partition() or 0, record.offset() or 0
            if partition not in places or offset < places[partition]:
                continue
            end = self.ends[partition]
            if end is None and before_ms is not None and record.timestamp()[1] >= before_ms:
                end = self.ends[partition] = offset
            if end is not None and offset >= end:
                self._done.add(partition)
                continue
            places[partition] = offset + 1
            kept.append(record)
        return kept

    def note(self, shown: Sequence[TopicRecord]) -> None:
        """Note that records were shown."""
        for partition, offset in {record.partition(): record.offset() for record in shown}.items():
            self.places[partition or 0] = (offset or 0) + 1
            self.reach(partition or 0, (offset or 0) + 1)
