"""A range of a partition into a fold; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.news import News
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.reader import RangeReader
else:
    from changelog.native.plain.reader import RangeReader

__all__ = ["News", "RangeReader"]
