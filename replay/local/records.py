"""Records as they are held here: one that has a value, the last of a key, one of several. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from changelog.contract.base.headers import Op
from changelog.contract.base.position import Position


class WrittenRecord(NamedTuple):
    """A record with a value, and its place."""

    value: bytes
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last record of a key."""

    key: bytes  # its bytes
    position: bytes  # in bytes, which compare as positions do
    value: bytes | None  # None for a tombstone
    partition: int  # where it stands
    offset: int  # likewise

    @property
    def order(self) -> tuple[bytes, int, int]:
        """Return the sort key that is greatest for the record that decides."""
        return self.position, self.offset, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordVersion:
    """A record of a key."""

    key: bytes  # its bytes
    value: bytes | None  # None for a tombstone
    position: Position  # in the order of changes
    op: Op  # what happened
    ts_us: int  # when that was committed, microseconds since 1970
    appended_ms: int  # when the broker took it, milliseconds since 1970
    partition: int  # where it stands
    offset: int  # likewise

    @property
    def is_gone(self) -> bool:
        """Tell whether the row is gone from here on; an event says so too, before its tombstone."""
        return self.value is None or self.op in {Op.DELETE, Op.TRUNCATE}
