"""Framed records to plain values, under the schema that each of them names.

What fastavro makes of logical types fails on values that Avro allows (infinities, years before 1
and past 9999), and without them it does not tell which branch of a union was taken. So each type
that JSON has no form for is renamed to one of ours, whose reader fastavro calls on the bare value.
The forms are those of `changelog.contract.forms.document`: numbers with a point as texts, bytes in
base64, time in ISO 8601.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import orjson
from fastavro.read import LOGICAL_READERS

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.moments import date_text, moment_text, time_text
from changelog.contract.rows.codec import unframe
from changelog.contract.rows.harmless_schema import check_tame
from changelog.contract.rows.text import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)

_OURS = "changelog-"
_ENDLESS = "endless"
"""Attribute of a date or timestamp of our log, whose two ends stand for infinities."""

_KEPT = {"type", "name", "namespace", "fields", "items", "values", "symbols", "size", "length"}
DIGITS, BITS = "debezium-digits", "debezium-bits"
"""Logical types for `prepare`: a record of scale and value as the text of its number, and bytes,
the lowest first, as the text of so many bits as their `length` says."""

_LEAST_SCALE, _MOST_SCALE = -131_072, 16_383
"""Digits of a numeric of PostgreSQL, before and behind the point: of others a few bytes would be
gigabytes."""
_MOST_ZEROS = 1 << 16
_FLOAT_DIGITS = range(6, 10)
_FLOAT = struct.Struct("<f")
_MALFORMED = (
    ValueError,
    IndexError,
    EOFError,
    struct.error,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class FramedReader:
    """Reads framed values; a schema is asked for once."""

    def __init__(
        self,
        schema: Callable[[int], tuple[str, str]],
        *,
        prepare: Callable[[Any], Any] = lambda raw: raw,
    ) -> None:
        """Take what gives schemas.

        Args:
            schema: gives the kind (AVRO, JSON, …) and the text of the schema of an id.
            prepare: makes of an Avro schema the one that is read by, whose bodies are the same.
        """
        for name, read in _READERS.items():
            LOGICAL_READERS[name] = read
        self._schema, self._prepare = schema, prepare
        self._readers: dict[int, Callable[[bytes], Any]] = {}

    def __call__(self, raw: bytes) -> Any:  # noqa: ANN401 - any JSON
        """Return a value in types that orjson writes exactly.

        Raises:
            CorruptRecordError: it does not decode.
            LogError: the registry refuses, or does not answer.
        """
        number, body = unframe(raw)
        read = self._readers.get(number)
        if read is None:
            read = self._readers[number] = self._reader(number)
        return read(body)

    def _reader(self, number: int) -> Callable[[bytes], Any]:
        kind, text = self._schema(number)
        if kind == "JSON":
            return _document
        if kind != "AVRO":
            raise CorruptRecordError(f"its schema {number} is of the type {kind}")
        check_tame(text, f"schema {number}")
        try:
            parsed: Any = fastavro.parse_schema(marked(self._prepare(json.loads(text))))
        except (*_MALFORMED, fastavro.schema.SchemaParseException) as error:
            raise CorruptRecordError(f"schema {number} cannot be used: {error}") from error

        def read(body: bytes) -> Any:  # noqa: ANN401 - any JSON
            source = BytesIO(body)
            try:
                found = fastavro.schemaless_reader(source, parsed, None)
            except _MALFORMED as error:
                raise CorruptRecordError(
                    f"it does not decode by schema {number}: {error!r}"
                ) from error
            if source.tell() != len(body):
                raise CorruptRecordError(
                    f"{len(body) - source.tell()} bytes are left over behind schema {number}"
                )
            return found

        return read


def dumped(found: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Return a document of JSON, in no more memory than it needs.

    orjson shrinks a kilobyte to each result, and a batch of these costs ten times the time of its
    copies: the kilobyte of one is that of the next.
    """
    return b"%b" % orjson.dumps(found)


def _document(body: bytes) -> orjson.Fragment:
    return orjson.Fragment(one_line(body))


def one_line(document: bytes) -> bytes:
    r"""Return a JSON document as it is written, on one line.

    >>> one_line(b'{"a":\n 1.10}')
    b'{"a":  1.10}'

    Raises:
        CorruptRecordError: it is none.
    """
    try:
        orjson.loads(document)
    except ValueError as error:
        raise CorruptRecordError(f"it is no JSON document: {error}") from error
    # A line's end in a string would be escaped, so that each one stands between two tokens.
    return document.strip().replace(b"\n", b" ").replace(b"\r", b" ")


