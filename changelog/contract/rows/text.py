"""PostgreSQL's text output to the bytes of an Avro value, type by type.

The session settings `SESSION_SETTINGS` fix the text form; without them a role's own settings
change what the stream says. Integers travel as zig-zag variable-length numbers, see "Binary
Encoding" of the Avro specification.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal

from changelog.contract.base.errors import EncodeError
from changelog.contract.rows.types import ColumnType, Kind

SESSION_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "lc_monetary": "C",
    "search_path": "public",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
}
"""What every session that reads rows sets, so that a value has one text form.

`search_path` decides whether `regclass` and its like write a schema before a name, and
`quote_all_identifiers` whether they quote it. How a literal is read is no matter of values, but of
each statement: replication commands know no escapes.
"""

DATE_INFINITY = (1 << 31) - 1
DATE_MINUS_INFINITY = -(1 << 31)
TIMESTAMP_INFINITY = (1 << 63) - 1
TIMESTAMP_MINUS_INFINITY = -(1 << 63)
DATE_ENDS = {DATE_INFINITY: "infinity", DATE_MINUS_INFINITY: "-infinity"}
TIMESTAMP_ENDS = {TIMESTAMP_INFINITY: "infinity", TIMESTAMP_MINUS_INFINITY: "-infinity"}

Encoder = Callable[[bytes], bytes]


class TooLateError(EncodeError):
    """A timestamp is past the end of Avro's 64 bits."""


_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_QUAD = struct.Struct("<Q")
_UNIX_ORDINAL = date(1970, 1, 1).toordinal()
_UNIX_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what is compared with it has no zone either
_USUAL_MOMENT = 29  # characters of YYYY-MM-DD HH:MM:SS.ffffff+00
_DAY_US = 86_400_000_000
_ISO_DATE = 10  # characters of YYYY-MM-DD
_FLOAT_HALFWAY_BITS = 0x1000_0000  # the 29 bits of a double that a float lacks, at one half
_FLOAT_LOST_BITS = 0x1FFF_FFFF
_FLOAT_SMALLEST_HALF = 2.0**-150
_BOOLEANS = {b"t": b"\x01", b"f": b"\x00"}
SPECIAL_NUMBERS = {b"NaN", b"Infinity", b"-Infinity"}


def encode_long(value: int) -> bytes:
    """Encode an Avro int or long."""
    number = (value << 1) ^ (value >> 63)
    if number <= _SEVEN_BITS:
        return _ONE_BYTE[number]
    out = b""
    while number > _FOURTEEN_BITS:
        out += _TWO_BYTES[number & _FOURTEEN_BITS]
        number >>= 14
    if number > _SEVEN_BITS:
        return out + _ONE_BYTE[number & _SEVEN_BITS | 0x80] + _ONE_BYTE[number >> 7]
    return out + _ONE_BYTE[number]


_SEVEN_BITS = 0x7F
_FOURTEEN_BITS = 0x3FFF
_ONE_BYTE = [bytes([number]) for number in range(256)]
_TWO_BYTES = [
    bytes([number & _SEVEN_BITS | 0x80, number >> 7 | 0x80]) for number in range(_FOURTEEN_BITS + 1)
]
"""Fourteen bits of a number that has more of them; a long has up to five such pairs."""


def encode_bytes(raw: bytes) -> bytes:
    """Encode Avro bytes or an Avro string: the length, then the bytes."""
    return encode_long(len(raw)) + raw


def _integer(text: bytes) -> bytes:
    return encode_long(int(text))


def _boolean(text: bytes) -> bytes:
    try:
        return _BOOLEANS[text]
    except KeyError:
        raise EncodeError(f"boolean {text!r} is neither t nor f") from None


