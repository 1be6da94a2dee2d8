"""The entries of one generation in a cache, by SCAN over their prefix.

SCAN may give a key twice, so what was seen is remembered by the caller's key check: an id that
comes twice is given once here.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from views.base.address import Address

_PAGE = 2_000
_GLOB = str.maketrans({mark: f"\\{mark}" for mark in "*?[]\\"})


def cache_entries(address: Address) -> Iterator[tuple[str, str]]:
    """Return key (without the prefix) and text of each entry.

    Raises:
        SinkError: the cache does not answer, or an entry is not a string.
    """
    url, prefix = address.location["url"], address.location["prefix"]
    client = redis.Redis.from_url(url, socket_timeout=60, socket_connect_timeout=10)
    seen: set[bytes] = set()
    cursor = 0
    try:
        while True:
            cursor, found = client.scan(cursor, match=prefix.translate(_GLOB) + "*", count=_PAGE)
            fresh = [as_bytes(key) for key in dict.fromkeys(found)]
            keys = [key for key in fresh if key not in seen]
            seen.update(keys)
            if keys:
                yield from _entries(client, keys, len(prefix.encode()))
            if cursor == 0:
                return
    except redis.RedisError as error:
        raise SinkError(
            f"the cache at {redacted(url)} cannot be read: {redacted(str(error))}",
            hint="check that it runs and that its address is right",
        ) from error
    finally:
        client.close()


def as_bytes(raw: bytes | str) -> bytes:
    """Return what the client returns as bytes, whatever its settings decode."""
    return raw.encode() if isinstance(raw, str) else raw


def _entries(client: redis.Redis, keys: list[bytes], skip: int) -> Iterator[tuple[str, str]]:
    # MGET gives None for a key that is gone or no string; both are told as a malformed entry.
    for key, value in zip(keys, client.mget(keys), strict=True):
        text = "" if value is None else as_bytes(value).decode("utf-8", "replace")
        yield key[skip:].decode("utf-8", "replace"), text
