"""An index of OpenSearch or Elasticsearch as a side of a comparison, over HTTP.

All documents come by one scroll, which reads a frozen point of the index; those of some ids by a
query, which finds them on whatever shard their routing has put them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httpx

from changelog.compare.document_side import (
    ID,
    Document,
    DocumentSide,
    UnavailableCopyError,
    field_texts,
    parsed,
)
from changelog.compare.side import batched
from changelog.connect.rules.records.reading import BadRecordError
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.tls_trust import authorities

_PLACE = re.compile(r"(https?://[^/?#]+(?:/[^?#]+)?)/([^/?#]+)")
_SAMPLE = 100
_PAGE, _PAGE_BYTES = 5_000, 8 << 20
_IDS = 500
_KEEP = "5m"
_ANSWER_S, _CONNECT_S = 120.0, 5.0
_PAUSES_S = (0.3, 1.0, 3.0)
_BUSY = {429, 502, 503, 504}
_HINT = "search:http://host:9200/INDEX"


class SearchSide(DocumentSide):
    """The documents of an index or alias; their ids are the column `_id`."""

    def __init__(self, address: str, key: Sequence[str], fields: Sequence[str] = ()) -> None:
        """Read all documents; `fields` may be in none of them.

        Raises ConfigurationError: there is no such index, or it may not be read;
        UnavailableCopyError: the server does not answer; SinkError: it refuses.
        """
        parts = _PLACE.fullmatch(address)
        if parts is None:
            raise ConfigurationError(
                f"{redacted(address)} is not the address of an index", hint=_HINT
            )
        url, self._index = parts.groups()
        self._server = redacted(url)
        super().__init__(f"search:{redacted(address)}", key, fields)
        self._client = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            verify=authorities(),
        )
        self.load()

    def _merge(self, same: list[Document], document: Document) -> None:
        same.append(document)  # an alias of two indices may have two documents of one id

    def _read(self) -> Iterator[Document]:
        search = {"size": self._page_size(), "sort": ["_doc"], "track_total_hits": True}
        page = self._whole(self._ask("POST", f"/{self._index}/_search?scroll={_KEEP}", search))
        total, read = int(page["hits"]["total"]["value"]), 0
        scroll = page["_scroll_id"]
        try:
            while hits := page["hits"]["hits"]:
                read += len(hits)
                yield from map(self._document, hits)
                page = self._whole(
                    self._ask("POST", "/_search/scroll", {"scroll": _KEEP, "scroll_id": scroll})
                )
                scroll = page["_scroll_id"]
        finally:
            self._forget(scroll)
        if read != total:
            raise SinkError(f"{self.place} has {total:,} documents and gave {read:,}")

    def _forget(self, scroll: str) -> None:
        """End a scroll; it would end by itself some minutes later."""
        try:
            self._client.request("DELETE", "/_search/scroll", json={"scroll_id": [scroll]})
        except httpx.HTTPError:
            return

    def _page_size(self) -> int:
        """Return the documents of a page, by the size of a sample: a page is held in memory."""
        answer = self._send("POST", f"/{self._index}/_search", {"size": _SAMPLE, "sort": ["_doc"]})
        sampled = len(parsed(answer.content, self.place)["hits"]["hits"])
        return max(1, min(_PAGE, _PAGE_BYTES // max(len(answer.content) // max(sampled, 1), 1)))

    def _read_again(self, ids: Sequence[str]) -> Iterator[Document]:
        for some in batched(ids, _IDS):
            # An id may have several documents, in the indices of an alias.
            search = {"size": _PAGE, "query": {"ids": {"values": list(some)}}}
            page = self._whole(self._ask("POST", f"/{self._index}/_search", search))
            yield from map(self._document, page["hits"]["hits"])

    def _document(self, hit: Mapping[str, Any]) -> Document:
        if "_source" not in hit:
            raise ConfigurationError(
                f"the documents of {self.place} have no _source", hint="their index leaves it out"
            )
        try:
            return Document(hit["_id"], field_texts(hit["_source"]))
        except BadRecordError as error:
            raise SinkError(f"{self.place}, document {hit[ID]!r}: {error}") from error

    def _whole(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return an answer to which all shards of the index have contributed."""
        if page.get("timed_out") or page["_shards"]["failed"]:
            raise SinkError(f"{self.place}: a shard failed, or the search timed out")
        return page

    def _ask(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = parsed(self._send(method, path, body).content, self.place)
        return answer

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
        reason = ""
        for pause_s in (*_PAUSES_S, None):
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.TransportError as error:
                reason = f"{type(error).__name__} {error}".strip()
            else:
                if answer.status_code not in _BUSY:
                    return self._accepted(answer)
                reason = f"{answer.status_code} {answer.reason_phrase}"
            if pause_s is not None:
                time.sleep(pause_s)
        raise UnavailableCopyError(
            f"the search server {self._server} does not answer: {redacted(reason)}",
            hint="check that it runs and that its address is right",
        )

    def _accepted(self, answer: httpx.Response) -> httpx.Response:
        """Return an answer unless it is a refusal."""
        if answer.is_success:
            return answer
        reason = redacted(answer.text[:300])
        match answer.status_code:
            case HTTPStatus.NOT_FOUND:
                raise ConfigurationError(
                    f'the search server {self._server} has no index "{self._index}"', hint=_HINT
                )
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                raise ConfigurationError(
                    f"the search server {self._server} refuses: {answer.status_code} {reason}",
                    hint="check user and password, and the right to read the index",
                )
            case _:
                raise SinkError(
                    f"the search server {self._server} refuses: {answer.status_code} {reason}"
                )

    def close(self) -> None:
        """Close connections and remove the scratch file."""
        self._client.close()
        super().close()
