"""A run of the stream's messages; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.runs import RelationSpan, Row, Transaction
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.runs import Run
else:
    from changelog.native.plain.runs import Run

__all__ = ["RelationSpan", "Row", "Run", "Transaction"]
