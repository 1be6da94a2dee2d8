"""Rows of one version of a table to framed keys and values; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.selection import Mask, Selection
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.rows import BatchCodec
else:
    from changelog.native.plain.rows import BatchCodec

__all__ = ["BatchCodec", "Mask", "Selection"]
