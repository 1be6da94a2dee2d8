"""Rows are left to the caller, who reads them by fastavro and writes COPY's text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from changelog.native.base.copy_cells import AvroRows, CopyCell


class RowCopier:
    """Leaves rows to its caller."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Take what the copier in C takes."""

    def copied(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes],
        numbers: Sequence[array[int]],
        rows: int,
    ) -> bytes | None:
        """Return the tuples of rows; None where one is not exactly what the fields say."""
        del values, keys, numbers
        return None if rows else b""
