"""Serves a view as a search index: the alias `{view}` on one index per generation, `{view}-000007`.

An index is created with an explicit mapping, without refreshes and replicas while it is loaded; the
view's options may change settings and fields. Sealing refreshes it, counts its documents, blocks
writes, and stores the view and the count in the index itself. Publishing is one request that moves
the alias atomically.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import (
    Opened,
    RefusedRow,
    UnavailableSinkError,
    held_already,
    not_sealed,
    opened,
    refuse_published,
)
from views.sinks.forward import entries_of, entry_columns, entry_values
from views.sinks.load import Entry, Refusal, load, too_many
from views.sinks.search.column_types import field_count, properties
from views.sinks.search.forward import ROUTING, SearchForward
from views.sinks.search.options import SearchOptions, flat, merged_over
from views.sinks.search.progress import ID, LEFT_OUT, META, ProgressIndex
from views.sinks.search.server import SearchClient
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.position import Position

_FIELDS_LIMIT = 1_000
_FIELDS = "mapping.total_fields.limit"
_AT_SEAL = frozenset({"number_of_replicas", "auto_expand_replicas", "refresh_interval"})
"""Settings of the author that are applied only after the index is loaded."""


@dataclass(frozen=True, slots=True)
class DocumentWriter:
    """Writes documents; sent to executors."""

    server: SearchClient
    index: str
    routed_by: int | None = None
    left_out_at_most: int = 0

    def connected(self) -> AbstractContextManager[Callable[[Sequence[Entry]], Sequence[Refusal]]]:
        """Return the function that writes one batch."""
        return self.server.bulk(
            self.index, routed_by=self.routed_by, left_out_at_most=self.left_out_at_most
        )


class SearchSink:
    """A view in OpenSearch."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        server: SearchClient,
        options: SearchOptions | None = None,
        left_out_at_most: int = 0,
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._server = server
        self._options = options or SearchOptions()
        self._left_out_at_most = left_out_at_most
        self._left_out: tuple[RefusedRow, ...] = ()
        self._opened: Opened | None = None
        self._forwards: dict[int, SearchForward] = {}

    def check(self, schema: StructType) -> None:
        """Refuse names that OpenSearch reserves, and options for missing columns."""
        check_shape(schema, self._key)
        self._options.routed_by(self._view, self._key)
        self._mapping(schema)

    def _mapping(self, schema: StructType) -> dict[str, Any]:
        return merged_over(properties(schema), self._options.properties(), self._view)

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation with an index that no alias points to."""
        self.check(schema)
        mapping = self._mapping(schema)
        self.published()  # refuses an alias or index that is not ours
        if self._server.request("GET", f"/{self._index(generation)}") is not None:
            raise held_already(self._view, generation)
        settings_by_name = flat(self._options.settings)
        settings = {
            **{name: value for name, value in settings_by_name.items() if name not in _AT_SEAL},
            "number_of_replicas": 0,
            "refresh_interval": "-1",
            # Nobody reads it before it is sealed, and a load that fails starts again: `seal`
            # waits for the disk once, by its flush, instead of every batch.
            "translog.durability": "async",
        }
        settings.setdefault(_FIELDS, max(_FIELDS_LIMIT, 2 * field_count(mapping)))
        body = {
            "settings": {"index": settings},
            "mappings": {"dynamic": False, "properties": mapping, "_meta": self._meta()},
        }
        with self._naming_options():
            self._server.request("PUT", f"/{self._index(generation)}", body)
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        routed_by = self._options.routed_by(self._view, self._key)
        index, most = self._index(current.generation), self._left_out_at_most
        writer = DocumentWriter(self._server, index, routed_by, most)
        loaded = load(rows, self._key, writer)
        if len(loaded.refused) > most:
            raise too_many(index, most, loaded.refused)
        current.written, self._left_out = loaded.rows, loaded.refused

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
        current = opened(self._opened, self._view)
        rows, index = current.finished(), self._index(current.generation)
        self._server.request("POST", f"/{index}/_flush")
        self._server.request("POST", f"/{index}/_refresh")
        count = self._server.request("GET", f"/{index}/_count")["count"]
        if count != current.written:
            assert_unique(rows, self._key)
            raise SinkError(f"{current.written} rows were written to {index}, it has {count}")
        described = flat(self._options.settings)
        settings: dict[str, Any] = {"refresh_interval": None, "auto_expand_replicas": "0-1"}
        if "number_of_replicas" in described:
            # The latter would override the former.
            settings["auto_expand_replicas"] = "false"
        settings |= {name: value for name, value in described.items() if name in _AT_SEAL}
        settings |= {"translog.durability": None, "blocks.write": True}
        with self._naming_options():
            self._server.request("PUT", f"/{index}/_settings", {"index": settings})
        sealed = {**self._forward(current.generation).meta(), "rows": count}
        if self._left_out:
            sealed[LEFT_OUT] = [astuple(refused) for refused in self._left_out]
        self._server.request("PUT", f"/{index}/_mapping", {"_meta": {META: sealed}})
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        """Return the number of documents of a sealed generation."""
        self._require_sealed(generation)
        return self._forward(generation).progress().rows

    def _require_sealed(self, generation: int) -> None:
        generations = self._generations()
        if generations.get(generation) is None:
            raise not_sealed(self._view, generation, sorted(generations))

    def address(self, generation: int) -> Address:
        """Return the index of a sealed generation."""
        self._require_sealed(generation)
        location = {"url": self._server.url, "index": self._index(generation)}
        if routing := self._forward(generation).meta().get(ROUTING):
            location["routing"] = routing["column"]
        if left_out := self.left_out(generation):
            location[LEFT_OUT] = json.dumps([[refused.id, refused.key] for refused in left_out])
        return Address("search", location)

    def left_out(self, generation: int) -> Sequence[RefusedRow]:
        """Return the rows that the server refused, which the index itself lists."""
        return self._forward(generation).left_out()

    def publish(self, generation: int) -> None:
        """Move the alias to a sealed generation, in one request."""
        self._require_sealed(generation)
        current = self.published()
        if generation == current:
            return
        actions: list[dict[str, Any]] = [
            {"add": {"index": self._index(generation), "alias": self._view}}
        ]
        if current is not None:
            old = {"index": self._index(current), "alias": self._view}
            actions.insert(0, {"remove": old})
        self._server.request("POST", "/_aliases", {"actions": actions})

    def discard(self, generation: int) -> None:
        """Remove a generation's index."""
        refuse_published(self._view, generation, self.published())
        if generation in self._generations():
            self._forward(generation).forget()
            self._server.request("DELETE", f"/{self._index(generation)}")
        self._forwards.pop(generation, None)

    def drop(self) -> None:
        """Remove the alias, then each generation's index."""
        current = self.published()
        if current is not None:
            old = {"index": self._index(current), "alias": self._view}
            self._server.request("POST", "/_aliases", {"actions": [{"remove": old}]})
        for generation in self._generations():
            self._server.request("DELETE", f"/{self._index(generation)}")
        ProgressIndex(self._server, self._view).drop()
        self._forwards.clear()

    def published(self) -> int | None:
        """Return the generation that the alias points to.

        Raises SinkError: the alias points elsewhere too, or an index has its name.
        """
        # Each round of a follower asks this, so alias and metadata by one request.
        # Of each index its id, so that one without both is in the answer too.
        parts = "*.aliases,*.mappings._meta,*.settings.index.uuid"
        path = f"/{self._view},{self._view}-*?ignore_unavailable=true&filter_path={parts}"
        indices = self._server.request("GET", path) or {}
        if self._view in indices:
            raise self._not_ours("an index")
        served = [name for name, about in indices.items() if self._view in about.get("aliases", {})]
        if not served:
            return None
        ours = {self._index(number): number for number in self._ours(indices)}
        if len(served) != 1 or served[0] not in ours:
            raise self._not_ours(f"an alias of {', '.join(sorted(served))}")
        return ours[served[0]]

    def generations(self) -> list[int]:
        """List the generations that have an index."""
        return sorted(self._generations())

    def holds_back(self, generation: int) -> str | None:
        """Return the reason why searchers would see a delta in parts, or None."""
        return self._forward(generation).holds_back()

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return a row's id and document."""
        return entry_columns("search", schema, self._key)

    def delta_values(
        self,
        schema: StructType,  # noqa: ARG002 - the delta has its types
        delta: pa.Table,
    ) -> Mapping[str, pa.Array]:
        """Return a row's id and document."""
        return entry_values("search", self._key, delta)

    def apply(
        self,
        generation: int,
        schema: StructType,  # noqa: ARG002 - the documents have its columns already
        delta: pa.Table,
        position: Position,
    ) -> int:
        """Apply a delta to a sealed generation, visible by one refresh."""
        come, gone = entries_of("search", delta)
        return self._forward(generation).apply(come, gone, position, self._left_out_at_most)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        return self._forward(generation).position()

    def _forward(self, generation: int) -> SearchForward:
        if generation not in self._forwards:
            index = self._index(generation)
            self._forwards[generation] = SearchForward(
                self._server, self._view, self._key, generation, index
            )
        return self._forwards[generation]

    def _generations(self) -> dict[int, int | None]:
        """Return the rows that each generation was sealed with; None of one that is not sealed.

        Others may have indices with such names, so only an index with our metadata counts.
        """
        return self._ours(self._server.request("GET", f"/{self._view}-*/_mapping") or {})

    def _ours(self, indices: Mapping[str, Any]) -> dict[int, int | None]:
        name = re.compile(rf"{self._view}-(\d{{6,}})")
        generations: dict[int, int | None] = {}
        for index, content in indices.items():
            match = name.fullmatch(index)
            meta = content.get("mappings", {}).get("_meta", {}).get(META, {})
            if match and meta.get("view") == self._view:
                generations[int(match[1])] = meta.get("rows")
        return generations

    @contextmanager
    def _naming_options(self) -> Iterator[None]:
        """Add the options file to the hint of an error of the server."""
        try:
            yield
        except UnavailableSinkError:
            raise
        except SinkError as error:
            if self._options == SearchOptions():
                raise
            facts = str(error).partition(" | hint: ")[0]
            raise SinkError(facts, hint=f"see views/{self._view}.search.json") from error

    def _meta(self) -> dict[str, Any]:
        """Return the metadata of an index that is not sealed yet."""
        meta: dict[str, Any] = {"view": self._view, ID: uuid.uuid4().hex, "rows": None}
        place = self._options.routed_by(self._view, self._key)
        if place is not None:
            meta[ROUTING] = {"column": self._options.routing, "place": place}
        return {META: meta}

    def _not_ours(self, object_kind: str) -> SinkError:
        return SinkError(
            f'"{self._view}" is {object_kind} that was not published from here',
            hint="give the view another name, or remove that one",
        )

    def _index(self, generation: int) -> str:
        return f"{self._view}-{generation:06d}"
