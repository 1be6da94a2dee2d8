"""Writes values as the text of COPY, by the types of their columns. Pure.

PostgreSQL reads the texts by its types, so a number keeps all its digits. JSON is ambiguous in
places, and read as by connectors: texts for bytea are base64, texts for json columns are JSON, and
numbers for columns of time are refused. A value that a column would round is refused too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from changelog.connect.rules.records.reading import BadRecordError, WrittenNumber, json_of
from changelog.load.rules.table import TableColumn
from changelog.native.loads import CsvColumn, JsonColumn

_NULL = rb"\N"
_ESCAPES = {b"\\": rb"\\", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t"}
_SPECIAL = re.compile(rb"[\\\n\r\t]")
_IN_LINE = re.compile(rb"[\\\n\r]")
_JSON = {"json", "jsonb"}
_TEXTS = {"text", "varchar", "bpchar"}
_MOMENTS = {"date", "time", "timetz", "timestamp", "timestamptz", "interval"}
_FRACTION = re.compile(r"\.(\d+)")
_LONGEST = 1 << 20  # more digits than a numeric has
_IN_ARRAY = re.compile(r'(["\\])')

Cell = Callable[[Any], bytes | None]
"""Returns the text of a value, None for null; raises BadRecordError."""


class Raw(bytes):
    """A text that goes to PostgreSQL unchanged: a field of CSV, or a whole value."""

    __slots__ = ()


def line_of(cells: Sequence[bytes | None]) -> bytes:
    r"""Return a line of COPY's text.

    >>> line_of([b"a\tb", None, b""])
    b'a\\tb\t\\N\t\n'
    """
    # Most lines have nothing to escape, which one search in the whole line shows.
    bare = b"\t".join([b"" if text is None else text for text in cells])
    if bare.count(b"\t") == len(cells) - 1 and _IN_LINE.search(bare) is None:
        if None not in cells:
            return bare + b"\n"
        return b"\t".join([_NULL if text is None else text for text in cells]) + b"\n"
    return b"\t".join([_NULL if text is None else _escaped(text) for text in cells]) + b"\n"


def _escaped(text: bytes) -> bytes:
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def cell(column: TableColumn) -> Cell:
    """Return the function that writes a column's values."""
    most = column.most_fraction
    takes_texts = column.base not in _JSON | {"bytea"}
    takes_numbers = takes_texts and column.base not in _MOMENTS

    def written(value: Any) -> bytes | None:  # noqa: ANN401 - any JSON
        if value is None:
            return None
        kind = value.__class__
        if takes_texts and kind is str:
            text = value
        elif takes_numbers and (kind is int or kind is WrittenNumber):
            text = str(value)
        elif kind is Raw:
            if most is not None:
                _check_fraction(column, value.decode("utf-8", "replace"), most)
            return bytes(value)
        else:
            text = _text(column, value)
        if most is not None:
            _check_fraction(column, text, most)
        return text.encode()  # type: ignore[no-any-return]  # a str

    return written


def plain_of(column: TableColumn, name: str) -> JsonColumn:
    """Return the JSON types that `cell` writes unchanged, apart from escapes and blanks.

    >>> plain_of(TableColumn("at", "date", "date", 1082), "day").numbers
    False
    """
    most, is_json = column.most_fraction, column.base in _JSON
    is_bytea = column.base == "bytea"
    return JsonColumn(
        name,
        texts=not is_bytea,
        numbers=not is_bytea and column.base not in _MOMENTS,
        truths=not is_bytea and most is None,
        nested=is_json,
        fraction=most,
        is_moment=column.base in _MOMENTS,
    )


def csv_column(column: TableColumn, field: int) -> CsvColumn:
    """Return the description of a CSV field that fills a column."""
    return CsvColumn(field, column.most_fraction, column.base in _MOMENTS)


def _text(column: TableColumn, value: Any) -> str:  # noqa: ANN401 - any JSON
    if column.base in _JSON:
        is_text = isinstance(value, str) and not isinstance(value, WrittenNumber)
        return value if is_text else json_of(value).decode()
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | WrittenNumber():
            if column.base in _MOMENTS:
                raise BadRecordError(
                    f'a number for the column "{column.name}", a {column.type}, for which only '
                    "ISO 8601 texts are unambiguous"
                )
            return repr(value) if isinstance(value, float) else str(value)
        case str():
            return _bytea(column, value) if column.base == "bytea" else value
        case list() if column.element is not None:
            return _array(column, value)
        case list() | dict() if column.base in _TEXTS:
            return json_of(value).decode()
        case _:
            kind = "a list" if isinstance(value, list) else "an object"
            raise BadRecordError(f'{kind} for the column "{column.name}", a {column.type}')


def _bytea(column: TableColumn, value: str) -> str:
    if value.startswith("\\x"):
        return value
    try:
        return "\\x" + base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        raise BadRecordError(
            f'a text for the column "{column.name}", a bytea, that is neither base64 nor hex'
        ) from None


def _array(column: TableColumn, values: Sequence[Any]) -> str:
    return "{" + ",".join(_item(column, value) for value in values) + "}"


def _item(column: TableColumn, value: Any) -> str:  # noqa: ANN401 - any JSON
    match value:
        case None:
            return "NULL"
        case list():
            return _array(column, value)
        case bool():
            return "true" if value else "false"
        case Mapping():
            return _quoted(json_of(value).decode())
        case str() if column.element is not None and column.element[0] == "bytea":
            return _quoted(_bytea(column, value))
        case _:
            return _quoted(repr(value) if isinstance(value, float) else str(value))


def _quoted(text: str) -> str:
    return '"' + _IN_ARRAY.sub(r"\\\1", text) + '"'


def _check_fraction(column: TableColumn, text: str, most: int) -> None:
    """Raise BadRecordError if PostgreSQL would silently round a value."""
    _, _, fraction = text.partition(".")
    if len(fraction) <= most and "e" not in text and "E" not in text:
        return  # the fast way for most values
    digits = _digits(text) if column.base == "numeric" else _digits_of_moment(text)
    if digits > most:
        raise BadRecordError(
            f'a value for the column "{column.name}", a {column.type}, has {digits} digits after '
            "the point and would be rounded"
        )


def _digits(text: str) -> int:
    """Return the number of digits after the point, or a very low one if it is not a number."""
    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return -_LONGEST
    if not isinstance(exponent, int):
        return -_LONGEST  # NaN and infinities
    zeros = next((n for n, digit in enumerate(reversed(digits)) if digit), _LONGEST)
    return -exponent - zeros


def _digits_of_moment(text: str) -> int:
    fraction = _FRACTION.search(text)
    return len(fraction[1].rstrip("0")) if fraction else 0
