"""Rows in the JSON form of search documents and cache entries, read strictly.

A value in any other form than the one that sinks promise is a fault of its row: a lenient reader
would take `1.50` for `1.5` and a wrong text for a right one.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from views.verify.values.types import Type

Reader = Callable[[Any], Any]
"""Returns a JSON value's Arrow form; raises ValueError when it is malformed."""

_DATE = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\.(\d{6})", re.ASCII)
SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UNIX_ORDINAL = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_RANGES = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_LAST_YEAR = 9999
_ERA_YEARS, _ERA_DAYS = 400, 146_097
_DATE_END = 2**31 - 1
_TIMESTAMP_END = 2**63 - 1
_FLOAT = struct.Struct("<f")
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)")


def load(text: str | bytes) -> dict[str, Any]:
    """Parse the JSON of one row."""
    try:
        row = json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - malformed input, not a type
    return row


def _no_constant(name: str) -> Any:  # noqa: ANN401
    raise ValueError(f"{name} is not JSON")


_TEXTS = {"string", "binary", "decimal", "date", "timestamp", "timestamp_ntz"}


def alone(text: str, kind: Type) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON value of a text that is a field of a hash or an id.

    A text that is not a JSON value is returned as it is; the reader of its type then refuses it.
    """
    if kind.name in _TEXTS:
        return text
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    # A null is not written, and neither are quotes or space around a value.
    return text if value is None or isinstance(value, str) or text != text.strip() else value


def key_of(identity: str, key: Sequence[tuple[str, Type]]) -> dict[str, Any]:
    """Return the columns of a key in JSON form, from `identifier`'s text."""
    if len(key) == 1:
        return {name: alone(identity, kind) for name, kind in key}
    values = json.loads(identity, parse_constant=_no_constant)
    if not isinstance(values, list) or len(values) != len(key):
        raise ValueError(f"{identity!r} is not a key of {len(key)} columns")
    return {name: value for (name, _), value in zip(key, values, strict=True)}


def identifier(row: dict[str, Any], key: Sequence[tuple[str, Type]]) -> str:
    """Return the document id or cache key of a row in JSON form."""
    values = [row[name] for name, _ in key]
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    texts = [_key_text(value, kind) for value, (_, kind) in zip(values, key, strict=True)]
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


def _key_text(value: Any, kind: Type) -> str:  # noqa: ANN401 - JSON
    if kind.name == "array" and isinstance(value, list):
        return f"[{','.join(_key_text(item, kind.fields[0][1]) for item in value)}]"
    if kind.is_float and type(value) in {int, float}:
        return _number_text(float(value), kind)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Java writes the digits of a control character in capitals.
    return _ESCAPE.sub(lambda match: f"\\u{match[1].upper()}" if match[1] else match[0], text)


_PLAIN = range(-3, 7)
"""Powers of ten that a number's text has no exponent for."""


def _number_text(number: float, kind: Type) -> str:
    """Return the shortest text that reads back, as Java lays it out; -0.0 is the key 0.0."""
    if not number:
        return "0.0"
    shortest = Decimal(str(np.float32(number)) if kind.name == "float" else repr(number))
    if len(shortest.normalize().as_tuple().digits) == 1:
        shortest = Decimal(f"{number:.1e}")  # Java wants two digits, the nearest: 4.9E-324
    sign, digits, _ = shortest.as_tuple()
    listed = "".join(map(str, digits)).strip("0")
    power = shortest.adjusted()
    if power not in _PLAIN:
        text = f"{listed[0]}.{listed[1:] or '0'}E{power}"
    elif power < 0:
        text = f"0.{'0' * (-power - 1)}{listed}"
    else:
        text = f"{listed[: power + 1].ljust(power + 1, '0')}.{listed[power + 1 :] or '0'}"
    return f"{'-' if sign else ''}{text}"


def reader(kind: Type) -> Reader:
    """Return the reader of a type; null is null in every type."""
    read_value = _reader(kind)

    def read(value: Any) -> Any:  # noqa: ANN401 - JSON
        return None if value is None else read_value(value)

    return read


def _reader(kind: Type) -> Reader:
    match kind.name:
        case "decimal":
            return _decimal_reader(kind)
        case "array":
            return _array_reader(reader(kind.fields[0][1]))
        case "struct":
            return _struct_reader({name: reader(field) for name, field in kind.fields})
        case "map":
            return _map_reader(kind)
        case "tinyint" | "smallint" | "int" | "bigint":
            return _integer_reader(_RANGES[kind.name])
        case _:
            return _SIMPLE[kind.name]


def _demand(condition: bool, value: object, expected: str) -> None:
    if not condition:
        raise ValueError(f"{value!r} is not {expected}")


