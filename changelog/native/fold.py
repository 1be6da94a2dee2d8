"""The last record of each key of a range, and hashes of keys; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.folded import FoldColumns, FoldRecord, Strange, StrangePlaceError
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.fold import Fold, text_hashes
else:
    from changelog.native.plain.fold import Fold, text_hashes

__all__ = ["Fold", "FoldColumns", "FoldRecord", "Strange", "StrangePlaceError", "text_hashes"]
