"""Values of other programs' records: exactly what a column's type holds, or a fault.

Numbers of JSON stay the characters that they were until their type is known.
"""

from __future__ import annotations

import base64
import decimal
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from changelog.avro.decimals import SCALES, decimal_of, decimal_text
from changelog.contract.forms.declared import DIGITS, MILLIS
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import Kind


class FaultyRecordError(Exception):
    """A record is faulty; the message says why."""


class JsonNumber(str):
    """A JSON number as the source wrote it, never converted to a double."""

    __slots__ = ()


def loads(raw: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON.

    Raises FaultyRecordError: a member comes twice, or a number is NaN or infinite; ValueError: it
    is no JSON.
    """
    return json.loads(
        raw.decode("utf-8"),
        parse_int=JsonNumber,
        parse_float=JsonNumber,
        parse_constant=_refuse_constant,
        object_pairs_hook=_object,
    )


def _refuse_constant(name: str) -> Any:  # noqa: ANN401
    raise FaultyRecordError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise FaultyRecordError("a member comes twice")
    return members


Reader = Callable[[Any], Any]
"""Converts a raw value to its column's type; raises FaultyRecordError or ValueError."""


def reader(column: LoggedColumn, *, avro: bool) -> Reader:
    """Return the reader of a column's values that are not null."""
    kind = column.type
    if not avro:
        return (
            _decimal(kind.scale, kind.precision) if kind.kind is Kind.DECIMAL else _JSON[kind.kind]
        )
    if kind.kind is Kind.DECIMAL:
        return _unscaled(kind.scale, kind.precision)
    if kind.name == DIGITS:
        return _digits
    return (lambda value: value * 1000) if kind.name == MILLIS else (lambda value: value)


def _unscaled(scale: int, precision: int) -> Reader:
    return lambda raw: _fitting(decimal_of(raw, scale), scale, precision)


def _digits(value: dict[str, Any]) -> str:
    _demand(value["scale"] in SCALES, value["scale"], "the scale of a numeric")
    return decimal_text(value["value"], value["scale"])


# Python's default context would round to 28 digits without an error.
_EXACT = decimal.Context(prec=60, traps=[decimal.InvalidOperation, decimal.Inexact])


def _fitting(number: Decimal, scale: int, precision: int) -> Decimal:
    exact = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if len(exact.as_tuple().digits) > precision:
        raise FaultyRecordError(f"{number} has more than {precision} digits")
    return exact


def _decimal(scale: int, precision: int) -> Reader:
    def read(value: Any) -> Decimal:  # noqa: ANN401
        try:
            number = Decimal(_demand(isinstance(value, str), value, "a decimal"))
        except decimal.InvalidOperation:
            raise FaultyRecordError(
                f"{value!r} is not a decimal; Debezium writes one with decimal.handling.mode=string"
            ) from None
        _demand(number.is_finite(), value, "a decimal")
        try:
            return _fitting(number, scale, precision)
        except ArithmeticError:
            raise FaultyRecordError(f"{value} does not fit decimal({precision},{scale})") from None

    return read


def _demand(condition: bool, value: Any, expected: str) -> Any:  # noqa: ANN401
    if not condition:
        raise FaultyRecordError(f"{value!r} is not {expected}")
    return value


def _boolean(value: Any) -> bool:  # noqa: ANN401
    return bool(_demand(isinstance(value, bool), value, "a boolean"))


_INTEGER = re.compile(r"-?\d{1,19}")


def _integer(bits: int) -> Reader:
    def read(value: Any) -> int:  # noqa: ANN401
        is_integer = isinstance(value, JsonNumber) and _INTEGER.fullmatch(value) is not None
        number = int(_demand(is_integer, value, "an integer"))
        _demand(-(1 << bits) <= number < 1 << bits, value, f"an integer of {bits + 1} bits")
        return number

    return read


_SPECIAL = {"NaN", "Infinity", "-Infinity"}


def _double(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, JsonNumber):
        number = float(value)
        _demand(math.isfinite(number), value, "a double")
        return number
    return float(_demand(value in _SPECIAL, value, "a double"))


def _float(value: Any) -> float:  # noqa: ANN401
    number = _double(value)
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _string(value: Any) -> str:  # noqa: ANN401
    """Return a text as it is, and any other JSON value as JSON text."""
    return str(value) if isinstance(value, str) else _json_text(value)


def _json_text(value: Any) -> str:  # noqa: ANN401
    """Return a value as JSON, its numbers with the characters that they came with."""
    match value:
        case JsonNumber():
            return str(value)
        case dict():
            members = (f"{_json_text(name)}:{_json_text(item)}" for name, item in value.items())
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_json_text, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _bytes(value: Any) -> bytes:  # noqa: ANN401
    is_text = isinstance(value, str) and not isinstance(value, JsonNumber)
    return base64.b64decode(_demand(is_text, value, "base64"), validate=True)


_UNIX = date(1970, 1, 1).toordinal()
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


def _date(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, JsonNumber):
        return int(_integer(31)(value))  # days since 1970, as Debezium has it
    is_day = isinstance(value, str) and _DAY.fullmatch(value) is not None
    _demand(is_day, value, "a date")
    return date.fromisoformat(value).toordinal() - _UNIX


def _moment(*, zoned: bool) -> Reader:
    def read(value: Any) -> int:  # noqa: ANN401
        is_text = isinstance(value, str) and not isinstance(value, JsonNumber)
        parts = _MOMENT.fullmatch(value) if is_text else None
        if parts is None or (parts[4] is not None) is not zoned:
            expected = "a moment with a zone" if zoned else "a moment without a zone"
            raise FaultyRecordError(f"{value!r} is not {expected} in ISO 8601")
        fraction = (parts[3] or "").ljust(9, "0")
        # Columns hold microseconds: nanoseconds would have to be rounded.
        _demand(fraction[6:] == "000", value, "a moment of whole microseconds")
        zone = (parts[4] or "Z").replace("Z", "+00:00")
        whole = datetime.fromisoformat(f"{parts[1]}T{parts[2]}{zone}").astimezone(UTC)
        seconds = (whole.toordinal() - _UNIX) * 86_400
        seconds += whole.hour * 3600 + whole.minute * 60 + whole.second
        return seconds * 1_000_000 + int(fraction[:6])

    return read


_JSON: dict[Kind, Reader] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer(31),
    Kind.LONG: _integer(63),
    Kind.FLOAT: _float,
    Kind.DOUBLE: _double,
    Kind.STRING: _string,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _moment(zoned=False),
    Kind.TIMESTAMPTZ: _moment(zoned=True),
}
