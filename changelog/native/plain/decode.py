"""Rows in Avro are left to the caller, which reads them by fastavro: the rule of `decode.c`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from changelog.native.base.row_fields import RowColumn, RowField


class RowDecoder:
    """Leaves rows to its caller."""

    def __init__(self, frame: bytes, fields: Sequence[RowField]) -> None:
        """Take the frame of 5 bytes that each row begins with, and its fields."""

    def decode(self, rows: pa.BinaryArray) -> list[RowColumn] | None:  # noqa: ARG002
        """Return the columns of rows, or None if a row is not exactly as the fields declare."""
        return None
