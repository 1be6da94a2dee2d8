"""Convert values of other programs' records to bare ones, by the verifier's own code."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from changelog.contract.forms.declared import DIGITS, MILLIS, ValueShape
from changelog.contract.rows.types import ColumnType, Kind
from views.verify.values.faults import FaultError

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH = date(1970, 1, 1)
_MOMENT0 = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - one spelling for both uses


class Literal(str):
    """A number of a JSON document, as the characters that it had there."""

    __slots__ = ()


def parse(raw: bytes) -> Any:  # noqa: ANN401
    """Parse JSON; numbers stay characters.

    Raises FaultError: a member is there twice, or a number is NaN or infinite; ValueError: it is no
    JSON.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members_by_name = dict(pairs)
        if len(members_by_name) < len(pairs):
            raise FaultError("a member is there twice")
        return members_by_name

    def constant(name: str) -> Any:  # noqa: ANN401
        raise FaultError(f"{name} is no JSON")

    return json.loads(
        raw.decode(),
        parse_int=Literal,
        parse_float=Literal,
        parse_constant=constant,
        object_pairs_hook=members,
    )


Taker = Callable[[Any], Any]
"""Converts a value that is not null to its bare form; raises FaultError or ValueError."""


def taker(kind: ColumnType, shape: ValueShape) -> Taker:
    """Return the taker of a column's type."""
    if shape.is_avro:
        if kind.name == MILLIS:
            return lambda value: 1000 * value
        if kind.name == DIGITS:
            return _written_out
        return _checked_decimal(kind) if kind.kind is Kind.DECIMAL else lambda value: value
    if kind.element is not None:
        one = taker(kind.element, shape)
        return lambda values: [*map(one, values)]
    if kind.kind is Kind.DECIMAL:
        return _json_decimal(kind)
    return _FROM_JSON[kind.kind]


def _written_out(value: dict[str, Any]) -> str:
    unscaled, scale = int.from_bytes(value["value"], "big", signed=True), value["scale"]
    if not -131_072 <= scale <= 16_383:  # noqa: PLR2004 - PostgreSQL's numerics have no other
        raise FaultError(f"{scale} is no scale of a numeric")
    digits = str(abs(unscaled)) + "0" * -scale
    if scale > 0:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if unscaled < 0 else digits


def _checked_decimal(kind: ColumnType) -> Taker:
    def take(value: bytes) -> bytes:
        if abs(int.from_bytes(value, "big", signed=True)) >= 10**kind.precision:
            raise FaultError(f"more than {kind.precision} digits")
        return value

    return take


def _json_decimal(kind: ColumnType) -> Taker:
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])

    def take(value: Any) -> bytes:  # noqa: ANN401
        if not isinstance(value, str):
            raise FaultError(f"{value!r} is no decimal")
        number = Decimal(value)
        if not number.is_finite():
            raise FaultError(f"{value} is no decimal")
        exact = number.quantize(Decimal(1).scaleb(-kind.scale), context=context)
        unscaled = int(exact.scaleb(kind.scale, context=Context(prec=60)))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)

    return take


def _whole_number(bits: int) -> Taker:
    def take(value: Any) -> int:  # noqa: ANN401
        if not isinstance(value, Literal) or not value.lstrip("-").isdigit():
            raise FaultError(f"{value!r} is no integer")
        number = int(value)
        if not -(2**bits) <= number < 2**bits:
            raise FaultError(f"{value} has more than {bits + 1} bits")
        return number

    return take


def _double(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, Literal) and math.isfinite(number := float(value)):
        return number
    if not isinstance(value, Literal) and value in _NUMBERS:
        return _NUMBERS[value]
    raise FaultError(f"{value!r} is no double")


def _single(value: Any) -> float:  # noqa: ANN401
    return float(struct.unpack(">f", struct.pack(">f", _double(value)))[0])


def _truth(value: Any) -> bool:  # noqa: ANN401
    if value is True or value is False:
        return bool(value)
    raise FaultError(f"{value!r} is no boolean")


def _characters(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        inner = (f"{json.dumps(k, ensure_ascii=False)}:{_inner(v)}" for k, v in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_inner, value)) + "]"
    return json.dumps(value)


def _inner(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str) and not isinstance(value, Literal):
        return json.dumps(value, ensure_ascii=False)
    return _characters(value)


def _octets(value: Any) -> bytes:  # noqa: ANN401
    if not isinstance(value, str) or isinstance(value, Literal):
        raise FaultError(f"{value!r} is no base64")
    return base64.b64decode(value, validate=True)


def _day(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, Literal):
        return int(_whole_number(31)(value))
    if len(value) != len("2024-01-31"):
        raise FaultError(f"{value!r} is no date")
    return (date.fromisoformat(value) - _EPOCH).days


def _instant(*, zoned: bool) -> Taker:
    def take(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, Literal) or not isinstance(value, str):
            raise FaultError(f"{value!r} is no moment")
        text, fraction = value.replace(" ", "T"), ""
        if "." in text:
            head, _, tail = text.partition(".")
            fraction = tail[: len(tail) - len(tail.lstrip("0123456789"))]
            text = head + tail[len(fraction) :]
        if len(text) < len("2024-01-31T00:00:00") or fraction[6:].strip("0"):
            raise FaultError(f"{value!r} is no moment of whole microseconds")
        moment = datetime.fromisoformat(text)
        if (moment.tzinfo is not None) is not zoned:
            raise FaultError(f"{value!r} has {'no' if zoned else 'a'} zone")
        since = (moment if zoned else moment.replace(tzinfo=timezone.utc)) - _MOMENT0  # noqa: UP017
        return since // timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))

    return take


_FROM_JSON: dict[Kind, Taker] = {
    Kind.BOOLEAN: _truth,
    Kind.INT: _whole_number(31),
    Kind.LONG: _whole_number(63),
    Kind.FLOAT: _single,
    Kind.DOUBLE: _double,
    Kind.STRING: _characters,
    Kind.BYTES: _octets,
    Kind.DATE: _day,
    Kind.TIMESTAMP: _instant(zoned=False),
    Kind.TIMESTAMPTZ: _instant(zoned=True),
}
