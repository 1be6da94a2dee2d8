"""Records of some partitions in batches, for bulk loads; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.batches import Alike, BatchNews, BatchRecord, Groups, Limits, Slice
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.loads.batch_reader import BatchReader
    from changelog.native.compiled.loads.batches import Batch, BatchRange
else:
    from changelog.native.plain.loads.batch_reader import BatchReader
    from changelog.native.plain.loads.batches import Batch, BatchRange

__all__ = [
    "Alike",
    "Batch",
    "BatchNews",
    "BatchRange",
    "BatchReader",
    "BatchRecord",
    "Groups",
    "Limits",
    "Slice",
]
