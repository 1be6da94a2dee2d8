"""The protocol of the two sides of a comparison, and the values that they exchange. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from changelog.compare.forms import Native
from changelog.compare.plan import ComparePlan
from changelog.contract.base.lsn import Lsn

T = TypeVar("T")
Key = tuple[str | None, ...]
"""The canonical texts of a key's columns."""
SUM_BITS = 1 << 64
SENT_PROBE = -6495270552753688898
"""The probe of sides that hash rows as PostgreSQL does where a number's lowest byte comes first."""


class Digest(NamedTuple):
    """The digest of a bucket's rows, which does not depend on their order.

    It is a sum, not an XOR, in which two equal rows would cancel each other.
    """

    rows: int
    total: int  # the sum of 64 bits of the hash of each row, modulo 2^64


@dataclass(frozen=True, slots=True)
class SideRow:
    """A row of one side."""

    key: Key
    texts: tuple[str | None, ...]  # canonical texts of the columns outside the key
    version: str = ""  # changes with each write of the row; empty if the side has no versions


class Moment(NamedTuple):
    """A place in the source's WAL and its server's time there."""

    lsn: Lsn
    at: datetime

    def to_json(self) -> dict[str, str]:
        """Return it as an object of JSON."""
        return {"lsn": str(self.lsn), "at": self.at.astimezone(UTC).isoformat(timespec="seconds")}

    def __str__(self) -> str:
        return f"{self.lsn} ({self.to_json()['at']})"


class Side(Protocol):
    """The source or a copy of it, as a comparison reads it."""

    place: str
    """The address for messages, without a password."""

    def columns(self) -> Mapping[str, Native]:
        """Return the types of the columns by name.

        Raises ChangelogError: the side cannot be read.
        """

    def identity(self) -> Mapping[str, str]:
        """Return facts that, with its address, tell which copy it is; no passwords."""

    def sent_probe(self) -> int | None:
        """Return the hash of some values as PostgreSQL sends them; None if it cannot hash rows.

        Sides with the same number hash the same values to the same numbers.
        """

    def bind(self, plan: ComparePlan) -> None:
        """Take the plan of the comparison."""

    def digests(self) -> dict[int, Digest]:
        """Return the digest of each bucket that has rows, as of one moment."""

    def rows(self, buckets: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Return keys and digests of the rows of some buckets, as of one moment."""

    def look(self, keys: Sequence[Key]) -> list[SideRow]:
        """Return the rows of some keys as they are now."""

    def writer(self, key: Key) -> str:
        """Return the place of the record that wrote a key's row; empty if nothing tells it."""

    def notes(self) -> tuple[str, ...]:
        """Return facts about what was read that the report shows."""

    def interrupt(self) -> None:
        """End the work of another thread with an error: its statement, and any later one."""

    def close(self) -> None:
        """Close connections and remove temporary files."""


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield items in batches; `itertools` has this from Python 3.12 on.

    >>> list(batched("abc", 2))
    [('a', 'b'), ('c',)]
    """
    rest = iter(items)
    while batch := tuple(islice(rest, size)):
        yield batch
