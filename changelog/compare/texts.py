"""Canonical texts of values: how they are written, normalised and shown. Pure.

The servers write most values canonically by themselves (`changelog/compare/postgres_texts.py`,
`changelog/compare/duckdb_texts.py`), and equal texts are equal values. Where two texts differ,
`normal` decides: it returns the same text for all texts of a value, such as 1.50 and 1.5.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from changelog.compare.forms import CompareForm, TypeFamily
from changelog.contract.rows.text import parse_array

RAW = "="
"""Marks the text of a float or of bytes that the server stores as text.

No canonical text begins with it.
"""

_FLOATS = {TypeFamily.REAL: struct.Struct(">f"), TypeFamily.DOUBLE: struct.Struct(">d")}
_BITS = {
    TypeFamily.REAL: re.compile(r"[0-9a-f]{8}"),
    TypeFamily.DOUBLE: re.compile(r"[0-9a-f]{16}"),
}
_ENDS = {"infinity": "infinity", "-infinity": "-infinity", "+infinity": "infinity"}
_QUOTED = re.compile(r'[\t-\r "\\(),]')
_ESCAPED = re.compile(r'(["\\])')
_MOMENT = re.compile(
    r"(\d{4,6})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?( BC)?"
)
_ISO_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-])?(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)
_BOUNDED = re.compile(r"\[-?\d+:-?\d+\]=(\{.*\})", re.DOTALL)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?")
_DIGIT = re.compile(r"[0-9]")
_MICROSECOND_DIGITS = 6
_LAST_YEAR = 9999
_TRUE, _FALSE = {"t", "true"}, {"f", "false"}
_MOST_DIGITS = 20_000
_LONGEST_NUMBER = 200_000
"""More digits than a number of `jsonb` has; written out they could fill the memory."""


def row_text(texts: Sequence[str | None]) -> str:
    """Return the canonical text of a row, as PostgreSQL writes rows.

    >>> row_text(["1", None, "", "a,b"])
    '(1,,"","a,b")'
    """
    return f"({','.join(map(_member, texts))})"


def _member(text: str | None) -> str:
    if text is None:
        return ""
    if text and not _QUOTED.search(text):
        return text
    return '"' + _ESCAPED.sub(r"\1\1", text) + '"'


def normal(form: CompareForm, text: str) -> str:
    """Return the same text for all texts of a value; a text that is invalid stays as it is."""
    if form.is_list:
        return _normal_list(form.kind, text)
    return _normal(form.kind, text)


def _normal(kind: TypeFamily, text: str) -> str:  # noqa: PLR0911 - one per family
    match kind:
        case TypeFamily.INTEGER | TypeFamily.NUMERIC:
            return _number(text)
        case TypeFamily.REAL | TypeFamily.DOUBLE:
            return _float_of_text(kind, text)
        case TypeFamily.PADDED:
            return text.rstrip(" ")
        case TypeFamily.BOOLEAN:
            word = text.lower()
            return "t" if word in _TRUE else "f" if word in _FALSE else text
        case TypeFamily.BYTES:
            return _bytes_of_text(text)
        case TypeFamily.UUID:
            return _uuid(text)
        case TypeFamily.JSON:
            return _json(text)
        case TypeFamily.DATE | TypeFamily.TIMESTAMP:
            return _moment(kind, text)
        case TypeFamily.TIME:
            return _time(text)
        case TypeFamily.INTERVAL:
            return _interval(text)
        case TypeFamily.TEXT | TypeFamily.PLAIN | TypeFamily.EMPTY | TypeFamily.OPAQUE:
            return text


def _normal_list(kind: TypeFamily, text: str) -> str:
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, list):
        return text
    texts = [
        None if value is None else _normal(kind, value) if isinstance(value, str) else str(value)
        for value in values
    ]
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def _number(text: str) -> str:
    word = text.strip().lower()
    if word in {"nan", "infinity", "-infinity"}:
        return {"nan": "NaN", "infinity": "Infinity", "-infinity": "-Infinity"}[word]
    try:
        value = Decimal(word if word.isascii() else "")  # it would take the digits of any script
    except InvalidOperation:
        return text
    return _decimal(value) if value.is_finite() else text


def _decimal(value: Decimal) -> str:
    """Return a decimal without trailing zeros, with an exponent only if that is very large."""
    sign, digits, exponent = value.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    power = int(exponent) + len(digits) - len(significant)
    if not significant:
        return "0"
    if abs(power) > _MOST_DIGITS:
        return f"{'-' if sign else ''}{significant}E{power}"
    return format(Decimal((sign, digits[: len(significant)], power)), "f")


def _float_of_text(kind: TypeFamily, text: str) -> str:
    if _BITS[kind].fullmatch(text):
        return float_text(kind, _FLOATS[kind].unpack(bytes.fromhex(text))[0])
    try:
        bits = float_text(kind, float(text.removeprefix(RAW).replace("_", "x")))
    except (ValueError, OverflowError):
        return text
    (value,) = _FLOATS[kind].unpack(bytes.fromhex(bits))
    is_number = _DIGIT.search(text) is not None
    is_out_of_range = math.isinf(value) or (value == 0 and _number(text.removeprefix(RAW)) != "0")
    return text if is_number and is_out_of_range else bits


def float_text(kind: TypeFamily, value: float) -> str:
    """Return the bits of a float in hexadecimal; the same for every NaN."""
    return _FLOATS[kind].pack(math.nan if math.isnan(value) else value).hex()


def _bytes_of_text(text: str) -> str:
    r"""Return bytes in hexadecimal from the text of another program: base64, or \x and digits."""
    if not text.startswith(RAW):
        return text
    raw = text.removeprefix(RAW)
    try:
        if raw.startswith("\\x"):
            return bytes.fromhex(raw[2:]).hex()
        return base64.b64decode(raw, validate=True).hex()
    except (ValueError, binascii.Error):
        return text


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        return text


def _json(text: str) -> str:
    try:
        return json_text(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    except (ValueError, RecursionError):
        return text


def jsonb_text(text: str) -> str:
    """Return a JSON text as `jsonb` writes it; a text that is not JSON stays as it is.

    >>> jsonb_text('{"bb":1e2, "a" : [ ]}')
    '{"a": [], "bb": 100}'
    """
    try:
        return _as_jsonb(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    except (ValueError, RecursionError):
        return text


def document_json(text: str) -> str:
    """Return the JSON of a document's field as `jsonb` writes it, from the text of the field.

    A JSON value stands in a document either as it is or as a string that has its text. A string
    that is not JSON is the value itself.

    >>> document_json('{"a":1}'), document_json("plain")
    ('{"a": 1}', '"plain"')
    """
    try:
        return _as_jsonb(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    except RecursionError:
        return text
    except ValueError:
        return _quote(text)


def document_list(text: str | None) -> list[str | None] | None:
    """Return the texts of a JSON array's elements, or None if the text is not an array of scalars.

    >>> document_list('["a",1.50,null]')
    ['a', '1.50', None]
    """
    if text is None or not text.startswith("["):
        return None
    if bounded := _BOUNDED.fullmatch(text):  # as PostgreSQL writes bounds that do not begin at 1
        return _array_texts(bounded[1])
    try:
        values = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if any(isinstance(value, list) for value in values):
        return None
    return [_element_text(value) for value in values]


def _array_texts(text: str) -> list[str | None] | None:
    """Return the texts of an array that PostgreSQL has written, or None if it is malformed."""
    try:
        items = parse_array(text.encode())
    except (IndexError, UnicodeEncodeError):
        return None
    return None if items is None else [item if item is None else item.decode() for item in items]


def _element_text(value: Any) -> str | None:  # noqa: ANN401 - any JSON
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return str(value)
        case _:
            return json_text(value)


def _as_jsonb(value: Any) -> str:  # noqa: ANN401 - any JSON
    match value:
        case None | bool():
            return json.dumps(value)
        case int() | float() | Decimal():
            number = Decimal(str(value))
            if abs(number.adjusted()) > _LONGEST_NUMBER:
                return str(number)
            plain = format(number, "f")
            return plain.removeprefix("-") if not value else plain
        case dict():
            members = [(name, value[name]) for name in sorted(value, key=_by_length)]
            texts = (f"{_quote(name)}: {_as_jsonb(member)}" for name, member in members)
            return "{" + ", ".join(texts) + "}"
        case list():
            return "[" + ", ".join(map(_as_jsonb, value)) + "]"
        case _:
            return _quote(str(value))


def _by_length(name: str) -> tuple[int, bytes]:
    raw = name.encode("utf-8", "surrogatepass")
    return len(raw), raw


def json_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the normal text of a JSON value: members sorted, numbers normalised, no blanks."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int() | float() | Decimal():
            return _number(str(value))
        case dict():
            members = sorted(value.items())
            return (
                "{"
                + ",".join(f"{_quote(name)}:{json_text(member)}" for name, member in members)
                + "}"
            )
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case _:
            return _quote(str(value))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _moment(kind: TypeFamily, text: str) -> str:
    word = text.strip()
    if word.lower() in _ENDS:
        return _ENDS[word.lower()]
    parts = _MOMENT.fullmatch(word)
    if parts is None:
        return text
    year, month, day, hour, minute, second, fraction, zone, era = parts.groups()
    fraction = (fraction or "").rstrip("0")
    if zone and zone != "Z" and zone.strip("+-0:"):
        if era or len(fraction) > _MICROSECOND_DIGITS or int(year) > _LAST_YEAR:
            return text
        return _shifted(word, kind, text)
    shown_day = f"{year}-{month}-{day}"
    is_midnight = not fraction and {hour, minute, second} <= {None, "00"}
    if kind is TypeFamily.DATE:
        return shown_day + (era or "") if is_midnight else text
    clock = f"{hour or '00'}:{minute or '00'}:{second or '00'}"
    return f"{shown_day} {clock}{'.' if fraction else ''}{fraction}{era or ''}"


def _shifted(word: str, kind: TypeFamily, text: str) -> str:
    try:
        moment = datetime.fromisoformat(word).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return _moment(kind, moment.replace(tzinfo=None).isoformat(" "))


def _time(text: str) -> str:
    parts = _TIME.fullmatch(text.strip())
    if parts is None:
        return text
    hour, minute, second, fraction = parts.groups()
    fraction = (fraction or "").rstrip("0")
    return f"{hour}:{minute}:{second or '00'}{'.' if fraction else ''}{fraction}"


def _interval(text: str) -> str:
    """Return months, days and microseconds of PostgreSQL's text or of ISO 8601."""
    if parts := _ISO_INTERVAL.fullmatch(text):
        years, months, weeks, days, hours, minutes, seconds = (
            Decimal(p or 0) for p in parts.groups()
        )
        days += 7 * weeks
    elif parts := _INTERVAL.fullmatch(text):
        years, months, days = (Decimal(part or 0) for part in parts.groups()[:3])
        sign = -1 if parts[4] == "-" else 1
        hours, minutes, seconds = (sign * Decimal(part or 0) for part in parts.groups()[4:])
    else:
        return text
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    if not text[-1:].strip("PT") or micros != int(micros):
        return text
    return f"{12 * years + months} {days} {int(micros)}"


def shown(form: CompareForm, text: str | None) -> str | None:
    r"""Return a canonical text as people read it: a float as a number, bytes with `\x`."""
    if text is None or form.is_list:
        return text
    if form.kind in _FLOATS and _BITS[form.kind].fullmatch(text):
        (value,) = _FLOATS[form.kind].unpack(bytes.fromhex(text))
        return _float_shown(form.kind, value)
    if form.kind is TypeFamily.BYTES and not text.startswith(RAW):
        return f"\\x{text}"
    return text.removeprefix(RAW) if form.kind in {*_FLOATS, TypeFamily.BYTES} else text


def _float_shown(kind: TypeFamily, value: float) -> str:
    """Return the shortest decimal number that reads back as the same float."""
    if kind is TypeFamily.DOUBLE or not math.isfinite(value):
        return repr(value)
    packed = _FLOATS[kind].pack(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        with suppress(OverflowError):  # few digits of the largest are more than the largest
            if _FLOATS[kind].pack(float(text)) == packed:
                return repr(float(text))
    return repr(value)
