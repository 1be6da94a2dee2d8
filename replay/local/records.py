"""Records as they are held here: one that has a value, the last of a key, one of several. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from changelog.contract.base.headers import Op
from changelog.contract.base.position import Position


class Written(NamedTuple):
    """A record with a value, and its place."""

    value: bytes
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last record of a key.

    Attributes:
        key: its bytes.
        position: in bytes, which compare as positions do.
        value: None for a tombstone.
        partition: where it stands.
        offset: likewise.
    """

    key: bytes
    position: bytes
    value: bytes | None
    partition: int
    offset: int

    @property
    def order(self) -> tuple[bytes, int, int]:
        """Return the sort key that is greatest for the record that decides."""
        return self.position, self.offset, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A record of a key.

    Attributes:
        key: its bytes.
        value: None for a tombstone.
        position: in the order of changes.
        op: what happened.
        ts_us: when that was committed, microseconds since 1970.
        appended_ms: when the broker took it, milliseconds since 1970.
        partition: where it stands.
        offset: likewise.
    """

    key: bytes
    value: bytes | None
    position: Position
    op: Op
    ts_us: int
    appended_ms: int
    partition: int
    offset: int

    @property
    def is_gone(self) -> bool:
        """Tell whether the row is gone from here on; an event says so too, before its tombstone."""
        return self.value is None or self.op in {Op.DELETE, Op.TRUNCATE}
