"""Rows in PostgreSQL's text form to framed Avro bytes, and the frame back.

Frame: a zero byte, the schema id as a big-endian u32, the Avro body (Confluent's wire format).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from changelog.contract.base.errors import CorruptRecordError, EncodeError
from changelog.contract.rows.relation import Column, Field, KeyRow, Relation, Row, Unchanged
from changelog.contract.rows.text import Encoder, encoder, null_branch

_FRAME = struct.Struct(">BI")
FRAME_BYTES = _FRAME.size
_MAGIC = 0
_INEXACT = (ValueError, IndexError, ArithmeticError, EncodeError)


def frame(schema_id: int) -> bytes:
    """Return the five bytes before each body."""
    return _FRAME.pack(_MAGIC, schema_id)


def key_prefix(schema_id: int | None) -> bytes:
    """Return the bytes that every key begins with: a schema id's frame, or a document's brace."""
    return b"{" if schema_id is None else frame(schema_id)


def unframe(raw: bytes) -> tuple[int, bytes]:
    """Split framed bytes into schema id and body.

    Raises CorruptRecordError: the bytes are too short or do not start with the magic byte.
    """
    if len(raw) < FRAME_BYTES:
        raise CorruptRecordError(f"{len(raw)} bytes are too short for a framed Avro record")
    magic, schema_id = _FRAME.unpack_from(raw)
    if magic != _MAGIC:
        raise CorruptRecordError(f"the first byte is {magic}, not the magic byte 0")
    return schema_id, raw[FRAME_BYTES:]


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The registry's ids under which a relation's keys and values are framed; 0 for none."""

    key: int
    value: int


class RowCodec:
    """Encodes the keys and rows of one relation version under two pinned schema ids."""

    def __init__(self, relation: Relation, *, key_schema_id: int, value_schema_id: int) -> None:
        self.relation = relation
        self._key_frame = frame(key_schema_id)
        self._value_frame = frame(value_schema_id)
        self._key_columns = relation.key_columns
        self._key_encoders = [encoder(c.type, nullable=False) for c in self._key_columns]
        self._value_encoders: list[tuple[Column, Encoder, bytes | None]] = [
            (
                column,
                encoder(column.type, nullable=nullable, null_second=column.has_default),
                null_branch(null_second=column.has_default) if nullable else None,
            )
            for column in relation.columns
            for nullable in [column.name not in relation.key]
        ]

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key, framed.

        Raises EncodeError: a value has no exact form; names table and column.
        """
        parts = [self._key_frame]
        for column, encode, field in zip(self._key_columns, self._key_encoders, key, strict=True):
            parts.append(self._encoded(column, encode, field))
        return b"".join(parts)

    def encode_value(self, row: Row) -> bytes:
        """Encode a whole row, framed.

        Raises EncodeError: a value has no exact form, or is an unchanged TOAST value that was not
        fetched; names table and column.
        """
        parts = [self._value_frame]
        for (column, encode, null), field in zip(self._value_encoders, row, strict=True):
            if field.__class__ is bytes:
                try:
                    parts.append(encode(field))
                except _INEXACT as error:
                    raise self._inexact(column, error) from error
            elif field is None and null is not None:
                parts.append(null)
            else:
                parts.append(self._encoded(column, encode, field))
        return b"".join(parts)

    def _encoded(self, column: Column, encode: Encoder, field: Field | Unchanged) -> bytes:
        if not isinstance(field, bytes):
            reason = "null in the primary key" if field is None else "a TOAST value not fetched"
            raise refused(self.relation, column, reason)
        try:
            return encode(field)
        except _INEXACT as error:
            raise self._inexact(column, error) from error

    def _inexact(self, column: Column, error: Exception) -> EncodeError:
        return refused(self.relation, column, f"a value has no exact Avro form: {error}")


def refused(relation: Relation, column: Column, reason: str) -> EncodeError:
    """Return the error for a value of a column."""
    return EncodeError(
        f'table {relation.name.said}, column "{column.name}" ({column.type.name}): {reason}',
        hint="exclude the table or the column, or correct the value at the source",
    )


def key_of(relation_key_indexes: Sequence[int], row: Row) -> KeyRow:
    """Take a row's primary key; every field of it is bytes, since a key is never null."""
    return tuple(row[index] for index in relation_key_indexes)  # type: ignore[misc]
