"""Distinctness of keys, by hashes that Spark's writing tasks return.

Equal keys have equal bytes and so equal hashes: where all hashes differ, all keys do. Where two are
alike, or not all are known, nothing is told, and the keys themselves have to be compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from changelog.native import text_hashes
from changelog.native.records import TextColumn

_MOST = 32 << 20
"""Hashes that are compared here, 8 bytes each."""
_PROBE: TextColumn = (memoryview(array("i", [0, 5])), memoryview(b"probe"))


@dataclass(slots=True)
class KeyHashes:
    """The hashes of the keys that one task has written.

    Attributes:
        seed: the same for all tasks.
    """

    seed: int
    _parts: list[bytes] = field(default_factory=list)
    _count: int = 0

    def add(self, keys: TextColumn) -> None:
        """Take some keys."""
        self._count += len(keys[0]) - 1
        if self._count <= _MOST:
            self._parts.append(text_hashes(self.seed, keys))

    def told(self) -> bytes | None:
        """Return the hashes, after one of a known text that identifies the hash function.

        None if there are too many.
        """
        if self._count > _MOST:
            return None
        return b"".join((text_hashes(self.seed, _PROBE), *self._parts))


def are_distinct(hashes_of_tasks: Iterable[bytes | None]) -> bool:
    """Tell whether all keys of all tasks are known to differ."""
    parts = []
    for task_hashes in hashes_of_tasks:
        if task_hashes is None:
            return False
        parts.append(np.frombuffer(task_hashes, np.uint64))
    if len({int(part[0]) for part in parts}) > 1 or sum(map(len, parts)) > _MOST:
        return False
    hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *(part[1:] for part in parts)]))
    return not (hashes[1:] == hashes[:-1]).any()
