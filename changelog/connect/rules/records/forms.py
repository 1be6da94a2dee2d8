"""Writes values for PostgreSQL's columns, as JSON or as lines of COPY where both mean the same.

Both end in the input function of the column's type. Values that COPY cannot carry, such as an
object for a composite type, go as JSON.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from changelog.connect.rules.records.reading import (
    BadRecordError,
    WrittenNumber,
    check_json,
    json_of,
)

_WHOLE = {"smallint", "integer", "bigint"}
_MOMENTS = ("date", "time", "interval")
_JSON = {"json", "jsonb"}
_TEXTS = {"text", "character varying", "character"}
_UUID_LETTERS = 36
_NULL = "\\N"
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ODD_DELIMITER = {"box[]"}


class NoLineError(Exception):
    """A value has no form in a line of COPY."""


def document(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]], table: str) -> str:
    """Return rows as JSON for `json_populate_recordset`.

    Raises BadRecordError: the table has no column for a field, or a value is ambiguous there.
    """
    objects = [
        {name: fitting(_kind(types, name, table), name, value) for name, value in row.items()}
        for row in rows
    ]
    return json_of(objects).decode()


def _kind(types: Mapping[str, str], name: str, table: str) -> str:
    kind = types.get(name)
    if kind is None:
        raise BadRecordError(f"table {table} has no column for the field {name}")
    return kind


def fitting(kind: str, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value in the form that PostgreSQL's JSON functions take for a column.

    Raises BadRecordError: the value is ambiguous for the column's type.
    """
    if isinstance(value, list) and kind.endswith("[]"):
        element = kind.removesuffix("[]")
        return [fitting(kind if isinstance(item, list) else element, name, item) for item in value]
    if kind in _JSON and isinstance(value, str) and not isinstance(value, WrittenNumber):
        check_json(value, name)
        if _is_json_null(value):
            raise BadRecordError(f"the field {name} is JSON's null, which would be written as NULL")
        return WrittenNumber(value)  # the text is JSON, and is put into the document unchanged
    if kind == "bytea" and isinstance(value, str):
        return _hex(name, value)
    if kind.startswith(_MOMENTS) and isinstance(value, (int, WrittenNumber)):
        raise _no_moment(kind, name)
    return value


def _hex(name: str, value: str) -> str:
    if value.startswith("\\x"):
        return value
    try:
        return "\\x" + base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        raise BadRecordError(f"the field {name} is neither base64 nor hex") from None


def _no_moment(kind: str, name: str) -> BadRecordError:
    return BadRecordError(
        f"the field {name} is a number and its column a {kind}, for which only ISO 8601 texts are "
        "unambiguous"
    )


def needs_lines(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows have a value that only COPY can carry: JSON's null."""
    names = [name for name, kind in types.items() if kind in _JSON]
    return any(_is_json_null(row.get(name)) for row in rows for name in names)


def _is_json_null(value: object) -> bool:
    return isinstance(value, str) and value.strip(" \t\r\n") == "null"


def lines(
    types: Mapping[str, str], names: Sequence[str], rows: Sequence[Mapping[str, Any]], table: str
) -> bytes | None:
    """Return rows as lines of COPY, or None if COPY cannot carry a value.

    Raises BadRecordError: the table has no column for a field, or a value is ambiguous there.
    """
    columns = []
    try:
        for name in names:
            kind = _kind(types, name, table)
            columns.append(_column(kind, name, [row[name] for row in rows]))
        text = "\n".join(map("\t".join, zip(*columns, strict=True)))
        return f"{text}\n".encode()
    except NoLineError:
        return None
    except UnicodeEncodeError:
        raise BadRecordError("a text is not valid Unicode") from None


def _column(kind: str, name: str, values: list[Any]) -> list[str]:
    """Return the fields of a column; values of a single simple type are written faster."""
    types = set(map(type, values))
    is_moment = kind.startswith(_MOMENTS)
    if types == {str} and kind != "bytea":
        return values if not _SPECIAL.search("".join(values)) else [*map(_escaped, values)]
    if not is_moment and types <= {int, float} and types:
        return [*map(str, values)]
    return [_field(kind, name, value) for value in values]


def _field(kind: str, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, WrittenNumber)):
        if kind.startswith(_MOMENTS):
            raise _no_moment(kind, name)
        return str(value)
    return _escaped(_text(kind, name, value))


def _text(kind: str, name: str, value: Any) -> str:  # noqa: ANN401 - a text, list or object
    if isinstance(value, str):
        return _hex(name, value) if kind == "bytea" else value
    if kind in _JSON or kind in _TEXTS:
        return json_of(value).decode()
    if isinstance(value, list) and kind.endswith("[]") and kind not in _ODD_DELIMITER:
        return _array(kind.removesuffix("[]"), name, value)
    raise NoLineError


def _array(element: str, name: str, values: Sequence[Any]) -> str:
    return "{" + ",".join(_item(element, name, value) for value in values) + "}"


def _item(element: str, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None:
        return "NULL"
    if isinstance(value, list) and element not in _JSON:
        return _array(element, name, value)
    text = fitting(element, name, value)
    if not isinstance(text, str):
        if isinstance(text, dict) and element not in _JSON and element not in _TEXTS:
            raise NoLineError
        text = json_of(text).decode()
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _escaped(text: str) -> str:
    return (
        _SPECIAL.sub(lambda character: _ESCAPES[character[0]], text)
        if _SPECIAL.search(text)
        else text
    )


def same(kind: str, value: Any) -> object:  # noqa: ANN401 - any JSON
    """Return a value that is equal for equal keys, or None if only PostgreSQL can compare them."""
    if type(value) is int and kind in _WHOLE:
        return value
    if isinstance(value, (bool, list, dict)):
        return None
    if kind in {"text", "character varying"}:
        return str(value)
    if kind == "uuid":
        return value.lower() if len(str(value)) == _UUID_LETTERS else None
    return _number(str(value)) if kind in _WHOLE or kind == "numeric" else None


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
