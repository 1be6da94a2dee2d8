"""Rows in Avro to columns, for the verifier alone; in C, or left to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.row_fields import FieldKind, RowColumn, RowField
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.decode import RowDecoder
else:
    from changelog.native.plain.decode import RowDecoder

__all__ = ["FieldKind", "RowColumn", "RowDecoder", "RowField"]
