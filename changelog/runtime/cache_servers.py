"""Connections to a cache: one server of Redis or Valkey, or a cluster of them."""

from __future__ import annotations

from typing import Any

import redis
from redis.cluster import RedisCluster

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted

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
