"""A file of a task's own, for what it cannot hold in memory; gone when the task is."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

COUNT = 128
"""A bucket is read back whole: it holds so much less than what did not fit."""
_VERSION = 2
"""Of marshal's format: later ones look for objects that occur twice, which keys never do."""

Item = tuple[Any, ...]
"""A key and what belongs to it: numbers, bytes, texts, tuples of these, None."""


class Buckets:
    """Items by the hash of their key: equal keys are in the same bucket, in the order they came."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115 - closed by `close`
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(COUNT)]

    def put(self, items: Iterable[Item]) -> None:
        """Write items, each of which begins with its key."""
        split: list[list[Item]] = [[] for _ in range(COUNT)]
        for item in items:
            split[hash(item[0]) % COUNT].append(item)
        for places, found in zip(self._places, split, strict=True):
            if found:
                raw = marshal.dumps(found, _VERSION)
                places.append((self._file.tell(), len(raw)))
                self._file.write(raw)

    def each(self) -> Iterator[Iterator[Item]]:
        """Give the items of each bucket."""
        for places in self._places:
            yield self._items(places)

    def _items(self, places: list[tuple[int, int]]) -> Iterator[Item]:
        for place, length in places:
            self._file.seek(place)
            # Written by this process, to a file without a name.
            yield from marshal.loads(self._file.read(length))  # noqa: S302

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _folder() -> str | None:
    """Give the first of the folders that Spark gives its tasks, None for the system's own."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
