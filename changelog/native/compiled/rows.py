"""Runs of the stream's messages, and the encoder of one table version to framed keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from changelog.contract.rows.codec import SchemaIds, frame
from changelog.contract.rows.relation import Column, Relation
from changelog.contract.rows.text import branch_bytes, null_branch
from changelog.contract.rows.types import Kind
from changelog.native.compiled.library import ffi, lib
from changelog.native.records import NO_MEMORY, Mask, RelationSpan, Row, Selection, Transaction

if TYPE_CHECKING:
    from changelog.native import protocols


class Run:
    """Rows, begins and commits between two other messages; its memory is reused."""

    def __init__(self) -> None:
        self.raw: Any = ffi.gc(ffi.new("run *"), lib.run_free)  # the library's `run`

    def scan(
        self,
        messages: protocols.Texts,
        first: int,
        end: int,
        *,
        before: Transaction | None,
        sequence: int,
        step: int,
    ) -> bool:
        raw = self.raw
        raw.is_open, raw.next_sequence = before is not None, sequence
        raw.end_lsn = raw.lsn = raw.ts_us = raw.xid = 0
        if before is not None:
            raw.lsn, raw.ts_us, raw.xid = before.commit_lsn, before.ts_us, before.xid
        return bool(lib.run_scan(raw, messages.raw, first, end, step))

    def relations(self) -> Iterator[RelationSpan]:
        for place in range(self.raw.relation_count):
            relation = self.raw.relations[place]
            yield RelationSpan(relation.oid, relation.first, relation.last)

    @property
    def last(self) -> Transaction:
        return Transaction(self.raw.lsn, self.raw.ts_us, self.raw.xid)

    @property
    def is_open(self) -> bool:
        return bool(self.raw.is_open)

    def row(self, number: int) -> Row:
        row = self.raw.rows[number]
        return Row(row.message, row.next, row.lsn, row.sequence, row.ts_us, row.xid)

    @property
    def next_sequence(self) -> int:
        return int(self.raw.next_sequence)

    @property
    def commits(self) -> int:
        return int(self.raw.commits)

    @property
    def end_lsn(self) -> int:
        return int(self.raw.end_lsn)

    @property
    def xids(self) -> list[int]:
        return list(ffi.unpack(self.raw.xids, self.raw.begun)) if self.raw.begun else []


_KINDS = {
    Kind.BOOLEAN: lib.KIND_BOOLEAN,
    Kind.INT: lib.KIND_INTEGER,
    Kind.LONG: lib.KIND_INTEGER,
    Kind.FLOAT: lib.KIND_FLOAT,
    Kind.DOUBLE: lib.KIND_DOUBLE,
    Kind.DECIMAL: lib.KIND_DECIMAL,
    Kind.STRING: lib.KIND_STRING,
    Kind.UUID: lib.KIND_STRING,
    Kind.BYTES: lib.KIND_BYTES,
    Kind.DATE: lib.KIND_DATE,
    Kind.TIMESTAMP: lib.KIND_MOMENT,
    Kind.TIMESTAMPTZ: lib.KIND_MOMENT,
    Kind.ARRAY: lib.KIND_ARRAY,
}


class BatchCodec:
    """Encodes rows to the same bytes as `RowCodec`, many at a time."""

    def __init__(
        self, relation: Relation, ids: SchemaIds, selection: Selection | None = None
    ) -> None:
        count = len(relation.columns)
        chosen = selection or Selection(
            width=count, places=tuple(range(count)), masks=(Mask.NONE,) * count
        )
        key = relation.key_indexes
        inside = set(key)
        self._kept: list[Any] = [
            _columns(relation.columns, key, chosen, nullable=set()),
            _columns(relation.columns, range(count), chosen, nullable=set(range(count)) - inside),
            ffi.from_buffer("uint8_t[]", chosen.hash_key),
            ffi.from_buffer("uint8_t[]", chosen.constant),
        ]
        self._table: Any = ffi.new(
            "table *",
            {
                "width": chosen.width,
                "keys": len(key),
                "values": count,
                "key": self._kept[0],
                "value": self._kept[1],
                "key_frame": frame(ids.key),
                "value_frame": frame(ids.value),
                "hash_key": self._kept[2] if chosen.hash_key else ffi.NULL,
                "hash_key_size": len(chosen.hash_key),
                "constant": self._kept[3],
                "constant_size": len(chosen.constant),
            },
        )

    def add_rows(
        self, messages: protocols.Texts, run: protocols.Run, first: int, to: protocols.Records
    ) -> int | None:
        return _place(lib.encode_rows(self._table, messages.raw, run.raw, first, to.raw))

    def add_lines(
        self,
        lines: protocols.Texts,
        first: int,
        *,
        lsn: int,
        sequence: int,
        ts_us: int,
        to: protocols.Records,
    ) -> int | None:
        return _place(lib.encode_lines(self._table, lines.raw, first, lsn, sequence, ts_us, to.raw))


def _place(place: int) -> int | None:
    if place == lib.NO_MEMORY:
        raise MemoryError(NO_MEMORY)
    return None if place == lib.ALL_DONE else int(place)


def _columns(
    columns: Sequence[Column], indexes: Sequence[int], chosen: Selection, nullable: set[int]
) -> Any:  # noqa: ANN401 - an array of the library's `column`
    raw_columns = ffi.new("column[]", max(1, len(indexes)))
    for place, index in enumerate(indexes):
        column, of = columns[index], raw_columns[place]
        kind = column.type
        null_second = index in nullable and column.has_default
        first, second = branch_bytes(nullable=index in nullable, null_second=null_second)
        of.place, of.mask = chosen.places[index], chosen.masks[index].value
        of.kind = _KINDS[kind.kind]
        of.element = _KINDS[kind.element.kind] if kind.element else lib.KIND_UNKNOWN
        of.scale = kind.scale
        of.nullable = index in nullable
        of.has_branch = index in nullable or kind.kind is Kind.DECIMAL
        of.first, of.second = first[0], second[0]
        of.null_branch = null_branch(null_second=null_second)[0]
        of.delimiter = kind.delimiter.encode()[0]
    return raw_columns
