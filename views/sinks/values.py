"""Renders rows of Arrow as ids and JSON documents as `views.sinks.rendering` does, without Spark.

It is used for the few rows that a follower sends. Rare values that would need much code are left to
Spark: dates and timestamps outside the years 1 to 9999, maps, floats in a key.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _END_DAY = -719_162, 2_932_897
"""0001-01-01 and the day after 9999-12-31, in days since 1970."""
_DAY_US = 86_400_000_000
_ESCAPE = re.compile(r"\\(?:u00[01][0-9a-f]|.)")
"""An escaped character in JSON."""
_PLAIN_BELOW, _PLAIN_FROM = 1e7, 1e-3
"""Java writes floats in this range without an exponent."""


class NotRenderedError(Exception):
    """A value is left to Spark; the text says why."""


def documents(rows: pa.Table) -> list[str]:
    """Return each row's JSON object.

    Raises NotRenderedError: a value is left to Spark.
    """
    return [_json(row) for row in _objects(rows)]


def json_texts(values: pa.ChunkedArray) -> list[str | None]:
    """Return the JSON of lists or structs, null for null.

    Raises NotRenderedError: a value is left to Spark.
    """
    return [None if value is None else _json(value) for value in plain(values.combine_chunks())]


def identities(rows: pa.Table, key: Sequence[str]) -> list[str | None]:
    """Return each row's id, null when a part of its key is null."""
    columns = [rows[name].combine_chunks() for name in key]
    for name, column in zip(key, columns, strict=True):
        if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
            raise NotRenderedError(f'"{name}" of the key is a {column.type}')
    parts = [plain(column) for column in columns]
    if len(parts) == 1:
        return [None if value is None else _bare(value) for value in parts[0]]
    return [
        None if None in parts_of_row else _json(parts_of_row)
        for parts_of_row in zip(*parts, strict=True)
    ]


def _bare(value: Any) -> str:  # noqa: ANN401 - of any type
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:  # noqa: ANN401 - of any type
    text = orjson.dumps(value).decode()
    # Java writes the hexadecimal digits of a control character in upper case.
    return _ESCAPE.sub(_in_upper_case, text) if "\\u00" in text else text


def _in_upper_case(match: re.Match[str]) -> str:
    escape = match[0]
    return escape[:2] + escape[2:].upper() if escape.startswith("\\u") else escape


def _objects(rows: pa.Table) -> list[dict[str, Any]]:
    names = rows.column_names
    columns = [plain(column.combine_chunks()) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(array: pa.Array) -> list[Any]:  # noqa: PLR0911 - one for each type
    """Return the values in the form that `orjson` writes as documents need it."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return _converted(array, lambda value: f"{value:f}")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _converted(array, lambda value: base64.b64encode(value).decode())
    if pa.types.is_date(kind):
        return _times(array.view(pa.int32()), _FIRST_DAY, _END_DAY, "D", "")
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        first, end = _FIRST_DAY * _DAY_US, _END_DAY * _DAY_US
        return _times(
            array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()), first, end, "us", zone
        )
    if pa.types.is_floating(kind):
        text = _java_double if pa.types.is_float64(kind) else _java_float
        return _converted(array, text)
    if pa.types.is_list(kind):
        return _lists(array)
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_null(kind):
        return [None] * len(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind):
        return list(array.to_pylist())
    raise NotRenderedError(f"values of {kind}")


def _converted(array: pa.Array, text: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else text(value) for value in array.to_pylist()]


def _times(array: pa.Array, first: int, end: int, unit: str, zone: str) -> list[str | None]:
    if array.null_count == len(array):
        return [None] * len(array)
    least, most = pc.min(array).as_py(), pc.max(array).as_py()
    if least < first or most >= end:
        raise NotRenderedError("a date or timestamp outside the years 1 to 9999")
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    texts = np.datetime_as_string(numbers.astype("int64").view(f"datetime64[{unit}]")).tolist()
    there = array.is_valid().to_pylist()
    return [text + zone if is_there else None for text, is_there in zip(texts, there, strict=True)]


def _lists(array: pa.Array) -> list[list[Any] | None]:
    flat, at, lists = plain(array.flatten()), 0, list[list[Any] | None]()
    for count in array.value_lengths().to_pylist():
        lists.append(None if count is None else flat[at : at + count])
        at += count or 0
    return lists


def _structs(array: pa.Array) -> list[dict[str, Any] | None]:
    names = [field.name for field in array.type]
    columns = [plain(column) for column in array.flatten()]
    rows = zip(*columns, strict=True)
    there = array.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_there else None
        for row, is_there in zip(rows, there, strict=True)
    ]


def _java_double(value: float) -> Any:  # noqa: ANN401 - a text or a number
    return _java(value, repr(abs(value)), lambda text: float(text) == abs(value))


def _java_float(value: float) -> Any:  # noqa: ANN401 - a text or a number
    own = np.float32(abs(value))
    return _java(value, str(own), lambda text: bool(np.float32(text) == own))


def _java(value: float, shortest: str, is_same: Callable[[str], bool]) -> Any:  # noqa: ANN401 - a text or a number
    """Return a float as Java writes it: with the shortest digits, and maybe an exponent.

    `shortest`: its shortest text, without a sign. `is_same`: tells whether a text reads back as
    this float.
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        text = np.format_float_positional(float(shortest), trim="0")
        return orjson.Fragment(f"{sign}{text}")
    mantissa, _, exponent = shortest.partition("e")
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    power = int(exponent or 0) + len(whole) - 1
    if whole == "0":
        power = int(exponent or 0) - (len(part) - len(part.lstrip("0"))) - 1
    digits = digits.rstrip("0") or "0"
    if len(digits) == 1:  # Java writes at least two digits, those of the nearest float
        two = f"{abs(value):.1e}"
        digits = two[0] + two[2] if is_same(two) else digits
        power = int(two.partition("e")[2]) if is_same(two) else power
    return orjson.Fragment(f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}")
