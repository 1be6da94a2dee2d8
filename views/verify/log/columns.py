"""Decode surviving rows by column, with `changelog.native`, which makes no object of a value.

A batch with a row that it does not take is decoded by `views.verify.log.decode`, row by row; that
code is the reference, and names the place of a fault. A fixed part of the rows, chosen by their
offsets, is read both ways; a difference is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.base.errors import CorruptRecordError, LogError
from changelog.contract.log.form import Envelope
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType, Kind
from changelog.native import RowDecoder
from changelog.native.choice import IS_COMPILED
from changelog.native.columns import FieldKind, RowColumn, RowField
from views.verify.log.decode import AvroDecoder, Decoder
from views.verify.records.read import place
from views.verify.values.types import arrow_type, logged_type

SAMPLED = 256
"""One of so many offsets is read both ways."""
_FRAME_BYTES = 5
_KINDS = {
    Kind.BOOLEAN: FieldKind.BOOLEAN,
    Kind.INT: FieldKind.INT,
    Kind.LONG: FieldKind.LONG,
    Kind.FLOAT: FieldKind.FLOAT,
    Kind.DOUBLE: FieldKind.DOUBLE,
    Kind.DECIMAL: FieldKind.DECIMAL,
    Kind.STRING: FieldKind.STRING,
    Kind.UUID: FieldKind.STRING,
    Kind.BYTES: FieldKind.BYTES,
    Kind.DATE: FieldKind.INT,
    Kind.TIMESTAMP: FieldKind.LONG,
    Kind.TIMESTAMPTZ: FieldKind.LONG,
    Kind.ARRAY: FieldKind.ARRAY,
}
ByColumn = tuple[pa.Array, pa.Array | None]
"""The values of a column, and the texts of those that its type cannot hold."""


class ColumnReader:
    """Reads batches of survivors by column.

    `default`: returns the column for rows that were written without it.
    """

    def __init__(self, decoder: AvroDecoder, default: Callable[[int, Any, int], ByColumn]) -> None:
        self._decoder, self._default = decoder, default
        self._decoders: dict[bytes, tuple[RowDecoder, list[tuple[int | None, Any]]] | None] = {}

    def read(self, batch: pa.Table) -> list[tuple[pa.Table, list[ByColumn]]] | None:
        """Return the rows and columns of each schema, or None if a row needs decoding alone."""
        values, by_schema = batch["value"], []
        quarantine = self._decoder.quarantine
        if values.null_count or (quarantine is not None and quarantine.has_any(batch)):
            return None
        for frame in pc.unique(pc.binary_slice(values, 0, _FRAME_BYTES)).to_pylist():
            rows = batch
            if len(batch) > 1:
                is_of = pc.equal(pc.binary_slice(values, 0, _FRAME_BYTES), frame)
                rows = batch if pc.all(is_of).as_py() else batch.filter(is_of)
            columns = self._columns(frame, rows)
            if columns is None:
                return None
            by_schema.append((rows, columns))
        return by_schema

    def _columns(self, frame: bytes, rows: pa.Table) -> list[ByColumn] | None:
        if frame not in self._decoders:
            self._decoders[frame] = self._row_decoder(frame)
        reader = self._decoders[frame]
        if reader is None:
            return None
        decoder, plan = reader
        fields = decoder.decode(rows["value"].combine_chunks())
        if fields is None:
            return None
        return [
            self._default(number, default, len(rows))
            if field is None
            else (_typed(fields[field].values, column.type), _texts(fields[field], column.type))
            for number, (column, (field, default)) in enumerate(
                zip(self._decoder.columns, plan, strict=True)
            )
        ]

    def _row_decoder(self, frame: bytes) -> tuple[RowDecoder, list[tuple[int | None, Any]]] | None:
        """Return the decoder of a schema, and where each column comes from; None if it has none."""
        if len(frame) != _FRAME_BYTES or frame[0] != 0:
            return None
        try:
            text, written, plan = self._decoder.writer(int.from_bytes(frame[1:], "big"))
        except CorruptRecordError:
            return None  # decoding row by row names the record
        fields = row_fields(text, written)
        if fields is None:
            return None
        places = {column.field: number for number, column in enumerate(written)}
        types = {column.field: column.type for column in written}
        for column, (field, _) in zip(self._decoder.columns, plan, strict=True):
            if field is not None and not _is_alike(types[field], column.type):
                return None
        return RowDecoder(frame, fields), [
            (None if field is None else places[field], default) for field, default in plan
        ]


def is_by_column(decoder: Decoder) -> bool:
    """Tell whether a decoder's rows can be read by column."""
    return IS_COMPILED and isinstance(decoder, AvroDecoder) and decoder.envelope is Envelope.ROW


