"""Records of some partitions by column, for the verifier alone; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.records_read import (
    NO_EPOCH,
    SCHEMA,
    Fault,
    IntakeNews,
    Outcome,
)
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.intake import Intake, RecordColumns
else:
    from changelog.native.plain.intake import Intake, RecordColumns

__all__ = ["NO_EPOCH", "SCHEMA", "Fault", "Intake", "IntakeNews", "Outcome", "RecordColumns"]
