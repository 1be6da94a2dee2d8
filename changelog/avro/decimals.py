"""Decimals of Avro: whole numbers in bytes, the highest first, whose schema has their scale."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation

from changelog.contract.base.errors import CorruptRecordError

EXACT = Context(prec=60, traps=[InvalidOperation, Inexact])
"""More digits than a decimal of a table has. Python's own context would round to 28 digits, and say
nothing."""

SCALES = range(-131_072, 16_384)
"""Of PostgreSQL's numerics: by another one a few bytes would be gigabytes of digits."""


def unscaled(raw: bytes) -> int:
    """Return a decimal's digits as a whole number."""
    return int.from_bytes(raw, "big", signed=True)


def decimal_of(raw: bytes, scale: int) -> Decimal:
    r"""Return a decimal of at most 60 digits.

    >>> decimal_of(b"\x96", 2)
    Decimal('-1.06')

    Raises:
        ArithmeticError: it has more.
    """
    return Decimal(unscaled(raw)).scaleb(-scale, EXACT)


def decimal_text(raw: bytes, scale: int) -> str:
    r"""Return the text of a decimal of any length.

    >>> decimal_text(b"\x05", 2)
    '0.05'

    Raises:
        CorruptRecordError: PostgreSQL has no such scale.
    """
    number = unscaled(raw)
    if scale not in SCALES:
        raise CorruptRecordError(f"a decimal has the scale {scale}, which PostgreSQL has not")
    sign = "-" if number < 0 else ""
    if scale <= 0:
        return f"{number}{'0' * -scale}" if number else "0"
    digits = str(abs(number)).zfill(scale + 1)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
