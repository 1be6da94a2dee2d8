"""Values in Avro's JSON encoding -> Avro's binary encoding, strictly.

A union's value is `null` or an object with one member, named as the branch; bytes are texts of
the characters U+0000 to U+00FF (Avro's specification, "JSON Encoding"). What is left out or not in
the schema, or does not fit its type, is an error: fastavro's own reader would drop it, or take a
default.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro

from changelog.avro.bodies import bare
from changelog.contract.rows.harmless_schema import check_tame
from changelog.contract.rows.text import encode_bytes, encode_long

JsonEncoder = Callable[[Any], bytes]
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_BITS = {"int": 31, "long": 63}
_INTEGER = re.compile(r"-?\d{1,20}")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MisfitError(ValueError):
    """A value does not fit its schema; the message has the place and no values."""


def json_encoder(text: str) -> JsonEncoder:
    """Return the encoder of a schema; it raises MisfitError.

    Numbers are `int`, `float`, or a subclass of `str` with their digits.

    Raises ValueError, KeyError, TypeError, SchemaParseException, CorruptRecordError: it is no
    schema of Avro, or one that costs too much to read.
    """
    check_tame(text, "the schema")
    return _encoder(fastavro.parse_schema(bare(json.loads(text))), {})


def _encoder(schema: Any, named: dict[str, JsonEncoder]) -> JsonEncoder:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        encoders = [_encoder(branch, named) for branch in schema]
        names = [_branch(branch) for branch in schema]
        return partial(_union, {name: (n, encoders[n]) for n, name in enumerate(names)})
    if isinstance(schema, str):
        return _SIMPLE.get(schema) or named[schema]  # no type contains itself
    encode: JsonEncoder
    match schema["type"]:
        case "record" | "error":
            fields = schema["fields"]
            encode = partial(_record, [(f["name"], _encoder(f["type"], named)) for f in fields])
        case "enum":
            encode = partial(_enum, {symbol: n for n, symbol in enumerate(schema["symbols"])})
        case "fixed":
            encode = partial(_fixed, schema["size"])
        case "array":
            encode = partial(_array, _encoder(schema["items"], named))
        case "map":
            encode = partial(_map, _encoder(schema["values"], named))
        case kind:
            encode = _encoder(kind, named)
    if "name" in schema:
        named[schema["name"]] = encode
    return encode


def _branch(schema: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(schema, str):
        return schema
    return str(schema["name"] if "name" in schema else schema["type"])


def _demand(condition: bool, expected: str) -> None:
    if not condition:
        raise MisfitError(f"it is not {expected}")


def _at(place: str, encode: JsonEncoder, value: Any) -> bytes:  # noqa: ANN401 - JSON
    try:
        return encode(value)
    except MisfitError as error:
        raise MisfitError(f"{place}: {error}") from None


def _union(branches: dict[str, tuple[int, JsonEncoder]], value: Any) -> bytes:  # noqa: ANN401
    name = "null" if value is None else ""
    if isinstance(value, dict) and len(value) == 1:
        ((name, value),) = value.items()
    expected = " or ".join("null" if n == "null" else f'{{"{n}": …}}' for n in branches)
    _demand(name in branches, expected)
    place, encode = branches[name]
    return encode_long(place) + _at(name, encode, value)


def _record(fields: list[tuple[str, JsonEncoder]], value: Any) -> bytes:  # noqa: ANN401
    _demand(isinstance(value, dict), "an object")
    names = [name for name, _ in fields]
    if lacking := [name for name in names if name not in value]:
        raise MisfitError(f"{lacking[0]} is missing")
    if len(value) > len(names):
        raise MisfitError(f"{min(value.keys() - set(names))} is no field")
    return b"".join(_at(name, encode, value[name]) for name, encode in fields)


def _enum(places: dict[str, int], value: Any) -> bytes:  # noqa: ANN401
    _demand(type(value) is str and value in places, "a symbol of the enum")
    return encode_long(places[value])


def _latin(value: Any) -> bytes:  # noqa: ANN401
    _demand(type(value) is str, "a text")
    try:
        return str(value).encode("latin-1")
    except UnicodeEncodeError:
        raise MisfitError("it is not bytes: it has a character past U+00FF") from None


def _fixed(size: int, value: Any) -> bytes:  # noqa: ANN401
    raw = _latin(value)
    _demand(len(raw) == size, f"{size} bytes")
    return raw


def _array(encode: JsonEncoder, value: Any) -> bytes:  # noqa: ANN401
    _demand(isinstance(value, list), "an array")
    items = b"".join(_at(str(place), encode, item) for place, item in enumerate(value))
    return encode_long(len(value)) + items + b"\x00" if value else b"\x00"


def _map(encode: JsonEncoder, value: Any) -> bytes:  # noqa: ANN401
    _demand(isinstance(value, dict), "an object")
    items = b"".join(_string(name) + _at(name, encode, item) for name, item in value.items())
    return encode_long(len(value)) + items + b"\x00" if value else b"\x00"


def _null(value: Any) -> bytes:  # noqa: ANN401
    _demand(value is None, "null")
    return b""


def _boolean(value: Any) -> bytes:  # noqa: ANN401
    _demand(isinstance(value, bool), "a boolean")
    return b"\x01" if value else b"\x00"


def _integer(kind: str, value: Any) -> bytes:  # noqa: ANN401
    is_text = isinstance(value, str) and type(value) is not str and _INTEGER.fullmatch(value)
    _demand(bool(is_text) or type(value) is int, f"an {kind}" if kind == "int" else f"a {kind}")
    number, bits = int(value), _BITS[kind]
    _demand(-(1 << bits) <= number < 1 << bits, f"an integer of {bits + 1} bits")
    return encode_long(number)


def _float(form: struct.Struct, value: Any) -> bytes:  # noqa: ANN401
    if type(value) is str:
        _demand(value in _SPECIAL, "a number")
        return form.pack(_SPECIAL[value])
    _demand(isinstance(value, str | int | float) and not isinstance(value, bool), "a number")
    try:
        number = float(value)
        _demand(math.isfinite(number), "a number that fits")
        return form.pack(number)
    except OverflowError:
        raise MisfitError("it is not a number that fits") from None


def _string(value: Any) -> bytes:  # noqa: ANN401
    _demand(type(value) is str, "a text")
    try:
        return encode_bytes(str(value).encode("utf-8"))
    except UnicodeEncodeError:
        raise MisfitError("it has half of a surrogate pair") from None


_SIMPLE: dict[str, JsonEncoder] = {
    "null": _null,
    "boolean": _boolean,
    "int": partial(_integer, "int"),
    "long": partial(_integer, "long"),
    "float": partial(_float, _FLOAT),
    "double": partial(_float, _DOUBLE),
    "string": _string,
    "bytes": lambda value: encode_bytes(_latin(value)),
}
