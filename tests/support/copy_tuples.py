"""Tuples of binary COPY, read back."""

from __future__ import annotations

import struct


def tuples_of(raw: bytes) -> list[list[bytes | None]]:
    """Return each tuple's fields, None for null."""
    found, place = [], 0
    while place < len(raw):
        (count,) = struct.unpack_from(">h", raw, place)
        place += 2
        fields: list[bytes | None] = []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", raw, place)
            place += 4
            fields.append(None if size < 0 else raw[place : place + size])
            place += max(0, size)
            assert place <= len(raw)
        found.append(fields)
    return found
