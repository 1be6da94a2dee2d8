"""Records that cannot be read, quarantined instead of ending the verification."""

from __future__ import annotations

import pyarrow as pa


class FaultError(Exception):
    """A fault of one record; the caller that knows its place raises or quarantines it."""


class Quarantine:
    """The records of one topic that are left out, each with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[int, int], str] = {}
        self._counted: set[tuple[int, int]] = set()

    def add(self, partition: int, offset: int, why: str) -> None:
        """Add a record that is the last of its key, and cannot be read."""
        self._reasons[partition, offset] = why
        self._counted.add((partition, offset))

    def suspect(self, partition: int, offset: int, why: str) -> None:
        """Add a record without a place in the order; it counts if it is the last of its key."""
        self._reasons[partition, offset] = why

    def holds(self, partition: int, offset: int) -> bool:
        """Tell whether a record is here, and count it: callers ask for the last of a key only."""
        is_noted = (partition, offset) in self._reasons
        if is_noted:
            self._counted.add((partition, offset))
        return is_noted

    def has_any(self, places: pa.Table) -> bool:
        """Tell whether any of these records, by the columns `part` and `off`, is here."""
        if not self._reasons:
            return False
        pairs = zip(places["part"].to_pylist(), places["off"].to_pylist(), strict=True)
        return not self._reasons.keys().isdisjoint(pairs)

    def merge(self, other: Quarantine) -> None:
        """Add the records of another quarantine of the same topic."""
        self._reasons |= other._reasons
        self._counted |= other._counted

    def places(self) -> list[tuple[int, int]]:
        """Return partition and offset of the records whose rows are left out."""
        return sorted(self._counted)

    def __len__(self) -> int:
        """Count the records whose rows are left out."""
        return len(self._counted)