def marked(raw: Any, *, endless: bool = False) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    """Return a schema whose types are renamed so that our readers are called.

    Args:
        raw: the schema.
        endless: whether the ends of dates and timestamps are infinities, as on our log.
    """
    match raw:
        case list():
            return [marked(each, endless=endless) for each in raw]
        case str():
            simple = f"{raw}-{_OURS}{raw}"
            return {"type": raw, "logicalType": _OURS + raw} if simple in _READERS else raw
        case {"type": dict() | list() as inner}:
            return marked(inner, endless=endless)
        case dict():
            return _marked_type(raw, endless=endless)
        case _:
            return raw


def _marked_type(raw: dict[str, Any], *, endless: bool) -> dict[str, Any]:
    kept = {name: each for name, each in raw.items() if name in _KEPT}
    for name in kept.keys() & {"items", "values"}:
        kept[name] = marked(kept[name], endless=endless)
    if "fields" in kept:
        kept["fields"] = [
            {"name": each["name"], "type": marked(each["type"], endless="pg_type" in each)}
            for each in kept["fields"]
        ]
    said = raw.get("logicalType", raw["type"])
    for logical in (said, raw["type"]):  # one that does not fit its type counts for nothing
        if f"{raw['type']}-{_OURS}{logical}" in _READERS:
            more = {"scale": raw.get("scale", 0), _ENDLESS: endless}
            return {**kept, **more, "logicalType": f"{_OURS}{logical}"}
    return kept


def _double(value: float, *_: Any) -> float | str:  # noqa: ANN401
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float, *_: Any) -> float | str:  # noqa: ANN401
    """Return the shortest number that reads back as the same 32 bits."""
    if not math.isfinite(value):
        return _double(value)
    raw = _FLOAT.pack(value)
    shown = (float(f"{value:.{digits}g}") for digits in _FLOAT_DIGITS)
    return next((each for each in shown if _packed(each) == raw), value)


def _packed(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except OverflowError:  # rounded up past the largest one
        return b""


def _base64(value: bytes, *_: Any) -> str:  # noqa: ANN401
    return b64encode(value).decode("ascii")


def decimal_text(value: bytes, scale: int) -> str:
    """Return the text of a decimal whose digits are a whole number, the highest byte first.

    Raises:
        CorruptRecordError: PostgreSQL has no such scale.
    """
    unscaled = int.from_bytes(value, "big", signed=True)
    if not _LEAST_SCALE <= scale <= _MOST_SCALE:
        raise CorruptRecordError(f"a decimal has the scale {scale}, which PostgreSQL has not")
    sign = "-" if unscaled < 0 else ""
    if scale <= 0:
        return f"{unscaled}{'0' * -scale}" if unscaled else "0"
    digits = str(abs(unscaled)).zfill(scale + 1)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _decimal(value: bytes, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    return decimal_text(value, int(schema["scale"]))


def _date(value: int, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    if schema[_ENDLESS] and value in {DATE_INFINITY, DATE_MINUS_INFINITY}:
        return "infinity" if value > 0 else "-infinity"
    return date_text(value)


def _moment(digits: int, *, zoned: bool) -> Callable[..., str]:
    def read(value: int, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
        if schema[_ENDLESS] and value in {TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY}:
            return "infinity" if value > 0 else "-infinity"
        return moment_text(value, digits=digits, zoned=zoned)

    return read


def _time(digits: int) -> Callable[..., str]:
    return lambda value, *_: time_text(value, digits=digits)


def _digits(value: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    return decimal_text(b64decode(value["value"]), int(value["scale"]))


def _bits(value: bytes, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    return bits_text(value, int(schema.get("length", 1)))


def bits_text(value: bytes, length: int) -> str:
    """Return so many bits as text; the lowest byte comes first.

    Raises:
        CorruptRecordError: there are far less bytes.
    """
    if length > max(_MOST_ZEROS, 8 * len(value)):
        raise CorruptRecordError(f"{len(value)} bytes stand for {length} bits")
    return f"{int.from_bytes(value, 'little'):b}".zfill(length)


_READERS: dict[str, Callable[..., Any]] = {
    f"record-{_OURS}{DIGITS}": _digits,
    f"bytes-{_OURS}{BITS}": _bits,
    f"float-{_OURS}float": _float,
    f"double-{_OURS}double": _double,
    f"bytes-{_OURS}bytes": _base64,
    f"fixed-{_OURS}fixed": _base64,
    f"bytes-{_OURS}decimal": _decimal,
    f"fixed-{_OURS}decimal": _decimal,
    f"int-{_OURS}date": _date,
    f"int-{_OURS}time-millis": _time(3),
    f"long-{_OURS}time-micros": _time(6),
    **{
        f"long-{_OURS}{zone}timestamp-{unit}": _moment(digits, zoned=not zone)
        for zone in ("", "local-")
        for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
    },
}
