"""Places in the write-ahead log."""

from __future__ import annotations

import re
from typing import Self

from changelog.contract.base.errors import ConfigurationError

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_NUMBER = re.compile(r"[0-9]{1,20}")
_MAX = (1 << 64) - 1


class Lsn(int):
    """Byte position in the WAL, an unsigned 64-bit integer; text form `16/B374D848`.

    A range of LSNs is half-open: "up to `lsn`" leaves out what begins at `lsn`. This is also
    PostgreSQL's rule: a slot that starts at L sends transactions whose commit record begins at
    L or after it (`SnapBuildXactNeedsSkip`), and its exported snapshot holds those before.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        """Make an LSN of an integer.

        Raises ValueError: `value` does not fit 64 unsigned bits.
        """
        if not 0 <= value <= _MAX:
            raise ValueError(f"an LSN has 64 unsigned bits, not {value}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form of PostgreSQL's `pg_lsn`.

        Raises ConfigurationError: `text` is not two hexadecimal numbers with a slash between.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(f'"{text}" is not an LSN', hint="an LSN looks like 0/16B3748")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    @classmethod
    def given(cls, text: str) -> Self:
        """Read what a person gives: the text form, or the number that some programs print.

        >>> Lsn.given("16/B3748"), Lsn.given("207967352")
        (Lsn(16/B3748), Lsn(0/C655478))

        Raises ConfigurationError: `text` is neither.
        """
        text = text.strip()
        if not _NUMBER.fullmatch(text):
            return cls.parse(text)
        if int(text) > _MAX:
            raise ConfigurationError(
                f'"{text}" is not an LSN', hint="as a number it has 64 bits; else it is 0/16B3748"
            )
        return cls(int(text))

    def __str__(self) -> str:
        """Return the text form of PostgreSQL's `pg_lsn`."""
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        """Name the type, so that an LSN is not taken for an offset."""
        return f"Lsn({self})"

    __format__ = object.__format__
