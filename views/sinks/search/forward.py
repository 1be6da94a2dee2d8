"""Bring an index forward: the documents of a delta by bulk, then one refresh.

A searcher sees nothing of a bulk before the refresh, and then all of it, since the index is never
refreshed by itself. That holds for an index of one shard; shards refresh one after the other.

Each document bears the LSN of the frontier as its version. So what a process sends late, one that
was overtaken by another, changes nothing: the server refuses it as older.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from views.sinks.forward import refuse_older
from views.sinks.load import Entry, in_batches
from views.sinks.search.server import GONE, SearchClient

META = "changelog"
ROUTING = "routing"
_POSITION = "position"


class SearchForward:
    """The index of one generation."""

    def __init__(self, server: SearchClient, view: str, generation: int, index: str) -> None:
        self._server, self._view = server, view
        self._generation, self._index = generation, index

    def position(self) -> Position | None:
        """Return the position of the last delta."""
        text = self.meta().get(_POSITION)
        return None if text is None else Position.parse(text)

    def holds_back(self) -> str | None:
        """Say why searchers would see a delta in parts, or None."""
        found = self._server.request("GET", f"/{self._index}/_settings/index.number_of_shards")
        settings = (found or {}).get(self._index, {}).get("settings", {}).get("index", {})
        shards = int(settings.get("number_of_shards", 1))
        return None if shards == 1 else f"{self._index} has {shards} shards, not one"

    def apply(self, come: Sequence[Entry], gone: Sequence[str], position: Position) -> None:
        """Write and remove documents, then let searchers see all of that at once.

        Raises:
            SinkError: the server refuses a document, or another process has gone further.
        """
        meta = self.meta()
        held = None if _POSITION not in meta else Position.parse(meta[_POSITION])
        refuse_older(self._view, self._generation, held, position)
        if held is None:
            settings = {"index": {"blocks.write": False, "refresh_interval": "-1"}}
            self._server.request("PUT", f"/{self._index}/_settings", settings)
        routed_by = meta[ROUTING]["place"] if meta.get(ROUTING) else None
        with self._server.bulk(self._index, int(position.commit_lsn), routed_by) as write:
            for batch in in_batches([*come, *((name, GONE) for name in gone)]):
                write(batch)
        self._server.request("POST", f"/{self._index}/_refresh")
        count = self._server.request("GET", f"/{self._index}/_count")["count"]
        told = {META: {**meta, "rows": count, _POSITION: str(position)}}
        self._server.request("PUT", f"/{self._index}/_mapping", {"_meta": told})

    def meta(self) -> dict[str, Any]:
        """Return what the index says of itself."""
        found = self._server.request("GET", f"/{self._index}/_mapping")
        if found is None:
            raise SinkError(f"there is no index {self._index}")
        meta: dict[str, Any] = found[self._index]["mappings"].get("_meta", {}).get(META, {})
        return meta
