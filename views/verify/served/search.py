"""The documents of one index: a scroll over `_source` in the index's own order.

A scroll reads one frozen point of the index and needs no field to sort on, which a document need
not have; it works in every version of OpenSearch and Elasticsearch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.tls_trust import authorities
from views.base.address import Address

_PAGE = 5_000
_KEEP = "2m"


def search_documents(address: Address) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return id and source of each document of an index.

    Raises:
        SinkError: the engine does not answer, has no such index, or a shard failed.
    """
    url, index = address.location["url"].rstrip("/"), address.location["index"]
    try:
        with httpx.Client(base_url=url, timeout=120.0, verify=authorities()) as client:
            client.post(f"/{index}/_refresh").raise_for_status()
            yield from _scroll(client, index)
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise SinkError(
            f'index "{index}" at {redacted(url)} cannot be read: {redacted(str(error))}',
            hint="check that the engine runs and that its address is right",
        ) from error


def _scroll(client: httpx.Client, index: str) -> Iterator[tuple[str, dict[str, Any]]]:
    page = _page(
        client.post(
            f"/{index}/_search",
            params={"scroll": _KEEP},
            json={"size": _PAGE, "sort": ["_doc"], "query": {"match_all": {}}},
        )
    )
    scroll = page["_scroll_id"]
    try:
        while hits := page["hits"]["hits"]:
            for hit in hits:
                yield hit["_id"], hit["_source"]
            page = _page(
                client.post("/_search/scroll", json={"scroll": _KEEP, "scroll_id": scroll})
            )
            scroll = page["_scroll_id"]
    finally:
        client.request("DELETE", "/_search/scroll", json={"scroll_id": [scroll]})


def _page(answer: httpx.Response) -> dict[str, Any]:
    answer.raise_for_status()
    page: dict[str, Any] = answer.json()
    if page.get("timed_out") or page["_shards"]["failed"]:
        raise ValueError("a shard failed or the search timed out")
    return page
