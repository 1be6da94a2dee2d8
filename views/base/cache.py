"""Names of a view's entries in a cache, and connections to one server or to a cluster.

Writers, the verifier and readers all need both, so that they stand here once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import redis
from redis.cluster import RedisCluster

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted

Value = Literal["json", "hash", "string"]
HashTag = Literal["view", "key"]
Connection = redis.Redis | RedisCluster

_CLUSTER = "+cluster://"


class _Cluster(RedisCluster):
    """A cluster whose connections end when it is closed, pooled ones included."""

    def close(self) -> None:
        nodes = [
            *self.nodes_manager.nodes_cache.values(),
            *self.nodes_manager.startup_nodes.values(),
        ]
        super().close()
        for node in nodes:
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect()


def is_cluster(url: str) -> bool:
    """Tell whether an address is that of a cluster."""
    return _CLUSTER in url


def connect(url: str, **settings: Any) -> Connection:  # noqa: ANN401 - redis-py's own
    """Open a connection: to a server, or by `redis+cluster://` to the cluster that it is of.

    Raises ConfigurationError: the address is none of a cache; redis.RedisError: a cluster cannot be
    asked for its servers.
    """
    try:
        if not is_cluster(url):
            return redis.Redis.from_url(url, **settings)
        settings.pop("retry_on_error", None)
        cluster: RedisCluster = _Cluster.from_url(url.replace(_CLUSTER, "://", 1), **settings)
    except ValueError as error:
        raise ConfigurationError(
            f"{redacted(url)} is not the address of a cache: {error}",
            hint="write redis://host:port/number, rediss:// for TLS, "
            "or redis+cluster://host:port for a cluster",
        ) from error
    return cluster


def servers(client: Connection) -> list[redis.Redis]:
    """Return a connection to each server that holds keys of its own."""
    if not isinstance(client, RedisCluster):
        return [client]
    nodes = client.get_primaries()  # type: ignore[no-untyped-call]  # redis-py has no types there
    return [client.get_redis_connection(node) for node in nodes]


def pointer(view: str) -> str:
    """Return the key that holds the number of the published generation."""
    return f"{view}:current"


def register(view: str) -> str:
    """Return the hash of the generations: each one's number of rows, or `open`."""
    return f"{view}:generations"


def form_key(view: str, generation: int | str) -> str:
    """Return the key that holds the form of a generation."""
    return f"{view}:form:{generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheForm:
    """Names and form of one generation's cache entries."""

    prefix: str  # what each entry's key starts with; the row's id follows
    suffix: str = ""  # what it ends with
    ids: str  # the key of the set of the generation's ids
    value: Value = "json"  # what an entry is: a JSON document, a hash of texts, or one text
    key: tuple[tuple[str, str], ...] = ()  # names and types of the view's key columns

    @classmethod
    def of(
        cls,
        view: str,
        generation: int,
        *,
        value: Value = "json",
        hash_tag: HashTag | None = None,
        key: Sequence[tuple[str, str]] = (),
    ) -> CacheForm:
        """Return the form of a generation."""
        name = f"{{{view}}}" if hash_tag == "view" else view
        opening, closing = ("{", "}") if hash_tag == "key" else ("", "")
        return cls(
            prefix=f"{name}:{generation}:{opening}",
            suffix=closing,
            ids=f"{name}:keys:{generation}",
            value=value,
            key=tuple(key),
        )

    def entry(self, id_: str) -> str:
        """Return the key of a row's entry."""
        return f"{self.prefix}{id_}{self.suffix}"

    def text(self) -> str:
        """Return the form as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str | bytes) -> CacheForm:
        """Read what `text` gave."""
        form = json.loads(text)
        return cls(**{**form, "key": tuple((name, kind) for name, kind in form["key"])})
