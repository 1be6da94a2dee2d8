"""The entries of one generation in a cache, by SCAN over their prefix on each of its servers.

One round trip asks for the values of one page and the keys of the next, while the previous page is
parsed. SCAN may return a key twice: the caller removes the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import redis
from redis.exceptions import RedisClusterException

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.cache_servers import connect, servers
from views.base.address import Address
from views.verify.served.documents import Document, DocumentForm, DocumentPage, text_page
from views.verify.served.threads import read_at_once
from views.verify.values.jsonform import alone, key_of

_PAGE = 2_000
_GLOB = str.maketrans({mark: f"\\{mark}" for mark in "*?[]\\"})


def cache_tables(address: Address, form: DocumentForm) -> Iterator[pa.Table]:
    """Yield the entries under a prefix, their ids without it; some may come twice."""
    url, prefix = address.location["url"], address.location["prefix"]
    value, suffix = address.location.get("value", "json"), address.location.get("suffix", "")
    try:
        with closing(connect(url, socket_timeout=60, socket_connect_timeout=10)) as client:
            # Within a cluster one command may not ask for entries of several slots.
            many = value != "hash" and not isinstance(client, redis.RedisCluster)
            parts = [
                partial(_pages, server, prefix, "hgetall" if value == "hash" else "get", many)
                for server in servers(client)
            ]
            first, last = len(prefix.encode()), len(suffix.encode())
            for keys, entries in read_at_once(parts):
                ids = [key[first : len(key) - last].decode("utf-8", "replace") for key in keys]
                yield form.table(_entries_page(value, ids, entries, form))
    except (redis.RedisError, RedisClusterException) as error:
        raise SinkError(
            f"the cache at {redacted(url)} cannot be read: {redacted(str(error))}",
            hint="check that it runs and that its address is right",
        ) from error


_Entries = tuple[list[bytes], list[Any]]


def _pages(server: redis.Redis, prefix: str, command: str, many: bool) -> Iterator[_Entries]:
    """Yield keys and values, a page at a time; a value of another type is an error."""
    pattern = prefix.translate(_GLOB) + "*"
    cursor, keys = server.scan(0, match=pattern, count=_PAGE)
    while cursor or keys:
        pipeline: Any = server.pipeline(transaction=False)
        if keys and many:
            # MGET gives None for a key that is gone or no string.
            pipeline.mget(keys)
        elif keys:
            for key in keys:
                getattr(pipeline, command)(key)
        if cursor:
            pipeline.scan(cursor, match=pattern, count=_PAGE)
        answers = pipeline.execute(raise_on_error=False)
        following = answers.pop() if cursor else (0, [])
        if isinstance(following, Exception):
            raise following
        if keys:
            entries = answers[0] if many else answers
            if isinstance(entries, Exception):
                raise entries
            for entry in entries:
                if isinstance(entry, Exception) and "WRONGTYPE" not in str(entry):
                    raise entry
            yield [as_bytes(key) for key in keys], list(entries)
        cursor, keys = following


def as_bytes(raw: bytes | str) -> bytes:
    """Return the client's answer as bytes, whatever its settings decode."""
    return raw.encode() if isinstance(raw, str) else raw


# Each entry becomes a row in JSON form for the readers of documents. An entry that cannot be a row
# becomes an empty text, which they report as malformed.
_NO_ROW = ""


def _entries_page(
    value: str, ids: list[str], entries: Sequence[Any], form: DocumentForm
) -> DocumentPage:
    """Return a page of entries as the server gave them.

    `value`: what an entry is: `json`, `hash` or `string`. `entries`: for each row a text, a hash,
    or the mark of no entry of this kind.
    """
    if value == "json":
        return text_page(ids, [text if isinstance(text, bytes) else b"" for text in entries])
    read: Callable[[str, Any, DocumentForm], str | dict[str, Any]] = (
        _row_of_hash if value == "hash" else _row_of_string
    )
    rows = [read(id_, entry, form) for id_, entry in zip(ids, entries, strict=True)]

    def documents() -> list[Document]:
        return list(zip(ids, rows, strict=True))

    return DocumentPage(None if _NO_ROW in rows else (ids, rows), documents)


def _row_of_hash(_: str, entry: Any, form: DocumentForm) -> str | dict[str, Any]:  # noqa: ANN401
    if not isinstance(entry, dict) or not entry:
        return _NO_ROW
    texts = {_decoded(name): _decoded(text) for name, text in entry.items()}
    row: dict[str, Any] = dict(texts)
    for name, kind in form.columns:
        text = texts.get(name)
        row[name] = None if text is None else alone(text, kind)
    return row


def _row_of_string(id_: str, entry: Any, form: DocumentForm) -> str | dict[str, Any]:  # noqa: ANN401
    if not isinstance(entry, bytes):
        return _NO_ROW
    try:
        row = key_of(id_, form.key)
    except ValueError:
        return _NO_ROW
    ((name, kind),) = (column for column in form.columns if column[0] not in row)
    row[name] = alone(_decoded(entry), kind)
    return row


def _decoded(text: bytes) -> str:
    """Decode UTF-8; invalid bytes become surrogates, which the readers of values refuse."""
    return text.decode("utf-8", "surrogateescape")
