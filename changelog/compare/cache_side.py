"""Entries of Redis or Valkey as a side of a comparison: JSON documents, or hashes.

The keys come by SCAN, their values a page at a time. SCAN may give a key twice, and no moment of
its own: a key that is written meanwhile is looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from changelog.compare.document_side import (
    Document,
    DocumentSide,
    UnavailableCopyError,
    field_texts,
)
from changelog.compare.needed import needed
from changelog.compare.side import batched
from changelog.connect.rules.records.reading import BadRecordError, parse_json
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted

_PLACE = re.compile(r"((?:rediss?|valkeys?)(?:\+cluster)?://[^/]+(?:/\d+)?)/(.+)", re.DOTALL)
_PAGE = 1_000
_LETTER = re.compile(r"\\.|.", re.DOTALL)
_HINT = "'cache:redis://host:6379/0/orders:*'"
VALUE = "value"
"""The column that has an entry that is neither a JSON object nor a hash."""


def around(pattern: str) -> tuple[str, str]:
    r"""Return the letters before and after the one `*` of a pattern, none if it has more wildcards.

    >>> around(r"\[a\]:*"), around("a?:*")
    (('[a]:', ''), ('', ''))
    """
    letters = _LETTER.findall(pattern)
    if letters.count("*") != 1 or {"?", "["} & {*letters}:
        return "", ""
    star = letters.index("*")
    before, after = (
        "".join(letter[-1] for letter in part) for part in (letters[:star], letters[star + 1 :])
    )
    return before, after


class CacheSide(DocumentSide):
    """The entries whose names match a pattern; the part for its `*` is the column `_id`."""

    comes_twice = True

    def __init__(self, address: str, key: Sequence[str], fields: Sequence[str] = ()) -> None:
        """Read all entries; `fields` may be in none of them.

        Raises ConfigurationError: the address is none, the server does not let us in, or redis is
        not installed; UnavailableCopyError: the server does not answer; SinkError: it refuses, or
        an entry is neither a text nor a hash.
        """
        needed("redis", "cache:")
        from redis.cluster import RedisCluster  # noqa: PLC0415 - an extra

        from changelog.runtime.cache_servers import connect, servers  # noqa: PLC0415 - likewise

        parts = _PLACE.fullmatch(address)
        if parts is None or parts[2].isdecimal():
            raise ConfigurationError(
                f"{redacted(address)} does not name entries of a cache", hint=_HINT
            )
        url, self._pattern = parts[1].replace("valkey", "redis", 1), parts[2]
        self._around = around(self._pattern)
        self._server = redacted(parts[1])
        with self._errors():
            self._client = connect(url, socket_timeout=60, socket_connect_timeout=5)
        try:
            if isinstance(self._client, RedisCluster):
                self._texts_of: Callable[..., Any] = self._client.mget_nonatomic
            else:
                self._check_alone()
                self._texts_of = self._client.mget
            with self._errors():
                self._servers = servers(self._client)
        except BaseException:
            self._client.close()
            raise
        super().__init__(f"cache:{redacted(address)}", key, fields)
        self.load()

    def notes(self) -> tuple[str, ...]:
        """Return a note if there is no entry."""
        if self._batches:
            return ()
        return (f'the cache {self._server} has no entry that matches "{self._pattern}"',)

    def _check_alone(self) -> None:
        """Refuse one server of a cluster, which has a part of the entries."""
        from redis.exceptions import NoPermissionError  # noqa: PLC0415 - an extra

        with self._errors(), suppress(NoPermissionError):
            if self._client.info("cluster").get("cluster_enabled"):
                raise ConfigurationError(
                    f"the cache {self._server} is one server of a cluster",
                    hint="cache:redis+cluster://… reads all of its servers",
                )

    def _read(self) -> Iterator[Document]:
        with self._errors():
            for server in self._servers:
                names = server.scan_iter(match=self._pattern, count=_PAGE)
                for some in batched(names, _PAGE):
                    yield from self._entries(some)

    def _read_again(self, ids: Sequence[str]) -> Iterator[Document]:
        before, after = self._around
        with self._errors():
            for some in batched(ids, _PAGE):
                yield from self._entries([f"{before}{id_}{after}".encode() for id_ in some])

    def _entries(self, names: Sequence[bytes]) -> Iterator[Document]:
        """Yield the entries of some names; one that is gone meanwhile does not come."""
        if not names:
            return
        texts: list[Any] = self._texts_of(names)
        others = [name for name, text in zip(names, texts, strict=True) if text is None]
        pipeline = self._client.pipeline(transaction=False)
        for name in others:
            pipeline.hgetall(name)
        hashes = dict(zip(others, pipeline.execute(raise_on_error=False), strict=True))
        for name, text in zip(names, texts, strict=True):
            fields = self._texts(name, hashes[name] if text is None else text)
            if fields is not None:
                yield Document(self._id(name), fields)

    def _texts(self, name: bytes, entry: Any) -> Mapping[str, str | None] | None:  # noqa: ANN401
        """Return the texts of an entry's fields, or None if there is no entry."""
        place = f'{self.place}, entry "{name.decode(errors="replace")}"'
        if isinstance(entry, Exception):
            raise SinkError(
                f"{place} cannot be read: it is neither a text nor a hash ({entry})",
                hint="choose a pattern that matches only the entries of rows",
            )
        try:
            if isinstance(entry, dict):
                return {key.decode(): text.decode() for key, text in entry.items()} or None
            text = entry.decode()
        except UnicodeDecodeError as error:
            raise SinkError(f"{place} cannot be read: it is not UTF-8") from error
        document = None
        if text.lstrip().startswith("{"):
            with suppress(BadRecordError):  # a text that only begins like JSON
                document = parse_json(entry, "entry")
        try:
            return field_texts(document) if isinstance(document, dict) else {VALUE: text}
        except BadRecordError as error:
            raise SinkError(f"{place} cannot be read: {error}") from error

    def _id(self, name: bytes) -> str:
        before, after = self._around
        try:
            text = name.decode()
        except UnicodeDecodeError as error:
            raise SinkError(f"{self.place}: the name {name!r} of an entry is not UTF-8") from error
        return text[len(before) : len(text) - len(after)]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from redis import exceptions  # noqa: PLC0415 - an extra

        try:
            yield
        except exceptions.AuthenticationError as error:
            raise ConfigurationError(
                f"the cache {self._server} refuses the login", hint="check user and password"
            ) from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise UnavailableCopyError(
                f"the cache {self._server} does not answer: {redacted(str(error))}",
                hint="check that it runs and that its address is right",
            ) from error
        except exceptions.RedisError as error:
            raise SinkError(f"the cache {self._server}: {redacted(str(error))}") from error

    def close(self) -> None:
        """Close the connection and remove the scratch file."""
        self._client.close()
        super().close()
