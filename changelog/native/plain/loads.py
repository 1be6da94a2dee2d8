"""Bulk loads: batches of records in lists; rows are left to the caller.

The caller decodes them by fastavro, or one by one, and writes COPY's text format.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from changelog.contract.rows.codec import FRAME_BYTES
from changelog.native.loads import (
    MOST_GROUPS,
    Alike,
    AvroRows,
    BatchRecord,
    CopyCell,
    CsvColumn,
    Groups,
    JsonColumn,
)

if TYPE_CHECKING:
    from changelog.native import protocols

_HEADER_BYTES = 16


class Batch:
    """Records, kept until they are cleared."""

    def __init__(self, topics: Sequence[str]) -> None:
        del topics
        self.raw: list[BatchRecord] = []  # the records
        self.size_bytes = 0  # of keys, values and headers

    def __len__(self) -> int:
        return len(self.raw)

    def clear(self) -> None:
        self.raw, self.size_bytes = [], 0

    def add(self, record: BatchRecord) -> None:
        self.raw.append(record)
        self.size_bytes += len(record.key or b"") + len(record.value or b"")
        for name, content in record.headers:
            self.size_bytes += _HEADER_BYTES + len(name.encode()) + len(content or b"")

    def all(self) -> BatchRange:
        return BatchRange(self, 0, len(self))


class BatchRange(Sequence[BatchRecord]):
    """Successive records of a batch; valid until the batch is cleared."""

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        self.batch, self.first = batch, first
        self._records = batch.raw[first:end]

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> BatchRange: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | BatchRange:
        if isinstance(place, slice):
            first, end, _ = place.indices(len(self))
            return BatchRange(self.batch, self.first + first, self.first + max(first, end))
        return self._records[place]

    def value(self, place: int) -> bytes | None:
        return self._records[place].value

    def column(self, name: str) -> Any:  # noqa: ANN401 - a buffer of numbers of 64 bits
        return array("q", [getattr(record, name) for record in self._records])

    def groups(self, *, by_value: bool, by_key: bool) -> Groups:
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


class RowCopier:
    """Leaves rows to its caller."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Take the arguments of the copier in C."""

    def copied(
        self,
        records: protocols.BatchRange,
        numbers: Sequence[Any],
        chosen: array[int] | None = None,
    ) -> bytes | None:
        del numbers
        return None if len(records if chosen is None else chosen) else b""


class JsonLines:
    """Leaves lines to its caller."""

    def __init__(self, columns: Sequence[JsonColumn], *, all_known: bool, numbered: bool) -> None:
        """Take the arguments of the writer in C."""

    def lines(
        self, records: protocols.BatchRange, chosen: array[int], first: int
    ) -> tuple[int, bytes]:
        del records, chosen, first
        return 0, b""


class CsvLines:
    """Leaves lines to its caller."""

    def __init__(
        self, columns: Sequence[CsvColumn], *, fields: int, delimiter: bytes, numbered: bool
    ) -> None:
        """Take the arguments of the writer in C."""

    def lines(
        self, records: protocols.BatchRange, chosen: array[int], first: int
    ) -> tuple[int, bytes]:
        del records, chosen, first
        return 0, b""
