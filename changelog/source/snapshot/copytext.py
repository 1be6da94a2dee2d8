"""The text format of COPY, row by row. Pure."""

from __future__ import annotations

import re

from changelog.contract.rows.relation import Field

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NULL = b"\\N"


def parse_row(line: bytes) -> tuple[Field, ...]:
    """Split a line without its line feed into values."""
    fields = line.split(b"\t")
    if b"\\" not in line:
        return tuple(fields)
    return tuple([None if f == _NULL else _unescape(f) if b"\\" in f else f for f in fields])


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[1]), field)