def _boolean(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, bool), value, "a boolean")
    return value


def _integer_reader(bits: int) -> Reader:
    low, high = -(1 << bits), (1 << bits) - 1

    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(
            type(value) is int and low <= value <= high, value, f"an integer of {bits + 1} bits"
        )
        return value

    return read


def _double(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str) and value in SPECIAL_FLOATS:
        return SPECIAL_FLOATS[value]
    _demand(type(value) in {int, float}, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    _demand(math.isfinite(number), value, "a number of 64 bits")
    return number


def _float(value: Any) -> Any:  # noqa: ANN401
    try:
        return _FLOAT.unpack(_FLOAT.pack(_double(value)))[0]
    except OverflowError as error:
        raise ValueError(f"{value!r} is not a float") from error


def _string(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, str), value, "a string")
    value.encode()  # UnicodeEncodeError, a ValueError: half of a surrogate pair is no text
    return value


def _binary(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, str), value, "base64")
    decoded = base64.b64decode(value, validate=True)
    # Decoding ignores the bits of the last character beyond the last byte.
    _demand(base64.b64encode(decoded).decode() == value, value, "base64")
    return decoded


def _decimal_reader(kind: Type) -> Reader:
    fraction = rf"\.\d{{{kind.scale}}}" if kind.scale else ""
    form = re.compile(rf"-?\d+{fraction}", re.ASCII)

    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(
            isinstance(value, str) and form.fullmatch(value) is not None,
            value,
            f"a decimal of scale {kind.scale} in plain notation",
        )
        number = Decimal(value)
        _demand(len(number.as_tuple().digits) <= kind.precision, value, "within its precision")
        return number

    return read


def days(text: str, *, before_christ: bool) -> int:
    """Return the days since 1970 of a date of any year."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    year = 1 - year if before_christ else year
    # The calendar repeats every 400 years: move the year into the range that Python knows.
    eras = 0 if 1 <= year <= _LAST_YEAR else year // _ERA_YEARS - 1
    moved = date(year - eras * _ERA_YEARS, month, day)
    return moved.toordinal() - _UNIX_ORDINAL + eras * _ERA_DAYS


def _date(value: Any) -> Any:  # noqa: ANN401
    _demand(isinstance(value, str), value, "a date")
    if value in {"infinity", "-infinity"}:
        return _DATE_END if value == "infinity" else -_DATE_END
    since = days(value.removesuffix(" BC"), before_christ=value.endswith(" BC"))
    _demand(abs(since) < _DATE_END, value, "a date of 32 bits")
    return since


def _timestamp_reader(zone: str) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(isinstance(value, str), value, "a timestamp")
        if value in {"infinity", "-infinity"}:
            return _TIMESTAMP_END if value == "infinity" else -_TIMESTAMP_END
        text = value.removesuffix(" BC")
        _demand(text.endswith(zone or tuple("0123456789")), value, "a timestamp of this type")
        day, _, clock = text.removesuffix(zone).partition("T")
        match = _CLOCK.fullmatch(clock)
        if match is None:
            raise ValueError(f"{value!r} is not a timestamp")
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
        since = days(day, before_christ=value.endswith(" BC"))
        micros = since * _DAY_US + seconds * 1_000_000 + int(match[4])
        _demand(abs(micros) < _TIMESTAMP_END, value, "a moment of 64 bits")
        return micros

    return read


def _array_reader(element: Reader) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(isinstance(value, list), value, "an array")
        return [element(item) for item in value]

    return read


def _struct_reader(fields: dict[str, Reader]) -> Reader:
    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(isinstance(value, dict), value, "an object")
        check_members(value, fields.keys())
        return {name: field(value[name]) for name, field in fields.items()}

    return read


def check_members(row: dict[str, Any], names: Any) -> None:  # noqa: ANN401 - a dict's keys view
    """Require exactly these members."""
    if row.keys() != names:
        missing, unknown = sorted(names - row.keys()), sorted(row.keys() - names)
        raise ValueError(f"members missing: {missing}, unknown: {unknown}")


def _map_reader(kind: Type) -> Reader:
    value_reader = reader(kind.fields[1][1])
    if kind.fields[0][1].name != "string":
        raise ValueError("a map whose key is not a string has no JSON form")

    def read(value: Any) -> Any:  # noqa: ANN401
        _demand(isinstance(value, dict), value, "an object")
        return [(_string(name), value_reader(item)) for name, item in value.items()]

    return read


_SIMPLE: dict[str, Reader] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp_reader("Z"),
    "timestamp_ntz": _timestamp_reader(""),
}
