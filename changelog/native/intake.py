"""Records of some partitions, and their rows, by column, for the verifier alone; in C or in Python.

Rows are without C left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.records_read import (
    NO_EPOCH,
    SCHEMA,
    Fault,
    IntakeNews,
    Outcome,
)
from changelog.native.base.row_fields import FieldKind, RowColumn, RowField
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.decode import RowDecoder
    from changelog.native.compiled.intake import Intake, RecordColumns
else:
    from changelog.native.plain.decode import RowDecoder
    from changelog.native.plain.intake import Intake, RecordColumns

__all__ = [
    "NO_EPOCH",
    "SCHEMA",
    "Fault",
    "FieldKind",
    "Intake",
    "IntakeNews",
    "Outcome",
    "RecordColumns",
    "RowColumn",
    "RowDecoder",
    "RowField",
]
