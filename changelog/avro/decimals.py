"""Decimals of Avro: whole numbers in bytes, the highest first, whose schema has their scale."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

from changelog.contract.base.errors import CorruptRecordError

# Python's own context would round to 28 digits, and say nothing.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

SCALES = range(-131_072, 16_384)
"""Of PostgreSQL's numerics: by another one a few bytes would be gigabytes of digits."""


def decimal_of(raw: bytes, scale: int) -> Decimal:
    r"""Return a decimal with all its digits.

    >>> decimal_of(b"\x96", 2)
    Decimal('-1.06')
    """
    return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)


def decimal_text(raw: bytes, scale: int) -> str:
    r"""Return the text of a decimal.

    >>> decimal_text(b"\x05", 2)
    '0.05'

    Raises CorruptRecordError: PostgreSQL has no such scale.
    """
    if scale not in SCALES:
        raise CorruptRecordError(f"a decimal has the scale {scale}, which PostgreSQL has not")
    return f"{decimal_of(raw, scale):f}"
