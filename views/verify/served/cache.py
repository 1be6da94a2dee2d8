"""The entries of one generation in a cache, by SCAN over their prefix.

The values of one page and the keys of the next are asked for in one round trip, while the page
before is read. SCAN may give a key twice: the caller takes the copies out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import redis

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from views.base.address import Address
from views.verify.served.documents import Form, text_page
from views.verify.served.threads import read_at_once

_PAGE = 2_000
_GLOB = str.maketrans({mark: f"\\{mark}" for mark in "*?[]\\"})


def cache_tables(address: Address, form: Form) -> Iterator[pa.Table]:
    """Return the entries under a prefix, ids without it; some may come twice.

    Raises:
        SinkError: the cache does not answer, or an entry is not a string.
    """
    url, prefix = address.location["url"], address.location["prefix"]
    client = redis.Redis.from_url(url, socket_timeout=60, socket_connect_timeout=10)
    try:
        for keys, values in read_at_once([partial(_pages, client, prefix)]):
            yield _table(keys, values, len(prefix.encode()), form)
    except redis.RedisError as error:
        raise SinkError(
            f"the cache at {redacted(url)} cannot be read: {redacted(str(error))}",
            hint="check that it runs and that its address is right",
        ) from error
    finally:
        client.close()


_Entries = tuple[list[bytes], list[bytes]]


def _pages(client: redis.Redis, prefix: str) -> Iterator[_Entries]:
    """Return keys and values, a page at a time."""
    pattern = prefix.translate(_GLOB) + "*"
    cursor, keys = client.scan(0, match=pattern, count=_PAGE)
    while cursor or keys:
        pipeline = client.pipeline(transaction=False)
        if keys:
            pipeline.mget(keys)
        if cursor:
            pipeline.scan(cursor, match=pattern, count=_PAGE)
        answers = pipeline.execute()
        if keys:
            # MGET gives None for a key that is gone or no string: told as a malformed entry.
            values = [b"" if value is None else as_bytes(value) for value in answers[0]]
            yield [as_bytes(key) for key in keys], values
        cursor, keys = answers[-1] if cursor else (0, [])


def _table(keys: list[bytes], values: list[bytes], skip: int, form: Form) -> pa.Table:
    ids = [key[skip:].decode("utf-8", "replace") for key in keys]
    return form.table(text_page(ids, values))


def as_bytes(raw: bytes | str) -> bytes:
    """Return what the client returns as bytes, whatever its settings decode."""
    return raw.encode() if isinstance(raw, str) else raw