def row_fields(text: str, columns: Sequence[LoggedColumn]) -> list[RowField] | None:
    """Return the fields of a writer's schema, or None if it is not in the standard form."""
    fields = json.loads(text)["fields"]
    if [field["name"] for field in fields] != [column.field for column in columns]:
        return None
    row_columns = []
    for raw, column in zip(fields, columns, strict=True):
        union, element = raw["type"], column.type.element
        branches = tuple(map(_branch, union)) if isinstance(union, list) else ()
        if isinstance(union, list) and branches.count("value") != 1:
            # Two branches cannot both be strings: no type of ours is a text with an escape.
            branches = _first_is_value(union)
            if branches.count("value") != 1:
                return None
        row_columns.append(
            RowField(_KINDS[column.type.kind], _KINDS[element.kind] if element else None, branches)
        )
    return row_columns


def _branch(raw: Any) -> str:  # noqa: ANN401 - JSON
    return "null" if raw == "null" else "text" if raw == "string" else "value"


def _first_is_value(union: Sequence[Any]) -> tuple[str, ...]:
    return tuple("null" if raw == "null" else "value" for raw in union)


def _is_alike(written: ColumnType, read: ColumnType) -> bool:
    elements = [kind.element.kind if kind.element else None for kind in (written, read)]
    return written.kind is read.kind and elements[0] is elements[1]


def _texts(of: RowColumn, kind: ColumnType) -> pa.Array | None:
    if not kind.has_escape:
        return None
    return pa.nulls(len(of.values), pa.string()) if of.texts is None else of.texts


def _typed(values: pa.Array, kind: ColumnType) -> pa.Array:
    """Return bare values in the type of their column."""
    target = arrow_type(logged_type(kind))
    match kind.kind:
        case Kind.BOOLEAN:
            return values.cast(pa.bool_())
        case Kind.DECIMAL:
            return pa.Array.from_buffers(target, len(values), values.buffers())
        case Kind.DATE:
            return _within(values, -(2**31)).view(target)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return _within(values, -(2**63)).view(target)
        case Kind.ARRAY:
            assert kind.element is not None  # noqa: S101 - an array has an element
            buffers, items = values.buffers()[:2], _typed(values.values, kind.element)
            return pa.Array.from_buffers(target, len(values), buffers, children=[items])
        case _:
            return values


def _within(values: pa.Array, lowest: int) -> pa.Array:
    """Move the lowest value up by one, to the number of DuckDB's `-infinity`."""
    low = pa.scalar(lowest, values.type)
    is_low = pc.equal(values, low)
    if not pc.any(is_low).as_py():
        return values
    return pc.if_else(is_low, pa.scalar(lowest + 1, values.type), values)


def require_alike(topic: str, rows: pa.Table, rule: pa.Table) -> None:
    """Require that rows read by column equal the same rows read one by one."""
    if len(rows) != len(rule):
        raise LogError(
            f'topic "{topic}": {len(rows)} rows were read by column, {len(rule)} by fastavro',
            hint="a mistake in the verifier: report it",
        )
    for name in rule.column_names:
        texts, ruled = (bare(of[name].combine_chunks()) for of in (rows, rule))
        for number, (one, other) in enumerate(zip(texts, ruled, strict=True)):
            if one != other:
                part, offset = rows["__partition"][number].as_py(), rows["__offset"][number].as_py()
                raise LogError(
                    f'{place(topic, part, offset)}: column "{name}" reads as {one}, '
                    f"and as {other} by fastavro",
                    hint="a mistake in the verifier: report it; "
                    "CHANGELOG_NATIVE=python reads by fastavro alone",
                )


def bare(values: pa.Array) -> list[str]:
    """Return an injective text form of each value (0.0 and -0.0 differ)."""
    kind = values.type
    if pa.types.is_list(kind):
        items = iter(bare(values.flatten()))
        lengths = pc.list_value_length(values).to_pylist()
        return [
            "null" if length is None else str([next(items) for _ in range(length)])
            for length in lengths
        ]
    if pa.types.is_date32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    return ["null" if value is None else repr(value) for value in values.to_pylist()]
