"""Parses a line of CSV as PostgreSQL does: an empty field without quotes is null. Pure."""

from __future__ import annotations

_QUOTE = b'"'


class SeparatedError(Exception):
    """A value is not a line of CSV."""


def fields_of(line: bytes, delimiter: bytes = b",") -> list[bytes | None]:
    """Return the fields of a line; None for null.

    >>> fields_of(b'1,,"","a ""b"" c"')
    [b'1', None, b'', b'a "b" c']

    Raises SeparatedError: a quote is not closed, or the line is more than one.
    """
    if _QUOTE not in line:
        if b"\n" in line or b"\r" in line:
            raise SeparatedError("it has more than one line")
        return [field or None for field in line.split(delimiter)]
    fields: list[bytes | None] = []
    place = 0
    while True:
        field, place = _next(line, place, delimiter)
        fields.append(field)
        if place == len(line):
            return fields
        place += 1
        if place == len(line):
            return [*fields, None]


def _next(line: bytes, place: int, delimiter: bytes) -> tuple[bytes | None, int]:
    """Return the field that begins at a place, and the place of the delimiter after it."""
    parts, is_quoted = bytearray(), False
    while place < len(line) and line[place : place + 1] != delimiter:
        if line[place : place + 1] != _QUOTE:
            if line[place] in b"\n\r":
                raise SeparatedError("it has more than one line")
            parts += line[place : place + 1]
            place += 1
            continue
        is_quoted = True
        end = line.find(_QUOTE, place + 1)
        while end >= 0 and line[end + 1 : end + 2] == _QUOTE:
            end = line.find(_QUOTE, end + 2)
        if end < 0:
            raise SeparatedError("a quote is not closed")
        parts += line[place + 1 : end].replace(b'""', _QUOTE)
        place = end + 1
    return (bytes(parts) if parts or is_quoted else None), place
