"""The columns to write, and their masks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Mask(Enum):
    """The replacement for a value; the numbers are the library's."""

    NONE = 0
    HASH = 1
    CONSTANT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of a row to write, when some are dropped or masked.

    Attributes:
        width: how many the row has.
        places: which of them are written, in their order.
        masks: what is written of each.
        hash_key: of the hashes, HMAC-SHA-256 in hexadecimal.
        constant: what stands for every value that is not to be seen.
    """

    width: int
    places: tuple[int, ...]
    masks: tuple[Mask, ...]
    hash_key: bytes = b""
    constant: bytes = b""
