"""The reference sink: generations in this process, to read how a sink behaves.

`MemoryStore` is the server. It outlives sinks, as a server outlives a killed rebuild.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.rendering import rendered
from views.sinks.shape import check_shape
from views.sinks.unique import not_unique

if TYPE_CHECKING:
    from collections.abc import MutableMapping


@dataclass(slots=True)
class _Held:
    documents: dict[str, str] = field(default_factory=dict)
    sealed: bool = False


@dataclass(slots=True)
class MemoryStore:
    """State shared by the memory sinks of a test.

    Attributes:
        folder: where a sealed generation is also written as JSON lines, for other readers.
    """

    folder: Path
    generations: MutableMapping[tuple[str, int], _Held] = field(default_factory=dict)
    pointers: MutableMapping[str, int] = field(default_factory=dict)

    def served(self, view: str) -> Mapping[str, str]:
        """Return what a reader of the view sees now: documents by id."""
        if view not in self.pointers:
            raise KeyError(view)
        return dict(self.generations[view, self.pointers[view]].documents)


class MemorySink:
    def __init__(self, *, view: str, key: Sequence[str], store: MemoryStore) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._store = store
        self._opened: Opened | None = None

    def check(self, schema: StructType) -> None:
        check_shape(schema, self._key)

    def open(self, generation: int, schema: StructType) -> None:
        self.check(schema)
        if (self._view, generation) in self._store.generations:
            raise held_already(self._view, generation)
        self._store.generations[self._view, generation] = _Held()
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        current = opened(self._opened, self._view)
        current.begin(rows)
        held = self._store.generations[self._view, current.generation]
        current.written = 0
        for row in rendered(rows, self._key).toLocalIterator():
            if row.id is None or row.id in held.documents:
                values = json.loads(row.document)
                raise not_unique(self._key, [values[name] for name in self._key])
            held.documents[row.id] = row.document
            current.written += 1

    def seal(self) -> Address:
        """End writing, and mark the generation as whole."""
        current = opened(self._opened, self._view)
        current.finished()
        held = self._store.generations[self._view, current.generation]
        lines = [f'{{"id":{json.dumps(i)},"row":{row}}}\n' for i, row in held.documents.items()]
        path = self._path(current.generation)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
        held.sealed = True
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        return len(self._sealed(generation).documents)

    def address(self, generation: int) -> Address:
        """Return the place where a sealed generation can be read."""
        self._sealed(generation)
        return Address("memory", {"path": str(self._path(generation))})

    def publish(self, generation: int) -> None:
        """Let readers see a sealed generation."""
        self._sealed(generation)
        self._store.pointers[self._view] = generation

    def discard(self, generation: int) -> None:
        refuse_published(self._view, generation, self.published())
        self._store.generations.pop((self._view, generation), None)
        self._path(generation).unlink(missing_ok=True)

    def drop(self) -> None:
        self._store.pointers.pop(self._view, None)
        for generation in self.generations():
            self.discard(generation)

    def published(self) -> int | None:
        """Return the generation that readers see."""
        return self._store.pointers.get(self._view)

    def generations(self) -> list[int]:
        return sorted(number for view, number in self._store.generations if view == self._view)

    def _sealed(self, generation: int) -> _Held:
        held = self._store.generations.get((self._view, generation))
        if held is None or not held.sealed:
            raise not_sealed(self._view, generation, self.generations())
        return held

    def _path(self, generation: int) -> Path:
        return self._store.folder / self._view / f"{generation:06d}.jsonl"
