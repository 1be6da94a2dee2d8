"""A table's rows as they are written: columns left out, values masked.

The stream and the snapshot bring rows as PostgreSQL has them. What is written instead is another
relation, of fewer columns and with text where a value is masked, encoded by the same codecs. Null
stays null: it says that there is no value, not which.

A hash is HMAC-SHA-256 over the value's text as PostgreSQL writes it, in hexadecimal. Equal values
have equal hashes in every table, so masked columns can still be joined.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from changelog.contract.forms.document import DocumentCodec
from changelog.contract.forms.event import (
    NOWHERE,
    Event,
    EventEncoder,
    EventOrigin,
    FlatDocuments,
    LabelledDocuments,
    NestedDocuments,
    Stamp,
)
from changelog.contract.forms.event_record import (
    FlatRecords,
    LabelledRecords,
    NestedRecords,
    flat_schema,
    labelled_schema,
    nested_schema,
)
from changelog.contract.log.form import PLAIN, Envelope, Form, Output
from changelog.contract.rows.codec import RowCodec, SchemaIds
from changelog.contract.rows.relation import Column, KeyRow, Relation, Row
from changelog.contract.rows.schema import value_schema
from changelog.contract.rows.types import ColumnType, Kind
from changelog.native import BatchCodec
from changelog.native.records import Mask, Selection

REDACTED = b"***"
MASKED_TYPE = ColumnType("text", Kind.STRING)


@dataclass(frozen=True)
class Hashing:
    """Masks a value by its keyed hash."""

    key: bytes = field(repr=False)

    def __call__(self, value: bytes) -> bytes:
        """Return the hash in hexadecimal."""
        return hmac.digest(self.key, value, "sha256").hex().encode()


@dataclass(frozen=True)
class Redacting:
    """Masks every value by one constant."""

    def __call__(self, _value: bytes) -> bytes:
        """Return the constant."""
        return REDACTED


Masking = Hashing | Redacting


@dataclass(frozen=True)
class RowShape:
    """How the rows of one relation version are written."""

    relation: Relation  # as the rows come
    places: tuple[int, ...]  # which of its columns are written, in their order
    masks: tuple[Masking | None, ...]  # how each of those is masked; None is as it stands
    form: Form = PLAIN  # of the records
    origin: EventOrigin = NOWHERE  # what values tell of their source, where they are changes

    @property
    def is_whole(self) -> bool:
        """Tell whether rows are written as they come."""
        return len(self.places) == len(self.relation.columns) and not any(self.masks)

    @cached_property
    def logged(self) -> Relation:
        """Return the relation that is written."""
        columns = tuple(
            self.relation.columns[place]
            if mask is None
            else Column(self.relation.columns[place].name, MASKED_TYPE)
            for place, mask in zip(self.places, self.masks, strict=True)
        )
        of = self.relation
        return Relation(of.oid, of.name, columns, of.key, of.identity)

    def only_needed(self) -> RowShape:
        """Return the shape of a relation that has no more columns than are written."""
        of = self.relation
        columns = tuple(of.columns[place] for place in self.places)
        needed = Relation(of.oid, of.name, columns, of.key, of.identity)
        return RowShape(
            needed, tuple(range(len(columns))), self.masks, form=self.form, origin=self.origin
        )

    def row(self, row: Row) -> Row:
        """Return a row as it is written."""
        return [
            mask(row[place]) if mask is not None and isinstance(row[place], bytes) else row[place]  # type: ignore[arg-type]
            for place, mask in zip(self.places, self.masks, strict=True)
        ]

    def key(self, key: KeyRow) -> KeyRow:
        """Return a key as it is written."""
        return tuple(
            value if mask is None else mask(value)
            for value, mask in zip(key, self._key_masks, strict=True)
        )

    @cached_property
    def _key_masks(self) -> tuple[Masking | None, ...]:
        return tuple(self.masks[place] for place in self.logged.key_indexes)


def whole(relation: Relation) -> RowShape:
    """Return the shape of a table that is written as it is."""
    count = len(relation.columns)
    return RowShape(relation, tuple(range(count)), (None,) * count)


class RowEncoder(Protocol):
    """Encodes single rows of one relation version."""

    relation: Relation

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key; raises EncodeError."""

    def encode_value(self, row: Row) -> bytes:
        """Encode a whole row; raises EncodeError."""


