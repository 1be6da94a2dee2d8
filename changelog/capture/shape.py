"""A table's rows as they are written: columns left out, values masked.

The stream and the snapshot bring rows as PostgreSQL has them. What is written instead is another
relation, of fewer columns and with text where a value is masked, encoded by the same codecs. Null
stays null: it says that there is no value, not which.

A hash is HMAC-SHA-256 over the value's text as PostgreSQL writes it, in hexadecimal. Equal values
have equal hashes in every table, so masked columns can still be joined.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from changelog.batch.fields import Fields
from changelog.batch.rows import BatchCodec, fields_of
from changelog.contract.codec import RowCodec, SchemaIds
from changelog.contract.document import DocumentCodec
from changelog.contract.event import (
    NOWHERE,
    Event,
    EventEncoder,
    FlatDocuments,
    NestedDocuments,
    Origin,
    Stamp,
)
from changelog.contract.event_record import FlatRecords, NestedRecords, flat_schema, nested_schema
from changelog.contract.form import PLAIN, Envelope, Form, Output
from changelog.contract.headers import Op
from changelog.contract.relation import Column, KeyRow, Relation, Row
from changelog.contract.relation import Field as Value
from changelog.contract.schema import value_schema
from changelog.contract.types import ColumnType, Kind

REDACTED = b"***"
MASKED_TYPE = ColumnType("text", Kind.STRING)


@dataclass(frozen=True)
class Hashing:
    """Masks a value by its keyed hash."""

    key: bytes = field(repr=False)

    def __call__(self, value: bytes) -> bytes:
        """Give the hash in hexadecimal."""
        return hmac.digest(self.key, value, "sha256").hex().encode()


@dataclass(frozen=True)
class Redacting:
    """Masks every value by one constant."""

    def __call__(self, _value: bytes) -> bytes:
        """Give the constant."""
        return REDACTED


Masking = Hashing | Redacting


@dataclass(frozen=True)
class Shape:
    """How the rows of one relation version are written.

    Attributes:
        relation: as the rows come.
        places: which of its columns are written, in their order.
        masks: how each of those is masked; None is as it stands.
        form: of the records.
        origin: what values tell of their source, where they are changes.
    """

    relation: Relation
    places: tuple[int, ...]
    masks: tuple[Masking | None, ...]
    form: Form = PLAIN
    origin: Origin = NOWHERE

    @property
    def is_whole(self) -> bool:
        """Tell whether rows are written as they come."""
        return len(self.places) == len(self.relation.columns) and not any(self.masks)

    @cached_property
    def logged(self) -> Relation:
        """Give the relation that is written."""
        columns = tuple(
            self.relation.columns[place]
            if mask is None
            else Column(self.relation.columns[place].name, MASKED_TYPE)
            for place, mask in zip(self.places, self.masks, strict=True)
        )
        of = self.relation
        return Relation(of.oid, of.name, columns, of.key, of.identity)

    def only_needed(self) -> Shape:
        """Give the shape of a relation that has no more columns than are written."""
        of = self.relation
        columns = tuple(of.columns[place] for place in self.places)
        needed = Relation(of.oid, of.name, columns, of.key, of.identity)
        return Shape(
            needed, tuple(range(len(columns))), self.masks, form=self.form, origin=self.origin
        )

    def row(self, row: Row) -> Row:
        """Give a row as it is written."""
        return [
            mask(row[place]) if mask is not None and isinstance(row[place], bytes) else row[place]  # type: ignore[arg-type]
            for place, mask in zip(self.places, self.masks, strict=True)
        ]

    def key(self, key: KeyRow) -> KeyRow:
        """Give a key as it is written."""
        return tuple(
            value if mask is None else mask(value)
            for value, mask in zip(key, self._key_masks, strict=True)
        )

    @cached_property
    def _key_masks(self) -> tuple[Masking | None, ...]:
        return tuple(self.masks[place] for place in self.logged.key_indexes)

    def fields(self, columns: Sequence[Fields]) -> list[Fields]:
        """Give the fields of many rows as they are written."""
        kept = [columns[place] for place in self.places]
        if not any(self.masks) or not kept or not len(kept[0]):
            return kept
        # In one buffer, row by row, as those who take them rely on.
        texts = [
            _masked(fields.texts(), mask) for fields, mask in zip(kept, self.masks, strict=True)
        ]
        return fields_of(list(zip(*texts, strict=True)), len(kept))


def _masked(values: list[Value], mask: Masking | None) -> list[Value]:
    if mask is None:
        return values
    return [None if value is None else mask(value) for value in values]


def whole(relation: Relation) -> Shape:
    """Give the shape of a table that is written as it is."""
    count = len(relation.columns)
    return Shape(relation, tuple(range(count)), (None,) * count)


class Rows(Protocol):
    """Encodes single rows of one relation version."""

    relation: Relation

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key; raises EncodeError."""

    def encode_value(self, row: Row) -> bytes:
        """Encode a whole row; raises EncodeError."""


