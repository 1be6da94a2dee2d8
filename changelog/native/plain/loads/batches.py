"""Records that are kept in a list; the rule of `batch.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, overload

from changelog.contract.rows.codec import FRAME_BYTES
from changelog.native.base.batches import MOST_GROUPS, Alike, BatchRecord, Groups

_HEADER_BYTES = 16


class Batch:
    """Records, kept until they are cleared.

    Attributes:
        raw: the records.
        size_bytes: how many bytes keys, values and headers have.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        """Begin without a record.

        Args:
            topics: of the slices that are read, in their order.
        """
        del topics
        self.raw: list[BatchRecord] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.raw)

    def clear(self) -> None:
        """Empty the batch; its ranges must not be used any more."""
        self.raw, self.size_bytes = [], 0

    def add(self, record: BatchRecord) -> None:
        """Add a record."""
        self.raw.append(record)
        self.size_bytes += len(record.key or b"") + len(record.value or b"")
        for name, content in record.headers:
            self.size_bytes += _HEADER_BYTES + len(name.encode()) + len(content or b"")

    def all(self) -> BatchRange:
        """Return the records."""
        return BatchRange(self, 0, len(self))


class BatchRange(Sequence[BatchRecord]):
    """Some records of a batch that follow on each other; to be used until that is cleared."""

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        """Refer to the records `[first, end)` of a batch."""
        self._batch, self._first = batch, first
        self._records = batch.raw[first:end]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> BatchRange: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | BatchRange:
        """Return a record, or a range of them."""
        if isinstance(place, slice):
            first, end, _ = place.indices(len(self))
            return BatchRange(self._batch, self._first + first, self._first + max(first, end))
        return self._records[place]

    def value(self, place: int) -> bytes | None:
        """Return the value of a record, without the rest of it."""
        return self._records[place].value

    def column(self, name: str) -> Any:  # noqa: ANN401 - a buffer of numbers of 64 bits
        """Return the numbers of a column: `partition`, `offset` or `timestamp_ms`."""
        return array("q", [getattr(record, name) for record in self._records])

    def groups(self, *, by_value: bool, by_key: bool) -> Groups:
        """Return the records by the frames of their values, keys or both."""
        gone: array[int] = array("q")
        groups: dict[tuple[bytes, bytes], array[int]] = {}
        other: tuple[bytes, bytes] | None = None
        for number, record in enumerate(self._records):
            if record.value is None:
                gone.append(number)
                continue
            frame = (
                record.value[:FRAME_BYTES] if by_value else b"",
                (record.key or b"")[:FRAME_BYTES] if by_key else b"",
            )
            if frame not in groups and len(groups) == MOST_GROUPS - 1:
                other = frame
            elif frame not in groups and other is not None:
                frame = other
            groups.setdefault(frame, array("q")).append(number)
        return Groups(
            gone, tuple(Alike(*frame, rows, frame == other) for frame, rows in groups.items())
        )