def float_bytes(text: bytes) -> bytes:
    """Round a decimal to the nearest float, once.

    `float` rounds to a double first. Where that double falls just between two floats, the second
    rounding no longer knows on which side the text was: `7.038531e-26` would come out one too low
    or too high. In that case the double is moved towards the text before it is rounded.
    """
    wide = float(text)
    packed = _FLOAT.pack(wide)
    (bits,) = _QUAD.unpack(_DOUBLE.pack(wide))
    halfway = bits & _FLOAT_LOST_BITS == _FLOAT_HALFWAY_BITS
    if halfway or abs(wide - _FLOAT.unpack(packed)[0]) == _FLOAT_SMALLEST_HALF:
        exact, rounded = Decimal(text.decode("ascii")), Decimal(wide)
        if exact != rounded:
            packed = _FLOAT.pack(math.nextafter(wide, math.inf if exact > rounded else -math.inf))
    return packed


def _bytea(text: bytes) -> bytes:
    if text[:2] != b"\\x":
        raise EncodeError("bytea is not in hex form: the session's bytea_output is not hex")
    return encode_bytes(bytes.fromhex(text[2:].decode("ascii")))


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date in the proleptic Gregorian calendar.

    Works for any year, 0 being 1 BC; `datetime.date` ends at 1 and 9999. The method counts in
    eras of 400 years that start on 1 March.
    """
    year -= month <= 2  # noqa: PLR2004 - January and February belong to the year before
    era, of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719_468


def _days(text: bytes, *, before_christ: bool) -> int:
    if len(text) == _ISO_DATE and not before_christ:
        return date.fromisoformat(text.decode("ascii")).toordinal() - _UNIX_ORDINAL
    year, month, day = (int(part) for part in text.split(b"-"))
    return days_from_civil(1 - year if before_christ else year, month, day)


def days_of(text: bytes) -> int:
    """Read the text of a `date`: days since 1970, or an end of the 32 bits for an infinity."""
    if text.endswith(b"infinity"):
        return DATE_MINUS_INFINITY if text[:1] == b"-" else DATE_INFINITY
    before_christ = text.endswith(b" BC")
    return _days(text[:-3] if before_christ else text, before_christ=before_christ)


def micros_of(text: bytes) -> int:
    """Read a `timestamp` or `timestamptz`: microseconds since 1970, or an end of the 64 bits.

    Raises TooLateError: the moment is later than 64 bits can say (in the year 294247).
    """
    if len(text) <= _USUAL_MOMENT and text[4:5] == b"-":
        with suppress(ValueError):
            moment = datetime.fromisoformat(text.removesuffix(b"+00").decode("ascii"))
            if moment.tzinfo is None:
                since = moment - _UNIX_EPOCH
                return since.days * _DAY_US + since.seconds * 1_000_000 + since.microseconds
    if text.endswith(b"infinity"):
        return TIMESTAMP_MINUS_INFINITY if text[:1] == b"-" else TIMESTAMP_INFINITY
    before_christ = text.endswith(b" BC")
    if before_christ:
        text = text[:-3]
    day, _, clock = text.partition(b" ")
    clock = clock.removesuffix(b"+00")
    if clock[8:9] not in {b"", b"."}:
        raise EncodeError(f"timestamp {text.decode()} is not in UTC: the session's timezone is not")
    fraction = clock[9:]
    micros = (int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + int(clock[6:8])) * 1_000_000
    if fraction:
        micros += int(fraction.ljust(6, b"0"))
    total = _days(day, before_christ=before_christ) * _DAY_US + micros
    if total >= TIMESTAMP_INFINITY:
        raise TooLateError(f"timestamp {text.decode()} does not fit 64 bits of microseconds")
    return total


def _timestamp(text: bytes) -> bytes:
    return encode_long(micros_of(text))


def decimal_bytes(text: bytes, scale: int) -> bytes:
    """Return a finite numeric as Avro's decimal: the unscaled number in two's complement, shortest.

    Raises EncodeError: it has more digits behind the point than `scale`.
    """
    whole, _, fraction = text.partition(b".")
    lacking = scale - len(fraction)
    if lacking >= 0:
        with suppress(ValueError):  # an exponent, or no number
            return _unscaled(int(whole + fraction) * 10**lacking)
    sign, digits, exponent = Decimal(text.decode("ascii")).as_tuple()
    if not isinstance(exponent, int) or -exponent > scale:
        raise EncodeError(f"numeric {text.decode()} does not fit scale {scale}")
    unscaled: int = int("".join(map(str, digits))) * 10 ** (scale + exponent)
    return _unscaled(-unscaled if sign else unscaled)


def _unscaled(unscaled: int) -> bytes:
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def parse_array(text: bytes, delimiter: bytes = b",") -> list[bytes | None] | None:
    """Split the text of a one-dimensional array; return None for other dimensions or bounds.

    Follows "Array Input and Output Syntax" of PostgreSQL's manual: a quoted element is taken
    literally but for backslashes, an unquoted NULL is a null.
    """
    if text == b"{}":
        return []
    if text[:1] != b"{" or text[1:2] == b"{":
        return None
    if b'"' not in text:
        return [None if item == b"NULL" else item for item in text[1:-1].split(delimiter)]
    items: list[bytes | None] = []
    place, end = 1, len(text) - 1
    while place < end:
        item, place = _array_item(text, place, end, delimiter)
        items.append(item)
        place += 1
    return items


def _array_item(text: bytes, place: int, end: int, delimiter: bytes) -> tuple[bytes | None, int]:
    if text[place] != ord('"'):
        stop = text.find(delimiter, place, end)
        stop = end if stop < 0 else stop
        item = text[place:stop]
        return (None if item == b"NULL" else item), stop
    out = bytearray()
    place += 1
    while text[place] != ord('"'):
        place += text[place] == ord("\\")
        out.append(text[place])
        place += 1
    return bytes(out), place + 1


def _array(element: Encoder) -> Callable[[list[bytes | None]], bytes]:
    def encode(items: list[bytes | None]) -> bytes:
        if not items:
            return b"\x00"
        body = [b"\x00" if item is None else b"\x02" + element(item) for item in items]
        return encode_long(len(items)) + b"".join(body) + b"\x00"

    return encode


_SIMPLE: dict[Kind, Encoder] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer,
    Kind.LONG: _integer,
    Kind.FLOAT: float_bytes,
    Kind.DOUBLE: lambda text: _DOUBLE.pack(float(text)),
    Kind.STRING: encode_bytes,
    Kind.BYTES: _bytea,
    Kind.DATE: lambda text: encode_long(days_of(text)),
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
    Kind.UUID: encode_bytes,
}


def branch_bytes(*, nullable: bool, null_second: bool) -> tuple[bytes, bytes]:
    """Return the branches of a column's union that are its type and, if it has one, its escape."""
    if not nullable:
        return b"\x00", b"\x02"
    return (b"\x00", b"\x04") if null_second else (b"\x02", b"\x04")


