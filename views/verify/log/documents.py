"""Convert values of JSON documents, strictly, to the bare values that Avro records hold.

By the table of forms in `changelog.contract.forms.document`, and by code of our own: a value in any
other form than the one that capture writes is a fault of its record.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from changelog.contract.rows.types import ColumnType, Kind
from views.verify.values.faults import FaultError
from views.verify.values.jsonform import days

Reader = Callable[[Any], Any]
"""Returns the bare value of a JSON value that is not null; raises ValueError or FaultError."""

_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_DAY_US = 86_400_000_000
_DATE_ENDS = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_TIMESTAMP_ENDS = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLOAT = struct.Struct("<f")
_UTC = "+00:00"


def load(raw: bytes) -> dict[str, Any]:
    """Parse a document.

    Raises FaultError: it is no JSON object, or names a member twice; ValueError: it is no JSON.
    """
    document = json.loads(
        raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
    )
    if not isinstance(document, dict):
        raise FaultError("the value is not a JSON object")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise FaultError("a member comes twice")
    return document


def _no_constant(name: str) -> Any:  # noqa: ANN401
    raise FaultError(f"{name} is not JSON")


def value_reader(kind: ColumnType) -> Reader:
    """Return the reader of a column's type."""
    if kind.kind is Kind.DECIMAL:
        return _decimal(kind)
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None  # noqa: S101 - an array has an element
        return _array(_SIMPLE[kind.element.kind])
    return _SIMPLE[kind.kind]


def _demand(condition: bool, value: object, expected: str) -> None:
    if not condition:
        raise FaultError(f"{value!r} is not {expected}")


def _boolean(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, bool), value, "a boolean")
    return value


def _integer(bits: int) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        is_integer = type(value) is int and -(1 << bits) <= value < 1 << bits
        _demand(is_integer, value, f"an integer of {bits + 1} bits")
        return value

    return read


def _double(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str) and value in _NUMBERS:
        return _NUMBERS[value]
    _demand(type(value) is float and math.isfinite(value), value, "a number with a point")
    return value


def _float(value: Any) -> Any:  # noqa: ANN401
    # The shortest text of a float has at most nine digits, so rounding its double gives it back.
    return _FLOAT.unpack(_FLOAT.pack(_double(value)))[0]


def _string(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, str), value, "a string")
    return value


def _bytes(value: Any) -> Any:  # noqa: ANN401
    return base64.b64decode(_string(value), validate=True)


def _decimal(kind: ColumnType) -> Reader:
    fraction = rf"\.\d{{{kind.scale}}}" if kind.scale else ""
    form = re.compile(rf"-?\d+{fraction}")

    def read(value: Any) -> Any:  # noqa: ANN401
        text = _string(value)
        if text in _NUMBERS:
            return text  # PostgreSQL's text has no exact form in the column's type
        _demand(form.fullmatch(text) is not None, value, f"a decimal of scale {kind.scale}")
        number = Decimal(text)
        _demand(len(number.as_tuple().digits) <= kind.precision, value, "within its precision")
        unscaled = int(text.replace(".", ""))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)

    return read


def _array(element: Reader) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return value  # other dimensions or bounds
        _demand(isinstance(value, list), value, "an array")
        return [None if item is None else element(item) for item in value]

    return read


def _date(value: Any) -> Any:  # noqa: ANN401
    text = _string(value)
    if text in _DATE_ENDS:
        return _DATE_ENDS[text]
    return days(text.removesuffix(" BC"), before_christ=text.endswith(" BC"))


def _timestamp(zone: str) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        text = _string(value)
        if text in _TIMESTAMP_ENDS:
            return _TIMESTAMP_ENDS[text]
        moment = text.removesuffix(" BC")
        _demand(moment.endswith(zone), value, "a moment in UTC")
        day, _, clock = moment.removesuffix(zone).partition("T")
        match = _CLOCK.fullmatch(clock)
        _demand(match is not None, value, "a moment")
        assert match is not None  # noqa: S101 - demanded
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
        micros = seconds * 1_000_000 + int((match[4] or "").ljust(6, "0"))
        total = days(day, before_christ=text.endswith(" BC")) * _DAY_US + micros
        _demand(total < _TIMESTAMP_ENDS["infinity"], value, "within 64 bits of microseconds")
        return total

    return read


_SIMPLE: dict[Kind, Reader] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer(31),
    Kind.LONG: _integer(63),
    Kind.FLOAT: _float,
    Kind.DOUBLE: _double,
    Kind.STRING: _string,
    Kind.UUID: _string,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp(""),
    Kind.TIMESTAMPTZ: _timestamp(_UTC),
}
