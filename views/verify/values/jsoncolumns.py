"""Convert rows in JSON form to Arrow by column, faster than `views.verify.values.jsonform` does.

Only values in the ordinary form of a type are converted here. A column with others is read by the
strict readers, and if one of these refuses a value, or a row has other members, or an identifier is
not its key's, the whole batch is refused here and read row by row. So only the strict readers
decide what is a fault; that both give the same is a law (`tests/property/test_served.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from views.verify.values.jsonform import SPECIAL_FLOATS, identifier, reader
from views.verify.values.types import Type, arrow_type

_ZONED = pa.timestamp("us", "UTC")
_DAY = r"^(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\d"
_CLOCK = r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}"
_TEXTS: dict[str, tuple[str, pa.DataType]] = {
    "date": (rf"{_DAY}$", pa.date32()),
    "timestamp": (rf"{_DAY}{_CLOCK}Z$", _ZONED),
    "timestamp_ntz": (rf"{_DAY}{_CLOCK}$", pa.timestamp("us")),
}
"""For each type the pattern of its ordinary texts, for RE2, and the type as which Arrow reads
them."""
_PLAIN: dict[str, type] = {
    "boolean": bool,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "string": str,
}
_REFUSALS = (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException)
# Every integer up to this is exactly a double.
_MOST_EXACT = 2**53
_quoted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class UnusualError(Exception):
    """Rows that only the strict readers may judge."""


def columns_of(
    ids: Sequence[str],
    rows: Sequence[Any],
    columns: Sequence[tuple[str, Type]],
    key: Sequence[tuple[str, Type]],
) -> list[pa.Array]:
    """Return the columns of rows without a fault."""
    try:
        values = _members(rows, [name for name, _ in columns])
        arrays = [_array(values[name], kind) for name, kind in columns]
        if _identifiers([values[name] for name, _ in key], key) != list(ids):
            raise UnusualError
    except _REFUSALS as error:
        raise UnusualError from error
    return arrays


def _members(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of objects that have exactly these members."""
    if set(map(type, rows)) - {dict} or set(map(len, rows)) - {len(names)}:
        raise UnusualError
    return {name: [row[name] for row in rows] for name in names}


def _types(values: Sequence[Any], *allowed: type) -> set[type]:
    types = set(map(type, values))
    if types - {*allowed, type(None)}:
        raise UnusualError
    return types


def _array(values: list[Any], kind: Type) -> pa.Array:  # noqa: PLR0911 - one for each form
    match kind.name:
        case "float" | "double":
            return _floats(values, kind)
        case "decimal" | "date" | "timestamp" | "timestamp_ntz":
            return _texts(values, kind)
        case "array":
            _types(values, list)
            return _list(values, _array([i for v in values if v for i in v], kind.fields[0][1]))
        case "struct":
            return _struct(values, kind)
        case "map":
            return _map(values, kind)
        case name if name in _PLAIN:
            _types(values, _PLAIN[name])
            return pa.array(values, arrow_type(kind))
        case _:
            return _strictly(values, kind)


def _strictly(values: Sequence[Any], kind: Type) -> pa.Array:
    read = reader(kind)
    return pa.array([read(value) for value in values], arrow_type(kind))


def _floats(values: list[Any], kind: Type) -> pa.Array:
    types = _types(values, float, int, str)
    if str in types:
        values = [SPECIAL_FLOATS[v] if type(v) is str else v for v in values]
    elif int in types and any(type(v) is int and abs(v) > _MOST_EXACT for v in values):
        return _strictly(values, kind)
    numbers = pa.array(values, pa.float64())
    if kind.name == "double":
        return numbers
    narrow = numbers.cast(pa.float32(), safe=False)
    if not pc.is_finite(numbers).equals(pc.is_finite(narrow)):
        raise UnusualError
    return narrow


def _texts(values: list[Any], kind: Type) -> pa.Array:
    _types(values, str)
    target = arrow_type(kind)
    if kind.name == "decimal":
        fraction = rf"\.\d{{{kind.scale}}}" if kind.scale else ""
        form, read_as = rf"^-?\d{{1,{kind.precision}}}{fraction}$", target
    else:
        form, read_as = _TEXTS[kind.name]
    texts = pa.array(values, pa.string())
    if pc.all(pc.match_substring_regex(texts, form)).as_py() is False:
        return _strictly(values, kind)
    parsed = texts.cast(read_as)
    return parsed.view(target) if read_as == _ZONED else parsed


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = pa.array([0, *(len(v) if v else 0 for v in values)], pa.int32())
    return pc.cumulative_sum(lengths)


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([v is None for v in values], pa.bool_())


def _list(values: Sequence[Any], items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(values), items, mask=_nulls(values))


def _struct(values: Sequence[Any], kind: Type) -> pa.Array:
    _types(values, dict)
    if {len(v) for v in values if v is not None} - {len(kind.fields)}:
        raise UnusualError
    children = [
        _array([None if v is None else v[name] for v in values], field)
        for name, field in kind.fields
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=_nulls(values))


def _map(values: Sequence[Any], kind: Type) -> pa.Array:
    _types(values, dict)
    if kind.fields[0][1].name != "string":
        raise UnusualError
    names = pa.array([name for v in values if v for name in v], pa.string())
    items = _array([item for v in values if v for item in v.values()], kind.fields[1][1])
    return pa.MapArray.from_arrays(
        _offsets(values), names, items, type=arrow_type(kind), mask=_nulls(values)
    )


def _identifiers(values: Sequence[list[Any]], key: Sequence[tuple[str, Type]]) -> list[str]:
    """Return the document id or cache key of each row, as `identifier` does."""
    if len(key) == 1 and set(map(type, values[0])) == {str}:
        return values[0]
    texts = [_key_texts(column, part) for column, part in zip(values, key, strict=True)]
    if len(key) == 1:
        return texts[0]
    return [f"[{','.join(parts)}]" for parts in zip(*texts, strict=True)]


def _key_texts(values: list[Any], part: tuple[str, Type]) -> list[str]:
    """Return the texts of one part of the key."""
    types = set(map(type, values))
    if types == {int} and not part[1].is_float:
        return list(map(str, values))
    if types == {str}:
        return list(map(_quoted, values))
    # A key of one column that is a string has its text without quotes: of two it has none.
    return [identifier({part[0]: v}, [part]) if type(v) is not str else _quoted(v) for v in values]
