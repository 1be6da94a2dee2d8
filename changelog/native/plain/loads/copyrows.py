"""Rows are left to the caller, who reads them by fastavro and writes COPY's text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from changelog.native.base.copy_cells import AvroRows, CopyCell
from changelog.native.plain.loads.batches import BatchRange


class RowCopier:
    """Leaves rows to its caller."""

    def __init__(
        self, values: AvroRows | None, keys: AvroRows | None, cells: Sequence[CopyCell]
    ) -> None:
        """Take the arguments of the copier in C."""

    def copied(
        self, records: BatchRange, numbers: Sequence[Any], chosen: array[int] | None = None
    ) -> bytes | None:
        """Return the tuples of records, or None if one is not exactly as the fields declare."""
        del numbers
        return None if len(records if chosen is None else chosen) else b""
