"""Protocols of the two sides of a comparison, and what passes between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from changelog.compare.forms import Native
from changelog.compare.plan import Plan

Key = tuple[str | None, ...]
"""Canonical texts of the columns of a key."""
SUM_BITS = 1 << 64


class Digest(NamedTuple):
    """The rows of a bucket in short: equal rows do not cancel, and order is no matter."""

    rows: int
    total: int  # sum of 64 bits of the MD5 of each row, modulo 2^64


@dataclass(frozen=True, slots=True)
class Row:
    """A row as a side has it."""

    key: Key
    texts: tuple[str | None, ...]  # canonical texts of the other columns
    version: str = ""  # changes with each write of the row; empty where that is not known


class Side(Protocol):
    """The source, or a copy."""

    place: str
    """Where it is, without any password."""

    def columns(self) -> Mapping[str, Native]:
        """Return its columns.

        Raises ChangelogError: it cannot be read.
        """

    def bind(self, plan: Plan) -> None:
        """Take the plan of the comparison."""

    def digests(self) -> dict[int, Digest]:
        """Return the digest of each bucket that has rows, as of one moment."""

    def rows(self, buckets: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Return keys and digests of the rows of some buckets, as of one moment."""

    def look(self, keys: Sequence[Key]) -> list[Row]:
        """Return the rows of some keys as they are now."""

    def close(self) -> None:
        """Close connections, and remove what was stored for the comparison."""
