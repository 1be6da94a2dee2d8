"""Rows of one version of a table to framed keys and values, many with one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from changelog.contract.rows.codec import SchemaIds, frame
from changelog.contract.rows.relation import Column, Relation
from changelog.contract.rows.text import branch_bytes, null_branch
from changelog.contract.rows.types import Kind
from changelog.native.base.records import NO_MEMORY
from changelog.native.base.selection import Mask, Selection
from changelog.native.compiled.buffers import Records, Texts
from changelog.native.compiled.library import ffi, lib
from changelog.native.compiled.runs import Run

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
    """Encodes what `RowCodec` encodes, to the same bytes, many rows at a time."""

    def __init__(
        self, relation: Relation, ids: SchemaIds, selection: Selection | None = None
    ) -> None:
        """Prepare for one version of a table.

        Args:
            relation: as it is written.
            ids: of its schemas.
            selection: what of the rows is written; None is all, as it is.
        """
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

    def add_rows(self, messages: Texts, run: Run, first: int, to: Records) -> int | None:
        """Add the records of the rows of one relation, from one of them on.

        Args:
            messages: of the stream.
            run: where their rows are.
            first: number of the first row, or of any other one behind which to go on.
            to: the records.

        Returns:
            The number of the first row that is out of the ordinary, or None at the end. Its
            records are to be added by the caller, who then goes on with the row behind it.
        """
        return _place(lib.encode_rows(self._table, messages.raw, run.raw, first, to.raw))

    def add_lines(
        self, lines: Texts, first: int, *, lsn: int, sequence: int, ts_us: int, to: Records
    ) -> int | None:
        """Add the records of lines of COPY's text format, from one of them on.

        Args:
            lines: without their line feeds.
            first: number of the first line.
            lsn: of the position of all of them.
            sequence: of the position of line 0; that of the others counts from there.
            ts_us: their time.
            to: the records.

        Returns:
            As `add_rows`.
        """
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
