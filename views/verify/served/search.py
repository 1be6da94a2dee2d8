"""The documents of one index: sliced scrolls over `_source`, several at once.

A document's slice is chosen by the hash of its id, so each document is in exactly one. A scroll
reads one frozen point of the index in the order of its shards, and needs no field to sort by, which
a document may lack; it works in every version of OpenSearch and Elasticsearch. A point in time with
`search_after` was not faster, and over several shards it skips documents where the engine has no
tie-breaker
(docs/decisions/0048-served-at-the-speed-of-servers.md). The number of documents is compared with
the index's own count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import httpx
import orjson
import pyarrow as pa

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.tls_trust import authorities
from views.base.address import Address
from views.verify.served.documents import Document, DocumentForm, DocumentPage
from views.verify.served.threads import read_at_once
from views.verify.values.jsonform import identifier
from views.verify.values.types import Type

_SLICES = 2  # one is parsed while the engine makes the page of the other; more were not faster
_PAGE = 5_000
_PAGE_BYTES = 8 << 20
_SAMPLE = 100
_KEEP = "5m"


def search_tables(address: Address, form: DocumentForm) -> Iterator[pa.Table]:
    """Return the documents of an index."""
    url, index = address.location["url"].rstrip("/"), address.location["index"]
    routing = address.location.get("routing")
    try:
        with httpx.Client(base_url=url, timeout=120.0, verify=authorities()) as client:
            client.post(f"/{index}/_refresh").raise_for_status()
            counted = _whole(_parsed(client.get(f"/{index}/_count")))["count"]
            search = {"size": _page_size(client, index), "sort": ["_doc"]}
            parts = [
                partial(_slice, client, index, {**search, "slice": part}, form, routing)
                for part in ({"id": number, "max": _SLICES} for number in range(_SLICES))
            ]
            read = 0
            for table in read_at_once(parts):
                read += table.num_rows
                yield table
            if read != counted:
                raise ValueError(f"it counts {counted} documents and gave {read}")
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise SinkError(
            f'index "{index}" at {redacted(url)} cannot be read: {redacted(str(error))}',
            hint="check that the engine runs and that its address is right",
        ) from error


def _page_size(client: httpx.Client, index: str) -> int:
    """Return the number of documents of a page, which is held in memory, from a sample's size."""
    answer = client.post(f"/{index}/_search", json={"size": _SAMPLE, "sort": ["_doc"]})
    sampled = len(_whole(_parsed(answer))["hits"]["hits"])
    document_bytes = len(answer.content) // max(sampled, 1)
    return max(1, min(_PAGE, _PAGE_BYTES // max(document_bytes, 1)))


def _slice(
    client: httpx.Client,
    index: str,
    body: Mapping[str, Any],
    form: DocumentForm,
    routing: str | None,
) -> Iterator[pa.Table]:
    answer = client.post(f"/{index}/_search", params={"scroll": _KEEP}, json=body)
    page = _parsed(answer)
    scroll = page["_scroll_id"]
    try:
        while hits := _whole(page)["hits"]["hits"]:
            if routing is not None:
                _check_routing(hits, next(column for column in form.key if column[0] == routing))
            yield form.table(_page(answer, page))
            answer = client.post("/_search/scroll", json={"scroll": _KEEP, "scroll_id": scroll})
            page = _parsed(answer)
            scroll = page["_scroll_id"]
    finally:
        client.request("DELETE", "/_search/scroll", json={"scroll_id": [scroll]})


def _parsed(answer: httpx.Response) -> dict[str, Any]:
    """Return an answer's JSON.

    Raises httpx.HTTPError: the engine refuses the request; ValueError: it is not JSON.
    """
    answer.raise_for_status()
    try:
        page: dict[str, Any] = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        page = json.loads(answer.content)
    return page


def _whole(page: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, after checking that every shard has contributed to it."""
    if page.get("timed_out") or page["_shards"]["failed"]:
        raise ValueError("a shard failed or the search timed out")
    return page


def _check_routing(hits: list[dict[str, Any]], column: tuple[str, Type]) -> None:
    """Raise if a document is not on the shard where readers look for it."""
    for hit in hits:
        routing, expected = hit.get("_routing"), identifier(hit["_source"], [column])
        if routing != expected:
            raise ValueError(
                f"document {hit['_id']} is routed by {routing!r}, its key says {expected!r}"
            )


def _page(answer: httpx.Response, page: dict[str, Any]) -> DocumentPage:
    """Return the documents of a parsed answer."""

    def documents() -> list[Document]:
        hits = json.loads(answer.content)["hits"]["hits"]
        return [(hit["_id"], hit["_source"]) for hit in hits]

    hits = page["hits"]["hits"]
    return DocumentPage(([hit["_id"] for hit in hits], [hit["_source"] for hit in hits]), documents)
