"""Kafka's log cleaner as a model with a clock: what it may do to one partition, and when.

As `LogCleaner` and `Cleaner` of Apache Kafka 4 do it, for records of the present format:

- The active segment is never cleaned; nor is anything from the first segment on that holds a record
  younger than the lag.
- A cleaning has a map: the newest offset of each key in a range of the log that it has not cleaned
  yet, or, when its checkpoint was lost, in a longer one. It may end anywhere (the map is full).
- It then rewrites segments from the start on, one after the other, and may be stopped between two:
  it leaves out each record whose key has a greater offset in the map.
- A tombstone that stays gets a horizon: the beginning of the first cleaning that passes it, and the
  retention. A cleaning that begins at the horizon or later leaves it out.
- Markers of transactions have offsets and no keys; they go as tombstones do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.support.model import Entry


@dataclass(frozen=True, slots=True)
class Stored:
    """A record, or a marker when it has no key, as it stands in a segment."""

    offset: int
    key: bytes | None
    value: bytes | None
    appended_ms: int
    horizon_ms: int | None = None

    @property
    def entry(self) -> Entry:
        """Return it as readers see it; its position is its offset."""
        assert self.key is not None
        return Entry(self.offset, self.key, self.value, Position(1, Lsn(self.offset), 0))


@dataclass(slots=True)
class Partition:
    """One partition: segments of records, the last of them active."""

    lag_ms: int
    retention_ms: int
    now_ms: int = 0
    end: int = 0
    cleaned: int = 0
    segments: list[list[Stored]] = field(default_factory=lambda: [[]])

    def append(self, key: bytes | None, value: bytes | None) -> Stored:
        """Append a record, or a marker."""
        made = Stored(self.end, key, value, self.now_ms)
        self.segments[-1].append(made)
        self.end += 1
        return made

    def roll(self) -> None:
        """Begin a new active segment."""
        if self.segments[-1]:
            self.segments.append([])

    def records(self, start: int = 0) -> list[Stored]:
        """Return what a reader finds from an offset on."""
        return [each for segment in self.segments for each in segment if each.offset >= start]

    @property
    def cleanable(self) -> int:
        """Return the offset before which a cleaning that begins now may look."""
        upto = 0
        for segment in self.segments[:-1]:
            if any(each.appended_ms > self.now_ms - self.lag_ms for each in segment):
                break
            upto = max([upto, *(each.offset + 1 for each in segment)])
        return upto

    def clean(self, *, start: int, end: int, is_map_sharp: bool = True) -> Iterator[None]:
        """Begin a cleaning; each step rewrites one segment.

        Args:
            start: where its map begins; not behind what was cleaned before.
            end: where its map ends.
            is_map_sharp: whether the horizon of a tombstone is set only by a cleaning that has it
                in its map; a full map that ends within a segment sets those behind it too.
        """
        begun_ms, end = self.now_ms, min(end, self.cleanable)
        newest: dict[bytes | None, int] = {
            each.key: each.offset
            for each in self.records(min(start, self.cleaned))
            if each.offset < end and each.key is not None
        }
        for number, segment in enumerate(self.segments[:-1]):
            if not segment or segment[0].offset >= end:
                continue
            reach = end if is_map_sharp else segment[-1].offset + 1
            yield
            self.segments[number] = [
                self._with_horizon(each, begun_ms) if each.offset < reach else each
                for each in segment
                if each.offset >= end or self._stays(each, newest, begun_ms)
            ]
        self.cleaned = max(self.cleaned, end)

    def _stays(self, each: Stored, newest: dict[bytes | None, int], begun_ms: int) -> bool:
        if each.key is not None and each.offset < newest.get(each.key, 0):
            return False
        return each.value is not None or each.horizon_ms is None or begun_ms < each.horizon_ms

    def _with_horizon(self, each: Stored, begun_ms: int) -> Stored:
        if each.value is not None or each.horizon_ms is not None:
            return each
        return replace(each, horizon_ms=begun_ms + self.retention_ms)


@dataclass(slots=True)
class Scan:
    """A reader that goes through a partition while the cleaner does, up to an end offset."""

    partition: Partition
    end: int
    at: int = 0
    seen: list[Entry] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Tell whether its position has reached the end."""
        return self.at >= self.end

    def step(self, count: int) -> None:
        """Read some records more; gaps and markers are passed."""
        for each in self.partition.records(self.at):
            if each.offset >= self.end:
                break
            if count == 0:
                return
            count -= 1
            self.at = each.offset + 1
            if each.key is not None:
                self.seen.append(each.entry)
        else:
            self.at = self.end
            return
        self.at = self.end