class Batches(Protocol):
    """Encodes many rows of one relation version, given by their columns."""

    def encode_keys(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode the primary keys; raises EncodeError."""

    def encode_values(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode whole rows; raises EncodeError."""


ShapeOf = Callable[[Relation], Shape]
"""Gives how the rows of a relation version are written."""


class ShapedRows:
    """Encodes rows as they come to what their shape makes of them."""

    def __init__(self, shape: Shape, inner: Rows) -> None:
        """Prepare for one version of a table; `inner` encodes what is written."""
        self.relation = shape.relation
        self._shape = shape
        self._inner = inner

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key; see `Rows`."""
        return self._inner.encode_key(self._shape.key(key))

    def encode_value(self, row: Row) -> bytes:
        """Encode a row; see `Rows`."""
        return self._inner.encode_value(self._shape.row(row))


class ShapedBatches:
    """Encodes many rows as they come to what their shape makes of them."""

    def __init__(self, shape: Shape, inner: Batches) -> None:
        """Prepare for one version of a table; `inner` encodes what is written."""
        self._shape = shape
        self._inner = inner

    def encode_keys(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode the primary keys of rows; see `Batches`."""
        return self._inner.encode_keys(self._shape.fields(columns))

    def encode_values(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode rows; see `Batches`."""
        return self._inner.encode_values(self._shape.fields(columns))


class RowByRow:
    """Encodes many rows by the codec of single ones."""

    def __init__(self, codec: Rows) -> None:
        """Prepare for one version of a table."""
        self._codec = codec
        self._key_indexes = codec.relation.key_indexes

    def encode_keys(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode the primary keys of rows; a table without one has empty bytes here."""
        if not self._key_indexes:
            return [b""] * len(columns[0])
        keys = zip(*(columns[index].texts() for index in self._key_indexes), strict=True)
        return [self._codec.encode_key(key) for key in keys]

    def encode_values(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode rows."""
        rows = zip(*(each.texts() for each in columns), strict=True)
        return [self._codec.encode_value(row) for row in rows]


def row_codec(shape: Shape, ids: SchemaIds) -> Rows:
    """Give the codec of single rows."""
    inner: Rows
    if shape.form.output is Output.JSON:
        inner = DocumentCodec(shape.logged)
    else:
        inner = RowCodec(shape.logged, key_schema_id=ids.key, value_schema_id=ids.value)
    return inner if shape.is_whole else ShapedRows(shape, inner)


class ShapedEvents:
    """Encodes changes of rows as they come to what their shape makes of them."""

    def __init__(self, shape: Shape, inner: EventEncoder) -> None:
        """Prepare for one version of a table."""
        self._shape = shape
        self._inner = inner

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Encode a change; see `EventEncoder`."""
        key = self._shape.key(event.key) if event.key else ()  # of a snapshot nobody asks for it
        before, after = self._row(event.before), self._row(event.after)
        return self._inner.encode(Event(key, before, after, event.op), stamp)

    def _row(self, row: Row | None) -> Row | None:
        return None if row is None else self._shape.row(row)


class ReadEvents(RowByRow):
    """Encodes many rows of a snapshot as changes."""

    def __init__(self, codec: Rows, events: EventEncoder, stamp: Stamp) -> None:
        """Prepare for one version of a table."""
        super().__init__(codec)
        self._events = events
        self._stamp = stamp

    def encode_values(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode rows."""
        rows = zip(*(each.texts() for each in columns), strict=True)
        return [self._events.encode(Event((), None, row, Op.READ), self._stamp) for row in rows]


def event_encoder(shape: Shape, ids: SchemaIds) -> EventEncoder | None:
    """Give what encodes changes; None where values are rows."""
    logged = shape.logged
    inner: EventEncoder
    match shape.form:
        case Form(Output.AVRO, Envelope.NESTED):
            inner = NestedRecords(logged, shape.origin, ids.value)
        case Form(Output.AVRO, Envelope.FLAT):
            inner = FlatRecords(logged, ids.value)
        case Form(Output.JSON, Envelope.NESTED):
            inner = NestedDocuments(logged, shape.origin)
        case Form(Output.JSON, Envelope.FLAT):
            inner = FlatDocuments(logged)
        case _:
            return None
    return inner if shape.is_whole else ShapedEvents(shape, inner)


def logged_schema(shape: Shape) -> str:
    """Give the schema of the values; of documents, that of the row which they hold or tell of."""
    match shape.form:
        case Form(Output.AVRO, Envelope.NESTED):
            return nested_schema(shape.logged)
        case Form(Output.AVRO, Envelope.FLAT):
            return flat_schema(shape.logged)
        case _:
            return value_schema(shape.logged)


def batch_codec(shape: Shape, ids: SchemaIds, stamp: Stamp | None = None) -> Batches:
    """Give the codec of many rows; with a stamp they are those of a snapshot."""
    events = event_encoder(shape, ids) if stamp is not None else None
    if events is not None and stamp is not None:
        return ReadEvents(row_codec(shape, ids), events, stamp)
    if shape.form.output is Output.JSON:
        return RowByRow(row_codec(shape, ids))
    inner = BatchCodec(shape.logged, ids)
    return inner if shape.is_whole else ShapedBatches(shape, inner)