def encoder(kind: ColumnType, *, nullable: bool, null_second: bool = False) -> Encoder:
    """Return the function that turns a column's text into its Avro bytes, union branch included.

    The function does not take null: the caller writes `null_branch`. It raises EncodeError for a
    value without an exact Avro form. With `null_second` null is the union's second branch, as in a
    column with a default.
    """
    first, second = branch_bytes(nullable=nullable, null_second=null_second)
    if kind.kind is Kind.DECIMAL:

        def encode_decimal(text: bytes) -> bytes:
            if text in SPECIAL_NUMBERS:
                return second + encode_bytes(text)
            return first + encode_bytes(decimal_bytes(text, kind.scale))

        return encode_decimal
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None  # noqa: S101 - array_type always sets it
        array = _array(_SIMPLE[kind.element.kind])
        delimiter = kind.delimiter.encode()

        def encode_array(text: bytes) -> bytes:
            items = parse_array(text, delimiter)
            if items is not None:
                with suppress(TooLateError):
                    return first + array(items)
            return second + encode_bytes(text)

        return encode_array
    simple = _SIMPLE[kind.kind]
    return (lambda text: first + simple(text)) if nullable else simple


NULL_BRANCH = b"\x00"  # the first branch of a nullable union


def null_branch(*, null_second: bool) -> bytes:
    """Return a null of a nullable union."""
    return b"\x02" if null_second else NULL_BRANCH
