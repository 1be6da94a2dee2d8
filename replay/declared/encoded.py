"""Rows of declared logs as capture would write them: framed Avro under a schema of our own.

A follower without Spark decodes the records of the project's own tables. A row of another program's
log is put into the same form, under a schema that no registry has, so that one decoder gives the
same types and values for both. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from changelog.avro.decimals import decimal_of
from changelog.avro.rows import AvroRowReader
from changelog.contract.base.errors import ChangelogError, VerdictError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.form import PLAIN
from changelog.contract.rows.codec import frame
from changelog.contract.rows.relation import Column, Relation
from changelog.contract.rows.schema import LoggedColumn, field_names, read_schema, value_schema
from changelog.contract.rows.text import (
    NULL_BRANCH,
    branch_bytes,
    decimal_bytes,
    encode_bytes,
    encode_long,
)
from changelog.contract.rows.types import ColumnType, Kind
from replay.declared.interpret import Row
from replay.decode.schemas import TopicSchemas

SCHEMA_ID = 1
"""The id of the only version of the schema."""

_Encoder = Callable[[Any], bytes]
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
# Of each integer type, without the sign.
_BITS = {Kind.INT: 31, Kind.DATE: 31, Kind.LONG: 63, Kind.TIMESTAMP: 63, Kind.TIMESTAMPTZ: 63}
_INEXACT = (ValueError, TypeError, ArithmeticError, struct.error, ChangelogError)


class DeclaredRowEncoder:
    """Encodes the rows of a declared log.

    Raises:
        VerdictError: a column cannot be carried exactly.
    """

    def __init__(self, log: DeclaredLog, columns: Sequence[LoggedColumn]) -> None:
        self._log, self._columns = log, tuple(columns)
        own = tuple(Column(column.column, column.type) for column in columns)
        schema = value_schema(Relation(oid=0, name=log.table, columns=own, key=log.key))
        # under which the rows are decoded
        self.schemas = TopicSchemas(log.topic, None, {SCHEMA_ID: schema}, SCHEMA_ID)
        self._fields = field_names(column.column for column in columns)
        self._check_columns(schema)
        self._rows = AvroRowReader(log.topic, self.schemas.writers, SCHEMA_ID, PLAIN)
        self._frame = frame(SCHEMA_ID)
        self._encoders = [
            (_encoder(column.type, nullable=is_nullable), NULL_BRANCH if is_nullable else None)
            for column in columns
            for is_nullable in [column.column not in log.key]
        ]

    def _check_columns(self, schema: str) -> None:
        """Refuse a column whose values would not read back as the same type."""
        lower = [field.lower() for field in self._fields]
        for own, field, read in zip(
            self._columns, self._fields, read_schema(schema).columns, strict=True
        ):
            is_same = read.column == own.column and _shape(read.type) == _shape(own.type)
            is_empty = own.type.kind is Kind.DECIMAL and own.type.precision < 1
            if not is_same or is_empty or lower.count(field.lower()) > 1:
                raise VerdictError(f"{self._name(own)} is not held here")

    def encode(self, row: Row) -> bytes:
        """Encode a row as the value of a record."""
        parts = [self._frame]
        for column, (encode, null), value in zip(self._columns, self._encoders, row, strict=True):
            if value is None and null is not None:
                parts.append(null)
                continue
            try:
                parts.append(encode(value))
            except _INEXACT as error:
                raise VerdictError(f"{self._name(column)} is not held here: {error}") from error
        return b"".join(parts)

    def decode(self, record: bytes) -> Row:
        """Decode the row of a value that `encode` returned."""
        values = self._rows.row(record) or ()
        return [
            decimal_of(value, column.type.scale)
            if column.type.kind is Kind.DECIMAL and value is not None
            else value
            for column, value in zip(self._columns, values, strict=True)
        ]

    def _name(self, column: LoggedColumn) -> str:
        return f'column "{column.column}" ({column.type.name}) of log "{self._log.table}"'


def _shape(kind: ColumnType) -> tuple[Kind, int, int, Kind | None]:
    element = None if kind.element is None else kind.element.kind
    return kind.kind, kind.precision, kind.scale, element


def _encoder(kind: ColumnType, *, nullable: bool) -> _Encoder:
    """Return the function that encodes a value that is there, the branch of its union included."""
    first, _ = branch_bytes(nullable=nullable, null_second=False)
    encode = _bare_encoder(kind)
    if nullable or kind.has_escape:
        return lambda value: first + encode(value)
    return encode


def _bare_encoder(kind: ColumnType) -> _Encoder:
    """Return the function that encodes a value without the branch of a union."""
    if kind.kind is Kind.DECIMAL:
        return partial(_decimal_bytes, kind.precision, kind.scale)
    if kind.element is not None:
        return partial(_array, _bare_encoder(kind.element))
    if kind.kind in _BITS:
        return partial(_integer, _BITS[kind.kind])
    return _SIMPLE[kind.kind]


def _typed(value: Any, *types: type) -> Any:  # noqa: ANN401 - a value of a row
    if type(value) not in types:  # not isinstance: a bool is an int
        raise TypeError(f"it is a {type(value).__name__}")
    return value


def _integer(bits: int, value: Any) -> bytes:  # noqa: ANN401
    number: int = _typed(value, int)
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{number} needs more than {bits + 1} bits")
    return encode_long(number)


def _boolean(value: Any) -> bytes:  # noqa: ANN401
    return b"\x01" if _typed(value, bool) else b"\x00"


def _float(form: struct.Struct, value: Any) -> bytes:  # noqa: ANN401
    number = float(_typed(value, float, int))
    raw = form.pack(number)
    if isinstance(value, int) and form.unpack(raw)[0] != value:
        raise ValueError(f"{value} has no exact floating-point number")
    return raw


def _string(value: Any) -> bytes:  # noqa: ANN401
    text: str = _typed(value, str)
    return encode_bytes(text.encode("utf-8"))


def _bytes(value: Any) -> bytes:  # noqa: ANN401
    return encode_bytes(_typed(value, bytes))


def _decimal_bytes(precision: int, scale: int, value: Any) -> bytes:  # noqa: ANN401
    number: Decimal = _typed(value, Decimal)
    if not number.is_finite() or (number and number.adjusted() >= precision - scale):
        raise ValueError(f"{number} has more than {precision} digits")
    return encode_bytes(decimal_bytes(str(number).encode("ascii"), scale))


def _array(element: _Encoder, value: Any) -> bytes:  # noqa: ANN401
    items: list[Any] = _typed(value, list)
    if not items:
        return b"\x00"
    body = [b"\x00" if item is None else b"\x02" + element(item) for item in items]
    return encode_long(len(items)) + b"".join(body) + b"\x00"


_SIMPLE: Mapping[Kind, _Encoder] = {
    Kind.BOOLEAN: _boolean,
    Kind.FLOAT: partial(_float, _FLOAT),
    Kind.DOUBLE: partial(_float, _DOUBLE),
    Kind.STRING: _string,
    Kind.UUID: _string,
    Kind.BYTES: _bytes,
}
