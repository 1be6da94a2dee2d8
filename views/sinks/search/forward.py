"""Brings an index forward: writes the documents of a delta in bulk, then refreshes it once.

A searcher sees nothing of a bulk request before the refresh, and then all of it, since the index
never refreshes by itself. That is true for an index of one shard; several refresh one by one.

Each document has the LSN of the frontier as its version; with several logs, the sum of the
positions in all of them. So a process that was overtaken by another changes nothing: the server
refuses its older documents.

Some refused rows may be left out: then the older document of the key is removed too, since it is
out of date, and the index notes which rows it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from changelog.contract.base.position import Position
from views.sinks.base import RefusedRow, not_sealed
from views.sinks.forward import refuse_older
from views.sinks.load import Entry, Refusal, in_batches, refused_of, too_many
from views.sinks.search.progress import LEFT_OUT, META, Progress, ProgressIndex, version_of
from views.sinks.search.server import GONE, SearchClient

ROUTING = "routing"
_REMEMBERED = "1h"
"""How long the versions of removed documents are kept, so that a process that was overtaken cannot
write them again. By default servers forget them in a minute."""

_FLUSHED_AT = "16mb"
"""Size of the translog at which the server flushes an index. Until then it keeps every replaced
document, and each refresh reads them all: by its default of 512 MB, ten times as many as live ones
after some minutes."""


class SearchForward:
    """The index of one generation."""

    def __init__(
        self, server: SearchClient, view: str, key: Sequence[str], generation: int, index: str
    ) -> None:
        self._server, self._view, self._key = server, view, tuple(key)
        self._generation, self._index = generation, index
        self._kept_in = ProgressIndex(server, view)
        self._last: Progress | None = None
        """After a delta of this process. The server need not be asked for it before the next one:
        it refuses what is older than what another process has written since."""

    def position(self) -> Position | None:
        """Return the position of the last delta."""
        return self.progress().position

    def progress(self) -> Progress:
        """Return the position, and the rows that there are and that are left out.

        Raises SinkError: the generation is not sealed.
        """
        meta = self._sealed()
        return self._kept_in.read(self._index, meta) or Progress.of(meta, meta)

    def _sealed(self) -> dict[str, Any]:
        meta = self.meta()
        if meta.get("rows") is None:
            raise not_sealed(self._view, self._generation, [self._generation])
        return meta

    def holds_back(self) -> str | None:
        """Return the reason why searchers would see a delta in parts, or None."""
        answer = self._server.request("GET", f"/{self._index}/_settings/index.number_of_shards")
        settings = (answer or {}).get(self._index, {}).get("settings", {}).get("index", {})
        shards = int(settings.get("number_of_shards", 1))
        return None if shards == 1 else f"{self._index} has {shards} shards, not one"

    def left_out(self) -> list[RefusedRow]:
        """Return the rows that the index leaves out."""
        return list(self.progress().left_out)

    def apply(
        self, come: Sequence[Entry], gone: Sequence[str], position: Position, most: int = 0
    ) -> int:
        """Write and remove documents, then show all of them to searchers at once.

        `come`: the documents to write. `gone`: ids of documents to remove. `most`: how many refused
        rows the index may leave out.

        Returns:
            The number of rows afterwards, including rows left out.

        Raises SinkError: the server refuses a document, or another process has gone further.
        """
        meta, last = self._sealed(), self._last
        self._last = None
        if last is None and (last := self._kept_in.read(self._index, meta)) is None:
            self._kept_in.make()
            last = Progress.of(meta, meta)
        refuse_older(self._view, self._generation, last.position, position)
        if last.position is None:
            settings = {
                "index": {
                    "blocks.write": False,
                    "refresh_interval": "-1",
                    "gc_deletes": _REMEMBERED,
                    "translog.flush_threshold_size": _FLUSHED_AT,
                }
            }
            self._server.request("PUT", f"/{self._index}/_settings", settings)
        routed_by = meta[ROUTING]["place"] if meta.get(ROUTING) else None
        refused: list[Refusal] = []
        bulk = self._server.bulk(
            self._index, version_of(position), routed_by, left_out_at_most=most
        )
        with bulk as write:
            for batch in in_batches([*come, *((name, GONE) for name in gone)]):
                refused.extend(write(batch))
            covered = {*(name for name, _ in come), *gone}
            left_out = (
                *(row for row in last.left_out if row.id not in covered),
                *(refused_of(refusal, self._key) for refusal in refused),
            )
            if refused and len(left_out) > most:
                raise too_many(self._index, most, refused)
            # The older documents of refused keys are out of date.
            for batch in in_batches((name, GONE) for name, _, _ in refused):
                write(batch)
        self._server.request("POST", f"/{self._index}/_refresh")
        count = int(self._server.request("GET", f"/{self._index}/_count")["count"])
        progress = Progress(position, count, left_out)
        if left_out != last.left_out:
            refuse_older(self._view, self._generation, self.position(), position)
            changed = {META: {**meta, LEFT_OUT: [astuple(refused) for refused in left_out]}}
            self._server.request("PUT", f"/{self._index}/_mapping", {"_meta": changed})
        self._kept_in.write(self._index, meta, progress)
        self._last = progress
        return count + len(left_out)

    def forget(self) -> None:
        """Remove the position of an index that is about to be removed."""
        self._kept_in.forget(self._index, self.meta())

    def meta(self) -> dict[str, Any]:
        """Return the metadata of the index."""
        mapping = self._server.request("GET", f"/{self._index}/_mapping")
        if mapping is None:
            raise not_sealed(self._view, self._generation, [])
        meta: dict[str, Any] = mapping[self._index]["mappings"].get("_meta", {}).get(META, {})
        return meta
