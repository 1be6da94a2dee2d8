"""The positions of indexes that go forward, as documents of the index `{view}-positions`.

A position in the mapping of an index would be a part of the cluster's state, which the managing
node writes to disk and sends to every other node, one change after the other. A follower would have
it do so several times a second.

The mapping has the number of rows of the seal, which is true until the first delta, and the refused
rows, which seldom change: their keys go with the index, whatever a server keeps of documents that
it has replaced. Older versions wrote positions there too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from views.sinks.base import RefusedRow
from views.sinks.search.server import SearchClient

META = "changelog"
LEFT_OUT = "left_out"
ID = "id"
"""In the metadata of an index: its own, so that no other one of the same name has its position."""
_POSITION = "position"
_FLUSHED_AT = "16mb"
"""A server keeps every replaced document until it flushes, by default at 512 MB."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The position, number of rows and refused rows of an index, after a delta or its seal."""

    position: Position | None  # of the last delta; None before the first
    rows: int  # documents
    left_out: tuple[RefusedRow, ...] = ()

    @classmethod
    def of(cls, content: dict[str, Any], meta: dict[str, Any]) -> Progress:
        """Read a document of positions, or the metadata of a sealed index, which is `meta`."""
        text = content.get(_POSITION)
        return cls(
            None if text is None else Position.parse(text),
            content["rows"],
            tuple(RefusedRow(*refused) for refused in meta.get(LEFT_OUT, [])),
        )


def version_of(position: Position) -> int:
    """Return the version of what is written in a delta: it grows with each of them."""
    return int(position.commit_lsn) + position.sequence


class ProgressIndex:
    """The index that has the positions of all generations of a view; made by the first delta."""

    def __init__(self, server: SearchClient, view: str) -> None:
        self._server, self._view = server, view
        self._name = f"{view}-positions"

    def read(self, index: str, meta: dict[str, Any]) -> Progress | None:
        """Return the progress of a sealed index, or None before the first delta.

        `meta`: the metadata of the index.
        """
        path = f"/{self._name}/_doc/{meta.get(ID, index)}"
        document = self._server.request("GET", path)
        return None if document is None else Progress.of(document["_source"], meta)

    def make(self) -> None:
        """Make the index if it does not exist.

        Raises SinkError: somebody else's index has its name.
        """
        there = self._server.request("GET", f"/{self._name}/_mapping")
        if there is None:
            settings = {
                "number_of_shards": 1,
                "auto_expand_replicas": "0-1",
                "hidden": True,  # a search of all indexes leaves it out
                "refresh_interval": "-1",  # a document is read by its id
                "translog.flush_threshold_size": _FLUSHED_AT,
            }
            mappings = {"dynamic": False, "_meta": {META: {"view": self._view}}}
            body = {"settings": {"index": settings}, "mappings": mappings}
            self._server.request("PUT", f"/{self._name}", body)
        elif not self._is_ours(there):
            raise SinkError(
                f'"{self._name}" is an index that was not made here',
                hint="give the view another name, or remove that index",
            )

    def write(self, index: str, meta: dict[str, Any], progress: Progress) -> None:
        """Write position and number of rows of an index, unless it is further already.

        Raises SinkError: another process has gone further.
        """
        assert progress.position is not None  # noqa: S101 - it is that of a delta
        content = {"index": index, _POSITION: str(progress.position), "rows": progress.rows}
        with self._server.bulk(self._name, version_of(progress.position)) as write:
            write([(meta.get(ID, index), json.dumps(content))])

    def forget(self, index: str, meta: dict[str, Any]) -> None:
        """Remove the document of an index that is about to be removed."""
        self._server.request("DELETE", f"/{self._name}/_doc/{meta.get(ID, index)}")

    def drop(self) -> None:
        """Remove the index, if it is ours."""
        there = self._server.request("GET", f"/{self._name}/_mapping")
        if there is not None and self._is_ours(there):
            self._server.request("DELETE", f"/{self._name}")

    def _is_ours(self, mapping: dict[str, Any]) -> bool:
        content = mapping.get(self._name, {}).get("mappings", {})
        return bool(content.get("_meta", {}).get(META, {}).get("view") == self._view)
