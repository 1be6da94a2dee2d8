"""Texts and records as lists."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import overload

from changelog.contract.log.partition import partition_of
from changelog.native.base.records import PLAIN_LETTERS, ROW_OPS, Record

_LSN = struct.Struct(">Q")


class Texts(Sequence[bytes]):
    """Messages or lines.

    Attributes:
        size: their bytes.
    """

    def __init__(self, texts: Iterable[bytes] = ()) -> None:
        """Begin with some texts."""
        self._texts: list[bytes] = []
        self.size = 0
        for text in texts:
            self.add(text)

    def add(self, text: bytes) -> None:
        """Add one at the end."""
        self._texts.append(text)
        self.size += len(text)

    def add_range(self, texts: Texts, first: int, end: int) -> None:
        """Add some of others, from `first` to before `end`."""
        for text in texts[first:end]:
            self.add(text)

    def clear(self) -> None:
        """Forget them all."""
        self._texts.clear()
        self.size = 0

    def alike(self, first: int) -> tuple[int, bool]:
        """Return the end of the run of messages of one sort, and whether they are plain.

        Plain are rows, and where transactions begin and end.
        """
        is_plain = first < len(self) and self._is_plain(first)
        end = first
        while end < len(self) and self._is_plain(end) == is_plain:
            end += 1
        return end, is_plain

    def _is_plain(self, place: int) -> bool:
        text = self._texts[place]
        return bool(text) and text[0] in PLAIN_LETTERS

    def behind_commit(self) -> int:
        """Return the place after the last message that ends a transaction, or 0."""
        places = range(len(self), 0, -1)
        return next((end for end in places if self._texts[end - 1][:1] == b"C"), 0)

    def commit_from(self, first: int) -> int:
        """Return the place of the first message from one on that ends a transaction, or the end."""
        places = range(first, len(self))
        return next((at for at in places if self._texts[at][:1] == b"C"), len(self))

    def whole_before(self, first: int, lsn: int) -> int:
        """Return the end of a run of whole transactions that all commit before `lsn`.

        It begins at `first`; that is returned where there is none.
        """
        place = first
        while place < len(self) and self._begins_before(place, lsn):
            commit = self.commit_from(place)
            if commit == len(self):
                break
            place = commit + 1
        return place

    def _begins_before(self, place: int, lsn: int) -> bool:
        text = self._texts[place]
        is_begin = text[:1] == b"B" and len(text) > _LSN.size
        return is_begin and _LSN.unpack_from(text, 1)[0] < lsn

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        """Return one, or some."""
        return self._texts[place]


class WrittenPlaces(Sequence[tuple[int, int]]):
    """For each partition of a topic the LSN and sequence of the last record that it holds."""

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        """Take them in the order of partitions; (0, 0) where there is none."""
        self._places = list(places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[int, int]]: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        """Return one, or some."""
        return self._places[place]


class Records(Sequence[Record]):
    """Records that are to be produced, of one epoch.

    Attributes:
        epoch: of their positions.
    """

    def __init__(self, epoch: int) -> None:
        """Begin with none."""
        self.epoch = epoch
        self._records: list[Record] = []
        self._left_out: set[int] = set()
        self._rows: Counter[bytes] = Counter()
        self._sizes: Counter[bytes] = Counter()

    def add(self, record: Record) -> None:
        """Add one at the end."""
        self._records.append(record)

    def clear(self) -> None:
        """Forget them all."""
        self._records.clear()
        self._left_out.clear()
        self._rows.clear()
        self._sizes.clear()

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        """Return one, or some."""
        return self._records[place]

    def keys(self, first: int, end: int) -> list[bytes]:
        """Return the keys of some records of a table that has one."""
        return [record.key or b"" for record in self._records[first:end]]

    def add_count(self, op: bytes, rows: int, size: int) -> None:
        """Count rows, and bytes of keys and values, that were added one by one."""
        self._rows[op] += rows
        self._sizes[op] += size

    def take_counts(self) -> list[tuple[bytes, int, int]]:
        """Return and forget for each operation that was met: its letter, rows, bytes."""
        letters = [ROW_OPS[place : place + 1] for place in range(len(ROW_OPS))]
        counts = [(letter, self._rows[letter], self._sizes[letter]) for letter in letters]
        self._rows.clear()
        self._sizes.clear()
        return [entry for entry in counts if entry[1]]

    def leave_out_written(self, first: int, written: WrittenPlaces) -> int:
        """Leave out records from a number on that the log holds already; return how many.

        The counts of rows and bytes from there on are of what is left.
        """
        left_out = 0
        self._rows.clear()
        self._sizes.clear()
        for place in range(first, len(self)):
            record = self._records[place]
            key = record.key or b""
            if (record.lsn, record.sequence) <= written[partition_of(key, len(written))]:
                self._left_out.add(place)
                left_out += 1
            else:
                self.add_count(record.op, 1, len(key) + len(record.value or b""))
        return left_out

    def leave_out(self, place: int) -> None:
        """Do not produce one of them."""
        self._left_out.add(place)

    def is_left_out(self, place: int) -> bool:
        """Tell whether one of them is not produced."""
        return place in self._left_out
