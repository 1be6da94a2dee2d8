"""Convert records of a topic, and rows in Avro, to columns: `intake.c`, `decode.c`, for proofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changelog.native.columns import SCHEMA, FieldKind, IntakeNews, ReadOutcome, RowColumn, RowField
from changelog.native.compiled import library
from changelog.native.compiled.client import client_error, opened
from changelog.native.compiled.library import ffi, lib

if TYPE_CHECKING:
    from changelog.native import protocols


class RecordColumns:
    """Records by column, in buckets by a hash of their key."""

    def __init__(self, *, prefix: bytes, buckets: int) -> None:
        raw = lib.columns_new(ffi.from_buffer(prefix), len(prefix), buckets)
        if raw == ffi.NULL:
            raise MemoryError
        self.raw: Any = ffi.gc(raw, lib.columns_free)  # the library's `columns`

    @property
    def held_bytes(self) -> int:
        return int(lib.columns_held(self.raw))

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        raw_headers, _alive = library.headers(headers)
        sizes = len(key or b""), len(value or b"")
        if not lib.columns_add(
            self.raw, partition, offset, library.pointer(key), sizes[0],
            library.pointer(value), sizes[1], raw_headers, len(headers),
        ):  # fmt: skip
            raise MemoryError

    def take(self, bucket: int) -> pa.Table:
        columns = ffi.gc(ffi.new("column_set *"), lib.column_set_free)
        lib.columns_take(self.raw, bucket, columns)
        rows = int(columns.rows)
        if not rows:
            return SCHEMA.empty_table()

        def buffer(name: str, size: int) -> pa.Buffer:
            return _buffer(columns, getattr(columns, name), size)

        buffers = {
            "part": [None, buffer("partitions", 4 * rows)],
            "off": [None, buffer("offsets", 8 * rows)],
            "epoch": [None, buffer("epochs", 4 * rows)],
            "commit_lsn": [None, buffer("lsns", 8 * rows)],
            "sequence": [None, buffer("sequences", 8 * rows)],
            "key": [None, buffer("key_ends", 4 * rows + 4), buffer("keys", columns.key_bytes)],
            "value": [
                buffer("is_there", (rows + 7) // 8),
                buffer("value_ends", 4 * rows + 4),
                buffer("values", columns.value_bytes),
            ],
            "fault": [None, buffer("faults", rows)],
        }
        arrays = [pa.Array.from_buffers(field.type, rows, buffers[field.name]) for field in SCHEMA]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


class Intake:
    """Reads slices of some partitions of a topic into columns, of one topic after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._into: protocols.RecordColumns | None = None
        self._raw = opened(lib.intake_open, config)
        self._news = ffi.new("intake_news *")

    def assign(
        self,
        topic: str,
        slices: Mapping[int, tuple[int, int]],
        into: protocols.RecordColumns,
        *,
        timeout_s: float,
    ) -> None:
        self._into = into  # the library has a pointer to it
        entries = [(part, first < end, first, end) for part, (first, end) in slices.items()]
        raw_slices = ffi.new("intake_slice[]", entries)
        code = lib.intake_assign(
            self._raw, into.raw, topic.encode(), raw_slices, len(entries), int(timeout_s * 1000)
        )
        if code:
            raise client_error(code)

    def rest(self) -> None:
        lib.intake_rest(self._raw)
        self._into = None

    def poll(self, *, timeout_ms: int, most_bytes: int) -> IntakeNews:
        news = self._news
        lib.intake_poll(self._raw, timeout_ms, most_bytes, news)
        outcome = ReadOutcome(news.outcome)
        if outcome is ReadOutcome.NO_MEMORY:
            raise MemoryError
        reason = library.text(news.said)
        return IntakeNews(
            news.added, news.open, outcome, news.partition, news.offset, news.error, reason
        )

    def close(self) -> None:
        lib.intake_close(self._raw)
        self._raw = ffi.NULL


_ARROW = {
    FieldKind.BOOLEAN: pa.uint8(),
    FieldKind.INT: pa.int32(),
    FieldKind.LONG: pa.int64(),
    FieldKind.FLOAT: pa.float32(),
    FieldKind.DOUBLE: pa.float64(),
    FieldKind.DECIMAL: pa.binary(16),
    FieldKind.STRING: pa.string(),
    FieldKind.BYTES: pa.binary(),
}
_WITH_ENDS = {FieldKind.STRING, FieldKind.BYTES}


class RowDecoder:
    """Decodes rows of one writer's schema."""

    def __init__(self, frame: bytes, fields: Sequence[RowField]) -> None:
        self._frame, self._fields = frame, tuple(fields)
        self._raw = ffi.new(
            "decode_field[]",
            [
                (
                    field.kind,
                    0 if field.element is None else field.element,
                    *library.branches(field.branches),
                )
                for field in self._fields
            ],
        )

    def decode(self, rows: pa.BinaryArray) -> list[RowColumn] | None:
        if not len(rows) or rows.null_count:
            return None
        _, ends, body = rows.buffers()
        count = len(self._fields)
        memory = ffi.new("decoded[]", count)
        # Cast to a pointer: cffi loses the length of an array that gets a destructor.
        decoded = ffi.gc(ffi.cast("decoded *", memory), lambda _: _free(memory, count))
        done = lib.decode_rows(
            self._raw,
            count,
            ffi.from_buffer(self._frame),
            ffi.cast("uint8_t *", body.address),
            ffi.cast("int32_t *", ends.address) + rows.offset,
            len(rows),
            decoded,
        )
        if done != len(rows):
            return None
        return [_column(decoded, n, field) for n, field in enumerate(self._fields)]


def _free(of: Any, count: int) -> None:  # noqa: ANN401 - a pointer of cffi's
    for number in range(count):
        lib.decoded_free(of + number)


def _column(decoded: Any, number: int, field: RowField) -> RowColumn:  # noqa: ANN401
    of = decoded[number]
    texts = _array(decoded, of.text, FieldKind.STRING) if "text" in field.branches else None
    if field.element is None:
        return RowColumn(_array(decoded, of.own, field.kind), texts)
    items = _array(decoded, of.items, field.element)
    rows = int(of.own.count)
    buffers = [
        _buffer(decoded, of.own.is_there, rows // 8 + 1),
        _buffer(decoded, of.own.ends, 4 * rows + 4),
    ]
    lists = pa.Array.from_buffers(pa.list_(items.type), rows, buffers, children=[items])
    return RowColumn(lists, texts)


def _array(owner: Any, of: Any, kind: FieldKind) -> pa.Array:  # noqa: ANN401
    count = int(of.count)
    if not count:
        return pa.array([], _ARROW[kind])
    buffers = [_buffer(owner, of.is_there, count // 8 + 1)]
    if kind in _WITH_ENDS:
        buffers.append(_buffer(owner, of.ends, 4 * count + 4))
    buffers.append(_buffer(owner, of.data, int(of.size)))
    return pa.Array.from_buffers(_ARROW[kind], count, buffers)


def _buffer(owner: Any, pointer: Any, size: int) -> pa.Buffer:  # noqa: ANN401
    if not size:
        return pa.py_buffer(b"")  # the pointer may be null
    return pa.foreign_buffer(int(ffi.cast("uintptr_t", pointer)), size, owner)
