"""Texts and records in the library's own memory, which is kept from one batch to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from changelog.native.compiled.library import ffi, lib
from changelog.native.records import NO_MEMORY, ROW_OPS, Read, Record

if TYPE_CHECKING:
    from changelog.native import protocols


class Texts(Sequence[bytes]):
    """Messages or lines, back to back; the content of one is copied only when it is asked for."""

    def __init__(self, texts: Iterable[bytes] = ()) -> None:
        self.raw: Any = ffi.gc(ffi.new("texts *"), lib.texts_free)  # the library's `texts`
        for text in texts:
            self.add(text)

    def add(self, text: bytes) -> None:
        if not lib.texts_add(self.raw, text, len(text)):
            raise MemoryError(NO_MEMORY)

    def add_range(self, texts: protocols.Texts, first: int, end: int) -> None:
        if not lib.texts_add_range(self.raw, texts.raw, first, end):
            raise MemoryError(NO_MEMORY)

    @property
    def size(self) -> int:
        count = self.raw.count
        return int(self.raw.ends[count - 1]) if count else 0

    def clear(self) -> None:
        lib.texts_clear(self.raw)

    def alike(self, first: int) -> tuple[int, bool]:
        end = lib.messages_alike(self.raw, first, _IS_PLAIN)
        return int(end), bool(_IS_PLAIN[0])

    def behind_commit(self) -> int:
        return int(lib.messages_behind_commit(self.raw))

    def commit_from(self, first: int) -> int:
        return int(lib.messages_commit_from(self.raw, first))

    def whole_before(self, first: int, lsn: int) -> int:
        return int(lib.messages_whole_before(self.raw, first, lsn))

    def __len__(self) -> int:
        return int(self.raw.count)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        ends = self.raw.ends
        start = ends[place - 1] if place else 0
        size = ends[place] - start
        return bytes(ffi.buffer(self.raw.bytes + start, size)) if size else b""


_OPS = [ROW_OPS[place : place + 1] for place in range(len(ROW_OPS))]
_IS_PLAIN = ffi.new("uint8_t *")


class WrittenPlaces(Sequence[tuple[int, int]]):
    """For each partition of a topic the LSN and sequence of the last record that it holds."""

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        # the library's array of `written`
        self.raw: Any = ffi.new("written[]", [tuple(place) for place in places])

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[int, int]]: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        return int(self.raw[place].lsn), int(self.raw[place].sequence)


class Records(Sequence[Record]):
    """Records that are to be produced, of one epoch.

    Attributes:
        epoch: of their positions.
    """

    def __init__(self, epoch: int) -> None:
        self.raw: Any = ffi.gc(ffi.new("records *"), lib.records_free)  # the library's `records`
        self.epoch = self.raw.epoch = epoch

    def add(self, record: Record) -> None:
        key = ffi.NULL if record.key is None else record.key
        value = ffi.NULL if record.value is None else record.value
        sizes = len(record.key or b""), len(record.value or b"")
        op = record.op[0]
        if not lib.records_add(
            self.raw, key, sizes[0], value, sizes[1], record.lsn, record.sequence, record.ts_us, op
        ):
            raise MemoryError(NO_MEMORY)

    def clear(self) -> None:
        lib.records_clear(self.raw)

    def __len__(self) -> int:
        return int(self.raw.count)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        record = self.raw.list[place]
        return Record(
            self._between(record.key, record.value) if record.has_key else None,
            self._between(record.value, record.end) if record.has_value else None,
            record.lsn,
            record.sequence,
            record.ts_us,
            bytes([record.op]),
        )

    def keys(self, first: int, end: int) -> list[bytes]:
        records = (self.raw.list[place] for place in range(first, end))
        return [self._between(record.key, record.value) for record in records]

    def add_count(self, op: bytes, rows: int, size: int) -> None:
        number = ROW_OPS.index(op)
        self.raw.rows[number] += rows
        self.raw.sizes[number] += size

    def take_counts(self) -> list[tuple[bytes, int, int]]:
        rows, sizes = self.raw.rows, self.raw.sizes
        counts = []
        for number, op in enumerate(_OPS):
            if rows[number]:
                counts.append((op, rows[number], sizes[number]))
                rows[number] = sizes[number] = 0
        return counts

    def _between(self, start: int, end: int) -> bytes:
        return bytes(ffi.buffer(self.raw.bytes + start, end - start)) if end > start else b""

    def leave_out_written(self, first: int, written: protocols.WrittenPlaces) -> int:
        return int(lib.records_leave_out(self.raw, first, written.raw, len(written)))

    def leave_out(self, place: int) -> None:
        self.raw.list[place].left_out = 1

    def is_left_out(self, place: int) -> bool:
        return bool(self.raw.list[place].left_out)


def read_stream(
    libpq: Any,  # noqa: ANN401 - a struct of cffi's, as the next ones
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: protocols.Texts,
    status: Any,  # noqa: ANN401
) -> Read:
    """Read the payloads that have arrived on a replication connection, without waiting.

    Takes `limit` messages at most, and reads no more once there are `most` bytes. `status` is the
    library's `keepalives`, kept up to date.
    """
    return Read(lib.read_stream(libpq, connection, limit, most, into.raw, status))


def read_copy(
    libpq: Any,  # noqa: ANN401
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: protocols.Texts,
) -> Read:
    """Read lines of a COPY, waiting for them; without their line feeds. Else as `read_stream`."""
    return Read(lib.read_copy(libpq, connection, limit, most, into.raw))
