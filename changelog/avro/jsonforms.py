"""Avro values as JSON has them, in one walk by fastavro.

Without logical types fastavro does not tell which branch of a union was taken. So each type that
JSON has no form for is renamed to one of ours, whose writer fastavro calls on the raw value.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from fastavro.read import LOGICAL_READERS

from changelog.avro.bodies import BodyReader
from changelog.avro.decimals import decimal_text
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.moments import date_text, moment_text, time_text
from changelog.contract.rows.text import (
    DATE_ENDS,
    TIMESTAMP_ENDS,
)

_ENDLESS = "endless"
"""Attribute of a date or timestamp of our log, whose two ends stand for infinities."""

_KEPT = {"type", "name", "namespace", "fields", "items", "values", "symbols", "size", "length"}
DIGITS, BITS = "debezium-digits", "debezium-bits"
"""Logical types of ours: a record of scale and value as the text of its number, and bytes, the
lowest first, as the text of so many bits as their `length` says."""

_MOST_ZEROS = 1 << 16
_FLOAT_DIGITS = range(6, 10)
_FLOAT = struct.Struct("<f")
Writer = Callable[..., Any]
"""Returns the JSON of a raw value; takes the value, its schema, and a thing that nobody needs."""


class JsonForm:
    """How values that JSON has no form for are written.

    No two have the same name. Writers are by a type and its logical type, or the type twice.
    """

    def __init__(self, name: str, writers: Mapping[tuple[str, str], Writer]) -> None:
        self.writers = writers
        self._name = name

    def reader(self, schema: Any) -> BodyReader:  # noqa: ANN401 - an Avro schema is JSON
        """Return a schema's reader, whose values are of types that orjson writes exactly."""
        for (plain, logical), write in self.writers.items():
            LOGICAL_READERS[f"{plain}-{self._named(logical)}"] = write
        return BodyReader(self._marked(schema, endless=False))

    def _named(self, logical: str) -> str:
        return f"changelog-{self._name}-{logical}"

    def _marked(self, raw: Any, *, endless: bool) -> Any:  # noqa: ANN401 - an Avro schema is JSON
        """Return a schema whose types have the names of our writers.

        `endless` says whether the ends of dates and timestamps are infinities, as on our log.
        """
        match raw:
            case list():
                return [self._marked(branch, endless=endless) for branch in raw]
            case str():
                is_ours = (raw, raw) in self.writers
                return {"type": raw, "logicalType": self._named(raw)} if is_ours else raw
            case {"type": dict() | list() as inner}:
                return self._marked(inner, endless=endless)
            case dict():
                return self._marked_type(raw, endless=endless)
            case _:
                return raw

    def _marked_type(self, raw: dict[str, Any], *, endless: bool) -> dict[str, Any]:
        kept = {name: value for name, value in raw.items() if name in _KEPT}
        for name in kept.keys() & {"items", "values"}:
            kept[name] = self._marked(kept[name], endless=endless)
        if "fields" in kept:
            kept["fields"] = [
                {
                    "name": field["name"],
                    "type": self._marked(field["type"], endless="pg_type" in field),
                }
                for field in kept["fields"]
            ]
        meaning = raw.get("logicalType", raw["type"])
        for logical in (meaning, raw["type"]):  # one that does not fit its type counts for nothing
            if (raw["type"], logical) in self.writers:
                more = {"scale": raw.get("scale", 0), _ENDLESS: endless}
                return {**kept, **more, "logicalType": self._named(logical)}
        return kept


def number(value: float, *_: Any) -> float | str:  # noqa: ANN401
    """Return a double; as a text where it is no number of JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float, *_: Any) -> float | str:  # noqa: ANN401
    """Return the shortest number that reads back as the same 32 bits."""
    if not math.isfinite(value):
        return number(value)
    raw = _FLOAT.pack(value)
    shown = (float(f"{value:.{digits}g}") for digits in _FLOAT_DIGITS)
    return next((candidate for candidate in shown if _packed(candidate) == raw), value)


def _packed(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except OverflowError:  # rounded up past the largest one
        return b""


def base64_text(value: bytes, *_: Any) -> str:  # noqa: ANN401
    """Return bytes in base64."""
    return b64encode(value).decode("ascii")


def decimal(value: bytes, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    """Return a decimal's text, with all its digits."""
    return decimal_text(value, int(schema["scale"]))


def _date(value: int, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    if schema.get(_ENDLESS) and value in DATE_ENDS:
        return DATE_ENDS[value]
    return date_text(value)


def _moment(digits: int, *, zoned: bool) -> Callable[..., str]:
    def read(value: int, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
        if schema.get(_ENDLESS) and value in TIMESTAMP_ENDS:
            return TIMESTAMP_ENDS[value]
        return moment_text(value, digits=digits, zoned=zoned)

    return read


def _time(digits: int) -> Callable[..., str]:
    return lambda value, *_: time_text(value, digits=digits)


def _digits(value: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    return decimal_text(b64decode(value["value"]), int(value["scale"]))


def _bits(value: bytes, schema: dict[str, Any], *_: Any) -> str:  # noqa: ANN401
    length = int(schema.get("length", 1))
    if length > max(_MOST_ZEROS, 8 * len(value)):
        raise CorruptRecordError(f"{len(value)} bytes stand for {length} bits")
    return f"{int.from_bytes(value, 'little'):b}".zfill(length)


LOG_FORM = JsonForm(
    "log",
    {
        ("record", DIGITS): _digits,
        ("bytes", BITS): _bits,
        ("float", "float"): _float,
        ("double", "double"): number,
        ("bytes", "bytes"): base64_text,
        ("fixed", "fixed"): base64_text,
        ("bytes", "decimal"): decimal,
        ("fixed", "decimal"): decimal,
        ("int", "date"): _date,
        ("int", "time-millis"): _time(3),
        ("long", "time-micros"): _time(6),
        **{
            ("long", f"{zone}timestamp-{unit}"): _moment(digits, zoned=not zone)
            for zone in ("", "local-")
            for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
        },
    },
)
"""The form of the documents that capture writes."""