ShapeOf = Callable[[Relation], RowShape]
"""Returns how the rows of a relation version are written."""


class ShapedRows:
    """Encodes rows of the source in the shape in which they are written."""

    def __init__(self, shape: RowShape, inner: RowEncoder) -> None:
        """Prepare for one version of a table; `inner` encodes what is written."""
        self.relation = shape.relation
        self._shape = shape
        self._inner = inner

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key; see `RowEncoder`."""
        return self._inner.encode_key(self._shape.key(key))

    def encode_value(self, row: Row) -> bytes:
        """Encode a row; see `RowEncoder`."""
        return self._inner.encode_value(self._shape.row(row))


def row_codec(shape: RowShape, ids: SchemaIds) -> RowEncoder:
    """Return the codec of single rows."""
    inner: RowEncoder
    if shape.form.output is Output.JSON:
        inner = DocumentCodec(shape.logged)
    else:
        inner = RowCodec(shape.logged, key_schema_id=ids.key, value_schema_id=ids.value)
    return inner if shape.is_whole else ShapedRows(shape, inner)


class ShapedEvents:
    """Encodes changes of the source in the shape in which they are written."""

    def __init__(self, shape: RowShape, inner: EventEncoder) -> None:
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


def event_encoder(shape: RowShape, ids: SchemaIds) -> EventEncoder | None:
    """Return the encoder of changes, or None if values are rows."""
    logged = shape.logged
    inner: EventEncoder
    match shape.form:
        case Form(Output.AVRO, Envelope.NESTED):
            inner = NestedRecords(logged, shape.origin, ids.value)
        case Form(Output.AVRO, Envelope.FLAT):
            inner = FlatRecords(logged, ids.value)
        case Form(Output.AVRO, Envelope.LABELLED):
            inner = LabelledRecords(logged, ids.value)
        case Form(Output.JSON, Envelope.LABELLED):
            inner = LabelledDocuments(logged)
        case Form(Output.JSON, Envelope.NESTED):
            inner = NestedDocuments(logged, shape.origin)
        case Form(Output.JSON, Envelope.FLAT):
            inner = FlatDocuments(logged)
        case _:
            return None
    return inner if shape.is_whole else ShapedEvents(shape, inner)


def logged_schema(shape: RowShape) -> str:
    """Return the schema of the values; of documents, that of the row which they hold or tell of."""
    match shape.form:
        case Form(Output.AVRO, Envelope.NESTED):
            return nested_schema(shape.logged)
        case Form(Output.AVRO, Envelope.FLAT):
            return flat_schema(shape.logged)
        case Form(Output.AVRO, Envelope.LABELLED):
            return labelled_schema(shape.logged)
        case _:
            return value_schema(shape.logged)


def batch_codec(shape: RowShape, ids: SchemaIds) -> BatchCodec | None:
    """Return the codec of many rows; None for records that are encoded one by one."""
    if shape.form != PLAIN:
        return None
    if shape.is_whole:
        return BatchCodec(shape.logged, ids)
    keys = {mask.key for mask in shape.masks if isinstance(mask, Hashing)}
    assert len(keys) <= 1  # noqa: S101 - one key for all tables
    selection = Selection(
        width=len(shape.relation.columns),
        places=shape.places,
        masks=tuple(map(_mask, shape.masks)),
        hash_key=keys.pop() if keys else b"",
        constant=REDACTED,
    )
    return BatchCodec(shape.logged, ids, selection)


def _mask(masking: Masking | None) -> Mask:
    match masking:
        case None:
            return Mask.NONE
        case Hashing():
            return Mask.HASH
        case Redacting():
            return Mask.CONSTANT
