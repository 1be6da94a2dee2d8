"""Texts and records as lists."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from changelog.contract.log.partition import partition_of
from changelog.native.headers import api
from changelog.native.records import PLAIN_LETTERS, ROW_OPS, Read, Record

if TYPE_CHECKING:
    from changelog.native import protocols

_FFI = api()
_LSN = struct.Struct(">Q")


class Texts(Sequence[bytes]):
    """A sequence of messages or lines."""

    def __init__(self, texts: Iterable[bytes] = ()) -> None:
        self.raw: list[bytes] = []
        self.size = 0  # their bytes
        for text in texts:
            self.add(text)

    def add(self, text: bytes) -> None:
        self.raw.append(text)
        self.size += len(text)

    def add_range(self, texts: protocols.Texts, first: int, end: int) -> None:
        for text in texts[first:end]:
            self.add(text)

    def clear(self) -> None:
        self.raw.clear()
        self.size = 0

    def alike(self, first: int) -> tuple[int, bool]:
        is_plain = first < len(self) and self._is_plain(first)
        end = first
        while end < len(self) and self._is_plain(end) == is_plain:
            end += 1
        return end, is_plain

    def _is_plain(self, place: int) -> bool:
        text = self.raw[place]
        return bool(text) and text[0] in PLAIN_LETTERS

    def behind_commit(self) -> int:
        places = range(len(self), 0, -1)
        return next((end for end in places if self.raw[end - 1][:1] == b"C"), 0)

    def commit_from(self, first: int) -> int:
        places = range(first, len(self))
        return next((at for at in places if self.raw[at][:1] == b"C"), len(self))

    def whole_before(self, first: int, lsn: int) -> int:
        place = first
        while place < len(self) and self._begins_before(place, lsn):
            commit = self.commit_from(place)
            if commit == len(self):
                break
            place = commit + 1
        return place

    def _begins_before(self, place: int, lsn: int) -> bool:
        text = self.raw[place]
        is_begin = text[:1] == b"B" and len(text) > _LSN.size
        return is_begin and _LSN.unpack_from(text, 1)[0] < lsn

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        return self.raw[place]


class WrittenPlaces(Sequence[tuple[int, int]]):
    """For each partition of a topic the LSN and sequence of the last record that it holds."""

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        self.raw = list(places)

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[int, int]]: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        return self.raw[place]


class Records(Sequence[Record]):
    """Records that are to be produced, of one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch  # of their positions
        self.raw: list[Record] = []
        self._left_out: set[int] = set()
        self._rows: Counter[bytes] = Counter()
        self._sizes: Counter[bytes] = Counter()

    def add(self, record: Record) -> None:
        self.raw.append(record)

    def clear(self) -> None:
        self.raw.clear()
        self._left_out.clear()
        self._rows.clear()
        self._sizes.clear()

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        return self.raw[place]

    def keys(self, first: int, end: int) -> list[bytes]:
        return [record.key or b"" for record in self.raw[first:end]]

    def add_count(self, op: bytes, rows: int, size: int) -> None:
        self._rows[op] += rows
        self._sizes[op] += size

    def take_counts(self) -> list[tuple[bytes, int, int]]:
        letters = [ROW_OPS[place : place + 1] for place in range(len(ROW_OPS))]
        counts = [(letter, self._rows[letter], self._sizes[letter]) for letter in letters]
        self._rows.clear()
        self._sizes.clear()
        return [entry for entry in counts if entry[1]]

    def leave_out_written(self, first: int, written: protocols.WrittenPlaces) -> int:
        left_out = 0
        self._rows.clear()
        self._sizes.clear()
        for place in range(first, len(self)):
            record = self.raw[place]
            key = record.key or b""
            if (record.lsn, record.sequence) <= written[partition_of(key, len(written))]:
                self._left_out.add(place)
                left_out += 1
            else:
                self.add_count(record.op, 1, len(key) + len(record.value or b""))
        return left_out

    def leave_out(self, place: int) -> None:
        self._left_out.add(place)

    def is_left_out(self, place: int) -> bool:
        return place in self._left_out


_DATA_HEADER, _KEEPALIVE_BYTES, _COPY_DONE = 25, 18, -1


def read_stream(
    libpq: Any,  # noqa: ANN401 - a struct of cffi's, as the next ones
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: protocols.Texts,
    status: Any,  # noqa: ANN401
) -> Read:
    """Read the payloads that have arrived; see `read_stream` in C."""
    is_consumed = False
    while len(into) < limit and into.size < most:
        size, message = _copy_data(libpq, connection, wait=False)
        if size > 0:
            if not _take_message(message, into, status):
                return Read.ODD
            is_consumed = False
        elif size < 0:
            return Read.ENDED if size == _COPY_DONE else Read.FAILED
        elif is_consumed:
            break
        elif not libpq.consume_input(connection):
            return Read.LOST
        else:
            is_consumed = True
    return Read.ALL


def read_copy(
    libpq: Any,  # noqa: ANN401
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: protocols.Texts,
) -> Read:
    """Read lines of a COPY, waiting for them; without their line feeds. Else as `read_stream`."""
    while len(into) < limit and into.size < most:
        size, line = _copy_data(libpq, connection, wait=True)
        if size < 0:
            return Read.ENDED if size == _COPY_DONE else Read.FAILED
        if line.find(b"\n") != len(line) - 1:
            return Read.ODD
        into.add(line[:-1])
    return Read.ALL


def _copy_data(libpq: Any, connection: Any, *, wait: bool) -> tuple[int, bytes]:  # noqa: ANN401
    buffer = _FFI.new("char **")
    size = libpq.get_copy_data(connection, buffer, not wait)
    if size <= 0:
        return size, b""
    message = bytes(_FFI.buffer(buffer[0], size))
    libpq.free_memory(buffer[0])
    return size, message


def _take_message(message: bytes, into: protocols.Texts, status: Any) -> bool:  # noqa: ANN401
    status.heard += 1
    if message[:1] == b"w" and len(message) > _DATA_HEADER:
        into.add(message[_DATA_HEADER:])
        return True
    if message[:1] != b"k" or len(message) != _KEEPALIVE_BYTES:
        return False
    status.wal_end = max(status.wal_end, int.from_bytes(message[1:9], "big"))
    status.reply |= message[-1] != 0
    return True
