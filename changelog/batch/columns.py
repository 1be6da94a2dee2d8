"""A column of text fields to the pieces of its Avro values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from changelog.batch.fields import Bytes, Fields, Mask, Places
from changelog.batch.numbers import (
    tables_of_decimals,
    tables_of_fixed,
    tables_of_longs,
    with_branch,
)
from changelog.batch.pool import Numbers, Pool
from changelog.contract.text import Encoder, days_of, encoder, micros_of, null_branch
from changelog.contract.types import ColumnType, Kind

MAX_FAST_PRECISION = 18
"""Decimal digits that fit 64 bits."""

_DATE_TEXT = len("2000-01-01")
_SECOND_TEXT = len("2000-01-01 00:00:00")
_ZONE_TEXT = len("+00")
_DAY_US = 86_400_000_000
_ZERO, _NINE, _MINUS, _PLUS, _SPACE, _TRUE, _FALSE = b"09-+ tf"

Table = tuple[Bytes, Places]
Number = TypeVar("Number", bound=np.generic)


class UnfitError(Exception):
    """A batch holds a value that the fast way does not know; the slow way says what it is."""


class ColumnEncoder:
    """Encodes the fields of one column, null branch included when it is nullable.

    Attributes:
        is_text: whether the value is a length and then the field as it stands; `add` then gives
            the length only.
    """

    def __init__(self, kind: ColumnType, *, nullable: bool, null_second: bool = False) -> None:
        self._nullable = nullable
        self._slow: Encoder = encoder(kind, nullable=nullable, null_second=null_second)
        self._null = null_branch(null_second=null_second)
        self.is_text = kind.kind in {Kind.STRING, Kind.UUID} and not null_second
        # A column with a default is rare, and goes row by row.
        self._table = None if null_second else _table_of(kind)
        # Only a decimal's union has a branch of its own kind although no null is possible.
        self._branch = 1 if nullable else 0 if kind.kind is Kind.DECIMAL else None

    def add(self, fields: Fields, pool: Pool) -> Numbers:
        """Put the values of all rows into the pool; gives their numbers.

        Raises:
            ValueError: a value has no exact form, or a null stands where none may.
        """
        if not self._nullable and fields.null.any():
            raise ValueError("null in the primary key")
        if self._table is not None:
            try:
                table, size = self._table(fields)
            except (UnfitError, pa.ArrowInvalid):
                pass
            else:
                if self._branch is not None:
                    table, size = with_branch(table, size, self._branch, fields.null)
                return pool.add_table(table, size)
        return pool.add_all(self._one_by_one(fields))

    def _one_by_one(self, fields: Fields) -> list[bytes]:
        encode, null = self._slow, self._null
        return [null if text is None else encode(text) for text in fields.texts()]


def _table_of(kind: ColumnType) -> Callable[[Fields], Table] | None:
    if kind.kind is Kind.DECIMAL:
        if kind.precision > MAX_FAST_PRECISION:
            return None
        return lambda fields: _decimals(fields, kind.precision, kind.scale)
    return _TABLES.get(kind.kind)


def _integers(fields: Fields) -> Table:
    return tables_of_longs(_numbers(fields.strings().cast(pa.int64()), np.int64))


def _floats(fields: Fields) -> Table:
    return tables_of_fixed(_numbers(_finite(fields).cast(pa.float32()), np.float32))


def _doubles(fields: Fields) -> Table:
    return tables_of_fixed(_numbers(_finite(fields).cast(pa.float64()), np.float64))


def _finite(fields: Fields) -> pa.StringArray:
    """Give the texts of finite numbers; Arrow has its own ideas of how the others are written."""
    last = fields.byte_at(-1)
    if not (_is_digit(last) | fields.null).all():
        raise UnfitError
    return fields.strings()


def _decimals(fields: Fields, precision: int, scale: int) -> Table:
    values = _finite(fields).cast(pa.decimal128(precision, scale))
    low_and_high = np.frombuffer(values.buffers()[1], dtype=np.int64)
    low = low_and_high[2 * values.offset :: 2][: len(fields)]
    return tables_of_decimals(np.where(fields.null, 0, low))


def _booleans(fields: Fields) -> Table:
    letter = fields.byte_at(0)
    known = (fields.size == 1) & ((letter == _TRUE) | (letter == _FALSE))
    if not (known | fields.null).all():
        raise UnfitError
    table = (letter == _TRUE).astype(np.uint8).reshape(-1, 1)
    return table, np.ones(len(fields), dtype=np.int64)


def _dates(fields: Fields) -> Table:
    odd = (fields.size != _DATE_TEXT) & ~fields.null
    days = fields.without(odd).strings().cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return tables_of_longs(_patched(fields, _numbers(days, np.int64), odd, days_of))


def _timestamps(fields: Fields) -> Table:
    return _moments(fields, zone=0)


def _timestamps_with_zone(fields: Fields) -> Table:
    return _moments(fields, zone=_ZONE_TEXT)


def _moments(fields: Fields, zone: int) -> Table:
    size = fields.size - zone
    plain = (size >= _SECOND_TEXT) & (fields.byte_at(_DATE_TEXT) == _SPACE)
    plain &= _is_digit(fields.byte_at(-1))
    if zone:
        plain &= fields.byte_at(-zone) == _PLUS
        plain &= (fields.byte_at(-1) == _ZERO) & (fields.byte_at(-2) == _ZERO)
    odd = ~plain & ~fields.null
    micros = fields.without(odd).strings(cut=zone).cast(pa.timestamp("us")).cast(pa.int64())
    return tables_of_longs(_patched(fields, _numbers(micros, np.int64), odd, micros_of))


def _patched(fields: Fields, values: Places, odd: Mask, slow: Callable[[bytes], int]) -> Places:
    """Put in the values of the few fields that Arrow cannot read: infinities, years BC."""
    if not odd.any():
        return values
    values = values.copy()
    for row in np.flatnonzero(odd).tolist():
        values[row] = slow(fields.text(row))
    return values


def _numbers(values: pa.Array, kind: type[Number]) -> NDArray[Number]:
    """Give Arrow's numbers as NumPy's of the same kind; what stands for a null means nothing."""
    # Neither `to_numpy` nor `fill_null`, which import pandas: half a second and 26 MB.
    found = np.frombuffer(values.buffers()[1], dtype=kind)
    return found[values.offset : values.offset + len(values)]


def _is_digit(letter: Bytes) -> Mask:
    return (letter >= _ZERO) & (letter <= _NINE)


def _lengths(fields: Fields) -> Table:
    return tables_of_longs(fields.size)


_TABLES: dict[Kind, Callable[[Fields], Table]] = {
    Kind.STRING: _lengths,
    Kind.UUID: _lengths,
    Kind.BOOLEAN: _booleans,
    Kind.INT: _integers,
    Kind.LONG: _integers,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _doubles,
    Kind.DATE: _dates,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps_with_zone,
}
