"""Values of a recorded log and PostgreSQL's texts of them, in one form that can be compared."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal

from changelog.contract.rows.text import parse_array

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - one spelling
_ARRAYS = {"ints", "texts", "big_texts", "big_ints", "big_longs", "big_uuids"}


def of_postgres(column, text):
    """Return PostgreSQL's text of a value in the common form."""
    if text is None:
        return None
    if column in _ARRAYS:
        items = parse_array(text.encode(), b",")
        assert items is not None, text
        return [None if each is None else each.decode() for each in items]
    return _OF_POSTGRES.get(column, str)(text)


def of_log(column, value):
    """Return a value of a state in the common form; texts of dates and times are Spark's."""
    if value is None:
        return None
    if column in _ARRAYS:
        items = json.loads(value) if isinstance(value, str) else value
        return [None if each is None else str(each) for each in items]
    return _OF_LOG.get(column, str)(value)


def _micros(text):
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)  # noqa: UP017
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _digits(value):
    if value.startswith("{"):  # Debezium's decimal of any scale, as JSON has it
        found = json.loads(value)
        unscaled = int.from_bytes(base64.b64decode(found["value"]), "big", signed=True)
        return Decimal(unscaled).scaleb(-found["scale"])
    return Decimal(value)


def _single(value):
    return repr(struct.unpack("<f", struct.pack("<f", float(value)))[0])


_OF_POSTGRES: dict[str, Callable[[str], object]] = {
    "n": Decimal,
    "big_number": Decimal,
    "d": Decimal,
    "f4": _single,
    "f8": lambda text: repr(float(text)),
    "b": lambda text: text == "t",
    "by": lambda text: bytes.fromhex(text[2:]),
    "big_bytes": lambda text: bytes.fromhex(text[2:]),
    "ts": _micros,
    "ts3": _micros,
    "tz": lambda text: _micros(f"{text}:00"),
    "tm": lambda text: _micros(f"1970-01-01T{text}"),
}
_OF_LOG: dict[str, Callable[..., object]] = {
    "n": _digits,
    "big_number": _digits,
    "d": Decimal,
    "f4": _single,
    "f8": lambda value: repr(float(value)),
    "b": bool,
    "by": bytes,
    "big_bytes": bytes,
    "ts": lambda value: value if isinstance(value, int) else _micros(value),
    "ts3": lambda value: value * 1000 if isinstance(value, int) else _micros(value),
    "tz": _micros,
    "tm": int,
}
